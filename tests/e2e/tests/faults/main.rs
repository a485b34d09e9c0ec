//! Bad luck and bad manners: full disks, damaged files, two servers on one directory, clients that
//! send rubbish or nothing at all.

mod clients;
mod disk;
mod input;
mod memory;

use std::time::Duration;

use e2e::Answer;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TIMEOUT: Duration = Duration::from_mins(3);

/// Refused, with the body clients parse.
#[track_caller]
fn assert_refused(answer: &Answer, code: u16, reason: &str) {
    let status = answer.json();
    assert_eq!(answer.code(), code, "{status}");
    assert_eq!(status["kind"], "Status", "{status}");
    assert_eq!(status["code"], code, "{status}");
    assert_eq!(status["reason"], reason, "{status}");
    assert!(status["message"].as_str().is_some_and(|text| !text.is_empty()), "{status}");
}
