//! How a frontend is to be stopped, beyond what the dialect knows. Sent in metadata that controllers of
//! the other kind do not look at: they answer what is under way.

use tonic::Request;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

const KEY: &str = "holdfast-answer-nothing";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stopping {
    /// What was taken from clients is answered first.
    #[default]
    Answering,
    /// Nothing more is answered to anybody: what is under way may never be seen by others.
    AtOnce,
}

/// The call that stops a frontend.
pub fn stop_request(stopping: Stopping) -> Request<()> {
    let mut request = Request::new(());
    match stopping {
        Stopping::Answering => {}
        Stopping::AtOnce => {
            request.metadata_mut().insert(KEY, AsciiMetadataValue::from_static("true"));
        }
    }
    request
}

/// What a call asks for.
pub fn stopping_of(metadata: &MetadataMap) -> Stopping {
    if metadata.get(KEY).is_some_and(|value| value == "true") {
        Stopping::AtOnce
    } else {
        Stopping::Answering
    }
}
