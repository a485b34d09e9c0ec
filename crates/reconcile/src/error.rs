//! How a pass can fail.

use crate::key::Key;

/// Why a pass did not reach its end.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Somebody else wrote first. Not an error: the next pass sees what they wrote.
    #[error("{kind} {key} was changed by somebody else")]
    Conflict { kind: String, key: Key },
    #[error("cannot {doing}")]
    Api { doing: String, source: Box<kube::Error> },
    #[error("cannot {doing}")]
    Other { doing: String, source: Box<dyn std::error::Error + Send + Sync> },
}

impl Failure {
    /// A failure of something other than the API.
    pub fn other(
        doing: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Other { doing: doing.into(), source: source.into() }
    }

    pub(crate) fn of_write(verb: &str, kind: &str, key: &Key, error: kube::Error) -> Self {
        if code(&error) == Some(409) {
            return Self::Conflict { kind: kind.to_owned(), key: key.clone() };
        }
        Self::Api { doing: format!("{verb} {kind} {key}"), source: Box::new(error) }
    }

    /// Whether the API server refused what was asked, rather than not answering: asking again for
    /// the same is refused again.
    pub fn rejection(&self) -> Option<&str> {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => {
                    Some(&status.message)
                }
                _ => None,
            },
            Self::Conflict { .. } | Self::Other { .. } => None,
        }
    }
}

/// The status code of an answer of the API server.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Says what was being done when something failed.
pub trait OrFail<T> {
    fn or_fail(self, doing: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E> OrFail<T> for Result<T, E>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn or_fail(self, doing: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure::other(doing(), error))
    }
}
