//! Who gets how much, as a function of numbers.

/// How a caller is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// Those who must get in to repair things.
    System,
    /// Nodes and controllers: what others rely on goes on through them.
    Service,
    Known,
    /// Has shown no credentials.
    Stranger,
}

/// How one thing is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub total: usize,
    pub one_caller: usize,
    /// All callers without credentials together.
    pub strangers: usize,
    /// What nobody but [`Level::System`] and, of one half, [`Level::Service`] may have.
    pub kept: usize,
}

/// What is taken already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Used {
    pub all: usize,
    pub strangers: usize,
    pub caller: usize,
}

/// May a caller have `amount` more?
pub(crate) fn fits(share: &Share, level: Level, used: Used, amount: usize) -> bool {
    let within =
        |used: usize, limit: usize| used.checked_add(amount).is_some_and(|sum| sum <= limit);
    let open = share.total.saturating_sub(share.kept);
    match level {
        Level::System => within(used.all, share.total) && within(used.caller, open),
        Level::Service => {
            let open = share.total.saturating_sub(share.kept / 2);
            within(used.all, open) && within(used.caller, share.one_caller)
        }
        Level::Known => within(used.all, open) && within(used.caller, share.one_caller),
        Level::Stranger => within(used.all, open) && within(used.strangers, share.strangers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_take_what_is_kept_for_others() {
        let share = Share { total: 100, one_caller: 50, strangers: 20, kept: 10 };
        let table = [
            (Level::Stranger, (0, 0, 0), 20, true),
            (Level::Stranger, (19, 19, 19), 2, false),
            (Level::Stranger, (90, 0, 0), 1, false),
            (Level::Known, (20, 20, 0), 50, true),
            (Level::Known, (20, 20, 0), 51, false),
            (Level::Known, (90, 20, 20), 1, false),
            (Level::Service, (90, 20, 20), 5, true),
            (Level::Service, (90, 20, 20), 6, false),
            (Level::Service, (20, 20, 50), 1, false),
            (Level::System, (90, 20, 0), 10, true),
            (Level::System, (91, 20, 0), 10, false),
            (Level::System, (90, 0, 90), 1, false),
            (Level::System, (0, 0, 0), usize::MAX, false),
        ];
        for (level, (all, strangers, caller), amount, wanted) in table {
            let used = Used { all, strangers, caller };
            assert_eq!(fits(&share, level, used, amount), wanted, "{level:?} {used:?} {amount}");
        }
    }
}
