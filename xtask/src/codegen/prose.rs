//! What the published OpenAPI types say about themselves: descriptions for `kubectl explain`, and
//! which members are required, as the schemas inside k8s-openapi list them.
//!
//! It reads the indentation those sources are printed with, and fails loudly when nothing is found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// One type.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Described {
    /// The name of its schema.
    pub(super) name: String,
    pub(super) about: String,
    pub(super) members: BTreeMap<String, String>,
    pub(super) required: BTreeSet<String>,
}

/// All types, by identifier in lower case.
#[derive(Debug, Default)]
pub(super) struct Prose {
    by_type: BTreeMap<String, Described>,
}

const DESCRIPTION: &str = "\"description\": ";
const INSERTED: &str = "schema_obj.ensure_object().insert(\"description\".into(), ";

impl Prose {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut prose = Self::default();
        for file in super::files::below(root)? {
            let Some((before, schema)) = file.text.split_once("json_schema!({\n") else { continue };
            let kind = before
                .rsplit_once("JsonSchema for ")
                .and_then(|(_, rest)| rest.split([' ', '<']).next())
                .with_context(|| format!("no type in {}", file.path.display()))?;
            let id = super::prost::identifier(&file.module, kind).to_ascii_lowercase();
            let mut described =
                parse(schema).with_context(|| format!("in {}", file.path.display()))?;
            described.name = before
                .rsplit_once("\".into()")
                .and_then(|(text, _)| Some(text.rsplit_once('"')?.1.to_owned()))
                .with_context(|| format!("no name in {}", file.path.display()))?;
            prose.by_type.insert(id, described);
        }
        ensure!(!prose.by_type.is_empty(), "no schemas below {}", root.display());
        Ok(prose)
    }

    pub(super) fn of(&self, id: &str) -> Option<&Described> {
        self.by_type.get(&id.to_ascii_lowercase())
    }
}

fn parse(schema: &str) -> Result<Described> {
    let mut found = Described::default();
    let mut member = None;
    let mut in_required = false;
    for line in schema.lines().take_while(|line| *line != "        })") {
        let depth = line.len() - line.trim_start().len();
        let text = line.trim();
        match depth {
            12 => {
                in_required = text.starts_with("\"required\": [");
                if let Some(quoted) = text.strip_prefix(DESCRIPTION) {
                    found.about = unquote(quoted)?;
                }
            }
            16 if in_required => {
                found.required.insert(unquote(text)?);
            }
            16 => member = text.strip_prefix('"').and_then(|text| Some(text.split_once('"')?.0)),
            20 => {
                let quoted = text.strip_prefix(DESCRIPTION).or_else(|| text.strip_prefix(INSERTED));
                if let (Some(member), Some(quoted)) = (member, quoted) {
                    found.members.insert(member.to_owned(), unquote(quoted)?);
                }
            }
            _ => {}
        }
    }
    // Written for every kind, and nobody has to write it.
    found.required.remove("metadata");
    Ok(found)
}

/// The text of a string literal and whatever ends its line.
fn unquote(text: &str) -> Result<String> {
    let end = text.rfind('"').with_context(|| format!("not a string: {text}"))?;
    let literal = text.get(..=end).unwrap_or_default();
    serde_json::from_str(literal).with_context(|| format!("not a string: {literal}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_and_required_members_are_read() {
        let schema = r#"            "description": "A \"pod\".",
            "type": "object",
            "properties": {
                "metadata": ({
                    let mut schema_obj = __gen.subschema_for::<crate::ObjectMeta>();
                    schema_obj.ensure_object().insert("description".into(), "Whose.".into());
                }),
                "port": {
                    "description": "Which.",
                    "items": {
                        "description": "not this",
                },
            },
            "required": [
                "metadata",
                "port",
            ],
        })
            "description": "beyond the end",
"#;
        let found = parse(schema).unwrap();
        assert_eq!(found.about, "A \"pod\".");
        assert_eq!(found.members["metadata"], "Whose.");
        assert_eq!(found.members["port"], "Which.");
        assert_eq!(found.required.into_iter().collect::<Vec<_>>(), ["port"]);
    }
}
