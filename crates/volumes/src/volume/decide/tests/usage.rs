//! What a volume takes of a disk, as its engine says.

use api::longhorn::{BlockSize, Compression};

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

#[test]
fn settings_count_for_volumes_that_say_nothing() {
    let limits = |world: &World| {
        let spec = &world.engine.as_ref().unwrap().spec;
        (spec.snapshot_max_count, spec.rebuild_concurrent_sync_limit)
    };
    let begin = |spec: VolumeSpec| {
        let mut world = World::new(spec);
        world.settings.snapshot_max_count = Some(9);
        world.settings.rebuild_sync_limit = Some(3);
        world.settings.large_blocks = true;
        world.settings.compression = Compression::None;
        world.run(6);
        world.ticket(NODE);
        world.run(8);
        world
    };
    let plain = begin(VolumeSpec::default());
    assert_eq!(limits(&plain), (Some(9), Some(3)));
    assert_eq!(plain.volume.spec.backup_block_size, Some(BlockSize::SixteenMib));
    assert_eq!(plain.volume.spec.backup_compression_method, Some(Compression::None));
    assert_eq!(plain.volume.spec.access_mode, Some(AccessMode::ReadWriteOnce));
    let own = begin(VolumeSpec {
        snapshot_max_count: Some(5),
        rebuild_concurrent_sync_limit: Some(2),
        backup_block_size: Some(BlockSize::TwoMib),
        backup_compression_method: Some(Compression::Gzip),
        ..VolumeSpec::default()
    });
    assert_eq!(limits(&own), (Some(5), Some(2)));
    assert_eq!(own.volume.spec.backup_block_size, Some(BlockSize::TwoMib));
    assert_eq!(own.volume.spec.backup_compression_method, Some(Compression::Gzip));
    // One that is there already keeps what it has.
    let mut later = begin(VolumeSpec::default());
    let said = |world: &World| {
        let spec = &world.volume.spec;
        (spec.backup_block_size.clone(), spec.backup_compression_method.clone())
    };
    later.volume.spec.backup_block_size = None;
    later.volume.spec.backup_compression_method = None;
    later.run(4);
    assert_eq!(said(&later), (None, None));
}

/// What is said of a new volume cannot be changed later: what nobody said is said, too.
#[test]
fn a_new_volume_says_how_it_is_backed_up() {
    let mut world = World::new(VolumeSpec::default());
    world.run(2);
    let spec = &world.volume.spec;
    assert_eq!(spec.backup_block_size, Some(BlockSize::TwoMib));
    assert_eq!(spec.backup_compression_method, Some(Compression::Lz4));
}

#[test]
fn a_restored_volume_is_used_by_as_many_as_its_source_unless_somebody_says_otherwise() {
    let restored = |asked: Option<AccessMode>| {
        let mut world = World::from_backup(false);
        world.volume.spec.access_mode = asked;
        world.run(3);
        world.volume.spec.access_mode
    };
    assert_eq!(restored(None), Some(AccessMode::ReadWriteMany));
    assert_eq!(restored(Some(AccessMode::Unset)), Some(AccessMode::ReadWriteMany));
    assert_eq!(restored(Some(AccessMode::ReadWriteOnce)), Some(AccessMode::ReadWriteOnce));
}
