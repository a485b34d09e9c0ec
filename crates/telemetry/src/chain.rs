//! An error and its causes on one line.

use std::error::Error;
use std::fmt;

/// Causes written of one error; a chain longer than this is a loop.
const DEPTH_MAX: usize = 32;

/// Writes an error and everything [`Error::source`] leads to, parted by colons. A cause that says
/// no more than the line before it is left out.
///
/// ```
/// # let error = std::io::Error::other("disk is full");
/// tracing::error!("cannot save the volume: {}", telemetry::Chain(&error));
/// ```
#[derive(Clone, Copy)]
pub struct Chain<'e>(pub &'e (dyn Error + 'e));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut above = self.0.to_string();
        out.write_str(&above)?;
        let mut cause = self.0.source();
        for _ in 0..DEPTH_MAX {
            let Some(error) = cause else { return Ok(()) };
            let text = error.to_string();
            // Some libraries repeat their cause in their own text.
            if !above.ends_with(&text) {
                write!(out, ": {text}")?;
                above = text;
            }
            cause = error.source();
        }
        out.write_str(": …")
    }
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
