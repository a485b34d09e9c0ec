//! Bodies checked against what the dialect allows, with its words for what is wrong.

use serde_json::{Map, Value};

use super::fault::Fault;
use super::request::{Request, truth};
use crate::store::Metadata;

pub(crate) const TEXT_CHARS: usize = 255;
/// Pairs of metadata that one volume, snapshot or backup may have.
const PAIRS: usize = 128;
pub(crate) const SIZE_MAX: i64 = 2_147_483_647;

/// A value as the dialect's messages print it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        other => other.to_string(),
    }
}

pub(crate) fn invalid(key: &str, value: &Value, reason: &str) -> Fault {
    let mut text = shown(value);
    if text.chars().count() > 300 {
        text = text.chars().take(300).collect();
    }
    Fault::bad(format!("Invalid input for field/attribute {key}. Value: {text}. {reason}"))
}

/// The object under the one key of a body.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    name: &'a str,
    fields: Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// `{"<name>": {…}}`, other keys of the body being among `beside`.
    pub(crate) fn of(request: &Request, name: &'a str, beside: &[&str]) -> Result<Self, Fault> {
        let mut body = request.json()?;
        let value = body.remove(name);
        let value = value.ok_or_else(|| Fault::bad(format!("'{name}' is a required property")))?;
        if let Some(extra) = body.keys().find(|key| !beside.contains(&key.as_str())) {
            return Err(Fault::bad(format!(
                "Additional properties are not allowed ('{extra}' was unexpected)"
            )));
        }
        Self::from(name, value)
    }

    pub(crate) fn from(name: &'a str, value: Value) -> Result<Self, Fault> {
        match value {
            Value::Object(fields) => Ok(Self { name, fields }),
            other => Err(invalid(name, &other, "It is not of type 'object'")),
        }
    }

    /// Refuses what is not among these.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Fault> {
        match self.fields.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let reason =
                    format!("Additional properties are not allowed ('{key}' was unexpected)");
                Err(invalid(self.name, &Value::Object(self.fields.clone()), &reason))
            }
        }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.fields.contains_key(key)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.fields.get(key)
    }

    pub(crate) fn required(&self, key: &str) -> Result<&Value, Fault> {
        self.get(key).ok_or_else(|| {
            let value = Value::Object(self.fields.clone());
            invalid(self.name, &value, &format!("'{key}' is a required property"))
        })
    }

    /// Text or null, stripped.
    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, Fault> {
        match self.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => {
                if text.chars().count() > TEXT_CHARS {
                    let reason = format!("'{key}' is too long");
                    return Err(invalid(key, &Value::String(text.clone()), &reason));
                }
                if text.contains('\0') {
                    return Err(invalid(key, &Value::Null, "It must not contain null characters"));
                }
                Ok(Some(text.trim().to_owned()))
            }
            Some(other) => Err(invalid(key, other, "It is not of type 'string', 'null'")),
        }
    }

    /// The first of these keys that is there: names have an older spelling.
    pub(crate) fn text_of(&self, keys: [&str; 2]) -> Result<Option<String>, Fault> {
        let (first, second) = (self.text(keys[0])?, self.text(keys[1])?);
        Ok(first.or(second))
    }

    pub(crate) fn truth(&self, key: &str) -> Result<Option<bool>, Fault> {
        match self.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(value) => {
                let known = match value {
                    Value::String(text) => truth(text),
                    Value::Number(number) => match number.as_i64() {
                        Some(0) => Some(false),
                        Some(1) => Some(true),
                        _ => None,
                    },
                    _ => None,
                };
                let reason = format!("{} is not a boolean", shown(value));
                known.map(Some).ok_or_else(|| invalid(key, value, &reason))
            }
        }
    }

    /// A whole number or digits.
    pub(crate) fn number(&self, key: &str, least: i64) -> Result<Option<i64>, Fault> {
        let value = match self.get(key) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value,
        };
        let number = match value {
            Value::Number(number) => number.as_i64(),
            Value::String(text)
                if !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit()) =>
            {
                text.parse().ok()
            }
            Value::String(text) => {
                return Err(invalid(key, value, &format!("'{text}' does not match '^[0-9]+$'")));
            }
            other => return Err(invalid(key, other, "It is not of type 'integer', 'string'")),
        };
        match number {
            Some(number) if number < least => {
                let reason = format!("{number} is less than the minimum of {least}");
                Err(invalid(key, value, &reason))
            }
            Some(number) if number <= SIZE_MAX => Ok(Some(number)),
            _ => {
                let reason = format!("{} is greater than the maximum of {SIZE_MAX}", shown(value));
                Err(invalid(key, value, &reason))
            }
        }
    }

    /// An id, or null.
    pub(crate) fn uuid(&self, key: &str) -> Result<Option<String>, Fault> {
        match self.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => match uuid::Uuid::parse_str(text) {
                Ok(id) => Ok(Some(id.to_string())),
                Err(_) => Err(invalid(
                    key,
                    &Value::String(text.clone()),
                    &format!("'{text}' is not a 'uuid'"),
                )),
            },
            Some(other) => Err(invalid(key, other, "It is not of type 'string', 'null'")),
        }
    }

    pub(crate) fn metadata(&self, key: &str) -> Result<Option<Metadata>, Fault> {
        match self.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => metadata(key, value).map(Some),
        }
    }

    pub(crate) fn into_map(self) -> Map<String, Value> {
        self.fields
    }
}

/// An object of short keys and short values.
pub(crate) fn metadata(name: &str, value: &Value) -> Result<Metadata, Fault> {
    let Value::Object(fields) = value else {
        return Err(invalid(name, value, "It is not of type 'object'"));
    };
    let pairs = fields
        .iter()
        .map(|(key, value)| Ok((metadata_key(name, key)?, metadata_value(key, value)?)))
        .collect::<Result<Metadata, Fault>>()?;
    few_pairs(&pairs)?;
    Ok(pairs)
}

/// Refuses more than may be kept.
pub(crate) fn few_pairs(pairs: &Metadata) -> Result<(), Fault> {
    if pairs.len() <= PAIRS {
        return Ok(());
    }
    let said = format!("MetadataLimitExceeded: Maximum number of metadata items exceeds {PAIRS}");
    Err(Fault { retry_after: Some("0"), ..Fault::new(413, said) })
}

fn metadata_key(name: &str, key: &str) -> Result<String, Fault> {
    let length = key.chars().count();
    let fine = |it: char| it.is_ascii_alphanumeric() || "-_:. /".contains(it);
    if (1..=TEXT_CHARS).contains(&length) && key.chars().all(fine) {
        return Ok(key.to_owned());
    }
    let reason = "Its keys must be 1 to 255 letters, digits and -_:. /";
    Err(invalid(name, &Value::String(key.to_owned()), reason))
}

fn metadata_value(key: &str, value: &Value) -> Result<String, Fault> {
    match value {
        Value::String(text) if text.contains('\0') => {
            Err(invalid(key, &Value::Null, "It must not contain null characters"))
        }
        Value::String(text) if text.chars().count() <= TEXT_CHARS => Ok(text.clone()),
        Value::String(_) => Err(invalid(key, value, "It is too long")),
        other => Err(invalid(key, other, "It is not of type 'string'")),
    }
}
