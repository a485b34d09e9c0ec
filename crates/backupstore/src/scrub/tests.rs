//! What is due when, and what a report makes of findings.

use super::*;
use crate::delete::Unreadable;
use crate::verify::{DamagedBackup, Kind};

const HOUR: Duration = Duration::from_hours(1);
const SCHEDULE: Schedule =
    Schedule { every: HOUR, deep_every: Duration::from_hours(10), once_since: None };

fn at(hours: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + hours * 3600).unwrap()
}

fn volumes(names: &[&str]) -> Vec<Subject> {
    names.iter().map(|name| Subject::Volume(Name::parse(name).unwrap())).collect()
}

fn found(healthy: &[&str], damaged: &[(&str, u64)]) -> VerifyReport {
    let damage = |(name, deep_places): &(&str, u64)| DamagedBackup {
        name: (*name).to_owned(),
        damaged_places: 1,
        deep_places: *deep_places,
        places: vec![DamagedPlace { offset: 0, path: "x".into(), damage: "gone".into() }],
    };
    VerifyReport {
        kind: Kind::Volume,
        volume: "vv".into(),
        healthy: healthy.iter().map(|name| (*name).to_owned()).collect(),
        damaged: damaged.iter().map(damage).collect(),
        in_progress: vec![],
        unreadable: vec![],
        blocks: 3,
        checked_blocks: 3,
        orphan_blocks: 0,
        orphan_bytes: 0,
    }
}

fn part(of: &Subject, depth: Depth) -> Part<'_> {
    Part { of, depth, slice: Slice::ALL }
}

#[test]
fn what_is_due_longest_comes_first_and_quick_before_deep() {
    let names = volumes(&["aa", "bb"]);
    let mut report = ScrubReport::new("vfs:///x".into());
    let mut order = Vec::new();
    let mut now = at(0);
    for _ in 0..4 {
        let Next::Check(part) = report.next(&names, SCHEDULE, now) else { panic!() };
        order.push((part.of.to_string(), part.depth));
        report.entry(part.of).note(part, &found(&["b1"], &[]), now);
    }
    let quick_then_deep = [
        ("aa".to_owned(), Depth::Quick),
        ("bb".to_owned(), Depth::Quick),
        ("aa".to_owned(), Depth::Deep),
        ("bb".to_owned(), Depth::Deep),
    ];
    assert_eq!(order, quick_then_deep);
    assert_eq!(report.next(&names, SCHEDULE, now), Next::Wait(at(1)));
    now = at(1);
    let Next::Check(next) = report.next(&names, SCHEDULE, now) else { panic!() };
    assert_eq!(next.depth, Depth::Quick);
    let once = Schedule { every: Duration::ZERO, once_since: Some(at(0)), ..SCHEDULE };
    assert_eq!(report.next(&names, once, now), Next::Wait(Timestamp::MAX), "once is once");
    report.retain(&volumes(&["bb"]));
    assert_eq!(report.volumes.len(), 1);
    assert_eq!(report.next(&[], SCHEDULE, now), Next::Wait(at(2)));
}

#[test]
fn backing_images_are_due_like_volumes_and_forgotten_with_the_last() {
    let all = [volumes(&["aa"]), vec![Subject::BackingImages]].concat();
    let mut report = ScrubReport::new("vfs:///x".into());
    let mut order = Vec::new();
    while let Next::Check(part) = report.next(&all, SCHEDULE, at(0)) {
        order.push((part.of.to_string(), part.depth));
        report.entry(part.of).note(part, &found(&["i1"], &[("i2", 1)]), at(0));
    }
    let images = "backing images".to_owned();
    assert_eq!(order[1], (images.clone(), Depth::Quick));
    assert_eq!(order[3], (images, Depth::Deep));
    assert_eq!((order.len(), report.broken(), report.is_healthy()), (4, 2, false));
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<ScrubReport>(&text).unwrap(), report);
    assert_eq!(report.of(&Subject::BackingImages).unwrap().healthy, ["i1"]);
    report.retain(&volumes(&["aa"]));
    assert_eq!((report.of(&Subject::BackingImages), report.broken()), (None, 1));
    let early: ScrubReport =
        serde_json::from_str(r#"{"target":"x","updated":null,"volumes":{}}"#).unwrap();
    assert!(early.is_healthy(), "of a time when they were not looked at");
}

#[test]
fn a_failure_is_tried_again_later_and_keeps_what_is_known() {
    let names = volumes(&["aa"]);
    let mut report = ScrubReport::new("vfs:///x".into());
    let volume = report.volumes.entry("aa".into()).or_default();
    volume.note(part(&names[0], Depth::Quick), &found(&[], &[("b1", 0)]), at(0));
    volume.failed = Some(Failed { at: at(0), why: "no".into() });
    assert!(!report.is_healthy());
    let Next::Wait(when) = report.next(&names, SCHEDULE, at(0)) else { panic!() };
    assert_eq!(when.duration_since(at(0)).as_secs(), 600);
    assert_eq!(report.broken(), 1);
}

#[test]
fn broken_since_when_is_kept_and_only_the_right_look_clears_it() {
    let names = volumes(&["vv"]);
    let (quick, deep) = (part(&names[0], Depth::Quick), part(&names[0], Depth::Deep));
    let mut volume = VolumeScrub::default();
    volume.note(quick, &found(&["b1"], &[("b2", 0)]), at(0));
    volume.note(deep, &found(&[], &[("b1", 1), ("b2", 0)]), at(1));
    let since = |volume: &VolumeScrub, name: &str| volume.broken.get(name).map(|it| it.since);
    assert_eq!((since(&volume, "b1"), since(&volume, "b2")), (Some(at(1)), Some(at(0))));
    // The missing block is back; the wrong one does not show from outside.
    volume.note(quick, &found(&["b1", "b2"], &[]), at(2));
    assert_eq!((since(&volume, "b1"), since(&volume, "b2")), (Some(at(1)), None));
    assert_eq!(volume.healthy, ["b2"]);
    volume.note(deep, &found(&["b1", "b2"], &[]), at(3));
    assert!(volume.is_healthy());
    // A backup that was deleted is not broken any more; one that cannot be read is.
    volume.note(deep, &found(&[], &[("b1", 1)]), at(4));
    let mut other = found(&["b2"], &[]);
    other.unreadable.push(Unreadable { name: "b3".into(), why: "noise".into() });
    volume.note(quick, &other, at(5));
    assert_eq!(volume.broken.keys().collect::<Vec<_>>(), ["b3"]);
    assert_eq!(volume.broken["b3"].unreadable.as_deref(), Some("noise"));
}

#[test]
fn a_long_deep_pass_goes_in_parts_and_survives_a_restart() {
    let names = volumes(&["vv"]);
    let mut report = ScrubReport::new("vfs:///x".into());
    let many = VerifyReport { blocks: 20 * BLOCKS_AT_ONCE, ..found(&["b1"], &[]) };
    report.volumes.entry("vv".into()).or_default().note(
        part(&names[0], Depth::Quick),
        &many,
        at(0),
    );
    let mut covered = 0;
    let mut parts = 0;
    while let Next::Check(part) = report.next(&names, SCHEDULE, at(0)) {
        assert_eq!((part.depth, part.slice.from), (Depth::Deep, covered));
        covered = part.slice.to;
        parts += 1;
        let mut seen = many.clone();
        if parts == 2 {
            seen = VerifyReport { blocks: seen.blocks, ..found(&[], &[("b1", 1)]) };
        }
        report.volumes.get_mut("vv").unwrap().note(part, &seen, at(0));
        // Written and read between any two parts.
        let text = serde_json::to_string(&report).unwrap();
        report = serde_json::from_str(&text).unwrap();
        assert_eq!(report.broken(), usize::from(parts >= 2), "seen at once, and kept to the end");
    }
    assert_eq!((covered, parts), (Slice::END, 20));
    assert_eq!(report.volumes["vv"].deep_checked, Some(at(0)));
}
