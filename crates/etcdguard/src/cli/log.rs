//! The log on standard error, with `actor=…` in each line. The actor is the part of the guard that
//! speaks: told by the event itself, or known from the module it comes from.

use std::sync::atomic::{AtomicU64, Ordering};

use telemetry::logfmt::Said;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The level of information, in the numbering of the dialect.
pub(crate) const INFORMATION: i64 = 4;

/// Libraries that are silent below warnings, also when asked for more.
const QUIET: [&str; 9] =
    ["h2", "hyper", "hyper_util", "tonic", "tower", "rustls", "reqwest", "kube_client", "kube"];

/// Who speaks, by the beginning of the module; the first that fits counts.
const ACTORS: [(&str, &str); 11] = [
    ("etcdguard::control::snapshot_lease", "FullSnapLeaseUpdater"),
    ("etcdguard::control::snapshotter", "snapshotter"),
    ("etcdguard::control::heartbeat", "heartbeat"),
    ("etcdguard::control::member", "member-add"),
    ("etcdguard::control::second", "copier"),
    ("etcdguard::etcd::monitor", "leader-elector"),
    ("etcdguard::store::compress", "compressor"),
    ("etcdguard::store::copy", "copier"),
    ("etcdguard::restore", "restorer"),
    ("etcdguard::server::initialize", "restorer"),
    ("etcdguard::server", "backup-restore-server"),
];

/// Writes the log of this process in the form of the dialect from here on.
pub(crate) fn install(level: i64) {
    // A log that is set up already, as in a test, is as good.
    let _ = tracing::subscriber::set_global_default(Lines {
        level: filter(level),
        spans: AtomicU64::new(1),
    });
}

/// The numbering of the dialect, in which 4 is information.
fn filter(level: i64) -> LevelFilter {
    match level {
        ..=2 => LevelFilter::ERROR,
        3 => LevelFilter::WARN,
        4 => LevelFilter::INFO,
        5 => LevelFilter::DEBUG,
        6.. => LevelFilter::TRACE,
    }
}

struct Lines {
    level: LevelFilter,
    spans: AtomicU64,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let family = metadata.target().split("::").next().unwrap_or_default();
        let level = if QUIET.contains(&family) { LevelFilter::WARN } else { self.level };
        !metadata.is_span() && *metadata.level() <= level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // Never 0, which is no id: the count starts at 1 and does not come round.
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed).max(1))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let said = Said::by(event);
        let is_told = said.fields.iter().any(|(key, _)| *key == "actor");
        let known = actor(event.metadata().target()).filter(|_| !is_told);
        let first = known.map(|actor| ("actor", actor));
        said.write(*event.metadata().level(), first.as_slice());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn actor(target: &str) -> Option<&'static str> {
    ACTORS.iter().find(|(module, _)| target.starts_with(module)).map(|(_, actor)| *actor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_actor_is_known_from_the_module() {
        assert_eq!(actor("etcdguard::server::http"), Some("backup-restore-server"));
        assert_eq!(actor("etcdguard::server::initialize::run"), Some("restorer"));
        assert_eq!(actor("hyper::proto"), None);
    }

    #[test]
    fn levels_are_those_of_the_dialect() {
        assert_eq!(filter(0), LevelFilter::ERROR);
        assert_eq!(filter(4), LevelFilter::INFO);
        assert_eq!(filter(7), LevelFilter::TRACE);
    }
}
