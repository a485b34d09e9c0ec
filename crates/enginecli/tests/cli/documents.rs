//! `docs/engine.md` knows every command, flag and method there is.

const DOCUMENT: &str = include_str!("../../../../docs/engine.md");
const PROTOCOL: &str = include_str!("../../../rpc/proto/engine.proto");

#[test]
fn every_command_and_flag_is_documented() {
    fn walk(above: &str, command: &clap::Command) {
        for below in command.get_subcommands() {
            let name = format!("{above} {}", below.get_name()).trim().to_owned();
            let written = std::iter::once(below.get_name()).chain(below.get_all_aliases());
            // Aliases of a group name its commands too.
            let found = written.map(|last| format!("{above} {last}")).any(|name| {
                let name =
                    name.trim().replace("snapshots", "snapshot").replace("backups", "backup");
                [" ", "`", "\\"].iter().any(|end| DOCUMENT.contains(&format!("`{name}{end}")))
            });
            assert!(found, "docs/engine.md does not know `{name}`");
            for argument in below.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(DOCUMENT.contains(&format!("`--{argument}")), "{name}: --{argument}");
            }
            walk(&name, below);
        }
    }
    walk("", &enginecli::definition());
}

#[test]
fn every_method_is_documented() {
    let methods: Vec<&str> = PROTOCOL
        .lines()
        .filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next())
        .collect();
    assert!(methods.len() > 60, "{methods:?}");
    for method in methods {
        assert!(DOCUMENT.contains(&format!("| `{method}` |")), "{method} is not in docs/engine.md");
    }
}
