//! The flags of the dialect: their names, kinds and defaults, and what of them was given.

use std::collections::BTreeMap;

use super::value;

/// What a flag takes, with what it has when it is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text(&'static str),
    /// May be given more than once; then the default is gone.
    List(&'static [&'static str]),
    Switch(bool),
    Integer(i64),
    /// Bytes, with an optional suffix. No default: the command says whether it needs one.
    Size(Option<i64>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// What the value stands for in the help; empty for a switch.
    pub(crate) value: &'static str,
    pub(crate) about: &'static str,
    /// One letter that stands for the name; empty if none does.
    pub(crate) short: &'static str,
    pub(crate) is_required: bool,
    /// The part of the help it is in; empty for the first.
    pub(crate) group: &'static str,
}

impl Flag {
    const fn new(name: &'static str, kind: Kind, value: &'static str, about: &'static str) -> Self {
        Self { name, kind, value, about, short: "", is_required: false, group: "" }
    }

    /// The help says that the command does nothing without it.
    pub(crate) const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    pub(crate) const fn short(self, short: &'static str) -> Self {
        Self { short, ..self }
    }

    pub(crate) const fn in_group(self, group: &'static str) -> Self {
        Self { group, ..self }
    }

    /// A switch that is on unless it is switched off.
    pub(crate) const fn switch_on(name: &'static str, about: &'static str) -> Self {
        Self::new(name, Kind::Switch(true), "", about)
    }

    pub(crate) fn answers_to(&self, word: &str) -> bool {
        self.name == word || (!word.is_empty() && self.short == word)
    }

    pub(crate) const fn text(
        name: &'static str,
        default: &'static str,
        value: &'static str,
        about: &'static str,
    ) -> Self {
        Self::new(name, Kind::Text(default), value, about)
    }

    pub(crate) const fn list(
        name: &'static str,
        default: &'static [&'static str],
        value: &'static str,
        about: &'static str,
    ) -> Self {
        Self::new(name, Kind::List(default), value, about)
    }

    pub(crate) const fn switch(name: &'static str, about: &'static str) -> Self {
        Self::new(name, Kind::Switch(false), "", about)
    }

    pub(crate) const fn integer(name: &'static str, default: i64, about: &'static str) -> Self {
        Self::new(name, Kind::Integer(default), "N", about)
    }

    pub(crate) const fn size(
        name: &'static str,
        default: Option<i64>,
        about: &'static str,
    ) -> Self {
        Self::new(name, Kind::Size(default), "SIZE", about)
    }

    pub(crate) fn is_switch(&self) -> bool {
        matches!(self.kind, Kind::Switch(_))
    }

    /// The default as the help shows it; nothing for what is off, empty or needed.
    pub(crate) fn default(&self) -> Option<String> {
        match self.kind {
            Kind::Text("") | Kind::List([]) | Kind::Switch(false) | Kind::Size(None) => None,
            Kind::Text(text) => Some(text.to_owned()),
            Kind::List(texts) => Some(texts.join(",")),
            Kind::Switch(true) => Some("true".to_owned()),
            Kind::Integer(number) | Kind::Size(Some(number)) => Some(number.to_string()),
        }
    }

    /// Why `text` cannot be the value of this flag.
    fn refuse(&self, text: &str) -> Option<String> {
        let name = self.name;
        match self.kind {
            Kind::Text(_) | Kind::List(_) => None,
            Kind::Switch(_) if value::boolean(text).is_none() => {
                Some(format!("invalid boolean value {text:?} for -{name}: parse error"))
            }
            Kind::Integer(_) if value::integer(text).is_none() => {
                Some(format!("invalid value {text:?} for flag -{name}: parse error"))
            }
            Kind::Size(_) if value::size(text).is_none() => {
                Some(format!("invalid value {text:?} for flag -{name}: invalid size"))
            }
            Kind::Switch(_) | Kind::Integer(_) | Kind::Size(_) => None,
        }
    }
}

/// What was given, each value known to be one of its flag's kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Given(BTreeMap<&'static str, Vec<String>>);

impl Given {
    /// Takes one value; of a flag given twice the last one counts.
    pub(crate) fn add(&mut self, flag: &Flag, text: String) -> Result<(), String> {
        if let Some(why) = flag.refuse(&text) {
            return Err(why);
        }
        let values = self.0.entry(flag.name).or_default();
        if !matches!(flag.kind, Kind::List(_)) {
            values.clear();
        }
        values.push(text);
        Ok(())
    }

    fn last(&self, flag: &Flag) -> Option<&str> {
        self.0.get(flag.name)?.last().map(String::as_str)
    }

    pub(crate) fn text(&self, flag: &Flag) -> String {
        match (self.last(flag), flag.kind) {
            (Some(text), _) | (None, Kind::Text(text)) => text.to_owned(),
            (None, Kind::List(_) | Kind::Switch(_) | Kind::Integer(_) | Kind::Size(_)) => {
                String::new()
            }
        }
    }

    pub(crate) fn list(&self, flag: &Flag) -> Vec<String> {
        match (self.0.get(flag.name), flag.kind) {
            (Some(texts), _) => texts.clone(),
            (None, Kind::List(texts)) => texts.iter().map(|text| (*text).to_owned()).collect(),
            (None, Kind::Text(_) | Kind::Switch(_) | Kind::Integer(_) | Kind::Size(_)) => {
                Vec::new()
            }
        }
    }

    pub(crate) fn switch(&self, flag: &Flag) -> bool {
        match (self.last(flag).and_then(value::boolean), flag.kind) {
            (Some(on), _) | (None, Kind::Switch(on)) => on,
            (None, Kind::Text(_) | Kind::List(_) | Kind::Integer(_) | Kind::Size(_)) => false,
        }
    }

    pub(crate) fn integer(&self, flag: &Flag) -> i64 {
        match (self.last(flag).and_then(value::integer), flag.kind) {
            (Some(number), _) | (None, Kind::Integer(number)) => number,
            (None, Kind::Text(_) | Kind::List(_) | Kind::Switch(_) | Kind::Size(_)) => 0,
        }
    }

    pub(crate) fn size(&self, flag: &Flag) -> Option<i64> {
        match (self.last(flag).and_then(value::size), flag.kind) {
            (Some(bytes), _) => Some(bytes),
            (None, Kind::Size(default)) => default,
            (None, Kind::Text(_) | Kind::List(_) | Kind::Switch(_) | Kind::Integer(_)) => None,
        }
    }
}
