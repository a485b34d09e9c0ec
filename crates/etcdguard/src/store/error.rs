//! What a store of snapshots can answer instead of doing what it was asked.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "unsupported storage provider: {provider:?}; use Local, S3, ABS, GCS, Swift, OSS, ECS or OCS"
    )]
    Provider { provider: String },
    #[error("storage container name not specified: set it, or the variable {variable}")]
    NoContainer { variable: String },
    #[error("the prefix of the store cannot be used")]
    Prefix(#[source] blobs::KeyError),
    #[error("no credentials for provider {provider}: set {variables}")]
    NoCredentials { provider: &'static str, variables: String },
    #[error("the credentials in {path} cannot be read", path = path.display())]
    Credentials { path: PathBuf, source: io::Error },
    #[error("the credentials in {path} cannot be used: {what}", path = path.display())]
    BadCredentials { path: PathBuf, what: String },
    #[error("the store cannot be opened")]
    Open(#[from] blobs::OpenError),
    #[error(transparent)]
    Blobs(#[from] blobs::Error),
    #[error("the object is encrypted, and there is no key: set {variable}")]
    NoKey { variable: String },
    #[error("the key for encryption in {path} cannot be used: {what}", path = path.display())]
    Key { path: PathBuf, what: String },
    #[error("failed to {what}: this provider always fails")]
    AlwaysFails { what: &'static str },
    #[error("a provider {provider} cannot {what}")]
    Unsupported { provider: &'static str, what: &'static str },
    #[error("the beginning of history {id} cannot be written")]
    History { id: String, source: io::Error },
    #[error("the snapshot {name} cannot be read whole")]
    Damaged { name: String, source: io::Error },
}

impl StoreError {
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Blobs(error) if error.is_not_found())
    }

    /// Whether it will be the same until settings or credentials are others.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Provider { .. }
            | Self::NoContainer { .. }
            | Self::Prefix(_)
            | Self::NoCredentials { .. }
            | Self::Credentials { .. }
            | Self::BadCredentials { .. }
            | Self::Open(_)
            | Self::NoKey { .. }
            | Self::Key { .. }
            | Self::Unsupported { .. }
            | Self::Blobs(blobs::Error::Denied { .. }) => true,
            Self::Blobs(_)
            | Self::AlwaysFails { .. }
            | Self::History { .. }
            | Self::Damaged { .. } => false,
        }
    }

    /// Whether an object was read whole, and is not what it is called.
    pub fn is_junk(&self) -> bool {
        matches!(self, Self::Damaged { source, .. } if super::full::is_junk(source))
    }

    /// The whole chain, for logs and answers.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        text
    }
}
