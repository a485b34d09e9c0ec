//! One file a page: what is read, and how it is shown.

mod backups;
mod blocks;
mod etcd;
mod events;
mod nodes;
mod overview;
mod standby;
mod targets;
mod tenants;
mod volume;
mod volumes;

use crate::view::{Form, Link, Section, Tone};
use crate::visit::Visit;
use crate::web::Oops;

/// What a page shows.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) title: String,
    pub(crate) forms: Vec<Form>,
    pub(crate) sections: Vec<Section>,
}

impl Content {
    fn titled(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageId {
    Overview,
    Volumes,
    Backups,
    Standby,
    Tenants,
    Blocks,
    Etcd,
    Targets,
    Nodes,
    Events,
}

impl PageId {
    const ALL: [Self; 10] = [
        Self::Overview,
        Self::Volumes,
        Self::Backups,
        Self::Standby,
        Self::Tenants,
        Self::Blocks,
        Self::Etcd,
        Self::Targets,
        Self::Nodes,
        Self::Events,
    ];

    /// Its name in paths, and for changes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Volumes => "volumes",
            Self::Backups => "backups",
            Self::Standby => "standby",
            Self::Tenants => "tenants",
            Self::Blocks => "block-storage",
            Self::Etcd => "etcd",
            Self::Targets => "targets",
            Self::Nodes => "nodes",
            Self::Events => "events",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Volumes => "Volumes",
            Self::Backups => "Backups",
            Self::Standby => "Standby",
            Self::Tenants => "Namespaces",
            Self::Blocks => "Block Storage",
            Self::Etcd => "etcd",
            Self::Targets => "Targets",
            Self::Nodes => "Nodes",
            Self::Events => "Events",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    fn href(self) -> String {
        match self {
            Self::Overview => "/".to_owned(),
            other => format!("/{}", other.name()),
        }
    }

    /// Whether it tells of anything but the caller's own namespaces.
    fn is_of_volumes(self) -> bool {
        match self {
            Self::Overview
            | Self::Volumes
            | Self::Backups
            | Self::Standby
            | Self::Blocks
            | Self::Targets
            | Self::Nodes => true,
            Self::Tenants | Self::Etcd | Self::Events => false,
        }
    }

    /// The pages there are for a caller.
    pub(crate) fn nav(sees_volumes: bool, has_blocks: bool, here: Option<Self>) -> Vec<Link> {
        let mut shown: Vec<_> = Self::ALL.to_vec();
        shown.retain(|it| sees_volumes || !it.is_of_volumes());
        shown.retain(|it| has_blocks || *it != Self::Blocks);
        let link = |it: Self| Link {
            href: it.href(),
            text: it.title().to_owned(),
            is_here: here == Some(it),
        };
        shown.into_iter().map(link).collect()
    }

    /// Where a caller begins.
    pub(crate) fn first(sees_volumes: bool) -> String {
        if sees_volumes { Self::Overview.href() } else { Self::Tenants.href() }
    }

    pub(crate) async fn content(self, visit: &Visit) -> Result<Content, Oops> {
        match self {
            Self::Overview => overview::content(visit).await,
            Self::Volumes => volumes::content(visit).await,
            Self::Backups => backups::content(visit).await,
            Self::Standby => standby::content(visit).await,
            Self::Tenants => tenants::content(visit).await,
            Self::Blocks => blocks::content(visit).await,
            Self::Etcd => etcd::content(visit).await,
            Self::Targets => targets::content(visit).await,
            Self::Nodes => nodes::content(visit).await,
            Self::Events => events::content(visit).await,
        }
    }
}

/// The page of one volume.
pub(crate) async fn of_volume(visit: &Visit, name: &str) -> Result<Content, Oops> {
    volume::content(visit, name).await
}

/// A word of the resources as a badge: how it stands, whatever kind it is of.
fn tone(word: &str) -> Tone {
    match word {
        "healthy" | "attached" | "completed" | "Completed" | "available" | "in-use" | "yes"
        | "True" | "up to date" | "Created" | "running" | "reads and writes" => Tone::Good,
        "degraded" | "deletion waits" | "behind" | "BackingOff" | "unknown" | "PartiallyFailed"
        | "Warning" => Tone::Warn,
        "faulted" | "error" | "Error" | "Failed" | "FailedValidation" | "no" | "False"
        | "failed" => Tone::Bad,
        word if word.starts_with("error") => Tone::Bad,
        "pending" | "new" | "New" | "InProgress" | "Queued" | "attaching" | "detaching"
        | "creating" | "backing-up" | "restoring-backup" | "Deleting" | "being filled"
        | "Finalizing" => Tone::Busy,
        word if word.ends_with("ing") || word.ends_with('%') => Tone::Busy,
        _ => Tone::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_a_name_of_its_own() {
        for page in PageId::ALL {
            assert_eq!(PageId::parse(page.name()), Some(page));
        }
        assert_eq!(PageId::parse("../etc"), None);
    }

    #[test]
    fn those_who_see_no_volumes_are_not_sent_to_them() {
        let shown = |sees, blocks| -> Vec<String> {
            PageId::nav(sees, blocks, None).into_iter().map(|it| it.text).collect()
        };
        assert_eq!(shown(false, true), ["Namespaces", "etcd", "Events"]);
        assert_eq!(shown(true, true).len(), PageId::ALL.len());
        assert!(!shown(true, false).contains(&"Block Storage".to_owned()));
        assert_eq!((PageId::first(false), PageId::first(true)), ("/tenants".into(), "/".into()));
    }

    #[test]
    fn what_is_wrong_looks_wrong() {
        for (word, wanted) in [
            ("healthy", Tone::Good),
            ("degraded", Tone::Warn),
            ("faulted", Tone::Bad),
            ("error_backing-up", Tone::Bad),
            ("backing-up", Tone::Busy),
            ("deleting 5 %", Tone::Busy),
            ("detached", Tone::Plain),
        ] {
            assert_eq!(tone(word), wanted, "{word}");
        }
    }
}
