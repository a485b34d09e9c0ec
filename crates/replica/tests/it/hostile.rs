//! Directories nobody should make: they are refused by name, and nothing outside is touched.

use std::os::unix::fs::symlink;

use proptest::prelude::*;
use replica::{OpenRequest, Options, Replica, State};

use crate::place::Place;

const DISK: &str = r#"{"Name":"","Parent":"PARENT","Removed":false}"#;

fn disk(parent: &str) -> String {
    DISK.replace("PARENT", parent)
}

fn prepared() -> Place {
    let place = Place::new();
    place.created(16).close().unwrap();
    place
}

fn rejection(place: &Place) -> String {
    let mut replica = Replica::new(place.path(), Options::default());
    replica.open(&OpenRequest::default()).unwrap_err().text()
}

#[test]
fn bad_metadata_is_refused_by_name() {
    let volume = |size: &str, head: &str| format!(r#"{{"Size":{size},"Head":"{head}"}}"#);
    let head = "volume-head-000.img";
    let meta = "volume-head-000.img.meta";
    let cases = [
        ("volume.meta", volume("-4096", head), "size -4096 is not"),
        ("volume.meta", volume("9223372036854775807", head), "size 9223372036854775807 is not"),
        ("volume.meta", volume("99999999999999999999", head), "volume.meta is damaged"),
        ("volume.meta", volume("4611686018427387905", head), "is not a positive multiple"),
        ("volume.meta", volume("4097", head), "is not a positive multiple"),
        ("volume.meta", volume("4096", "../volume-head-000.img"), "is not the name of a disk"),
        ("volume.meta", volume("4096", "volume-snap-a.img"), "is not the name of a disk"),
        ("volume.meta", volume("4096", ""), "is not the name of a disk"),
        ("volume.meta", volume("4096", "volume-head-009.img"), "failed to find metadata for"),
        ("volume.meta", r#"{"Size":4096,"Error":"bad disk"}"#.into(), "bad disk"),
        ("volume.meta", "[1,2".into(), "volume.meta is damaged"),
        ("volume.meta", "[".repeat(100_000), "volume.meta is damaged"),
        ("volume.meta", " ".repeat(2 << 20), "cannot replace"),
        (meta, disk("../../etc/passwd"), "is not the name of a disk"),
        (meta, disk("volume-snap-gone.img"), "failed to find metadata for volume-snap-gone.img"),
        (meta, disk(head), "form a circle"),
        (meta, String::new(), "it is empty"),
        ("revision.counter", "many".into(), "revision.counter is damaged"),
        ("revision.counter", "1".repeat(5000), "longer than"),
    ];
    for (file, contents, expected) in cases {
        let place = prepared();
        place.put(file, &contents);
        let text = rejection(&place);
        // A file that is too long says so through the layer that reads it.
        let is_named = text.contains(expected) || text.contains("longer than");
        assert!(is_named, "{file}: {text}, not {expected}");
        let kept = std::fs::read_to_string(place.file(file)).unwrap();
        assert!(kept == contents, "{file} is left as it was");
    }
}

#[test]
fn what_is_not_a_plain_file_is_refused() {
    let place = prepared();
    let outside = tempfile::NamedTempFile::new().unwrap();
    std::fs::remove_file(place.file("volume-head-000.img")).unwrap();
    symlink(outside.path(), place.file("volume-head-000.img")).unwrap();
    assert_eq!(rejection(&place), "volume-head-000.img is not a regular file");
    std::fs::remove_file(place.file("volume-head-000.img")).unwrap();
    std::fs::create_dir(place.file("volume-head-000.img")).unwrap();
    let text = rejection(&place);
    assert!(text.contains("volume-head-000.img"), "{text}");

    let place = prepared();
    std::fs::remove_file(place.file("volume.meta")).unwrap();
    symlink(outside.path(), place.file("volume.meta")).unwrap();
    assert_eq!(rejection(&place), "volume.meta is not a regular file");
    assert_eq!(Replica::new(place.path(), Options::default()).state(), State::Error);

    let place = prepared();
    symlink(outside.path(), place.file("volume-snap-a.img.meta")).unwrap();
    assert_eq!(rejection(&place), "volume-snap-a.img.meta is not a regular file");
}

#[test]
fn a_missing_image_is_named() {
    let place = prepared();
    place.put("volume-head-000.img.meta", &disk("volume-snap-a.img"));
    place.put("volume-snap-a.img.meta", &disk(""));
    assert_eq!(rejection(&place), "cannot open volume-snap-a.img: no such file or directory");
}

#[test]
fn files_nobody_knows_are_left_alone() {
    let place = prepared();
    let names = ["volume-delta-x.img", "volume-snap-a.img.snap_tmp", "notes", "volume-snap-b.img"];
    for name in names {
        place.put(name, "keep");
    }
    place.created(16);
    for name in names {
        assert_eq!(std::fs::read_to_string(place.file(name)).unwrap(), "keep");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn noise_in_any_file_never_panics(
        file in prop::sample::select(vec![
            "volume.meta", "volume-head-000.img.meta", "revision.counter",
            "volume-snap-a.img.meta", "volume-head-001.img.meta", "volume-head-000.img.checksum",
        ]),
        contents in prop_oneof![
            ".{0,80}",
            r#"\{"(Size|Head|Parent|Dirty|Labels|Removed)":("volume-(head|snap)-[a-z0-9]{1,3}\.img"|null|-?[0-9]{1,20}|true)\}"#,
        ],
    ) {
        let place = prepared();
        place.put(file, &contents);
        let mut replica = Replica::new(place.path(), Options::default());
        let _ = replica.report();
        if replica.open(&OpenRequest::default()).is_ok() {
            let _ = replica.write_at(&[1; 10], 10);
            let _ = replica.snapshot("s", true, "now", None);
            let _ = replica.close();
        }
        let _ = replica.report();
    }
}
