//! The tour.

use serde_json::Value;

use crate::shell::Shell;

#[test]
fn the_tour_ends_well_and_leaves_nothing() {
    let shell = Shell::start();
    let told = shell.run(&["demo", "--mebibytes", "32"]);
    assert!(told.contains("every byte was as it should be"), "{told}");
    assert_eq!(shell.json(&["volume", "ls"]), Value::Array(Vec::new()));
    assert_eq!(shell.json(&["backup", "ls"]), Value::Array(Vec::new()));
    let targets = shell.run(&["target", "ls", "-o", "name"]);
    assert_eq!(targets.trim(), "backuptargets.longhorn.io/default");
}
