//! Settings of the running volume: what unmap does to snapshots, how many of them there may be,
//! how many sources a rebuild has.

use super::each::all_or_out;
use super::engine::{CALL_LIMIT, Engine};
use super::limits::{LimitError, Usage};
use super::link::{CallError, Link};

/// Why a setting was not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SettingError {
    #[error("snapshot count limit {wanted} is smaller than the current usage {usage}")]
    CountBelowUsage { wanted: i32, usage: i32 },
    #[error("snapshot size limit {wanted} is smaller than the current usage {usage}")]
    SizeBelowUsage { wanted: i64, usage: i64 },
    #[error("a snapshot limit cannot be negative: {0}")]
    Negative(i64),
    #[error("the limit of concurrent syncs of a rebuild must be greater than 0, not {0}")]
    NoSync(i32),
    #[error(transparent)]
    Usage(#[from] LimitError),
    #[error("{0}")]
    Replicas(String),
}

fn check_count(wanted: i32, usage: Usage) -> Result<(), SettingError> {
    if wanted < 0 {
        return Err(SettingError::Negative(wanted.into()));
    }
    if wanted < usage.count {
        return Err(SettingError::CountBelowUsage { wanted, usage: usage.count });
    }
    Ok(())
}

/// 0 is no limit.
fn check_size(wanted: i64, usage: Usage) -> Result<(), SettingError> {
    if wanted < 0 {
        return Err(SettingError::Negative(wanted));
    }
    if wanted > 0 && wanted < usage.bytes {
        return Err(SettingError::SizeBelowUsage { wanted, usage: usage.bytes });
    }
    Ok(())
}

impl Engine {
    /// What snapshots take now; nothing while there are no replicas.
    async fn usage(&self) -> Result<Usage, SettingError> {
        if self.readable().is_empty() {
            return Ok(Usage::default());
        }
        Ok(Usage::of(&self.ask_readable().await?))
    }

    pub(super) async fn set_unmap_mark(&self, enabled: bool) -> Result<(), SettingError> {
        let _order = self.order.lock().await;
        let limit = self.hold_limit();
        self.push(
            "set unmap mark",
            |link| async move { link.set_unmap_mark(limit, enabled).await },
        )
        .await?;
        self.state().unmap_mark = enabled;
        Ok(())
    }

    pub(super) async fn set_max_count(&self, count: i32) -> Result<(), SettingError> {
        let _order = self.order.lock().await;
        check_count(count, self.usage().await?)?;
        let limit = self.hold_limit();
        self.push("set snapshot max count", |link| async move {
            link.set_max_count(limit, count).await
        })
        .await?;
        self.state().snapshot_max_count = count;
        Ok(())
    }

    pub(super) async fn set_max_size(&self, size: i64) -> Result<(), SettingError> {
        let _order = self.order.lock().await;
        check_size(size, self.usage().await?)?;
        let limit = self.hold_limit();
        self.push(
            "set snapshot max size",
            |link| async move { link.set_max_size(limit, size).await },
        )
        .await?;
        self.state().snapshot_max_size = size;
        Ok(())
    }

    async fn push<T, F>(&self, what: &str, call: impl Fn(Link) -> F) -> Result<(), SettingError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let mut replicas = self.live();
        // A raw file has no snapshots that a setting could be about.
        replicas.retain(|replica| replica.link.file().is_none());
        if replicas.is_empty() {
            return Ok(());
        }
        all_or_out(self, what, &replicas, call).await.map_err(SettingError::Replicas)
    }

    /// Tells a replica that joins what the settings are. One of a kind that does not know a
    /// setting goes without.
    pub(super) async fn push_settings(&self, link: &Link) -> Result<(), CallError> {
        if link.file().is_some() {
            return Ok(());
        }
        let limits = self.limits();
        let mark = self.state().unmap_mark;
        for told in [
            link.set_unmap_mark(CALL_LIMIT, mark).await,
            link.set_max_count(CALL_LIMIT, limits.max_count).await,
            link.set_max_size(CALL_LIMIT, limits.max_bytes).await,
        ] {
            match told {
                Err(error) if !error.is_unknown_call() => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn set_rebuild_sync_limit(&self, limit: i32) -> Result<(), SettingError> {
        if limit <= 0 {
            return Err(SettingError::NoSync(limit));
        }
        self.state().rebuild_sync_limit = limit;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_below_what_is_there_is_refused() {
        let usage = Usage { count: 3, bytes: 100, ..Usage::default() };
        assert!(check_count(2, usage).is_err());
        assert!(check_count(3, usage).is_ok());
        assert!(check_count(-1, Usage::default()).is_err());
        assert!(check_size(99, usage).is_err());
        assert!(check_size(100, usage).is_ok());
        assert!(check_size(0, usage).is_ok());
        assert!(check_size(-1, usage).is_err());
    }
}
