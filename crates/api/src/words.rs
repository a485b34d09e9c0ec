//! Enumerations whose values are words in a document: phases, states, modes.
//!
//! Owns the three ways such a word may be read. `closed`: only we write it, an unknown word is an
//! error and matches are exhaustive. `open`: a peer writes it too, an unknown word is kept as
//! `Other`; the schema still lists the known ones. `loose`: as `open`, and the schema takes any
//! word, because the peer's own definition does.

/// Declares an enumeration of words with its text form, serde and schema.
macro_rules! words {
    ($(#[$meta:meta])* closed $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vmeta])* $variant,)+ }

        impl $name {
            /// Every word of this enumeration, in its order.
            pub const KNOWN: &'static [&'static str] = &[$($text),+];

            pub const fn as_str(&self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(input)?;
                match text.as_ref() {
                    $($text => Ok(Self::$variant),)+
                    other => Err(serde::de::Error::unknown_variant(other, Self::KNOWN)),
                }
            }
        }

        crate::words::words!(@common $name, true);
    };
    ($(#[$meta:meta])* open $name:ident { $($body:tt)+ }) => {
        crate::words::words!(@lenient true, $(#[$meta])* $name { $($body)+ });
    };
    ($(#[$meta:meta])* loose $name:ident { $($body:tt)+ }) => {
        crate::words::words!(@lenient false, $(#[$meta])* $name { $($body)+ });
    };
    (@lenient $listed:literal, $(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vmeta])* $variant,)+
            /// A word this build does not know, kept as it came.
            Other(String),
        }

        impl $name {
            /// Every word this build knows, in its order.
            pub const KNOWN: &'static [&'static str] = &[$($text),+];

            pub fn as_str(&self) -> &str {
                match self { $(Self::$variant => $text,)+ Self::Other(text) => text }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text { $($text => Self::$variant,)+ other => Self::Other(other.to_owned()) }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(input)?;
                Ok(Self::from(text.as_ref()))
            }
        }

        crate::words::words!(@common $name, $listed);
    };
    (@common $name:ident, $listed:literal) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
                output.serialize_str(self.as_str())
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                if $listed {
                    schemars::json_schema!({ "type": "string", "enum": Self::KNOWN })
                } else {
                    schemars::json_schema!({ "type": "string" })
                }
            }
        }
    };
}
pub(crate) use words;
