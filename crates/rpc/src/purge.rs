//! What a purge is asked for beyond what the dialect knows. Sent in metadata that agents of the other
//! kind do not look at: they keep the removed parent of the head in any case.

use tonic::Request;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

const KEY: &str = "holdfast-fold-head-parent";

/// What becomes of the removed parent of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeadParent {
    /// It stays, without what the head hides: chains of all kinds of replicas stay equal.
    #[default]
    Keep,
    /// It is merged into the head.
    Fold,
}

/// The call that begins a purge.
pub fn purge_request(head_parent: HeadParent) -> Request<()> {
    let mut request = Request::new(());
    match head_parent {
        HeadParent::Keep => {}
        HeadParent::Fold => {
            request.metadata_mut().insert(KEY, AsciiMetadataValue::from_static("true"));
        }
    }
    request
}

/// What a call asks for.
pub fn head_parent_of(metadata: &MetadataMap) -> HeadParent {
    if metadata.get(KEY).is_some_and(|value| value == "true") {
        HeadParent::Fold
    } else {
        HeadParent::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_says_what_it_wants() {
        for wanted in [HeadParent::Keep, HeadParent::Fold] {
            assert_eq!(head_parent_of(purge_request(wanted).metadata()), wanted);
        }
        assert_eq!(head_parent_of(Request::new(()).metadata()), HeadParent::Keep);
    }
}
