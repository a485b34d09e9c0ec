//! The functions rules may call: how many arguments they take and what they yield.

use super::expr::{Cost, Native};
use super::shape::Type;

/// One function under one name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function {
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) result: Yields,
    pub(super) how: How,
    /// Receivers the function is defined on.
    pub(super) on: On,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum How {
    Native(Native),
    Library(Cost),
}

/// The type of a result.
#[derive(Debug, Clone, Copy)]
pub(super) enum Yields {
    Dyn,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Strings,
    Ints,
    Duration,
    Timestamp,
    TypeName,
    /// The type of the receiver or of the first argument.
    Same,
    /// The type of the items of the receiver.
    Item,
    OptionalItem,
    /// The first argument, as an optional; the receiver's content; either of both.
    Optional,
    Content,
    Opaque(&'static str),
}

/// The receivers of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    Anything,
    Text,
    List,
    Sized,
    TextOrList,
    Time,
    Optional,
    Opaque(&'static [&'static str]),
}

impl On {
    pub(super) fn accepts(self, found: &Type<'_>) -> bool {
        if found.is_dyn() {
            return true;
        }
        match self {
            Self::Anything => true,
            Self::Text => matches!(found, Type::String),
            Self::List => matches!(found, Type::List(_)),
            Self::Sized => {
                matches!(found, Type::String | Type::Bytes | Type::List(_) | Type::Map(_))
            }
            Self::TextOrList => matches!(found, Type::String | Type::List(_)),
            Self::Time => matches!(found, Type::Timestamp | Type::Duration),
            Self::Optional => matches!(found, Type::Optional(_)),
            Self::Opaque(names) => {
                matches!(found, Type::Opaque(name) if names.contains(name))
            }
        }
    }
}

impl Yields {
    pub(super) fn apply<'a>(self, receiver: Option<&Type<'a>>) -> Type<'a> {
        let same = || receiver.cloned().unwrap_or(Type::Dyn);
        let item = || match receiver {
            Some(Type::List(item)) => (**item).clone(),
            _ => Type::Dyn,
        };
        match self {
            Self::Dyn => Type::Dyn,
            Self::Bool => Type::Bool,
            Self::Int => Type::Int,
            Self::Uint => Type::Uint,
            Self::Double => Type::Double,
            Self::String => Type::String,
            Self::Bytes => Type::Bytes,
            Self::Strings => Type::List(Box::new(Type::String)),
            Self::Ints => Type::List(Box::new(Type::Int)),
            Self::Duration => Type::Duration,
            Self::Timestamp => Type::Timestamp,
            Self::TypeName => Type::Meta,
            Self::Same => same(),
            Self::Item => item(),
            Self::OptionalItem => item().optional(),
            Self::Optional => same().optional(),
            Self::Content => match receiver {
                Some(Type::Optional(inner)) => (**inner).clone(),
                _ => Type::Dyn,
            },
            Self::Opaque(name) => Type::Opaque(name),
        }
    }
}

const fn native(least: usize, most: usize, native: Native, result: Yields, on: On) -> Function {
    Function { least, most, result, how: How::Native(native), on }
}

const fn library(least: usize, most: usize, result: Yields, on: On) -> Function {
    Function { least, most, result, how: How::Library(Cost::Linear), on }
}

const fn costly(least: usize, most: usize, cost: Cost, result: Yields, on: On) -> Function {
    Function { least, most, result, how: How::Library(cost), on }
}

/// A function called without a receiver, by its full name (`size`, `math.abs`).
pub(super) fn global(name: &str) -> Option<Function> {
    use On::Anything as Any;
    use Yields as Y;
    Some(match name {
        "size" => native(1, 1, Native::Size, Y::Int, On::Sized),
        "type" => native(1, 1, Native::TypeOf, Y::TypeName, Any),
        "dyn" => native(1, 1, Native::Same, Y::Dyn, Any),
        "matches" => native(2, 2, Native::Matches, Y::Bool, On::Text),
        "optional.none" => native(0, 0, Native::OptionalNone, Y::Optional, Any),
        "optional.of" => native(1, 1, Native::OptionalOf, Y::Optional, Any),
        "optional.ofNonZeroValue" => native(1, 1, Native::OptionalOfNonZero, Y::Optional, Any),
        "lists.range" => native(1, 1, Native::Range, Y::Ints, Any),
        "string" => native(1, 1, Native::ToText, Y::String, Any),
        "bool" => native(1, 1, Native::ToBool, Y::Bool, Any),
        "int" => library(1, 1, Y::Int, Any),
        "uint" => library(1, 1, Y::Uint, Any),
        "double" => library(1, 1, Y::Double, Any),
        "bytes" => library(1, 1, Y::Bytes, Any),
        "duration" => library(1, 1, Y::Duration, Any),
        "timestamp" => library(1, 1, Y::Timestamp, Any),
        "quantity" => library(1, 1, Y::Opaque("quantity"), On::Text),
        "url" => library(1, 1, Y::Opaque("url"), On::Text),
        "ip" => library(1, 1, Y::Opaque("ip"), On::Text),
        "cidr" => library(1, 1, Y::Opaque("cidr"), On::Text),
        "semver" => library(1, 1, Y::Opaque("semver"), On::Text),
        "isQuantity" | "isURL" | "isIP" | "isCIDR" | "isSemver" | "ip.isCanonical" => {
            library(1, 1, Y::Bool, On::Text)
        }
        "math.ceil" | "math.floor" | "math.round" | "math.trunc" | "math.sqrt" => {
            library(1, 1, Y::Double, Any)
        }
        "math.isInf" | "math.isNaN" | "math.isFinite" => library(1, 1, Y::Bool, Any),
        "math.abs" | "math.sign" | "math.bitNot" => library(1, 1, Y::Dyn, Any),
        "math.bitAnd" | "math.bitOr" | "math.bitXor" | "math.bitShiftLeft"
        | "math.bitShiftRight" => library(2, 2, Y::Dyn, Any),
        "math.greatest" | "math.least" => library(1, 64, Y::Dyn, Any),
        "sets.contains" | "sets.equivalent" | "sets.intersects" => {
            costly(2, 2, Cost::Quadratic, Y::Bool, On::List)
        }
        "base64.encode" => library(1, 1, Y::String, Any),
        "base64.decode" => library(1, 1, Y::Bytes, On::Text),
        "jsonpatch.escapeKey" | "strings.quote" => library(1, 1, Y::String, On::Text),
        "format.named" => library(1, 1, Y::Dyn, On::Text),
        "format.dns1123Label"
        | "format.dns1123Subdomain"
        | "format.dns1035Label"
        | "format.dns1035LabelPrefix"
        | "format.dns1123LabelPrefix"
        | "format.dns1123SubdomainPrefix"
        | "format.qualifiedName"
        | "format.labelValue"
        | "format.uri"
        | "format.uuid"
        | "format.byte"
        | "format.date"
        | "format.datetime" => library(0, 0, Y::Opaque("format"), Any),
        _ => return None,
    })
}

/// A function called on a receiver; the arguments do not count it.
pub(super) fn method(name: &str) -> Option<Function> {
    use Yields as Y;
    text_method(name).or_else(|| list_method(name)).or_else(|| {
        Some(match name {
            "size" => native(0, 0, Native::Size, Y::Int, On::Sized),
            "value" => native(0, 0, Native::OptionalValue, Y::Content, On::Optional),
            "hasValue" => native(0, 0, Native::OptionalHasValue, Y::Bool, On::Optional),
            "or" => native(1, 1, Native::OptionalOr, Y::Same, On::Optional),
            "orValue" => native(1, 1, Native::OptionalOrValue, Y::Content, On::Optional),
            "getFullYear" | "getMonth" | "getDayOfYear" | "getDayOfMonth" | "getDate"
            | "getDayOfWeek" | "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" => {
                library(0, 0, Y::Int, On::Time)
            }
            _ => return opaque_method(name),
        })
    })
}

fn text_method(name: &str) -> Option<Function> {
    use Yields as Y;
    let on = On::Text;
    Some(match name {
        "startsWith" => native(1, 1, Native::StartsWith, Y::Bool, on),
        "endsWith" => native(1, 1, Native::EndsWith, Y::Bool, on),
        "contains" => native(1, 1, Native::Contains, Y::Bool, on),
        "matches" => native(1, 1, Native::Matches, Y::Bool, on),
        "replace" => native(2, 3, Native::Replace, Y::String, on),
        "charAt" => library(1, 1, Y::String, on),
        "lowerAscii" | "upperAscii" | "trim" => library(0, 0, Y::String, on),
        "substring" => library(1, 2, Y::String, on),
        "split" => library(1, 2, Y::Strings, on),
        "find" => costly(1, 1, Cost::Regex, Y::String, on),
        "findAll" => costly(1, 2, Cost::Regex, Y::Strings, on),
        "format" => costly(1, 1, Cost::Format, Y::String, on),
        _ => return None,
    })
}

fn list_method(name: &str) -> Option<Function> {
    use Yields as Y;
    let on = On::List;
    Some(match name {
        "join" => native(0, 1, Native::Join, Y::String, on),
        "isSorted" => library(0, 0, Y::Bool, on),
        "sum" | "min" | "max" => library(0, 0, Y::Item, on),
        "slice" => library(2, 2, Y::Same, on),
        "sort" => library(0, 0, Y::Same, on),
        "flatten" => library(0, 1, Y::Dyn, on),
        "distinct" => costly(0, 0, Cost::Quadratic, Y::Same, on),
        "first" | "last" => library(0, 0, Y::OptionalItem, on),
        "indexOf" | "lastIndexOf" => library(1, 2, Y::Int, On::TextOrList),
        "reverse" => library(0, 0, Y::Same, On::TextOrList),
        _ => return None,
    })
}

fn opaque_method(name: &str) -> Option<Function> {
    use Yields as Y;
    const IP: On = On::Opaque(&["ip"]);
    const CIDR: On = On::Opaque(&["cidr"]);
    const URL: On = On::Opaque(&["url"]);
    const QUANTITY: On = On::Opaque(&["quantity"]);
    const SEMVER: On = On::Opaque(&["semver"]);
    const ORDERED: On = On::Opaque(&["quantity", "semver"]);
    Some(match name {
        "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" => {
            library(0, 0, Y::String, URL)
        }
        "getQuery" => library(0, 0, Y::Dyn, URL),
        "family" => library(0, 0, Y::Int, IP),
        "isLoopback"
        | "isUnspecified"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast" => library(0, 0, Y::Bool, IP),
        "string" => library(0, 0, Y::String, On::Opaque(&["ip", "cidr"])),
        "ip" => library(0, 0, Y::Opaque("ip"), CIDR),
        "containsIP" | "containsCIDR" => library(1, 1, Y::Bool, CIDR),
        "prefixLength" => library(0, 0, Y::Int, CIDR),
        "masked" => library(0, 0, Y::Opaque("cidr"), CIDR),
        "major" | "minor" | "patch" => library(0, 0, Y::Int, SEMVER),
        "isInteger" => library(0, 0, Y::Bool, QUANTITY),
        "asInteger" | "sign" => library(0, 0, Y::Int, QUANTITY),
        "asApproximateFloat" => library(0, 0, Y::Double, QUANTITY),
        "add" | "sub" => library(1, 1, Y::Opaque("quantity"), QUANTITY),
        "isGreaterThan" | "isLessThan" => library(1, 1, Y::Bool, ORDERED),
        "compareTo" => library(1, 1, Y::Int, ORDERED),
        "validate" => library(1, 1, Y::Dyn, On::Opaque(&["format"])),
        _ => return None,
    })
}
