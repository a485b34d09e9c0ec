//! A volume put back to a snapshot by its annotation, and copies that somebody deletes.

use serde_json::{Value, json};

use e2e::volumes::{Content, Rig};

const ASKED: &str = "holdfast.io/revert-to";

fn ask(rig: &Rig, volume: &str, snapshot: &str) {
    rig.patch("lhv", volume, &json!({"metadata": {"annotations": {ASKED: snapshot}}}));
}

fn is_asked(rig: &Rig, volume: &str) -> bool {
    let annotations = rig.field("lhv", volume, "/metadata/annotations");
    annotations.is_some_and(|it| it.get(ASKED).is_some())
}

fn told(rig: &Rig, volume: &str) -> String {
    let conditions = rig.field("lhv", volume, "/status/conditions").unwrap_or_default();
    let all = conditions.as_array().cloned().unwrap_or_default();
    let of = all.into_iter().find(|it| it["type"] == "Revert");
    of.map_or(String::new(), |it| format!("{} {}", it["reason"], it["message"]))
}

#[test]
fn a_volume_is_put_back_to_a_snapshot_while_nobody_has_it() {
    let rig = Rig::start();
    rig.volume("back", 16, 2);
    rig.attach("back");
    let mut content = Content::new();
    rig.write("back", &mut content, 0, 6, 1);
    rig.snapshot("back", "good");
    let good = content.clone();
    rig.write("back", &mut content, 3, 8, 2);
    rig.snapshot("back", "later");
    rig.write("back", &mut content, 10, 4, 3);
    // While somebody has it, it waits and says so: nothing changes under its user.
    ask(&rig, "back", "good");
    rig.until("it is told that the volume is in use", || told(&rig, "back").contains("in use"));
    rig.holds("back", &content, 16);
    rig.detach("back");
    rig.until("the volume is reverted and let go", || {
        !is_asked(&rig, "back") && rig.tickets("back") == 0 && rig.state("back") == "detached"
    });
    assert!(told(&rig, "back").contains("Reverted"), "{}", told(&rig, "back"));
    rig.attach("back");
    rig.holds("back", &good, 16);
    // It is a volume as before: written to, and put back again.
    let mut content = good.clone();
    rig.write("back", &mut content, 0, 16, 4);
    rig.detach("back");
    ask(&rig, "back", "good");
    rig.until("the volume is reverted once more", || {
        !is_asked(&rig, "back") && rig.state("back") == "detached"
    });
    rig.attach("back");
    rig.holds("back", &good, 16);
    rig.detach("back");
    // A snapshot that is not there changes nothing.
    ask(&rig, "back", "nobody");
    rig.until("it is told that there is no such snapshot", || {
        !is_asked(&rig, "back") && told(&rig, "back").contains("has no snapshot nobody")
    });
    rig.attach("back");
    rig.holds("back", &good, 16);
}

#[test]
fn the_last_good_copy_stays_until_another_is_whole() {
    let rig = Rig::start();
    rig.volume("last", 16, 1);
    rig.attach("last");
    let mut content = Content::new();
    rig.write("last", &mut content, 0, 8, 1);
    let old = rig.replicas("last").remove(0);
    let folder = rig.folder(&old);
    rig.kubectl(&["delete", "lhr", &old, "--wait=false"]);
    // Its place is taken before it goes; nobody who uses the volume notices.
    rig.write("last", &mut content, 4, 8, 2);
    rig.is_gone("lhr", &old);
    rig.until("the volume is healthy", || rig.is_healthy("last"));
    rig.holds("last", &content, 16);
    let disk = rig.server.data_dir().join("disk/replicas").join(folder);
    rig.until("its data is gone", || !disk.exists());
    // Detached there is nothing to take its place from.
    rig.detach("last");
    let only = rig.replicas("last").remove(0);
    rig.kubectl(&["delete", "lhr", &only, "--wait=false"]);
    rig.until("it is told that the last copy is kept", || {
        let conditions = rig.field("lhv", "last", "/status/conditions").unwrap_or_default();
        let all: Vec<Value> = conditions.as_array().cloned().unwrap_or_default();
        all.iter().any(|it| it["type"] == "LastCopy" && it["message"].to_string().contains(&only))
    });
    rig.attach("last");
    rig.holds("last", &content, 16);
    rig.is_gone("lhr", &only);
    rig.holds("last", &content, 16);
    rig.kubectl(&["delete", "lhv", "last", "--timeout=120s"]);
}
