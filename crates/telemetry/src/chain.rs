//! An error and its causes on one line.

use std::error::Error;
use std::fmt;

/// Causes written of one error; a chain longer than this is a loop.
const DEPTH_MAX: usize = 32;

/// Writes an error and everything [`Error::source`] leads to, parted by colons. A cause that says
/// no more than the line before it is left out, and so is a text that shows a cause of its own as a
/// printed struct: the cause says it in words.
///
/// ```
/// # let error = std::io::Error::other("disk is full");
/// tracing::error!("cannot save the volume: {}", telemetry::Chain(&error));
/// ```
#[derive(Clone, Copy)]
pub struct Chain<'e>(pub &'e (dyn Error + 'e));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut links: Vec<&dyn Error> = vec![self.0];
        while let Some(cause) = links.last().copied().and_then(Error::source)
            && links.len() <= DEPTH_MAX
        {
            links.push(cause);
        }
        let mut above = String::new();
        for (index, error) in links.iter().enumerate() {
            let text = error.to_string();
            let causes = links.get(index + 1..).unwrap_or_default();
            // Some libraries repeat their cause in their own text.
            let is_said = index > 0 && above.ends_with(&text);
            if is_said || prints_one(&text, causes) {
                continue;
            }
            let part = if above.is_empty() { "" } else { ": " };
            write!(out, "{part}{text}")?;
            above = text;
        }
        if links.len() > DEPTH_MAX { out.write_str(": …") } else { Ok(()) }
    }
}

/// Whether a text has one of the causes in it as Rust prints structs.
fn prints_one(text: &str, causes: &[&dyn Error]) -> bool {
    let printed = |cause: &&dyn Error| {
        let printed = format!("{cause:?}");
        printed.contains('{') && text.contains(&printed)
    };
    text.contains('{') && causes.iter().any(printed)
}

impl fmt::Debug for Chain<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Link(&'static str, Option<Box<Link>>);

    impl fmt::Display for Link {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str(self.0)
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|link| link as &dyn Error)
        }
    }

    fn chain(texts: &[&'static str]) -> Link {
        let (first, rest) = texts.split_first().unwrap();
        Link(first, (!rest.is_empty()).then(|| Box::new(chain(rest))))
    }

    #[test]
    fn every_cause_is_said_once() {
        for (texts, expected) in [
            (vec!["one"], "one"),
            (vec!["one", "two", "three"], "one: two: three"),
            (vec!["one: two", "two", "three"], "one: two: three"),
            (vec!["one", "one", "two"], "one: two"),
        ] {
            let error = chain(&texts);
            assert_eq!(Chain(&error).to_string(), expected);
            assert_eq!(format!("{:?}", Chain(&error)), expected);
        }
    }

    #[test]
    fn a_printed_struct_is_left_out() {
        #[derive(Debug)]
        struct Status {
            #[expect(dead_code, reason = "it is printed")]
            code: u16,
        }
        impl fmt::Display for Status {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("not found")
            }
        }
        impl Error for Status {}
        #[derive(Debug)]
        struct Api(Status);
        impl fmt::Display for Api {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "ApiError: {0} ({0:?})", self.0)
            }
        }
        impl Error for Api {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        assert_eq!(Chain(&Api(Status { code: 404 })).to_string(), "not found");
    }

    #[test]
    fn an_error_that_is_its_own_cause_ends() {
        #[derive(Debug)]
        struct Loop;
        impl fmt::Display for Loop {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("loop")
            }
        }
        impl Error for Loop {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&Loop)
            }
        }
        assert_eq!(Chain(&Loop).to_string(), "loop: …");
    }
}
