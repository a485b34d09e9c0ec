//! Rights, as controllers ask for them.

/// One line of what a controller may do: these verbs on these resources of these groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    pub groups: &'static [&'static str],
    pub resources: &'static [&'static str],
    pub verbs: &'static [&'static str],
}
