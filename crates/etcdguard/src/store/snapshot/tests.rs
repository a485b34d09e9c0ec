use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn the_json_form_has_the_known_keys_in_their_order() {
    let mut full = Snapshot::full(8, at(1_794_723_820), Some(Compression::Gzip), true);
    full.created_on = "2026-11-15T06:23:40.39420882Z".parse().unwrap();
    assert_eq!(
        serde_json::to_string(&full).unwrap(),
        concat!(
            r#"{"createdOn":"2026-11-15T06:23:40.39420882Z","#,
            r#""immutabilityExpriyTime":"0001-01-01T00:00:00Z","versionID":null,"kind":"Full","#,
            r#""snapDir":"","snapName":"Full-00000000-00000008-1794723820.gz.final","prefix":"","#,
            r#""compressionSuffix":".gz","startRevision":0,"lastRevision":8,"isChunk":false,"#,
            r#""isFinal":true}"#
        )
    );
}

#[test]
fn a_full_snapshot_comes_after_the_delta_it_holds_whatever_the_listing_says() {
    let full = Snapshot::full(8, at(5), None, false);
    let delta = Snapshot::delta(4, 8, at(5), None);
    for mut list in [vec![full.clone(), delta.clone()], vec![delta.clone(), full.clone()]] {
        sort(&mut list);
        assert_eq!(list, [delta.clone(), full.clone()]);
        let latest = Latest::of(&list);
        assert_eq!((latest.full.as_ref(), latest.deltas.len()), (Some(&full), 0));
    }
}

#[test]
fn the_latest_set_is_the_newest_full_and_what_follows_it() {
    let mut list = vec![
        Snapshot::full(3, at(1), None, false),
        Snapshot::delta(4, 8, at(2), None),
        Snapshot::full(8, at(3), None, false),
        Snapshot::delta(9, 10, at(4), None),
        Snapshot::delta(9, 12, at(5), None),
    ];
    let mut chunk = Snapshot::full(20, at(6), None, false);
    chunk.is_chunk = true;
    list.push(chunk);
    sort(&mut list);
    let latest = Latest::of(&list);
    assert_eq!(latest.full.unwrap().last_revision, 8);
    let revisions: Vec<i64> = latest.deltas.iter().map(|delta| delta.last_revision).collect();
    assert_eq!(revisions, [10, 12]);
    list.retain(|snapshot| snapshot.kind == Kind::Incr);
    let latest = Latest::of(&list);
    assert_eq!((latest.full, latest.deltas.len()), (None, 3));
}
