//! How much of a disk a volume takes: what one of its copies holds, in all its layers.

use api::longhorn::EngineSnapshot;

use super::draft::Draft;

impl Draft<'_> {
    /// What the engine last said of its layers. The scheduler counts with it: a disk must have that much
    /// left for another copy.
    pub(super) fn follow_usage(&mut self) {
        let engine = self.engine_status();
        // Until a first backup is there the volume counts as what will come.
        let is_empty = engine.last_restored_backup.as_ref().is_none_or(String::is_empty);
        if self.restores() && is_empty {
            return;
        }
        let Some(layers) = &engine.snapshots else { return };
        let bytes = layers.values().filter_map(size).fold(0, i64::saturating_add);
        // One that has just started has not been asked yet: what is known stays.
        if !layers.is_empty() && self.status.actual_size != Some(bytes) {
            self.status.actual_size = Some(bytes);
        }
    }
}

fn size(layer: &EngineSnapshot) -> Option<i64> {
    layer.size.as_ref()?.parse().ok().filter(|bytes| *bytes >= 0)
}
