//! The tours of the documents, run exactly as they are printed, in a shell, with the binary on the
//! path. They name ports of their own, so each gets a network of its own: where none can be made, the
//! test says so.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::process::Scratch;

/// One tour may take so long, in seconds.
const LIMIT_SECONDS: &str = "900";

fn document(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(name)).unwrap()
}

/// What stands between ```` ```sh ```` and ```` ``` ```` below a heading, up to the next of its kind.
fn blocks(text: &str, heading: &str) -> Vec<String> {
    let level = heading.split(' ').next().unwrap().to_owned() + " ";
    let section: Vec<&str> = text
        .lines()
        .skip_while(|line| *line != heading)
        .skip(1)
        .take_while(|line| !line.starts_with(&level))
        .collect();
    assert!(!section.is_empty(), "no {heading}");
    let (mut found, mut open) = (Vec::new(), None::<String>);
    for line in section {
        match (&mut open, line) {
            (None, "```sh") => open = Some(String::new()),
            (None, _) => {}
            (Some(_), "```") => found.extend(open.take()),
            (Some(block), line) => {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    found
}

/// Words before the shell that give it a network and processes of its own; all of those end with it.
fn alone() -> Option<Vec<&'static str>> {
    let words = ["unshare", "--net", "--pid", "--fork", "--kill-child"];
    let ways = [words.to_vec(), [&words[..], &["--map-root-user"]].concat()];
    let can_be_made = |way: &Vec<&str>| {
        let mut command = Command::new(way[0]);
        command.args(&way[1..]).args(["ip", "link", "set", "lo", "up"]);
        command.output().is_ok_and(|output| output.status.success())
    };
    ways.into_iter().find(can_be_made)
}

/// And new enough: who runs the suites says which are not.
fn is_installed(program: &str) -> bool {
    if std::env::var("HOLDFAST_WITHOUT").is_ok_and(|names| names == program) {
        return false;
    }
    folders().any(|folder| folder.join(program).is_file())
}

/// Where programs are: as the shell finds them, and an etcd that who runs the suites has got.
fn folders() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let of_etcd = std::env::var_os("HOLDFAST_ETCD_DIR").map(PathBuf::from);
    let path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    of_etcd.into_iter().chain(path)
}

/// A folder with the binary in it, as somebody has who built it.
fn path(scratch: &Scratch) -> std::ffi::OsString {
    let own: PathBuf = scratch.path().join("bin");
    std::fs::create_dir(&own).unwrap();
    symlink(e2e::server::binary(), own.join("holdfast")).unwrap();
    std::env::join_paths([own].into_iter().chain(folders())).unwrap()
}

/// Runs a script in a fresh folder; none where it cannot be run, and why printed.
fn run(script: &str, needs: &[&str]) -> Option<Output> {
    let Some(way) = alone() else {
        e2e::skip("tours: no network of its own can be made (unshare --net)");
        return None;
    };
    if let Some(missing) = needs.iter().find(|program| !is_installed(program)) {
        e2e::skip(&format!("tours: {missing} is not installed"));
        return None;
    }
    let scratch = Scratch::new().unwrap();
    let home = scratch.path().join("home");
    std::fs::create_dir(&home).unwrap();
    // The first command that fails ends it; the last line shows that none did.
    let script = format!("ip link set lo up\nset -e\n{script}\necho the tour ended\n");
    let mut command = Command::new(way[0]);
    command.args(&way[1..]).args(["timeout", LIMIT_SECONDS, "bash", "-c", &script]);
    command.current_dir(&home).env("PATH", path(&scratch)).env("HOME", &home);
    Some(command.env_remove("KUBECONFIG").output().unwrap())
}

fn ended(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.ends_with("the tour ended\n"), "{out}\n{err}");
    out
}

#[test]
fn the_tour_of_the_readme_runs_as_printed() {
    let blocks = blocks(&document("README.md"), "## A short tour");
    assert_eq!(blocks.len(), 4, "the tour has changed: look whether all of it is run");
    // The text before the first block says that it runs.
    let script = format!(
        "holdfast up > up.log &\nuntil grep -q Ctrl-C up.log; do sleep 0.1; done\n{}",
        blocks.concat()
    );
    let Some(output) = run(&script, &["kubectl", "nbdinfo"]) else { return };
    let out = ended(&output);
    for word in [
        "every byte was as it should be",
        "all is well",
        "kube-system",
        "nonadminbackups",
        "nightly",
        "alice",
        "\"replicaCount\": 3",
        "hole",
    ] {
        assert!(out.contains(word), "{word}: {out}");
    }
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!err.contains("no controller of this Holdfast acts on"), "{err}");
}

/// The two pages that somebody reads first, one after the other on the same `up`, as they ask for it.
#[test]
fn the_quick_start_and_the_walkthrough_run_as_printed() {
    let begin = blocks(&document("docs/quick-start.md"), "# Quick start");
    assert_eq!(begin.len(), 3, "the page has changed: look whether all of it is run");
    assert_eq!(begin[0], "holdfast up\n");
    let walk = blocks(&document("docs/walkthrough.md"), "# A backup and a restore");
    assert_eq!(walk.len(), 7, "the page has changed: look whether all of it is run");
    let script = format!(
        "holdfast up > up.log &\nuntil grep -q Ctrl-C up.log; do sleep 0.1; done\n{}{}\
         holdfast status --check\n",
        begin[1..].concat(),
        walk.concat()
    );
    let Some(output) = run(&script, &["kubectl", "qemu-img"]) else { return };
    let out = ended(&output);
    for word in [
        "every byte was as it should be",
        "monday",
        "Images are identical",
        "0 of 1 would be deleted",
        "volume standby is an ordinary volume",
        "all is well",
    ] {
        assert!(out.contains(word), "{word}: {out}");
    }
}

#[test]
fn the_quick_start_of_the_engine_runs_as_printed() {
    let blocks = blocks(&document("docs/engine.md"), "## Quick start");
    assert_eq!(blocks.len(), 4, "the tour has changed: look whether all of it is run");
    let Some(output) = run(&blocks.concat(), &["qemu-io", "nbdinfo"]) else { return };
    let out = ended(&output);
    let modes: Vec<&str> =
        out.lines().filter(|line| line.starts_with("tcp://127.0.0.1:13000")).collect();
    assert_eq!(modes.len(), 2, "{out}");
    assert!(modes[0].contains("ERR") && modes[1].contains("RW"), "{out}");
}

#[test]
fn the_quick_start_of_the_etcd_guard_runs_as_printed() {
    let blocks = blocks(&document("docs/etcd.md"), "## Quick start");
    assert_eq!(blocks.len(), 2, "the tour has changed: look whether all of it is run");
    let script = format!("{}\nholdfast etcd verify ./earlier.etcd\n", blocks.concat());
    let Some(output) = run(&script, &["etcd", "etcdctl", "curl"]) else { return };
    let out = ended(&output);
    for word in
        ["{\"health\":true}", "\"kind\":\"Full\"", "\"kind\":\"Incr\"", "\"succeeded\":true"]
    {
        assert!(out.contains(word), "{word}: {out}");
    }
}
