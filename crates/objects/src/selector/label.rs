//! Label selectors as text (`app=a,tier in (x,y),!old`) and as objects (`matchLabels`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::SelectorError;
use crate::names;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelOperator {
    /// The label has one of these values.
    In(BTreeSet<String>),
    /// The label is absent or has none of these values.
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
    /// The label is an integer above this one.
    GreaterThan(i64),
    /// The label is an integer below this one.
    LessThan(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelRequirement {
    pub key: String,
    pub operator: LabelOperator,
}

/// A conjunction of [`LabelRequirement`]s; none match everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
    /// An absent selector object selects nothing, an empty one everything.
    nothing: bool,
}

impl LabelSelector {
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser { tokens: tokens(text), at: 0 };
        let mut requirements = Vec::new();
        if *parser.peek() == Token::End {
            return Ok(Self::default());
        }
        loop {
            requirements.push(parser.requirement()?);
            match parser.next() {
                Token::End => return Ok(Self { requirements, nothing: false }),
                Token::Comma => {}
                other => return Err(unexpected(&other, "',' or the end")),
            }
        }
    }

    /// Reads `{matchLabels, matchExpressions}`. Null selects nothing.
    pub fn from_value(value: &Value) -> Result<Self, SelectorError> {
        let members = match value {
            Value::Null => return Ok(Self { requirements: Vec::new(), nothing: true }),
            Value::Object(members) => members,
            _ => return Err(SelectorError::new("a label selector must be an object")),
        };
        let mut requirements = Vec::new();
        match members.get("matchLabels") {
            None | Some(Value::Null) => {}
            Some(Value::Object(labels)) => {
                for (key, value) in labels {
                    let value = value.as_str().ok_or_else(|| {
                        SelectorError::new("values of matchLabels must be strings")
                    })?;
                    let values = BTreeSet::from([value.to_owned()]);
                    requirements.push(requirement(key, LabelOperator::In(values))?);
                }
            }
            Some(_) => return Err(SelectorError::new("matchLabels must be an object")),
        }
        match members.get("matchExpressions") {
            None | Some(Value::Null) => {}
            Some(Value::Array(expressions)) => {
                for one in expressions {
                    requirements.push(expression(one)?);
                }
            }
            Some(_) => return Err(SelectorError::new("matchExpressions must be a list")),
        }
        Ok(Self { requirements, nothing: false })
    }

    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }

    /// Whether every object matches.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// `labels` gives the value of a label.
    pub fn matches<'v>(&self, labels: impl Fn(&str) -> Option<&'v str>) -> bool {
        !self.nothing && self.requirements.iter().all(|one| one.operator.accepts(labels(&one.key)))
    }
}

impl LabelOperator {
    fn accepts(&self, label: Option<&str>) -> bool {
        let number = || label.and_then(|label| label.parse::<i64>().ok());
        match self {
            Self::In(values) => label.is_some_and(|label| values.contains(label)),
            Self::NotIn(values) => !label.is_some_and(|label| values.contains(label)),
            Self::Exists => label.is_some(),
            Self::DoesNotExist => label.is_none(),
            Self::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Self::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// The one place that makes requirements, so that none has an invalid key or value.
fn requirement(key: &str, operator: LabelOperator) -> Result<LabelRequirement, SelectorError> {
    names::qualified_name(key)
        .map_err(|why| SelectorError::new(format!("label key {key:?} is invalid: {why}")))?;
    if let LabelOperator::In(values) | LabelOperator::NotIn(values) = &operator {
        for value in values {
            names::label_value(value).map_err(|why| {
                SelectorError::new(format!("label value {value:?} is invalid: {why}"))
            })?;
        }
    }
    Ok(LabelRequirement { key: key.to_owned(), operator })
}

fn expression(value: &Value) -> Result<LabelRequirement, SelectorError> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let key = text("key").ok_or_else(|| SelectorError::new("matchExpressions need a key"))?;
    let values: Option<BTreeSet<String>> = match value.get("values") {
        None | Some(Value::Null) => Some(BTreeSet::new()),
        Some(Value::Array(values)) => {
            values.iter().map(|value| value.as_str().map(str::to_owned)).collect()
        }
        Some(_) => None,
    };
    let values = values.ok_or_else(|| SelectorError::new("values must be a list of strings"))?;
    let operator = match (text("operator").unwrap_or_default(), values.is_empty()) {
        ("In", false) => LabelOperator::In(values),
        ("NotIn", false) => LabelOperator::NotIn(values),
        ("Exists", true) => LabelOperator::Exists,
        ("DoesNotExist", true) => LabelOperator::DoesNotExist,
        ("In" | "NotIn", true) => {
            return Err(SelectorError::new("values must be given for operators In and NotIn"));
        }
        ("Exists" | "DoesNotExist", false) => {
            let text = "values must be empty for operators Exists and DoesNotExist";
            return Err(SelectorError::new(text));
        }
        (other, _) => {
            return Err(SelectorError::new(format!(
                "{other:?} is not a valid label selector operator"
            )));
        }
    };
    requirement(key, operator)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token<'t> {
    Word(&'t str),
    Comma,
    Open,
    Close,
    Not,
    Equal,
    NotEqual,
    Greater,
    Less,
    End,
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let is_special = |character: char| "=!(),<>".contains(character) || character.is_whitespace();
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        const SYMBOLS: [(&str, Token<'static>); 9] = [
            ("==", Token::Equal),
            ("!=", Token::NotEqual),
            ("=", Token::Equal),
            ("!", Token::Not),
            ("(", Token::Open),
            (")", Token::Close),
            (",", Token::Comma),
            (">", Token::Greater),
            ("<", Token::Less),
        ];
        let symbol =
            SYMBOLS.iter().find_map(|(symbol, token)| Some((token, rest.strip_prefix(symbol)?)));
        let after = if let Some((token, after)) = symbol {
            tokens.push(token.clone());
            after
        } else {
            let (word, after) = rest.split_at(rest.find(is_special).unwrap_or(rest.len()));
            tokens.push(Token::Word(word));
            after
        };
        rest = after.trim_start();
    }
    tokens
}

struct Parser<'t> {
    tokens: Vec<Token<'t>>,
    at: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> &Token<'t> {
        self.tokens.get(self.at).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token<'t> {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<LabelRequirement, SelectorError> {
        let absent = *self.peek() == Token::Not;
        if absent {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(unexpected(&other, "a label key")),
        };
        if absent {
            return requirement(key, LabelOperator::DoesNotExist);
        }
        if matches!(self.peek(), Token::Comma | Token::End) {
            return requirement(key, LabelOperator::Exists);
        }
        let operator = match self.next() {
            Token::Equal => LabelOperator::In(BTreeSet::from([self.value()?])),
            Token::NotEqual => LabelOperator::NotIn(BTreeSet::from([self.value()?])),
            Token::Greater => LabelOperator::GreaterThan(self.number()?),
            Token::Less => LabelOperator::LessThan(self.number()?),
            Token::Word("in") => LabelOperator::In(self.values()?),
            Token::Word("notin") => LabelOperator::NotIn(self.values()?),
            other => return Err(unexpected(&other, "one of =, ==, !=, in, notin, >, <")),
        };
        requirement(key, operator)
    }

    /// A value may be empty: `key=` asks for the empty label.
    fn value(&mut self) -> Result<String, SelectorError> {
        match self.peek() {
            Token::Comma | Token::End => Ok(String::new()),
            _ => match self.next() {
                Token::Word(value) => Ok(value.to_owned()),
                other => Err(unexpected(&other, "a label value")),
            },
        }
    }

    fn number(&mut self) -> Result<i64, SelectorError> {
        let value = self.value()?;
        value.parse().map_err(|_| {
            SelectorError::new(format!("{value:?} is not an integer, as operators > and < need"))
        })
    }

    /// `(a, b)`; between commas a value may be missing, which is the empty one.
    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        match self.next() {
            Token::Open => {}
            other => return Err(unexpected(&other, "'('")),
        }
        let mut values = BTreeSet::new();
        loop {
            let value = match *self.peek() {
                Token::Word(value) => {
                    self.next();
                    value
                }
                _ => "",
            };
            values.insert(value.to_owned());
            match self.next() {
                Token::Comma => {}
                Token::Close => return Ok(values),
                other => return Err(unexpected(&other, "',' or ')'")),
            }
        }
    }
}

fn unexpected(found: &Token<'_>, expected: &str) -> SelectorError {
    let found = match found {
        Token::Word(word) => format!("{word:?}"),
        Token::Comma => "','".to_owned(),
        Token::Open => "'('".to_owned(),
        Token::Close => "')'".to_owned(),
        Token::Not => "'!'".to_owned(),
        Token::Equal => "'='".to_owned(),
        Token::NotEqual => "'!='".to_owned(),
        Token::Greater => "'>'".to_owned(),
        Token::Less => "'<'".to_owned(),
        Token::End => "the end".to_owned(),
    };
    SelectorError::new(format!(
        "unable to parse label selector: found {found}, expected {expected}"
    ))
}
