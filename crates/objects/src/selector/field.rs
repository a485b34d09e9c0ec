//! Field selectors: `metadata.name=a,spec.size!=large`, with `\` before a comma, an equals sign or a
//! backslash that belongs to a value.

use super::SelectorError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldOperator {
    Equal,
    NotEqual,
}

/// One term: the field at `path` has, or has not, this value. A missing field has the empty value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldRequirement {
    pub path: String,
    pub operator: FieldOperator,
    pub value: String,
}

/// A conjunction of [`FieldRequirement`]s; none match everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let requirements = terms(text)
            .filter(|term| !term.is_empty())
            .map(|term| requirement(term, text))
            .collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }

    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The only name an object can have to match.
    pub fn name(&self) -> Option<&str> {
        self.pinned("metadata.name")
    }

    /// The only namespace an object can be in to match.
    pub fn namespace(&self) -> Option<&str> {
        self.pinned("metadata.namespace")
    }

    fn pinned(&self, path: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|one| one.path == path && one.operator == FieldOperator::Equal)
            .map(|one| one.value.as_str())
    }

    /// `field` gives the text of the field at a path.
    pub fn matches<'v>(&self, field: impl Fn(&str) -> Option<&'v str>) -> bool {
        self.requirements.iter().all(|one| {
            let equal = field(&one.path).unwrap_or_default() == one.value;
            equal == (one.operator == FieldOperator::Equal)
        })
    }
}

/// Splits at commas without a backslash before them.
fn terms(text: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |character| {
        let ends = character == ',' && !escaped;
        escaped = character == '\\' && !escaped;
        ends
    })
}

fn requirement(term: &str, whole: &str) -> Result<FieldRequirement, SelectorError> {
    let broken =
        || SelectorError::new(format!("invalid selector: '{whole}'; can't understand '{term}'"));
    let at = operator(term).ok_or_else(broken)?;
    let (path, rest) = term.split_at(at);
    let (operator, value) = if let Some(value) = rest.strip_prefix("!=") {
        (FieldOperator::NotEqual, value)
    } else {
        let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='));
        (FieldOperator::Equal, value.ok_or_else(broken)?)
    };
    if path.is_empty() {
        return Err(broken());
    }
    Ok(FieldRequirement { path: path.to_owned(), operator, value: unescape(value)? })
}

/// Where the first operator starts.
fn operator(term: &str) -> Option<usize> {
    let mut escaped = false;
    term.char_indices().find_map(|(at, character)| {
        let rest = term.get(at..).unwrap_or_default();
        let found = !escaped && (character == '=' || rest.starts_with("!="));
        escaped = character == '\\' && !escaped;
        found.then_some(at)
    })
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let broken =
        |why: &str| SelectorError::new(format!("invalid field selector: {why} in '{value}'"));
    let mut result = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        let plain = match (character, characters.clone().next()) {
            ('\\', Some(escaped @ ('\\' | ',' | '='))) => {
                characters.next();
                escaped
            }
            ('\\', _) => return Err(broken("invalid escape sequence")),
            (',' | '=', _) => return Err(broken("unescaped comma or equals sign")),
            (other, _) => other,
        };
        result.push(plain);
    }
    Ok(result)
}
