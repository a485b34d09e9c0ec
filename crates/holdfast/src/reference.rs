//! The page of all that can be configured, made from the definitions that the program reads.
//! `docs/configuration.md` is what this makes.

use std::fmt::Write as _;

use crate::completion::definition;
use crate::config;

const HEAD: &str = "\
# Configuration

<!-- Written by `holdfast config reference`: change the program, not this page. -->

Each value comes from a flag, or the environment, or a file (`--config FILE`, `$HOLDFAST_CONFIG`, or `holdfast.toml` \
in the directory it is started in), or is what it is by default; the first of these that has it wins. A key of the file \
is the name of its flag: `listen = \"127.0.0.1:7443\"`. A key that is not known is refused, with the nearest one that is. \
`holdfast config show` prints every value and where it came from.

## For every role

| key | variable | unless it is set | |
|---|---|---|---|
";

/// The roles that a process can have.
const ROLES: &[&str] = &["up", "apiserver", "controllers", "node", "block-api"];

/// The whole page.
pub(crate) fn configuration() -> String {
    let tree = definition();
    let up = tree.find_subcommand("up");
    let mut page = HEAD.to_owned();
    let shared: Vec<&str> = config::keys().map(|(key, _)| key).collect();
    for (key, default) in config::keys() {
        let help = up.and_then(|it| it.get_arguments().find(|it| it.get_long() == Some(key)));
        let help = help.map(said).unwrap_or_default();
        let default = if default.is_empty() { "-".to_owned() } else { format!("`{default}`") };
        let _ = writeln!(page, "| `{key}` | `{}` | {default} | {help} |", config::variable(key));
    }
    page.push_str(
        "\n`--no-velero` is the same as `--velero false`. A role leaves alone what it has no use for.\n",
    );
    for role in ROLES {
        if let Some(command) = tree.find_subcommand(role) {
            of_role(&mut page, command, &shared);
        }
    }
    page.push_str(
        "\n## Settings of volumes\n\nObjects of kind Setting in the namespace `longhorn-system`, \
         read live: `kubectl -n longhorn-system edit lhs NAME`. What each means is what it means to Longhorn, where \
         that has it; [Volumes](volumes.md) says which act how here. `holdfast up` begins with some that suit one \
         machine. What a setting may not be is refused when it is written; where it is stored all the same, as by an \
         earlier version, the setting has `applied: false` with the reason, and counts as not set.\n\n\
         | setting | unless it is set | in `holdfast up` | may be |\n|---|---|---|---|\n",
    );
    for (name, default) in volumes::setting::DEFAULTS {
        let here = volumes::setting::ON_ONE_MACHINE.iter().find(|(it, _)| it == name);
        let here = here.map_or("", |(_, value)| value);
        let here = if here.is_empty() { String::new() } else { format!("`{here}`") };
        let may = api::longhorn::allowed(name).unwrap_or_default();
        let _ = writeln!(page, "| `{name}` | `{default}` | {here} | {may} |");
    }
    let idle: Vec<String> = volumes::setting::IDLE.iter().map(|it| format!("`{it}`")).collect();
    let _ = writeln!(
        page,
        "\nNothing acts on {}: they are there for those who look for them, and say `applied: false`.",
        idle.join(", ")
    );
    page.push_str(
        "\nSettings of tenants are in a ConfigMap: [Tenants](tenants.md). Flags of the etcd guard and of the volume \
         engine are those of their dialects: `holdfast etcd COMMAND --help`, `holdfast engine COMMAND --help`, \
         [The etcd guard](etcd.md), [The engine](engine.md).\n",
    );
    page
}

/// What a role understands beyond what all do.
fn of_role(page: &mut String, command: &clap::Command, shared: &[&str]) {
    let own = command.get_arguments().filter(|it| {
        let long = it.get_long().unwrap_or_default();
        let is_shared = shared.contains(&long) || ["config", "no-velero", "help"].contains(&long);
        !long.is_empty() && !is_shared && !it.is_hide_set()
    });
    let mut rows = String::new();
    for argument in own {
        let name = argument.get_long().unwrap_or_default();
        let value = argument.get_action().takes_values();
        let value = argument.get_value_names().filter(|_| value).and_then(|it| it.first());
        let flag = value.map_or_else(|| format!("--{name}"), |it| format!("--{name} {it}"));
        let variable = argument.get_env().map(|it| format!("`{}`", it.to_string_lossy()));
        let defaults = argument.get_default_values();
        let defaults: Vec<_> = defaults.iter().map(|it| it.to_string_lossy()).collect();
        let default = if defaults.is_empty() || !argument.get_action().takes_values() {
            "-".to_owned()
        } else {
            format!("`{}`", defaults.join(","))
        };
        let variable = variable.unwrap_or_else(|| "-".to_owned());
        let _ = writeln!(rows, "| `{flag}` | {variable} | {default} | {} |", said(argument));
    }
    let name = command.get_name();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = writeln!(page, "\n## `holdfast {name}`\n\n{}", plain(&about));
    if !rows.is_empty() {
        let _ =
            write!(page, "\n| flag | variable | unless it is set | |\n|---|---|---|---|\n{rows}");
    }
}

/// The help of an argument in a cell of a table, without what other cells say.
fn said(argument: &clap::Arg) -> String {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let help = plain(&help);
    match (help.rfind(" [env:"), help.ends_with(']')) {
        (Some(at), true) => help.get(..at).unwrap_or_default().to_owned(),
        _ => help,
    }
}

/// One line that Markdown leaves alone.
fn plain(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_and_every_role_is_told_with_what_it_is_for() {
        let page = configuration();
        for (key, _) in config::keys() {
            let row = page.lines().find(|it| it.starts_with(&format!("| `{key}` |")));
            let row = row.unwrap_or_else(|| panic!("{key} is not told"));
            assert!(!row.contains("[env:") && !row.ends_with("|  |"), "{row}");
        }
        for role in ROLES {
            assert!(page.contains(&format!("## `holdfast {role}`\n")), "{role}");
        }
        assert!(page.contains("`--metrics-listen ADDR:PORT` | `HOLDFAST_METRICS_LISTEN`"));
    }
}
