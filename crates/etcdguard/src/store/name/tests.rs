use proptest::prelude::*;

use super::*;

fn name_of(below: &str) -> Snapshot {
    parse(Layout::V2, below).unwrap_or_else(|error| panic!("{below}: {error}"))
}

#[test]
fn names_are_read_as_they_are_written() {
    for name in [
        "Full-00000000-00000003-1794723819.gz",
        "Full-00000000-00000008-1794723820.gz.final",
        "Full-00000000-00000008-1794723820.final",
        "Incr-00000004-00000008-1794723820.zlib",
        "Incr-00000004-123456789012-1794723820.Z",
        "Incr-00000004-00000008-1794723820",
        "Incr-00000004-00000008-1794723820.gz.aesgcm",
    ] {
        assert_eq!(format(&name_of(name)), name);
    }
    let final_one = name_of("Full-00000000-00000008-1794723820.gz.final");
    assert_eq!((final_one.is_final, final_one.compression), (true, Some(Compression::Gzip)));
}

#[test]
fn layouts_have_their_depth() {
    let name = "Full-00000000-00000003-1794723819";
    let old = parse(Layout::V1, &format!("Backup-1794723819/{name}")).unwrap();
    assert_eq!((old.snap_dir.as_str(), old.snap_name.as_str()), ("Backup-1794723819", name));
    assert!(!old.is_chunk);
    assert!(parse(Layout::V1, &format!("Backup-1/{name}/0000000001")).unwrap().is_chunk);
    let chunk = name_of(&format!("{name}/0000000001"));
    assert!(chunk.is_chunk);
    assert_eq!(chunk.snap_name, format!("{name}/0000000001"));
    for (layout, below) in [
        (Layout::V1, name.to_owned()),
        (Layout::V1, format!("a/{name}/b/c")),
        (Layout::V2, format!("{name}/a/b")),
        (Layout::V2, format!("{name}/")),
    ] {
        assert_eq!(parse(layout, &below), Err(NameError::Depth), "{below}");
    }
}

#[test]
fn other_names_are_refused() {
    use NameError as E;
    for (name, error) in [
        ("", E::Shape),
        ("Full-0-1", E::Shape),
        ("Full-0-1-2-3", E::Shape),
        ("full-00000000-00000001-2", E::Shape),
        ("Full-0x-1-2", E::Revision),
        ("Full-+1-1-2", E::Revision),
        ("Full--1-2", E::Revision),
        ("Full-0-99999999999999999999-2", E::Revision),
        ("Incr-9-8-2", E::Range),
        ("Full-0-1-", E::Time),
        ("Full-0-1-x", E::Time),
        ("Full-0-1-9999999999999999", E::Time),
        ("Full-0-1-2.bz2", E::Suffix),
        ("Full-0-1-2.final.gz", E::Suffix),
        ("Full-0-1-2.gz.gz", E::Suffix),
    ] {
        assert_eq!(parse(Layout::V2, name), Err(error), "{name}");
    }
}

proptest! {
    #[test]
    fn noise_never_panics(noise in "(Full|Incr)?[-0-9./a-zé]{0,60}|.{0,80}") {
        let _ = parse(Layout::V1, &noise);
        if let Ok(snapshot) = parse(Layout::V2, &noise) {
            prop_assert_eq!(snapshot.snap_name, noise);
        }
    }

    #[test]
    fn every_name_comes_back(
        start in 0_i64..i64::MAX / 2,
        more in 0_i64..i64::MAX / 2,
        second in 0_i64..100_000_000_000,
        packing in 0_usize..4,
        is_encrypted in any::<bool>(),
    ) {
        let created = Timestamp::from_second(second).unwrap();
        let compression = Compression::ALL.get(packing).copied();
        let mut snapshot = Snapshot::delta(start, start + more, created, compression);
        snapshot.is_encrypted = is_encrypted;
        snapshot.rename();
        prop_assert_eq!(parse(Layout::V2, &snapshot.snap_name), Ok(snapshot));
    }
}
