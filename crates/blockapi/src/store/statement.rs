//! Statements put together from fixed text and parameters.

use crate::sql::Value;

/// Text with its parameters; what comes from outside is only ever a parameter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Statement {
    pub(crate) text: String,
    pub(crate) values: Vec<Value>,
}

impl Statement {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), values: Vec::new() }
    }

    pub(crate) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    pub(crate) fn bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.values.push(value.into());
        self.text.push('$');
        self.text.push_str(&self.values.len().to_string());
        self
    }

    /// `($3, $4, …)`; nothing is in an empty list.
    pub(crate) fn bind_list<V: Into<Value>>(
        &mut self,
        values: impl IntoIterator<Item = V>,
    ) -> &mut Self {
        self.push("(");
        let mut first = true;
        for value in values {
            if !first {
                self.push(", ");
            }
            first = false;
            self.bind(value);
        }
        if first {
            self.push("NULL");
        }
        self.push(")")
    }

    /// Puts another statement here, its parameters after those so far.
    pub(crate) fn splice(&mut self, other: &Self) -> &mut Self {
        let mut rest = other.text.as_str();
        while let Some((before, after)) = rest.split_once('$') {
            self.push(before);
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let (number, tail) = after.split_at(digits);
            let at = number.parse::<usize>().unwrap_or_default();
            if let Some(value) = at.checked_sub(1).and_then(|at| other.values.get(at)) {
                self.bind(value.clone());
            }
            rest = tail;
        }
        self.push(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_keep_their_places_when_put_together() {
        let mut inner = Statement::new("x = ");
        inner.bind("a").push(" OR x IN ").bind_list(["b", "c"]);
        let mut outer = Statement::new("id = ");
        outer.bind("i").push(" AND (").splice(&inner).push(")");
        assert_eq!(outer.text, "id = $1 AND (x = $2 OR x IN ($3, $4))");
        assert_eq!(outer.values, [Value::from("i"), "a".into(), "b".into(), "c".into()]);
    }
}
