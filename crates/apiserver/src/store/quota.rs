//! How much may be stored: all of it is in memory, so what one namespace may have of it has a limit,
//! and so has everything together. Pure.

use std::collections::BTreeSet;

use super::state::Size;

/// What may be stored. Only growth is refused: what is there can be read, made smaller and deleted.
#[derive(Clone, Debug)]
pub struct Quota {
    /// Objects of all namespaces and of none, encoded.
    pub total_bytes: usize,
    /// Of these, what namespaces leave to the cluster itself.
    pub kept_bytes: usize,
    /// Each namespace.
    pub namespace: Size,
    /// Namespaces of those whom others rely on: they have no limit but the total.
    pub own: BTreeSet<String>,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            total_bytes: 2 << 30,
            kept_bytes: 256 << 20,
            namespace: Size { objects: 100_000, bytes: 256 << 20 },
            own: BTreeSet::new(),
        }
    }
}

/// A limit that a write would pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    #[error("a namespace may hold {0} objects")]
    Objects(usize),
    #[error("the objects of a namespace may take {0} bytes")]
    Bytes(usize),
    #[error("all objects together may take {0} bytes")]
    Total(usize),
}

impl Quota {
    /// May a namespace (empty: the cluster itself) that holds `used`, of `all` bytes, have this much
    /// more?
    pub(super) fn check(
        &self,
        namespace: &str,
        used: Size,
        all_bytes: usize,
        more: Size,
    ) -> Result<(), Exceeded> {
        let over = |used: usize, more: usize, limit: usize| {
            more > 0 && used.checked_add(more).is_none_or(|sum| sum > limit)
        };
        let is_own = namespace.is_empty() || self.own.contains(namespace);
        let kept = if is_own { 0 } else { self.kept_bytes };
        let open = self.total_bytes.saturating_sub(kept);
        if !is_own && over(used.objects, more.objects, self.namespace.objects) {
            return Err(Exceeded::Objects(self.namespace.objects));
        }
        if !is_own && over(used.bytes, more.bytes, self.namespace.bytes) {
            return Err(Exceeded::Bytes(self.namespace.bytes));
        }
        if over(all_bytes, more.bytes, open) { Err(Exceeded::Total(open)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_part_and_the_cluster_keeps_one() {
        let quota = Quota {
            total_bytes: 100,
            kept_bytes: 20,
            namespace: Size { objects: 3, bytes: 50 },
            own: BTreeSet::from(["kube-system".to_owned()]),
        };
        let size = |objects, bytes| Size { objects, bytes };
        let table = [
            ("t", size(0, 0), 0, size(1, 50), Ok(())),
            ("t", size(0, 0), 0, size(1, 51), Err(Exceeded::Bytes(50))),
            ("t", size(3, 3), 3, size(1, 1), Err(Exceeded::Objects(3))),
            ("t", size(3, 3), 3, size(0, 9), Ok(())),
            ("t", size(9, 90), 90, size(0, 0), Ok(())),
            ("t", size(1, 1), 80, size(1, 1), Err(Exceeded::Total(80))),
            ("kube-system", size(9, 80), 80, size(1, 20), Ok(())),
            ("kube-system", size(9, 80), 80, size(1, 21), Err(Exceeded::Total(100))),
            ("", size(9, 80), 80, size(1, 20), Ok(())),
            ("t", size(0, 0), 0, size(1, usize::MAX), Err(Exceeded::Bytes(50))),
        ];
        for (namespace, used, all, more, wanted) in table {
            assert_eq!(quota.check(namespace, used, all, more), wanted, "{namespace} {used:?}");
        }
    }
}
