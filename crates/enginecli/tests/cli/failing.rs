//! How commands fail: exit codes, the last line of the log, what is on standard output.

use tonic::Status;

use crate::world::{World, fatal, run};

#[test]
fn an_unknown_command_is_told_on_both_streams() {
    let outcome = run("inof --size 4");
    assert_eq!((outcome.exit_code, outcome.out.as_str()), (1, "unrecognized command: inof\n"));
    assert_eq!(fatal(&outcome.err), "unrecognized command: inof");
    assert!(outcome.err.contains("did you mean info?"), "{}", outcome.err);
    for line in ["backup lost", "system-backup fetch x", "export-volume"] {
        let outcome = run(line);
        assert_eq!(outcome.exit_code, 1, "{line}");
        assert!(outcome.out.starts_with("unrecognized command: "), "{}", outcome.out);
    }
}

#[test]
fn unknown_flags_and_bad_values_leave_standard_output_empty() {
    for (line, wanted) in [
        ("info --loud", "flag provided but not defined: -loud"),
        ("--loud info", "flag provided but not defined: -loud"),
        ("expand --size", "flag needs an argument: -size"),
        (
            "snapshot create --freeze-fs=no",
            "invalid boolean value \"no\" for -freeze-fs: parse error",
        ),
    ] {
        let outcome = run(line);
        assert_eq!((outcome.exit_code, outcome.out.as_str()), (1, ""), "{line}");
        assert_eq!(fatal(&outcome.err), wanted, "{line}");
    }
}

#[test]
fn a_server_that_is_not_there_is_unavailable() {
    // Nothing listens at the discard port of this machine, and nothing may.
    let outcome = run("--url 127.0.0.1:1 info");
    assert_eq!((outcome.exit_code, outcome.out.as_str()), (1, ""));
    let text = fatal(&outcome.err);
    assert!(text.starts_with("failed to get volume: rpc error: code = Unavailable"), "{text}");
    assert_eq!(outcome.err.lines().count(), 1);
}

#[test]
fn the_last_line_has_the_form_of_the_dialect() {
    let world = World::healthy(0);
    let status = Status::failed_precondition("incorrect volume name x; check controller address");
    world.controller.refuse::<rpc::ptypes::Volume>("volume_get", status);
    let outcome = world.run("--volume-name x info");
    assert_eq!(outcome.exit_code, 1);
    let line = outcome.err.strip_suffix('\n').unwrap();
    let (time, rest) = line.split_once(" level=fatal ").unwrap();
    assert!(time.starts_with("time=\"20") && time.ends_with("Z\""), "{time}");
    assert!(rest.starts_with("msg=\"Error running info command\" func=\"engine::cli\" file="));
    let wanted = " error=\"failed to get volume: rpc error: code = FailedPrecondition desc = \
                  incorrect volume name x; check controller address\"";
    assert!(rest.ends_with(wanted), "{rest}");
}

#[test]
fn an_address_that_is_none_is_refused() {
    let outcome = run("--url nowhere info");
    assert_eq!(outcome.exit_code, 1);
    assert!(fatal(&outcome.err).contains("has no port"), "{}", outcome.err);
}

#[test]
fn help_and_version_succeed() {
    for line in ["", "--help", "help", "add --help", "snapshot create -h", "frontend"] {
        let outcome = run(line);
        assert_eq!((outcome.exit_code, outcome.err.as_str()), (0, ""), "{line}");
        assert!(outcome.out.contains("Usage: longhorn [global flags]"), "{}", outcome.out);
    }
    let outcome = run("--version");
    let wanted = format!("longhorn version {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((outcome.exit_code, outcome.out), (0, wanted));
}

#[test]
fn servers_refuse_flags_that_make_no_sense() {
    for (line, wanted) in [
        ("controller", "volume name is required"),
        ("controller vol --current-size 4m", "--size is required"),
        (
            "controller vol --size 4m --current-size 4m --enable-backend nfs",
            "unknown backend \"nfs\": tcp or file",
        ),
        (
            "controller vol --size 4m --current-size 4m --rebuild-sync-concurrent-limit 0",
            "invalid --rebuild-sync-concurrent-limit: must be greater than 0",
        ),
        ("replica --size 4m", "directory name is required"),
        ("sync-agent", "--replica is required"),
    ] {
        let outcome = run(line);
        assert_eq!((outcome.exit_code, outcome.out.as_str()), (1, ""), "{line}");
        assert_eq!(fatal(&outcome.err), wanted, "{line}");
    }
}

struct Closed;

impl std::io::Write for Closed {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_that_left_is_no_failure() {
    let mut err = Vec::new();
    let mut console = enginecli::Console {
        out: &mut Closed,
        err: &mut err,
        shows_progress: false,
        manner: enginecli::Manner::Log,
    };
    let words = vec!["--help".into()];
    assert_eq!(enginecli::run(words, enginecli::Invocation::Holdfast, &mut console), 0);
    assert!(err.is_empty());
}
