//! What the commands say when something is wrong.

use std::process::Command;

use e2e::server::binary;

use crate::shell::{Shell, text};

#[test]
fn what_cannot_be_done_is_said_with_a_hint() {
    let shell = Shell::start();
    let missing = shell.refused(&["restore", "nothing", "twin"]);
    assert!(missing.contains("error: cannot find backup nothing"), "{missing}");
    assert!(missing.contains("hint: "), "{missing}");
    let no_rule = shell.refused(&["backup", "forget", "data"]);
    assert!(no_rule.contains("--keep-daily"), "{no_rule}");
    let size = shell.refused(&["volume", "create", "odd", "--size", "3MiB"]);
    assert!(size.contains("multiple of 2 MiB"), "{size}");
    let ordinary = {
        shell.run(&["volume", "create", "plain", "--size", "2MiB", "--replicas", "1", "--wait"]);
        shell.refused(&["dr", "activate", "plain"])
    };
    assert!(ordinary.contains("not a standby volume"), "{ordinary}");
    let unreachable = shell.refused(&["target", "set", "s3://bucket@region/", "--wait"]);
    assert!(unreachable.contains("backuptarget default: "), "{unreachable}");
    let output = Command::new(binary())
        .args(["status", "--kubeconfig", "/nonexistent/kubeconfig"])
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("cannot read the kubeconfig"));
}
