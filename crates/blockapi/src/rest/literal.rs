//! Values of filters: literals as Python writes them, or plain text.

/// What the text of a filter means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Literal {
    None,
    Text(String),
    List(Vec<Literal>),
    Pairs(Vec<(String, String)>),
}

const DEPTH: usize = 4;

impl Literal {
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::None | Self::List(_) | Self::Pairs(_) => None,
        }
    }
}

/// A literal if the whole text is one, else the text itself.
pub(crate) fn parse(text: &str) -> Literal {
    let mut reader = Reader { rest: text.trim() };
    match reader.value(0) {
        Some(value) if reader.rest.trim().is_empty() => value,
        _ => Literal::Text(text.to_owned()),
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self, depth: usize) -> Option<Literal> {
        if depth > DEPTH {
            return None;
        }
        self.skip();
        match self.rest.chars().next()? {
            '[' => self.list("[", "]", depth),
            '(' => self.list("(", ")", depth),
            '{' => self.pairs(),
            '\'' | '"' => self.quoted().map(Literal::Text),
            _ => self.word(),
        }
    }

    fn list(&mut self, open: &str, close: &str, depth: usize) -> Option<Literal> {
        self.eat(open);
        let mut items = Vec::new();
        while !self.eat(close) {
            items.push(self.value(depth + 1)?);
            if !self.eat(",") {
                return self.eat(close).then_some(Literal::List(items));
            }
        }
        Some(Literal::List(items))
    }

    fn pairs(&mut self) -> Option<Literal> {
        self.eat("{");
        let mut pairs = Vec::new();
        while !self.eat("}") {
            self.skip();
            let key = self.scalar()?;
            if !self.eat(":") {
                return None;
            }
            self.skip();
            pairs.push((key, self.scalar()?));
            if !self.eat(",") {
                return self.eat("}").then_some(Literal::Pairs(pairs));
            }
        }
        Some(Literal::Pairs(pairs))
    }

    fn scalar(&mut self) -> Option<String> {
        match self.rest.chars().next()? {
            '\'' | '"' => self.quoted(),
            _ => match self.word()? {
                Literal::Text(text) => Some(text),
                _ => None,
            },
        }
    }

    fn quoted(&mut self) -> Option<String> {
        let quote = self.rest.chars().next()?;
        let inside = self.rest.get(1..)?;
        let mut text = String::new();
        let mut escaped = false;
        for (at, letter) in inside.char_indices() {
            if escaped {
                text.push(letter);
                escaped = false;
            } else if letter == '\\' {
                escaped = true;
            } else if letter == quote {
                self.rest = inside.get(at + 1..)?;
                return Some(text);
            } else {
                text.push(letter);
            }
        }
        None
    }

    /// `None`, a truth or a number; any other word makes the whole no literal.
    fn word(&mut self) -> Option<Literal> {
        let end = self.rest.find([',', ']', ')', '}', ':', ' ']).unwrap_or(self.rest.len());
        let (word, rest): (&'a str, &'a str) = self.rest.split_at(end);
        let value = match word {
            "None" => Literal::None,
            "True" | "False" => Literal::Text(word.to_owned()),
            number if number.parse::<f64>().is_ok() => Literal::Text(number.to_owned()),
            _ => return None,
        };
        self.rest = rest;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(it: &str) -> Literal {
        Literal::Text(it.to_owned())
    }

    #[test]
    fn literals_and_plain_text() {
        assert_eq!(parse("available"), text("available"));
        assert_eq!(parse("None"), Literal::None);
        assert_eq!(parse("'a b'"), text("a b"));
        assert_eq!(
            parse("['available', \"error\",]"),
            Literal::List(vec![text("available"), text("error")])
        );
        assert_eq!(
            parse("{'k': 'v', 'n': 1}"),
            Literal::Pairs(vec![
                ("k".to_owned(), "v".to_owned()),
                ("n".to_owned(), "1".to_owned())
            ])
        );
        for plain in ["['a'", "x'] OR 1=1 --", "{'a'}", "[[[[[[[[]]]]]]]]", "[a]", "é'"] {
            assert_eq!(parse(plain), text(plain), "{plain}");
        }
    }
}
