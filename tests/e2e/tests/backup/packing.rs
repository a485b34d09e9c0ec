//! Every way of packing blocks, and blocks of both sizes.

use e2e::backup::{Restored, Source, Target};
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use crate::{in_bucket, in_directory};

const WAYS: &[(&str, &str, u64)] =
    &[("lz4", "2", 2), ("gzip", "2", 2), ("none", "2", 2), ("lz4", "16", 16), ("none", "16", 16)];

#[test]
fn of_blocks_in_a_directory() {
    in_directory(|target| {
        let Target::Directory(root) = target else { return };
        every_way(|way| Target::directory(&root.join(way)));
    });
}

#[test]
fn of_blocks_in_a_bucket() {
    in_bucket(|_| every_way(|_| Target::bucket().unwrap()));
}

/// Each from a volume and to a target of its own, all at once.
fn every_way(target: impl Fn(&str) -> Target) {
    std::thread::scope(|scope| {
        for (method, mebibytes, size) in WAYS {
            let target = target(&format!("{method}-{mebibytes}"));
            scope.spawn(move || one_way(&target, method, mebibytes, *size));
        }
    });
}

fn source() -> Source {
    let mut source = Source::start(1, 32);
    let mut random = StdRng::seed_from_u64(7);
    source.scribble(&mut random, 8);
    source.snapshot("one");
    source.scribble(&mut random, 4);
    source.snapshot("two");
    source
}

fn one_way(target: &Target, method: &str, mebibytes: &str, size: u64) {
    let source = source();
    let volume = source.name();
    let packing = ["--compression-method", method, "--backup-block-size", mebibytes];
    let names = |it: &str| format!("backup-{method}-{mebibytes}-{it}");
    let (one, two) = (names("one"), names("two"));
    source.back_up(target, "one", &one, &packing);
    // Later ones are packed as the first, whatever they ask for.
    let other = ["--compression-method", "none", "--backup-block-size", mebibytes];
    let begun = source.back_up(target, "two", &two, &other);
    assert_eq!(begun["isIncremental"], true);
    for (snapshot, backup) in [("one", &one), ("two", &two)] {
        let record = target.record(volume, backup);
        assert_eq!(record["CompressionMethod"], method);
        assert_eq!(record["Parameters"]["backup-block-size"], (size << 20).to_string());
        let image = target.image(volume, backup, source.size_bytes()).unwrap();
        assert!(image == source.snapshots[snapshot], "{backup} in its objects");
    }
    target.assert_sound(volume);
    let to = Restored::fresh(1, source.size_bytes());
    to.restore(target, volume, &one, &source.snapshots["one"]);
    to.restore(target, volume, &two, &source.snapshots["two"]);
}
