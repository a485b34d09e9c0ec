//! The flags of the dialect: their names, kinds and defaults, and what of them was given.
//!
//! Never: what a value means. Of a value it is only known here that it is one of its flag's kind.

use std::collections::BTreeMap;

use crate::server::config::Span;

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// Several, parted by commas or given again.
    Texts,
    /// Several, given again; a comma is a letter like others.
    TextArray,
    Switch,
    Integer,
    /// An integer that is not negative.
    Count,
    /// A number of a TCP port; 0 lets the system choose.
    Port,
    Duration,
}

impl Kind {
    /// What stands for the value in the help.
    fn value(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Texts => "strings",
            Self::TextArray => "stringArray",
            Self::Switch => "",
            Self::Integer => "int",
            Self::Count | Self::Port => "uint",
            Self::Duration => "duration",
        }
    }
}

/// One flag. The default is written as it would be typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) short: Option<char>,
    pub(crate) kind: Kind,
    pub(crate) default: &'static str,
    pub(crate) about: &'static str,
    /// It must be given, or this variable set, for every store but a local one.
    variable: Option<&'static str>,
}

impl Flag {
    pub(crate) const fn new(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        about: &'static str,
    ) -> Self {
        Self { name, short: None, kind, default, about, variable: None }
    }

    pub(crate) const fn required_unless_local(self, variable: &'static str) -> Self {
        Self { variable: Some(variable), ..self }
    }

    pub(crate) const fn short(self, letter: char) -> Self {
        Self { short: Some(letter), ..self }
    }
}

/// A flag under the name it has in one command: some come again with a word in front.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named {
    pub(crate) prefix: &'static str,
    pub(crate) flag: &'static Flag,
}

impl Named {
    pub(crate) fn name(&self) -> String {
        format!("{}{}", self.prefix, self.flag.name)
    }

    /// A letter stands for the plain name only.
    pub(crate) fn short(&self) -> Option<char> {
        self.flag.short.filter(|_| self.prefix.is_empty())
    }

    pub(crate) fn value(&self) -> &'static str {
        self.flag.kind.value()
    }

    /// What the help says of a flag that must be given.
    pub(crate) fn requirement(&self) -> Option<String> {
        let prefix = self.prefix.to_ascii_uppercase().replace('-', "_");
        let variable = self.flag.variable?;
        Some(format!("required unless Local, or set {prefix}{variable}"))
    }

    /// The default as the help shows it; nothing for what is off, empty or zero.
    pub(crate) fn shown_default(&self) -> Option<String> {
        let default = self.flag.default;
        match self.flag.kind {
            Kind::Switch => (default == "true").then(|| default.to_owned()),
            Kind::Integer | Kind::Count | Kind::Port => {
                (default != "0").then(|| default.to_owned())
            }
            Kind::Duration => {
                let span = Span::parse(default).unwrap_or_default();
                (span != Span::default()).then(|| span.to_string())
            }
            Kind::Text if default.is_empty() => None,
            Kind::Text => Some(format!("\"{default}\"")),
            Kind::Texts | Kind::TextArray if default.is_empty() => None,
            Kind::Texts | Kind::TextArray => Some(format!("[{default}]")),
        }
    }

    /// Why `text` cannot be the value of this flag.
    fn refuse(&self, text: &str) -> Option<&'static str> {
        let fits = match self.flag.kind {
            Kind::Text | Kind::Texts | Kind::TextArray => true,
            Kind::Switch => boolean(text).is_some(),
            Kind::Integer => text.parse::<i64>().is_ok(),
            Kind::Count => text.parse::<u64>().is_ok(),
            Kind::Port => text.parse::<u16>().is_ok(),
            Kind::Duration => Span::parse(text).is_some(),
        };
        (!fits).then_some(match self.flag.kind {
            Kind::Switch => "write true or false",
            Kind::Port => "write the number of a port, at most 65535",
            Kind::Duration => "write a duration as in 1h30m or 20s",
            Kind::Text | Kind::Texts | Kind::TextArray | Kind::Integer | Kind::Count => {
                "write a whole number"
            }
        })
    }
}

/// The values of the flags of one command: the defaults, and over them what was given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Given {
    values: BTreeMap<String, Vec<String>>,
    /// Names that were typed.
    typed: Vec<String>,
}

impl Given {
    /// All defaults.
    pub(crate) fn defaults(flags: impl Iterator<Item = Named>) -> Self {
        let values = flags.map(|flag| (flag.name(), split(flag.flag.kind, flag.flag.default)));
        Self { values: values.collect(), typed: Vec::new() }
    }

    /// Takes one value. Of a flag given twice the last one counts, unless it holds several.
    pub(crate) fn add(&mut self, flag: &Named, text: &str) -> Result<(), &'static str> {
        if let Some(why) = flag.refuse(text) {
            return Err(why);
        }
        let name = flag.name();
        let values = self.values.entry(name.clone()).or_default();
        let is_first = !self.typed.contains(&name);
        match flag.flag.kind {
            Kind::Texts | Kind::TextArray if !is_first => {}
            Kind::Texts
            | Kind::TextArray
            | Kind::Text
            | Kind::Switch
            | Kind::Integer
            | Kind::Count
            | Kind::Port
            | Kind::Duration => values.clear(),
        }
        values.extend(split(flag.flag.kind, text));
        self.typed.push(name);
        Ok(())
    }

    pub(crate) fn is_typed(&self, name: &str) -> bool {
        self.typed.iter().any(|typed| typed == name)
    }

    fn last(&self, name: &str) -> &str {
        self.values.get(name).and_then(|values| values.last()).map_or("", String::as_str)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.last(name).to_owned()
    }

    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        self.values.get(name).cloned().unwrap_or_default()
    }

    pub(crate) fn switch(&self, name: &str) -> bool {
        boolean(self.last(name)).unwrap_or_default()
    }

    pub(crate) fn integer(&self, name: &str) -> i64 {
        self.last(name).parse().unwrap_or_default()
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        self.last(name).parse().unwrap_or_default()
    }

    pub(crate) fn span(&self, name: &str) -> Span {
        Span::parse(self.last(name)).unwrap_or_default()
    }
}

fn split(kind: Kind, text: &str) -> Vec<String> {
    match kind {
        Kind::Texts if text.is_empty() => Vec::new(),
        Kind::Texts => text.split(',').map(str::to_owned).collect(),
        Kind::TextArray if text.is_empty() => Vec::new(),
        Kind::TextArray
        | Kind::Text
        | Kind::Switch
        | Kind::Integer
        | Kind::Count
        | Kind::Port
        | Kind::Duration => vec![text.to_owned()],
    }
}

/// The words for yes and no that scripts use.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: Flag = Flag::new("list", Kind::Texts, "a", "");
    const ARRAY: Flag = Flag::new("array", Kind::TextArray, "a,b", "");
    const WAIT: Flag = Flag::new("wait", Kind::Duration, "90s", "");
    const ON: Flag = Flag::new("on", Kind::Switch, "true", "");

    fn named(flag: &'static Flag) -> Named {
        Named { prefix: "source-", flag }
    }

    #[test]
    fn several_values_replace_the_default_and_add_up() {
        let mut given = Given::defaults([named(&LIST), named(&ARRAY)].into_iter());
        assert_eq!(given.texts("source-list"), ["a"]);
        given.add(&named(&LIST), "b,c").unwrap();
        given.add(&named(&LIST), "d").unwrap();
        assert_eq!(given.texts("source-list"), ["b", "c", "d"]);
        assert_eq!(given.texts("source-array"), ["a,b"], "a comma parts nothing here");
        given.add(&named(&ARRAY), "c,d").unwrap();
        assert_eq!(given.texts("source-array"), ["c,d"]);
    }

    #[test]
    fn values_are_of_their_kind() {
        let mut given = Given::default();
        assert!(given.add(&named(&WAIT), "soon").is_err());
        assert!(given.add(&named(&ON), "maybe").is_err());
        given.add(&named(&ON), "false").unwrap();
        assert!(!given.switch("source-on"));
        assert_eq!(named(&WAIT).shown_default().as_deref(), Some("1m30s"));
        assert_eq!(named(&LIST).shown_default().as_deref(), Some("[a]"));
    }
}
