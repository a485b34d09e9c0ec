//! Whether the replicas have room for one more snapshot.

use rpc::ptypes;

use super::each::each;
use super::engine::Engine;

/// No replica takes more disks than this, its head included.
const MAX_DISKS: i32 = 250;

/// Texts are those callers match.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LimitError {
    #[error("snapshot count usage {usage} is equal or larger than snapshotMaxCount {max}")]
    Count { usage: i32, max: i32 },
    #[error("snapshot count total is already too big: {0}")]
    Total(i32),
    #[error("snapshot free space {free} is not enough for head file {head}")]
    Size { free: i64, head: i64 },
    #[error("cannot ask any replica for its snapshots: {0}")]
    Silent(String),
}

/// What snapshots take at the replica where they take most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Usage {
    pub(super) count: i32,
    pub(super) total: i32,
    pub(super) bytes: i64,
    pub(super) head_bytes: i64,
}

impl Usage {
    pub(super) fn of<'r>(replicas: impl IntoIterator<Item = &'r ptypes::Replica>) -> Self {
        replicas.into_iter().fold(Self::default(), |most, replica| Self {
            count: most.count.max(replica.snapshot_count_usage),
            total: most.total.max(replica.snapshot_count_total),
            bytes: most.bytes.max(replica.snapshot_size_usage),
            head_bytes: most.head_bytes.max(replica.head_file_size),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) max_count: i32,
    /// 0: none.
    pub(super) max_bytes: i64,
}

pub(super) fn room_for_one(usage: Usage, limits: Limits) -> Result<(), LimitError> {
    let Usage { count, total, bytes, head_bytes } = usage;
    if count >= limits.max_count {
        return Err(LimitError::Count { usage: count, max: limits.max_count });
    }
    if total >= MAX_DISKS {
        return Err(LimitError::Total(total));
    }
    let free = limits.max_bytes.saturating_sub(bytes);
    if limits.max_bytes > 0 && head_bytes > free {
        return Err(LimitError::Size { free, head: head_bytes });
    }
    Ok(())
}

impl Engine {
    /// What the readable replicas say of themselves; those that do not answer in time are left out,
    /// and so are raw files, which have nothing to say: of those alone there is no answer at all.
    pub(super) async fn ask_readable(&self) -> Result<Vec<ptypes::Replica>, LimitError> {
        let limit = self.hold_limit();
        let (files, replicas): (Vec<_>, Vec<_>) =
            self.readable().into_iter().partition(|replica| replica.link.file().is_some());
        if replicas.is_empty() && !files.is_empty() {
            return Ok(Vec::new());
        }
        let asked = each(&replicas, |link| async move { link.get(limit).await }).await;
        let silent = |error: &super::link::CallError| LimitError::Silent(error.to_string());
        let why = asked.iter().find_map(|answer| answer.as_ref().err().map(silent));
        let seen: Vec<_> = asked.into_iter().filter_map(Result::ok).collect();
        if seen.is_empty() {
            let none = || LimitError::Silent("none is in mode RW".to_owned());
            return Err(why.unwrap_or_else(none));
        }
        Ok(seen)
    }

    pub(super) fn limits(&self) -> Limits {
        let state = self.state();
        Limits { max_count: state.snapshot_max_count, max_bytes: state.snapshot_max_size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_count: 3, max_bytes: 100 };

    #[test]
    fn each_limit_has_its_text() {
        let free = Usage { count: 2, total: 3, bytes: 60, head_bytes: 40 };
        assert_eq!(room_for_one(free, LIMITS), Ok(()));
        let text = |usage| room_for_one(usage, LIMITS).map_err(|error| error.to_string());
        assert_eq!(
            text(Usage { count: 3, ..free }),
            Err("snapshot count usage 3 is equal or larger than snapshotMaxCount 3".into())
        );
        assert_eq!(
            text(Usage { total: 250, ..free }),
            Err("snapshot count total is already too big: 250".into())
        );
        assert_eq!(
            text(Usage { head_bytes: 41, ..free }),
            Err("snapshot free space 40 is not enough for head file 41".into())
        );
    }

    #[test]
    fn no_size_limit_means_none() {
        let big = Usage { bytes: i64::MAX, head_bytes: i64::MAX, ..Usage::default() };
        assert_eq!(room_for_one(big, Limits { max_bytes: 0, ..LIMITS }), Ok(()));
    }

    #[test]
    fn the_fullest_replica_counts() {
        let one = ptypes::Replica { snapshot_count_usage: 4, ..Default::default() };
        let other = ptypes::Replica { head_file_size: 9, ..Default::default() };
        let most = Usage::of([&one, &other]);
        assert_eq!(most, Usage { count: 4, head_bytes: 9, ..Usage::default() });
    }
}
