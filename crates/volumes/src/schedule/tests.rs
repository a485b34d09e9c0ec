use proptest::prelude::*;

use super::*;

const GIB: i64 = 1 << 30;

fn disk(uuid: &str, available_gib: i64) -> CandidateDisk {
    CandidateDisk {
        uuid: uuid.into(),
        path: format!("/{uuid}"),
        is_open: true,
        has_file_limit: false,
        tags: BTreeSet::new(),
        room: Room {
            maximum_bytes: 100 * GIB,
            available_bytes: available_gib * GIB,
            scheduled_bytes: 0,
            reserved_bytes: 10 * GIB,
        },
    }
}

fn node(name: &str, zone: &str, available_gib: i64) -> Candidate {
    Candidate {
        name: name.into(),
        zone: zone.into(),
        region: String::new(),
        is_open: true,
        runs_instances: true,
        has_image: true,
        tags: BTreeSet::new(),
        disks: vec![disk(&format!("{name}-d1"), available_gib)],
    }
}

fn asked() -> Asked {
    Asked {
        size_bytes: GIB,
        data_bytes: 0,
        hard_node: None,
        node_selector: BTreeSet::new(),
        disk_selector: BTreeSet::new(),
        topology: Vec::new(),
        affinity: Affinity::default(),
        rules: Rules::default(),
        empty_node_selector_matches_all: true,
        empty_disk_selector_matches_all: true,
    }
}

fn on(node: &str) -> Placed {
    Placed { node: node.into(), disk: format!("{node}-d1"), evicting: false }
}

fn leaving(node: &str) -> Placed {
    Placed { evicting: true, ..on(node) }
}

fn tags(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn chosen(asked: &Asked, nodes: &[Candidate], others: &[Placed]) -> Result<String, String> {
    place(asked, nodes, others).map(|it| it.node).map_err(|why| why.to_string())
}

#[test]
fn the_node_with_most_left_takes_it() {
    let nodes = [node("n1", "", 80), node("n2", "", 90), node("n3", "", 90)];
    assert_eq!(chosen(&asked(), &nodes, &[]), Ok("n2".into()));
    let mut nodes = nodes;
    let first = place(&asked(), &nodes, &[]).unwrap();
    reserve(&mut nodes, &first, 20 * GIB);
    assert_eq!(chosen(&asked(), &nodes, &[]), Ok("n3".into()));
}

/// (zone soft, node soft, others, where)
#[test]
fn copies_keep_apart_as_far_as_they_must() {
    let nodes = [node("n1", "a", 90), node("n2", "a", 80), node("n3", "b", 70)];
    let failed = || Err("replica scheduling failed".to_owned());
    for (zone_soft, node_soft, others, wanted) in [
        (true, false, vec![], Ok("n1".to_owned())),
        // Another zone is better than more room.
        (true, false, vec![on("n1")], Ok("n3".into())),
        (true, false, vec![on("n1"), on("n3")], Ok("n2".into())),
        (true, false, vec![on("n1"), on("n2"), on("n3")], failed()),
        (true, false, vec![on("n1"), leaving("n2"), on("n3")], Ok("n2".into())),
        (true, true, vec![on("n1"), on("n2"), on("n3")], Ok("n1".into())),
        (false, true, vec![on("n1")], Ok("n3".into())),
        (false, true, vec![on("n1"), on("n3")], failed()),
        (false, false, vec![on("n1"), leaving("n3")], Ok("n3".into())),
        (false, false, vec![on("n1"), leaving("n2"), on("n3")], failed()),
    ] {
        let affinity = Affinity { zone_soft, node_soft, disk_soft: true };
        let asked = Asked { affinity, ..asked() };
        assert_eq!(chosen(&asked, &nodes, &others), wanted, "{zone_soft} {node_soft} {others:?}");
    }
}

#[test]
fn disks_are_shared_last_and_only_if_they_may_be() {
    let mut one = node("n1", "", 90);
    one.disks.push(disk("n1-d2", 40));
    let soft = Affinity { zone_soft: true, node_soft: true, disk_soft: true };
    let asked_soft = Asked { affinity: soft, ..asked() };
    let first = place(&asked_soft, std::slice::from_ref(&one), &[on("n1")]).unwrap();
    assert_eq!((first.disk_uuid.as_str(), first.disk_path.as_str()), ("n1-d2", "/n1-d2"));
    let both = [on("n1"), Placed { disk: "n1-d2".into(), ..on("n1") }];
    let shared = place(&asked_soft, std::slice::from_ref(&one), &both).unwrap();
    assert_eq!(shared.disk_uuid, "n1-d1");
    let asked_hard = Asked { affinity: Affinity { disk_soft: false, ..soft }, ..asked() };
    assert_eq!(
        chosen(&asked_hard, std::slice::from_ref(&one), &both),
        Err("replica scheduling failed".into())
    );
}

#[test]
fn every_reason_is_said_in_the_words_of_the_dialect() {
    let open = || node("n1", "", 90);
    let cases: Vec<(Asked, Vec<Candidate>, &str)> = vec![
        (asked(), vec![], "node not found"),
        (asked(), vec![Candidate { is_open: false, ..open() }], "nodes are unavailable"),
        (asked(), vec![Candidate { runs_instances: false, ..open() }], "nodes are unavailable"),
        (
            Asked { hard_node: Some("n9".into()), ..asked() },
            vec![open()],
            "hard affinity cannot be satisfied",
        ),
        (
            asked(),
            vec![Candidate { has_image: false, ..open() }],
            "none of the node candidates contains a ready engine image",
        ),
        (
            Asked {
                topology: vec![Topology { zone: "z".into(), ..Topology::default() }],
                ..asked()
            },
            vec![open()],
            "topology requirement cannot be satisfied",
        ),
        (Asked { node_selector: tags(&["fast"]), ..asked() }, vec![open()], "tags not fulfilled"),
        (Asked { disk_selector: tags(&["ssd"]), ..asked() }, vec![open()], "tags not fulfilled"),
        (asked(), vec![Candidate { disks: vec![], ..open() }], "disk not found"),
        (
            asked(),
            vec![Candidate {
                disks: vec![CandidateDisk { is_open: false, ..disk("d", 90) }],
                ..open()
            }],
            "disks are unavailable",
        ),
        (Asked { size_bytes: 91 * GIB, ..asked() }, vec![open()], "insufficient storage"),
        (Asked { data_bytes: 66 * GIB, ..asked() }, vec![open()], "insufficient storage"),
        (asked(), vec![open(), Candidate { disks: vec![disk("d", 20)], ..node("n2", "", 0) }], ""),
        (
            Asked { size_bytes: EXT4_MAX_BYTES + 1, ..asked() },
            vec![Candidate {
                disks: vec![CandidateDisk { has_file_limit: true, ..disk("d", 90) }, disk("e", 90)],
                ..open()
            }],
            "incompatible volume size;insufficient storage",
        ),
    ];
    for (asked, nodes, wanted) in cases {
        match chosen(&asked, &nodes, &[]) {
            Ok(_) => assert_eq!(wanted, ""),
            Err(why) => assert_eq!(why, wanted),
        }
    }
}

#[test]
fn tagged_nodes_and_disks_take_what_asks_for_them() {
    let mut nodes = vec![node("n1", "", 90), node("n2", "", 50)];
    nodes[1].tags = tags(&["fast", "big"]);
    nodes[1].disks[0].tags = tags(&["ssd"]);
    let fast = Asked { node_selector: tags(&["fast"]), disk_selector: tags(&["ssd"]), ..asked() };
    assert_eq!(chosen(&fast, &nodes, &[]), Ok("n2".into()));
    let plain = Asked { empty_node_selector_matches_all: false, ..asked() };
    nodes[0].tags = tags(&["slow"]);
    assert_eq!(chosen(&plain, &nodes, &[]), Err("tags not fulfilled".into()));
}

fn any_node() -> impl Strategy<Value = Candidate> {
    let disk = (0i64..100, 0i64..80, any::<bool>(), 0usize..3).prop_map(
        |(available, scheduled, open, tag)| {
            let mut disk = disk("", available);
            disk.room.scheduled_bytes = scheduled * GIB;
            disk.is_open = open;
            disk.tags = tags(&["ssd", "nvme"][..tag.min(2)]);
            disk
        },
    );
    (0usize..3, any::<bool>(), prop::collection::vec(disk, 0..3), 0usize..3).prop_map(
        |(zone, open, disks, tag)| {
            let mut node = node("", ["a", "b", "c"][zone], 0);
            node.is_open = open;
            node.disks = disks;
            node.tags = tags(&["fast", "big"][..tag.min(2)]);
            node
        },
    )
}

proptest! {
    /// What is chosen keeps every rule, and something is chosen whenever something keeps them all; of
    /// what keeps them as well, nothing would spread what is left more evenly.
    #[test]
    fn a_place_is_found_exactly_if_there_is_one(
        mut nodes in prop::collection::vec(any_node(), 0..5),
        placed in prop::collection::vec((0usize..5, 0usize..3, any::<bool>()), 0..4),
        soft: (bool, bool, bool),
        size in 1i64..40,
        selectors in (0usize..2, 0usize..2),
    ) {
        for (index, node) in nodes.iter_mut().enumerate() {
            node.name = format!("n{index}");
            for (number, disk) in node.disks.iter_mut().enumerate() {
                disk.uuid = format!("n{index}-d{number}");
            }
        }
        let others: Vec<Placed> = placed
            .iter()
            .map(|(node, disk, evicting)| Placed {
                node: format!("n{node}"),
                disk: format!("n{node}-d{disk}"),
                evicting: *evicting,
            })
            .collect();
        let affinity = Affinity { zone_soft: soft.0, node_soft: soft.1, disk_soft: soft.2 };
        let asked = Asked {
            size_bytes: size * GIB,
            affinity,
            node_selector: tags(&["fast"][..selectors.0]),
            disk_selector: tags(&["ssd"][..selectors.1]),
            ..asked()
        };
        let zone_of = |name: &str| nodes.iter().find(|it| it.name == name).map_or("", |it| &it.zone);
        // The rules once more, one place at a time.
        let keeps = |node: &Candidate, disk: &CandidateDisk| {
            let shares_disk = others.iter().any(|it| it.disk == disk.uuid);
            let on_node: Vec<&Placed> = others.iter().filter(|it| it.node == node.name).collect();
            let in_zone: Vec<&Placed> =
                others.iter().filter(|it| zone_of(&it.node) == node.zone || it.node == node.name).collect();
            let apart = match (affinity.zone_soft, affinity.node_soft) {
                (true, true) => true,
                (true, false) => on_node.iter().all(|it| it.evicting),
                (false, _) => in_zone.iter().all(|it| it.evicting),
            };
            node.is_open
                && disk.is_open
                && asked.node_selector.is_subset(&node.tags)
                && asked.disk_selector.is_subset(&disk.tags)
                && asked.rules.refuses(&disk.room, asked.size_bytes, 0).is_none()
                && (affinity.disk_soft || !shares_disk)
                && apart
        };
        let possible = nodes.iter().any(|node| node.disks.iter().any(|disk| keeps(node, disk)));
        match place(&asked, &nodes, &others) {
            Ok(found) => {
                let node = nodes.iter().find(|it| it.name == found.node).unwrap();
                let disk = node.disks.iter().find(|it| it.uuid == found.disk_uuid).unwrap();
                prop_assert!(keeps(node, disk));
            }
            Err(why) => {
                prop_assert!(!possible, "{why}");
                prop_assert!(!why.to_string().is_empty());
            }
        }
    }
}
