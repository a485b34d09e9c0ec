//! Who brings a rebuild to its end. In the dialect the caller does, call by call, and one that is killed
//! leaves it where it was. A controller of ours does it by itself if the call that adds the replica says
//! so, in metadata that others do not look at: those answer with a replica that is still to be filled.

use tonic::Request;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

use crate::ptypes::ControllerReplicaCreateRequest;

const KEY: &str = "holdfast-rebuild";

/// How the replica is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuilding {
    pub fast_sync: bool,
    pub file_sync_timeout_seconds: i32,
    /// None if it is 0.
    pub call_timeout_seconds: i64,
}

/// The call that adds a replica and answers once it is filled.
pub fn rebuild_request(
    replica: ControllerReplicaCreateRequest,
    how: Rebuilding,
) -> Request<ControllerReplicaCreateRequest> {
    let mut request = Request::new(replica);
    let Rebuilding { fast_sync, file_sync_timeout_seconds, call_timeout_seconds } = how;
    let fast_sync = u8::from(fast_sync);
    let text = format!("{fast_sync},{file_sync_timeout_seconds},{call_timeout_seconds}");
    if let Ok(value) = AsciiMetadataValue::try_from(text) {
        request.metadata_mut().insert(KEY, value);
    }
    request
}

/// What a call asks for; nothing of one whose caller fills the replica itself.
pub fn rebuilding_of(metadata: &MetadataMap) -> Option<Rebuilding> {
    let mut words = metadata.get(KEY)?.to_str().ok()?.split(',');
    let fast_sync = words.next()? == "1";
    let file_sync_timeout_seconds = words.next()?.parse().ok()?;
    let call_timeout_seconds = words.next()?.parse().ok()?;
    Some(Rebuilding { fast_sync, file_sync_timeout_seconds, call_timeout_seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_understood_and_others_ask_for_nothing() {
        for (fast_sync, call_timeout_seconds) in [(true, 0), (false, 86_400)] {
            let how = Rebuilding { fast_sync, file_sync_timeout_seconds: 30, call_timeout_seconds };
            let request = rebuild_request(ControllerReplicaCreateRequest::default(), how);
            assert_eq!(rebuilding_of(request.metadata()), Some(how));
        }
        assert_eq!(rebuilding_of(&MetadataMap::new()), None);
        let mut strange = MetadataMap::new();
        strange.insert(KEY, AsciiMetadataValue::from_static("1,soon"));
        assert_eq!(rebuilding_of(&strange), None);
    }
}
