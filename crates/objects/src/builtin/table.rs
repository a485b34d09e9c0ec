//! `types.txt` in memory. The file explains its own format in its first lines.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde_json::Value;

use crate::node::{ListType, PatchStrategy};

const TEXT: &str = include_str!("types.txt");

/// Position of a message in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct MessageId(usize);

/// All built-in messages and the kinds among them.
#[derive(Debug, Default)]
pub(crate) struct Table {
    messages: Vec<Message>,
    by_name: HashMap<&'static str, MessageId>,
    kinds: Vec<(&'static str, &'static str, MessageId)>,
    by_kind: HashMap<(&'static str, &'static str), MessageId>,
}

#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) name: &'static str,
    /// The object is one value for apply.
    pub(crate) atomic: bool,
    /// In ascending order of their numbers.
    pub(crate) fields: Vec<Field>,
}

impl Message {
    pub(crate) fn field(&self, number: u32) -> Option<&Field> {
        let at = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        self.fields.get(at)
    }
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    /// `None`: JSON shows the members of the message in place of the field.
    pub(crate) member: Option<&'static str>,
    pub(crate) shape: Shape,
    pub(crate) of: Type,
    /// A written zero, false or empty string is a value, not the absence of one.
    pub(crate) explicit: bool,
    pub(crate) atomic: bool,
    /// Clients must write it, says the published schema; nothing here checks it.
    pub(crate) required: bool,
    pub(crate) list: ListType,
    pub(crate) patch: PatchStrategy,
    pub(crate) default: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    One,
    List,
    Map,
}

/// The type of one value; messages whose JSON form is not an object of their fields have an own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    String,
    Bytes,
    Int32,
    Int64,
    Bool,
    Double,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON text inside a message (`FieldsV1`, `RawExtension`, `JSON`).
    Json,
    /// A message around one list of strings.
    Strings,
    SchemaOrBool,
    SchemaOrArray,
    SchemaOrStrings,
    Message(MessageId),
}

impl Table {
    /// The table of this build.
    pub(crate) fn get() -> &'static Self {
        static TABLE: OnceLock<Table> = OnceLock::new();
        TABLE
            .get_or_init(|| Self::parse(TEXT).expect("types.txt is generated and parsed by a test"))
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "identifiers are only made from places in this list"
    )]
    pub(crate) fn message(&self, id: MessageId) -> &Message {
        &self.messages[id.0]
    }

    pub(crate) fn named(&self, name: &str) -> Option<MessageId> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn kind(&self, api_version: &str, kind: &str) -> Option<MessageId> {
        self.by_kind.get(&(api_version, kind)).copied()
    }

    pub(crate) fn kinds(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, MessageId)> + use<'_> {
        self.kinds.iter().copied()
    }

    fn parse(text: &'static str) -> Result<Self, String> {
        let mut table = Self::default();
        let names = text.lines().filter_map(|line| line.strip_prefix("message "));
        for (place, name) in names.enumerate() {
            table.by_name.insert(first_word(name), MessageId(place));
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            table.line(line).ok_or_else(|| line.to_owned())?;
        }
        Ok(table)
    }

    fn line(&mut self, line: &'static str) -> Option<()> {
        let mut words = line.split(' ');
        match words.next()? {
            "kind" => {
                let (api_version, kind) = (words.next()?, words.next()?);
                let id = self.named(words.next()?)?;
                self.kinds.push((api_version, kind, id));
                self.by_kind.insert((api_version, kind), id);
            }
            "message" => {
                let name = words.next()?;
                let atomic = words.next() == Some("atomic");
                self.messages.push(Message { name, atomic, fields: Vec::new() });
            }
            number => {
                let mut field = self.field(number, words.next()?, words.next()?)?;
                words.try_for_each(|flag| set_flag(&mut field, flag))?;
                self.messages.last_mut()?.fields.push(field);
            }
        }
        Some(())
    }

    fn field(&self, number: &str, member: &'static str, of: &str) -> Option<Field> {
        let (shape, of) = if let Some(of) = of.strip_prefix("[]") {
            (Shape::List, of)
        } else if let Some(of) = of.strip_prefix("{}") {
            (Shape::Map, of)
        } else {
            (Shape::One, of)
        };
        Some(Field {
            number: number.parse().ok()?,
            member: (member != "-").then_some(member),
            shape,
            of: self.value_type(of)?,
            explicit: false,
            atomic: false,
            required: false,
            list: ListType::Atomic,
            patch: PatchStrategy::Replace,
            default: None,
        })
    }

    fn value_type(&self, name: &str) -> Option<Type> {
        Some(match name {
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "bool" => Type::Bool,
            "double" => Type::Double,
            "time" => Type::Time,
            "micro-time" => Type::MicroTime,
            "quantity" => Type::Quantity,
            "int-or-string" => Type::IntOrString,
            "json" => Type::Json,
            "strings" => Type::Strings,
            "schema-or-bool" => Type::SchemaOrBool,
            "schema-or-array" => Type::SchemaOrArray,
            "schema-or-strings" => Type::SchemaOrStrings,
            message => Type::Message(self.named(message)?),
        })
    }
}

fn first_word(text: &'static str) -> &'static str {
    text.split(' ').next().unwrap_or_default()
}

fn set_flag(field: &mut Field, flag: &str) -> Option<()> {
    let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
    match (name, value) {
        ("explicit", _) => field.explicit = true,
        ("atomic", _) => field.atomic = true,
        ("required", _) => field.required = true,
        ("list", "set") => field.list = ListType::Set,
        ("list", keys) => {
            let keys = keys.strip_prefix("map:")?.split(',').map(str::to_owned).collect();
            field.list = ListType::Map { keys };
        }
        ("patch", "merge") => field.patch = PatchStrategy::MergePrimitive,
        ("patch", "retain") => field.patch = PatchStrategy::RetainKeys,
        ("patch", merge) => {
            let (how, key) = merge.split_once(':')?;
            let retain_keys = how == "merge-retain";
            field.patch = PatchStrategy::MergeByKey { key: key.to_owned(), retain_keys };
        }
        ("default", value) => field.default = Some(serde_json::from_str(value).ok()?),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_parses_to_the_last_line() {
        let table = Table::parse(TEXT).unwrap();
        assert_eq!(table.messages.len(), table.by_name.len());
        assert_eq!(table.kinds.len(), table.by_kind.len());
        for message in &table.messages {
            assert!(message.fields.is_sorted_by_key(|field| field.number), "{}", message.name);
        }
    }
}
