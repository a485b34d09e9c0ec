use proptest::prelude::*;

use super::super::table::{Ask, Server, flags as f};
use super::*;

fn words(text: &str) -> Vec<OsString> {
    text.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect()
}

/// As the peer's scripts are read.
fn peers(words: Vec<OsString>) -> Result<Asked, ParseError> {
    parse(words, Invocation::Longhorn)
}

fn line(text: &str) -> Line {
    match peers(words(text)) {
        Ok(Asked::Run(line)) => line,
        other => panic!("{text}: {other:?}"),
    }
}

fn refused(text: &str) -> String {
    match peers(words(text)) {
        Err(error) => error.to_string(),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn every_command_is_reached_by_its_name_and_aliases() {
    fn walk(above: &str, commands: &'static [Command]) {
        for command in commands {
            for name in [command.name].iter().chain(command.aliases) {
                let text = format!("{above} {name}");
                match (peers(words(&text)).unwrap(), command.verb) {
                    (Asked::Run(line), Some(verb)) => assert_eq!(line.verb, verb, "{text}"),
                    (Asked::Help(path), None) => {
                        assert_eq!(path.last().unwrap().name, command.name);
                    }
                    other => panic!("{text}: {other:?}"),
                }
                walk(&text, command.commands);
                let help = peers(words(&format!("{text} --help"))).unwrap();
                let Asked::Help(path) = help else { panic!("{text} --help: {help:?}") };
                assert_eq!(path.last().unwrap().name, command.name);
            }
        }
    }
    walk("", COMMANDS);
}

#[test]
fn launch_lines_are_understood() {
    let line = line(
        "--engine-instance-name E controller vol --frontend socket --disableRevCounter --size 16m \
         --current-size 16777216 --engine-replica-timeout 8 --replica tcp://a:1 \
         --replica tcp://b:2 --enable-backend tcp --enable-backend file --listen 10.0.0.1:9501",
    );
    assert_eq!(line.verb, Verb::Serve(Server::Controller));
    assert_eq!(line.globals.text(&global::ENGINE_INSTANCE_NAME), "E");
    assert_eq!(line.globals.text(&global::URL), "http://localhost:9501");
    assert_eq!(line.arguments, ["vol"]);
    assert_eq!(line.flags.size(&f::SIZE), Some(16 << 20));
    assert_eq!(line.flags.size(&f::CURRENT_SIZE), Some(16 << 20));
    assert!(line.flags.switch(&f::DISABLE_REV_COUNTER));
    assert!(!line.flags.switch(&f::UPGRADE));
    assert_eq!(line.flags.list(&f::CONTROLLER_REPLICA), ["tcp://a:1", "tcp://b:2"]);
    assert_eq!(line.flags.list(&f::ENABLE_BACKEND), ["tcp", "file"]);
    assert_eq!(line.flags.text(&f::CONTROLLER_LISTEN), "10.0.0.1:9501");
    assert_eq!(line.flags.integer(&f::SNAPSHOT_MAX_COUNT), 250);
}

#[test]
fn known_flags_are_found_behind_arguments() {
    let line = line("add --size 4m tcp://x:1 --restore --current-size=4m");
    assert_eq!(line.verb, Verb::Ask(Ask::AddReplica));
    assert_eq!(line.arguments, ["tcp://x:1"]);
    assert!(line.flags.switch(&f::RESTORE));
    assert_eq!(line.flags.size(&f::CURRENT_SIZE), Some(4 << 20));
}

#[test]
fn unknown_flags_are_arguments_behind_an_argument_and_errors_before() {
    let line = line("rm-replica tcp://x:1 --incrementally last --force=1");
    assert_eq!(line.arguments, ["tcp://x:1", "--incrementally", "last", "--force=1"]);
    assert_eq!(refused("rm-replica --force tcp://x:1"), "flag provided but not defined: -force");
    assert_eq!(refused("--force info"), "flag provided but not defined: -force");
    assert_eq!(refused("snapshot --force ls"), "flag provided but not defined: -force");
}

#[test]
fn values_come_with_a_blank_or_an_equals_sign_and_one_or_two_dashes() {
    for text in ["expand --size 5", "expand -size 5", "expand --size=5", "expand -size=5"] {
        assert_eq!(line(text).flags.integer(&f::EXPAND_SIZE), 5, "{text}");
    }
    // A flag that needs a value takes the next word, whatever it looks like.
    assert_eq!(line("journal --limit -1").flags.integer(&f::LIMIT), -1);
    assert_eq!(refused("expand --size"), "flag needs an argument: -size");
    assert_eq!(refused("expand x --size"), "flag needs an argument: -size");
    assert_eq!(refused("expand --size 4m"), "invalid value \"4m\" for flag -size: parse error");
    assert_eq!(refused("add --size 4x a"), "invalid value \"4x\" for flag -size: invalid size");
    assert_eq!(refused("expand ---size 4"), "bad flag syntax: ---size");
    assert_eq!(refused("expand --=4"), "bad flag syntax: --=4");
}

#[test]
fn switches_take_a_value_only_behind_an_equals_sign() {
    for (text, on) in [
        ("snapshot create --freeze-fs", true),
        ("snapshot create --freeze-fs=True", true),
        ("snapshot create --freeze-fs=False", false),
        ("snapshot create name --freeze-fs=1", true),
        ("snapshot create", false),
    ] {
        assert_eq!(line(text).flags.switch(&f::FREEZE_FS), on, "{text}");
    }
    assert_eq!(line("snapshot create --freeze-fs False").arguments, ["False"]);
    assert_eq!(
        refused("snapshot create --freeze-fs=maybe"),
        "invalid boolean value \"maybe\" for -freeze-fs: parse error"
    );
    assert!(line("replica d").flags.switch(&f::SYNC_AGENT));
    assert!(!line("replica d --sync-agent=false").flags.switch(&f::SYNC_AGENT));
}

#[test]
fn the_last_of_a_single_flag_counts_and_lists_grow() {
    assert_eq!(line("expand --size 1 --size 2").flags.integer(&f::EXPAND_SIZE), 2);
    let labels = line("snapshot create --label a=1 n --label b=2").flags.list(&f::LABEL);
    assert_eq!(labels, ["a=1", "b=2"]);
    assert_eq!(line("controller v").flags.list(&f::ENABLE_BACKEND), ["tcp"]);
    let only = line("controller v --enable-backend file").flags.list(&f::ENABLE_BACKEND);
    assert_eq!(only, ["file"]);
}

#[test]
fn two_dashes_end_the_flags() {
    assert_eq!(line("snapshot create -- --label").arguments, ["--label"]);
    assert_eq!(line("snapshot create a -- --label b").arguments, ["a", "--label", "b"]);
    assert_eq!(line("snapshot create -").arguments, ["-"]);
}

#[test]
fn help_and_version_are_asked_for_in_every_way() {
    for text in ["", "--help", "-h", "help", "--debug -h"] {
        assert!(matches!(peers(words(text)), Ok(Asked::Help(path)) if path.is_empty()), "{text}");
    }
    for text in ["help snapshot create", "snapshot create -h", "snapshot create x --help"] {
        let Ok(Asked::Help(path)) = peers(words(text)) else { panic!("{text}") };
        assert_eq!(path.last().unwrap().name, "create", "{text}");
    }
    for text in ["--version", "-v", "-version"] {
        assert!(matches!(peers(words(text)), Ok(Asked::Version)), "{text}");
    }
    assert!(matches!(peers(words("frontend")), Ok(Asked::Help(_))));
}

#[test]
fn unknown_commands_are_named_with_the_nearest_one() {
    assert_eq!(refused("backup mend"), "unrecognized command: mend");
    assert_eq!(refused("snapshot destroy x"), "unrecognized command: destroy");
    assert_eq!(
        peers(words("inof")).unwrap_err(),
        ParseError::UnknownCommand { word: "inof".into(), similar: Some("info") }
    );
    assert_eq!(
        peers(words("info --url x")).unwrap_err(),
        ParseError::UnknownFlag {
            name: "url".into(),
            similar: Some("--url goes before the command".into())
        }
    );
}

proptest! {
    #[test]
    fn no_command_line_panics(text in "[a-z=-]{0,8}( [-]{0,3}[a-z=0-9]{0,9}){0,6}") {
        let _ = peers(words(&text));
    }
}

#[test]
fn a_mistyped_flag_is_an_argument_for_the_peers_name_only() {
    let text = "controller vol --sise 1g";
    assert_eq!(line(text).arguments, ["vol", "--sise", "1g"]);
    let error = parse(words(text), Invocation::Holdfast).unwrap_err();
    let similar = Some("did you mean --size?".to_owned());
    assert_eq!(error, ParseError::UnknownFlag { name: "sise".to_owned(), similar });
}

#[test]
fn a_letter_stands_for_the_name_of_a_flag() {
    use super::super::backup_table::flags as b;
    assert_eq!(line("backup ls vfs:///a -o wide").flags.text(&b::OUTPUT), "wide");
    assert_eq!(line("backup ls -o=name vfs:///a").flags.text(&b::OUTPUT), "name");
}
