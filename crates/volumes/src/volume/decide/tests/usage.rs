//! What a volume takes of a disk, as its engine says.

use super::*;

impl World {
    fn holds(&mut self, layers: &[(&str, &str)]) {
        let layer = |(name, size): &(&str, &str)| {
            let size = Some((*size).to_owned());
            ((*name).to_owned(), EngineSnapshot { size, ..EngineSnapshot::default() })
        };
        let status = self.engine.as_mut().and_then(|it| it.status.as_mut());
        status.unwrap().snapshots = Some(layers.iter().map(layer).collect());
    }

    fn used(&self) -> Option<i64> {
        self.volume.status.as_ref()?.actual_size
    }
}

#[test]
fn a_volume_takes_what_one_copy_holds_in_all_layers() {
    let mut world = World::new(VolumeSpec::default());
    world.ticket(NODE);
    world.run(8);
    world.is(&VolumeState::Attached, &Robustness::Healthy);
    world.holds(&[("volume-head", "4096"), ("monday", "8192"), ("odd", "-3"), ("text", "many")]);
    world.run(2);
    assert_eq!(world.used(), Some(12_288));
    // It is known also while nobody has the volume.
    world.drop_ticket();
    world.run(8);
    world.is(&VolumeState::Detached, &Robustness::Unknown);
    assert_eq!(world.used(), Some(12_288));
}
