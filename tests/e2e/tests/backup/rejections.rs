//! What cannot work says so, in words a person can act on, and comes to an end.

use e2e::backup::{BLOCK, Fault, Proxy, Restored, S3_KEY, Source, Target};

use crate::{in_bucket, in_directory};

/// Runs every kind of command against a target that cannot be used; each must fail with `text`.
fn assert_refused(source: &Source, target: &Target, environment: &[(String, String)], text: &str) {
    let url = target.url();
    let backup = target.backup_url(source.name(), "backup-one");
    let restored = Restored::fresh(1, source.size_bytes());
    let store = target.cli().with(environment);
    std::thread::scope(|scope| {
        for (verb, url) in [
            ("ls", &url),
            ("inspect", &backup),
            ("rm", &backup),
            ("verify", &backup),
            ("gc", &backup),
        ] {
            let store = &store;
            scope.spawn(move || store.refused(&["backup", verb, url], text));
        }
        let cli = source.volume.cli().with(&target.environment()).with(environment);
        let create = ["backup", "create", "one", "--dest", &url, "--backup-name", "backup-two"];
        scope.spawn(move || cli.refused(&create, text));
        let cli = restored.volume.cli().with(&target.environment()).with(environment);
        let restore = ["backup", "restore", &backup];
        scope.spawn(move || cli.refused(&restore, text));
    });
    let after = restored.statuses();
    assert_eq!((&after[0]["state"], &after[0]["isRestoring"]), (&"".into(), &false.into()));
}

fn source(target: &Target) -> Source {
    let mut source = Source::start(1, 16);
    source.write(BLOCK, b"anything at all, for a while");
    source.snapshot("one");
    source.back_up(target, "one", "backup-one", &[]);
    source
}

#[test]
fn of_wrong_credentials() {
    in_bucket(|target| {
        let source = source(target);
        let Target::Bucket { bucket, .. } = target else { return };
        let proxy = Proxy::to(bucket.at);
        proxy.rule(|call| if call.user == S3_KEY { Fault::None } else { Fault::Expired });
        let guarded = target.through(&proxy.endpoint());
        guarded.cli().run(&["backup", "ls", &target.url()]);
        let wrong = [("AWS_ACCESS_KEY_ID".to_owned(), "wrong".to_owned())];
        let text = "has expired or is wrong";
        assert_refused(&source, &guarded, &wrong, text);
        target.assert_sound(source.name());
    });
}

#[test]
fn of_a_service_that_is_not_there() {
    in_bucket(|target| {
        let source = source(target);
        let port = testkit::process::free_port().unwrap();
        let nowhere = target.through(&format!("http://127.0.0.1:{port}"));
        assert_refused(&source, &nowhere, &[], "the store did not answer");
        target.assert_sound(source.name());
    });
}

#[test]
fn of_a_bucket_that_is_not_there() {
    in_bucket(|target| {
        let source = source(target);
        let Target::Bucket { bucket, endpoint } = target.clone() else { return };
        let name = format!("{}-not", bucket.name);
        let missing = Target::Bucket { bucket: e2e::backup::Bucket { name, ..bucket }, endpoint };
        let cli = source.volume.cli().with(&missing.environment());
        let text = "does not exist";
        cli.refused(&["backup", "create", "one", "--dest", &missing.url()], text);
        missing.cli().refused(&["backup", "ls", &missing.url()], text);
    });
}

#[test]
fn of_targets_and_names_that_cannot_be() {
    in_directory(|target| {
        let source = source(target);
        let cli = source.volume.cli();
        let url = target.url();
        let create = |more: &[&str], text: &str| {
            cli.refused(&[&["backup", "create", "one"], more].concat(), text);
        };
        create(&["--dest", "ftp://host/x"], "driver ftp is not supported");
        create(&["--dest", "vfs://host/x"], "has no host");
        create(&[], "missing required parameter --dest");
        create(&["--dest", &url, "--backup-name", "../x"], "invalid name");
        create(&["--dest", &url, "--compression-method", "zip"], "zip");
        create(&["--dest", &url, "--backup-block-size", "3"], "block size");
        create(&["--dest", &url, "--label", "nothing"], "");
        cli.refused(
            &["backup", "create", "none", "--dest", &url],
            "snapshot disk volume-snap-none.img not found on replica",
        );
        cli.refused(
            &["backup", "create", "volume-head", "--dest", &url],
            "cannot backup the head disk in the chain",
        );
        cli.refused(&["backup", "status", "nothing"], "nothing");
        let small = Restored::fresh(1, source.size_bytes() / 2);
        let refused = small.begin(target, source.name(), "backup-one").unwrap_err();
        assert!(refused.contains("cannot be larger than normal restore volume"), "{refused}");
        let large = Restored::fresh(1, source.size_bytes() * 2);
        let refused = large.begin(target, source.name(), "backup-one").unwrap_err();
        assert!(refused.contains("cannot be smaller than the DR volume"), "{refused}");
        target.assert_sound(source.name());
    });
}
