//! Another engine in the place of the one that serves, under its clients; and volumes that began with an
//! engine of an earlier day.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use serde_json::json;

use e2e::engine::{Endpoint, Nbd, blocking};
use e2e::volumes::{Content, MIB, Rig};

const NEXT: &str = "example/engine:v2";
const OLD: &str = "example/engine:v1";

/// A client on one connection, whose every write has to succeed.
struct Client {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    thread: JoinHandle<Result<(), String>>,
}

impl Client {
    /// Writes the last mebibyte again and again.
    fn start(rig: &Rig, volume: &str, mebibytes: u64) -> Self {
        let endpoint = rig.endpoint(volume);
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ends, counts) = (Arc::clone(&stop), Arc::clone(&count));
        let thread = std::thread::spawn(move || {
            blocking(async {
                let nbd = Nbd::connect(&Endpoint::parse(&endpoint)).await;
                let nbd = nbd.map_err(|error| error.to_string())?;
                while !ends.load(Ordering::Relaxed) {
                    let bytes = vec![7; 64 << 10];
                    let wrote = nbd.write((mebibytes - 1) * MIB, bytes.into()).await;
                    wrote.map_err(|error| format!("write: {error}"))?;
                    nbd.flush().await.map_err(|error| format!("flush: {error}"))?;
                    counts.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        });
        Self { stop, count, thread }
    }

    fn goes_on(&self, rig: &Rig) {
        let before = self.count.load(Ordering::Relaxed);
        rig.until("the client goes on", || {
            self.thread.is_finished() || self.count.load(Ordering::Relaxed) > before + 3
        });
    }

    #[track_caller]
    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap().expect("a client of the volume saw an error");
    }
}

fn folder(rig: &Rig, image: &str) -> PathBuf {
    let name = image.replace(['/', ':'], "-");
    let folder = rig.server.data_dir().join("engine-binaries").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn tell_of(rig: &Rig, object: &str, image: &str) {
    rig.create("EngineImage", object, &json!({}), &json!({"image": image}));
    rig.until("the image is deployed", || rig.text("lhei", object, "/status/state") == "deployed");
}

/// This very program, under another name.
fn deploy_next(rig: &Rig) {
    let program = folder(rig, NEXT).join("longhorn");
    std::os::unix::fs::symlink(e2e::server::binary(), program).unwrap();
    tell_of(rig, "ei-next", NEXT);
}

/// One that says that it is older than the command line which fills copies from backups, and refuses
/// what came with that.
fn deploy_old(rig: &Rig) {
    let program = folder(rig, OLD).join("longhorn");
    let script = format!(
        r#"#!/bin/bash
for word in "$@"; do
  case "$word" in
    --restore) echo "flag provided but not defined: -restore" >&2; exit 1 ;;
    version) echo '{{"clientVersion": {{"version": "v1.0.1", "gitCommit": "", "buildDate": "",
      "cliAPIVersion": 3, "cliAPIMinVersion": 3, "controllerAPIVersion": 5,
      "controllerAPIMinVersion": 3, "dataFormatVersion": 1, "dataFormatMinVersion": 1}},
      "serverVersion": null}}'; exit 0 ;;
  esac
done
exec -a longhorn "{}" "$@"
"#,
        e2e::server::binary().display()
    );
    e2e::write(&program, &script);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    tell_of(rig, "ei-old", OLD);
    assert_eq!(rig.field("lhei", "ei-old", "/status/cliAPIVersion"), Some(json!(3)));
}

fn ask(rig: &Rig, volume: &str, image: &str) {
    rig.patch("lhv", volume, &json!({"spec": {"image": image}}));
}

#[track_caller]
fn is_served_by(rig: &Rig, volume: &str, image: &str, copies: usize) {
    rig.until("the volume is served by the other engine, and whole", || {
        rig.text("lhv", volume, "/status/currentImage") == image
            && rig.text("lhe", &format!("{volume}-e-0"), "/status/currentImage") == image
            && rig.replicas(volume).len() == copies
            && rig.is_healthy(volume)
    });
    for replica in rig.replicas(volume) {
        assert_eq!(rig.text("lhr", &replica, "/status/currentImage"), image, "{replica}");
    }
}

#[test]
fn clients_notice_nothing_when_another_engine_takes_over() {
    let mut rig = Rig::start();
    deploy_next(&rig);
    rig.volume("live", 16, 2);
    rig.attach("live");
    let usual = rig.text("lhv", "live", "/status/currentImage");
    let mut content = Content::new();
    rig.write("live", &mut content, 0, 8, 1);
    let claim_of = |rig: &Rig| {
        let claim = rig.field("lhv", "live", "/status/claimGeneration");
        assert_eq!(rig.field("lhe", "live-e-0", "/spec/claimGeneration"), claim);
        claim.and_then(|it| it.as_i64()).expect("a volume that is attached has a claim")
    };
    let (endpoint, claim) = (rig.endpoint("live"), claim_of(&rig));
    let client = Client::start(&rig, "live", 16);
    client.goes_on(&rig);
    for image in [NEXT, &usual] {
        ask(&rig, "live", image);
        is_served_by(&rig, "live", image, 2);
        client.goes_on(&rig);
        assert_eq!(rig.endpoint("live"), endpoint, "others find it where it was");
    }
    // The controllers and the node are killed in the middle of it.
    ask(&rig, "live", NEXT);
    rig.until("it is under way, or over", || {
        rig.replicas("live").len() > 2 || rig.text("lhv", "live", "/status/currentImage") == NEXT
    });
    rig.restart_server();
    is_served_by(&rig, "live", NEXT, 2);
    client.goes_on(&rig);
    client.end();
    assert_eq!(claim_of(&rig), claim, "it was not moved");
    content.remove(&15);
    rig.holds("live", &content, 15);
    // It heals, and comes back after a detach, as ever.
    let replica = rig.replicas("live").remove(0);
    rig.kill_replica(&replica);
    rig.write("live", &mut content, 8, 2, 2);
    rig.until("the volume is healthy again", || {
        rig.is_healthy("live") && rig.replicas("live").len() == 2
    });
    rig.detach("live");
    rig.attach("live");
    rig.holds("live", &content, 15);
    assert!(claim_of(&rig) > claim);
}

#[test]
fn an_engine_that_cannot_take_over_changes_nothing() {
    let rig = Rig::start();
    // It says its version, and ends when it is to serve.
    let program = folder(&rig, NEXT).join("longhorn");
    let script = format!(
        "#!/bin/bash\ncase \"$*\" in *controller*) echo broken >&2; exit 1;; esac\n\
         exec -a longhorn \"{}\" \"$@\"\n",
        e2e::server::binary().display()
    );
    e2e::write(&program, &script);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    tell_of(&rig, "ei-next", NEXT);
    rig.volume("kept", 16, 2);
    rig.attach("kept");
    let usual = rig.text("lhv", "kept", "/status/currentImage");
    let mut content = Content::new();
    rig.write("kept", &mut content, 0, 4, 1);
    let (before, client) = (rig.replicas("kept"), Client::start(&rig, "kept", 16));
    ask(&rig, "kept", NEXT);
    rig.until("it is refused", || {
        let told = rig.get("lhv", "kept").unwrap().to_string();
        told.contains("UpgradeRefused") && told.contains("broken")
    });
    assert_eq!(rig.text("lhv", "kept", "/spec/image"), usual);
    rig.until("nothing is left of it", || rig.replicas("kept") == before);
    client.goes_on(&rig);
    client.end();
    assert!(rig.is_healthy("kept"));
    rig.holds("kept", &content, 15);
    // An image that nobody has is refused as well.
    ask(&rig, "kept", "example/engine:v9");
    rig.until("it is refused", || rig.text("lhv", "kept", "/spec/image") == usual);
}

/// The plan for volumes that began with an engine which cannot rebuild what restores. The program is this
/// one, behind a script that says otherwise.
#[test]
fn volumes_of_an_older_engine_stay_degraded_until_they_are_upgraded() {
    let rig = Rig::start();
    // 1: the engine of an earlier day.
    deploy_old(&rig);
    let usual = format!("holdfast/engine:v{}", env!("CARGO_PKG_VERSION"));
    // 2, 3: a volume of it with data and a backup.
    let spec = json!({"size": (16 * MIB).to_string(), "frontend": "blockdev",
        "numberOfReplicas": 1, "image": OLD});
    rig.create("Volume", "source", &json!({}), &spec);
    rig.until("the volume is detached", || rig.state("source") == "detached");
    rig.attach("source");
    assert_eq!(rig.text("lhe", "source-e-0", "/status/currentImage"), OLD);
    let mut content = Content::new();
    rig.write("source", &mut content, 0, 8, 1);
    rig.backup("source", "b1");
    // 4: two volumes that follow it.
    for name in ["first", "second"] {
        let spec = json!({"size": "0", "frontend": "", "numberOfReplicas": 2, "image": OLD,
            "fromBackup": rig.text("lhb", "b1", "/status/url"), "Standby": true});
        rig.create("Volume", name, &json!({}), &spec);
    }
    let followed = |backup: &str, names: &[&str]| {
        rig.until("the backup is restored", || {
            names.iter().all(|name| rig.last_restored(name) == backup)
        });
    };
    followed("b1", &["first", "second"]);
    // 5, 6: the source is detached and grows.
    rig.detach("source");
    rig.patch("lhv", "source", &json!({"spec": {"size": (24 * MIB).to_string()}}));
    rig.attach("source");
    rig.until("the source has grown", || {
        rig.text("lhe", "source-e-0", "/status/currentSize") == (24 * MIB).to_string()
    });
    // 7, 8: data in the new part, the second backup, and both follow.
    rig.write("source", &mut content, 10, 12, 2);
    rig.backup("source", "b2");
    followed("b2", &["first", "second"]);
    // 9: the control plane is of this day. 10, 11: a copy of the first crashes and is not rebuilt.
    rig.until("both are whole", || rig.is_healthy("first") && rig.is_healthy("second"));
    let replica = rig.replicas("first").remove(0);
    rig.kill_replica(&replica);
    rig.until("it is degraded", || rig.robustness("first") == "degraded");
    // 12, 13: the third backup is followed all the same.
    rig.write("source", &mut content, 2, 2, 3);
    rig.backup("source", "b3");
    followed("b3", &["first", "second"]);
    assert_eq!(rig.robustness("first"), "degraded");
    assert_eq!(rig.replicas("first").len(), 1, "nothing is made in the place of the copy");
    // 14: a live upgrade of it is refused, and nothing changes.
    ask(&rig, "first", &usual);
    rig.until("the upgrade is refused", || rig.text("lhv", "first", "/spec/image") == OLD);
    let told = rig.get("lhv", "first").unwrap().to_string();
    assert!(told.contains("cannot do live upgrade for a unhealthy volume first"), "{told}");
    assert_eq!(rig.text("lhe", "first-e-0", "/status/currentImage"), OLD);
    // 15, 16: it is activated, and its data is right.
    rig.patch("lhv", "first", &json!({"spec": {"Standby": false, "frontend": "blockdev"}}));
    rig.is_restored("first");
    rig.ask_attach("first");
    rig.until("it is served", || {
        rig.state("first") == "attached" && !rig.endpoint("first").is_empty()
    });
    rig.holds("first", &content, 24);
    // 17: the source and the second are upgraded while they are attached.
    for name in ["source", "second"] {
        ask(&rig, name, &usual);
    }
    is_served_by(&rig, "source", &usual, 1);
    is_served_by(&rig, "second", &usual, 2);
    rig.holds("source", &content, 24);
    // 18, 19: a copy of the second crashes, and is rebuilt from the backup.
    let replica = rig.replicas("second").remove(0);
    rig.kill_replica(&replica);
    rig.until("the end of the copy is seen", || {
        rig.replicas("second").iter().all(|it| *it != replica)
    });
    rig.until("it is whole again", || {
        rig.is_healthy("second") && rig.last_restored("second") == "b3"
    });
    // 20, 21: a copy is deleted and the volume activated before it is rebuilt: it waits for that.
    let replica = rig.replicas("second").remove(0);
    rig.kubectl(&["delete", "lhr", &replica, "--wait=false"]);
    rig.patch("lhv", "second", &json!({"spec": {"Standby": false, "frontend": "blockdev"}}));
    rig.is_restored("second");
    assert_eq!(rig.replicas("second").len(), 2);
    // 22: its data is right.
    rig.attach("second");
    rig.holds("second", &content, 24);
    // 23, 24: a copy of the activated volume crashes, is rebuilt, and all goes on.
    let replica = rig.replicas("second").remove(0);
    rig.kill_replica(&replica);
    rig.write("second", &mut content, 20, 2, 4);
    rig.until("it is whole again", || rig.is_healthy("second"));
    rig.holds("second", &content, 24);
}
