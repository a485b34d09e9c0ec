//! The JSON path subset of printer columns and subresource paths: `.a.b`, `['a']`, `[0]`, `[-1]`,
//! `[*]`, and filters such as `[?(@.type=="Ready")]`.
//!
//! Owns: syntax and search. Never: recursive descent, slices or scripts, so that a search costs at
//! most the size of the object for each step of the path.

use serde_json::Value;

/// Longest path accepted, in bytes.
pub const PATH_MAX_BYTES: usize = 1024;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Member(String),
    /// From the end when negative.
    Index(i64),
    Every,
    Filter(Filter),
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Vec<String>,
    /// `None`: the member only has to exist.
    condition: Option<(Compare, Value)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Longest first, so that `<=` is not read as `<`.
const OPERATORS: [(&str, Compare); 6] = [
    ("==", Compare::Equal),
    ("!=", Compare::NotEqual),
    ("<=", Compare::LessOrEqual),
    (">=", Compare::GreaterOrEqual),
    ("<", Compare::Less),
    (">", Compare::Greater),
];

impl Path {
    /// Parses a path that starts with `.` or `[`; one pair of braces around it is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > PATH_MAX_BYTES {
            return Err(format!("a path may have no more than {PATH_MAX_BYTES} bytes"));
        }
        let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let mut rest = inner.strip_prefix('$').unwrap_or(inner);
        if !rest.starts_with(['.', '[']) {
            return Err("must start with '.'".to_owned());
        }
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = match rest.strip_prefix('[') {
                Some(inside) => bracket(inside)?,
                None => member(rest)?,
            };
            steps.extend(step);
            rest = after;
        }
        Ok(Self { steps })
    }

    /// Every value the path leads to, in the order of the document.
    pub fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![root];
        for step in &self.steps {
            found = found.into_iter().flat_map(|value| step.follow(value)).collect();
        }
        found
    }

    /// Whether the path has only member steps, as subresource and selectable paths must.
    pub fn is_simple(&self) -> bool {
        self.steps.iter().all(|step| matches!(step, Step::Member(_)))
    }

    /// The value of a simple path.
    pub fn get<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        let step = |value: &'a Value, step: &Step| match step {
            Step::Member(name) => value.get(name),
            _ => None,
        };
        self.steps.iter().try_fold(root, step).filter(|value| !value.is_null())
    }

    /// Writes the value of a simple path, making absent parents. Says whether it could.
    pub fn set(&self, root: &mut Value, new: Value) -> bool {
        if !self.is_simple() {
            return false;
        }
        let mut slot = root;
        for step in &self.steps {
            let Step::Member(name) = step else { return false };
            if slot.is_null() {
                *slot = Value::Object(serde_json::Map::new());
            }
            let Some(map) = slot.as_object_mut() else { return false };
            slot = map.entry(name.as_str()).or_insert(Value::Null);
        }
        *slot = new;
        true
    }
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Member(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::Index(index), Value::Array(items)) => {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let index = if *index < 0 { index.saturating_add(length) } else { *index };
                usize::try_from(index).ok().and_then(|index| items.get(index)).into_iter().collect()
            }
            (Self::Every, Value::Array(items)) => items.iter().collect(),
            (Self::Every, Value::Object(map)) => map.values().collect(),
            (Self::Filter(filter), Value::Array(items)) => {
                items.iter().filter(|item| filter.takes(item)).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Filter {
    fn takes(&self, item: &Value) -> bool {
        let left = self.left.iter().try_fold(item, |value, name| value.get(name));
        match (left, &self.condition) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(left), Some((compare, right))) => compare.holds(left, right),
        }
    }
}

impl Compare {
    fn holds(self, left: &Value, right: &Value) -> bool {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (Value::Number(left), Value::Number(right)) => {
                left.as_f64().zip(right.as_f64()).and_then(|(left, right)| left.partial_cmp(&right))
            }
            (left, right) => (left == right).then_some(Equal),
        };
        match self {
            Self::Equal => order == Some(Equal),
            Self::NotEqual => order != Some(Equal),
            Self::Less => order == Some(Less),
            Self::LessOrEqual => matches!(order, Some(Less | Equal)),
            Self::Greater => order == Some(Greater),
            Self::GreaterOrEqual => matches!(order, Some(Greater | Equal)),
        }
    }
}

/// `.name` or `.*`; a dot before a bracket or at the very end is a step of its own that does nothing.
fn member(rest: &str) -> Result<(Option<Step>, &str), String> {
    let rest = rest.strip_prefix('.').ok_or_else(|| format!("unexpected text at {rest:?}"))?;
    let (name, after) = word(rest);
    if name.is_empty() {
        if rest.starts_with('[') || rest.is_empty() {
            return Ok((None, rest));
        }
        return Err(format!("a member name is missing at {rest:?}"));
    }
    let step = if name == "*" { Step::Every } else { Step::Member(name) };
    Ok((Some(step), after))
}

/// A member name up to the next `.` or `[`; a backslash takes the next character as it is.
fn word(rest: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => return (name, rest.get(at..).unwrap_or_default()),
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            _ => name.push(c),
        }
    }
    (name, "")
}

/// What is inside brackets, after the opening one.
fn bracket(inside: &str) -> Result<(Option<Step>, &str), String> {
    if let Some(filter) = inside.strip_prefix("?(") {
        let end = closing(filter, ")]").ok_or("a filter must end with ')]'")?;
        let (text, after) = filter.split_at(end);
        let after = after.strip_prefix(")]").unwrap_or_default();
        return Ok((Some(Step::Filter(parse_filter(text.trim())?)), after));
    }
    let end = closing(inside, "]").ok_or("']' is missing")?;
    let (text, after) = inside.split_at(end);
    let after = after.strip_prefix(']').unwrap_or_default();
    let text = text.trim();
    let step = if text == "*" {
        Step::Every
    } else if let Some(Value::String(name)) = quoted(text) {
        Step::Member(name)
    } else {
        let index = text.parse().map_err(|_| format!("[{text}] is not an index or quoted name"))?;
        Step::Index(index)
    };
    Ok((Some(step), after))
}

/// Where `end` first stands outside quotes.
fn closing(text: &str, end: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, _) if text.get(at..).is_some_and(|rest| rest.starts_with(end)) => {
                return Some(at);
            }
            (None, _) => {}
        }
    }
    None
}

fn parse_filter(text: &str) -> Result<Filter, String> {
    let operator = OPERATORS
        .iter()
        .filter_map(|(sign, compare)| closing(text, sign).map(|at| (at, sign.len(), *compare)))
        // The leftmost operator; of two at one place the longer one.
        .min_by_key(|(at, length, _)| (*at, usize::MAX - *length));
    let (left, condition) = match operator {
        None => (text, None),
        Some((at, length, compare)) => {
            let right = text.get(at + length..).unwrap_or_default().trim();
            let right = literal(right).ok_or_else(|| format!("{right:?} is not a literal"))?;
            (text.get(..at).unwrap_or_default().trim(), Some((compare, right)))
        }
    };
    let left = left.strip_prefix('@').ok_or("a filter must start with '@'")?;
    let path = if left.is_empty() { Path { steps: Vec::new() } } else { Path::parse(left)? };
    let names = path.steps.into_iter().map(|step| match step {
        Step::Member(name) => Ok(name),
        _ => Err("a filter may look at members only".to_owned()),
    });
    Ok(Filter { left: names.collect::<Result<_, _>>()?, condition })
}

fn literal(text: &str) -> Option<Value> {
    match text {
        "true" => Some(Value::Bool(true)),
        "false" => Some(Value::Bool(false)),
        _ => quoted(text)
            .or_else(|| serde_json::from_str::<serde_json::Number>(text).ok().map(Value::Number)),
    }
}

/// A string in single or double quotes.
fn quoted(text: &str) -> Option<Value> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut value = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => value.push(chars.next()?),
            c if c == quote => return None,
            c => value.push(c),
        }
    }
    Some(Value::String(value))
}

/// The integer at a simple path such as `.spec.replicas`.
pub fn integer(path: &Path, root: &Value) -> Option<i64> {
    path.get(root).and_then(Value::as_i64)
}

/// The string at a simple path such as `.status.selector`, or "".
pub fn text<'a>(path: &Path, root: &'a Value) -> &'a str {
    path.get(root).and_then(Value::as_str).unwrap_or_default()
}

/// Whether `path` begins below `member`, as `specReplicasPath` must below `.spec`.
pub fn is_below(path: &str, member: &str) -> bool {
    path.strip_prefix('.')
        .and_then(|path| path.strip_prefix(member))
        .and_then(|path| path.strip_prefix('.'))
        .is_some_and(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn sample() -> Value {
        json!({
            "metadata": {"labels": {"x.io/a": "b"}},
            "spec": {"size": "small", "ports": [{"port": 1, "on": true}, {"port": 2.5, "on": false}]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "Synced", "status": "False"},
                {"status": "Unknown"}]}
        })
    }

    #[test]
    fn paths_find_what_they_name() {
        for (path, want) in [
            (".spec.size", json!(["small"])),
            ("{.spec.size}", json!(["small"])),
            ("$.spec.size", json!(["small"])),
            (".spec['size']", json!(["small"])),
            (".spec[\"size\"]", json!(["small"])),
            (".metadata.labels['x.io/a']", json!(["b"])),
            (".metadata.labels.x\\.io/a", json!(["b"])),
            (".spec.ports[0].port", json!([1])),
            (".spec.ports[-1].port", json!([2.5])),
            (".spec.ports[9].port", json!([])),
            (".spec.ports[*].port", json!([1, 2.5])),
            (".spec.ports.port", json!([])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type=='Ready')].status", json!(["True"])),
            (".status.conditions[?(@.type == 'Nope')].status", json!([])),
            (".status.conditions[?(@.type!=\"Ready\")].status", json!(["False"])),
            (".status.conditions[?(@.type)].status", json!(["True", "False"])),
            (".spec.ports[?(@.port==1)].on", json!([true])),
            (".spec.ports[?(@.port>=2.5)].on", json!([false])),
            (".spec.ports[?(@.port<2)].port", json!([1])),
            (".spec.ports[?(@.on==true)].port", json!([1])),
            (".spec.ports[?(@.on!=true)].port", json!([2.5])),
            (".nope.nope", json!([])),
        ] {
            let found = Path::parse(path).unwrap();
            let root = sample();
            let found: Vec<Value> = found.find(&root).into_iter().cloned().collect();
            assert_eq!(Value::from(found), want, "{path}");
        }
    }

    #[test]
    fn bad_paths_are_refused() {
        let long = format!(".{}", "a".repeat(PATH_MAX_BYTES));
        for path in [
            "",
            "spec",
            "..a",
            ".a[",
            ".a[x]",
            ".a[?(@.b==c)]",
            ".a[?(b==1)]",
            ".a[?(@.b==1]",
            ".a[?(@[0]==1)]",
            ".a['b]",
            ".a[1",
            &long,
        ] {
            let parsed = Path::parse(path);
            assert!(parsed.is_err(), "{path}: {parsed:?}");
        }
    }

    #[test]
    fn simple_paths_can_be_written() {
        let path = Path::parse(".spec.replicas").unwrap();
        let mut obj = json!({});
        assert_eq!(integer(&path, &obj), None);
        assert!(path.set(&mut obj, json!(3)));
        assert_eq!(obj, json!({"spec": {"replicas": 3}}));
        assert_eq!(integer(&path, &obj), Some(3));
        assert!(!path.set(&mut json!({"spec": 1}), json!(3)));
        assert!(!Path::parse(".spec.ports[0]").unwrap().set(&mut obj, json!(3)));
        assert!(is_below(".spec.replicas", "spec"));
        assert!(!is_below(".specs", "spec"));
        assert!(!is_below(".spec.", "spec"));
    }

    proptest! {
        #[test]
        fn noise_never_panics(path in "[.\\[\\]?(@)*'\"a-c0-9=<>! \\\\{}$é-]{0,40}", root in crate::noise::json()) {
            if let Ok(path) = Path::parse(&path) {
                let _ = path.find(&root);
                let mut root = root;
                let _ = path.set(&mut root, Value::Null);
            }
        }
    }
}
