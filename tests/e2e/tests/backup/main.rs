//! Backups of real volumes through the command line: to a directory and to an S3 service on
//! loopback, whole and broken, by us and by another engine.
//!
//! Every operation on a store waits two seconds for its lock, so the tests are many and short, and
//! run beside each other; the one with a frozen process waits for a lock to end.

mod damage;
mod faults;
mod frozen;
mod golden;
mod life;
mod mixed;
mod packing;
mod pages;
mod rejections;

use e2e::backup::Target;

/// Runs a test against a directory.
fn in_directory(test: impl FnOnce(&Target)) {
    let scratch = testkit::process::Scratch::new().unwrap();
    test(&Target::directory(&scratch.path().join("store")));
}

/// Runs a test against a bucket, where there is a service.
fn in_bucket(test: impl FnOnce(&Target)) {
    if let Some(target) = Target::bucket() {
        test(&target);
    }
}
