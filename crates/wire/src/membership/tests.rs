use super::*;

fn claim(generation: u64, engine: &str) -> Claim {
    Claim { generation, engine: engine.to_owned() }
}

fn record(serial: u64, members: &[&str]) -> Record {
    let members = members.iter().map(|member| (*member).to_owned()).collect();
    Record { serial, generation: 1, members, reader: None }
}

#[test]
fn only_a_higher_claim_is_taken_and_the_lower_is_cut_off() {
    let first = Standing::default().claim(&claim(1, "a")).unwrap();
    assert!(first.claim(&claim(1, "a")).is_err(), "twice");
    assert!(first.claim(&claim(0, "z")).is_err());
    let second = first.claim(&claim(1, "b")).unwrap();
    assert!(second.permits(&claim(1, "b")).is_ok());
    let refused = second.permits(&claim(1, "a")).unwrap_err().to_string();
    assert!(refused.starts_with(CUT_OFF_TEXT), "{refused}");
    assert!(second.record(&claim(1, "a"), record(1, &[])).is_err());
    assert!(second.claim(&claim(2, "a")).is_ok());
}

#[test]
fn records_only_grow_and_complete_the_copy_they_name() {
    let own = Standing { id: "x".into(), ..Standing::default() }.adopt(&claim(1, "a"));
    assert_eq!(own.filling, Filling::Wanted);
    let other = own.record(&claim(1, "a"), record(3, &["y"])).unwrap();
    assert_eq!(other.filling, Filling::Wanted, "it is no member");
    assert!(other.record(&claim(1, "a"), record(3, &["x"])).is_err());
    assert_eq!(other.filled(0).filling, Filling::Wanted, "for an earlier adoption");
    let member = other.filled(1).record(&claim(1, "a"), record(4, &["y", "x"])).unwrap();
    assert_eq!((member.filling, member.filled(1).filling), (Filling::No, Filling::No));
}

#[test]
fn a_file_of_an_older_or_newer_build_is_read() {
    let text = r#"{"id":"x","claim":{"generation":3},"more":1}"#;
    let read: Standing = serde_json::from_str(text).unwrap();
    assert_eq!((read.claim.generation, read.record, read.filling), (3, None, Filling::No));
}
