//! What stands in manifests, units, alerts and documents about this program is true: its commands, its
//! arguments, its variables and its metrics. No code of the program; tests only.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use serde_json::Value;

use crate::completion::definition;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder whose names end so.
fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            found.append(&mut files(&path, end));
        } else if name.ends_with(end) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// What is wrong with a command line, if something is. The first word is the program.
fn misuse(words: &[String]) -> Option<String> {
    match definition().try_get_matches_from(words) {
        Ok(_) => None,
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
            _ => Some(error.to_string()),
        },
    }
}

fn as_words(words: &[Value]) -> Vec<String> {
    words.iter().map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// Containers of ours in any object, with their names.
fn containers(object: &Value, found: &mut Vec<Value>) {
    match object {
        Value::Object(fields) => {
            let image = fields.get("image").and_then(Value::as_str).unwrap_or_default();
            if image.starts_with("holdfast:") {
                found.push(object.clone());
            }
            fields.values().for_each(|it| containers(it, found));
        }
        Value::Array(items) => items.iter().for_each(|it| containers(it, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn documents(path: &Path) -> Vec<Value> {
    serde_saphyr::from_multiple(&read(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every variable that the program reads: of settings, and of arguments.
fn variables() -> BTreeSet<String> {
    fn collect(command: &clap::Command, found: &mut BTreeSet<String>) {
        let own = command.get_arguments().filter_map(|it| Some(it.get_env()?.to_str()?.to_owned()));
        found.extend(own);
        command.get_subcommands().for_each(|it| collect(it, found));
    }
    let mut found: BTreeSet<String> = crate::config::variables().collect();
    found.insert("HOLDFAST_CONFIG".to_owned());
    collect(&definition(), &mut found);
    found
}

#[test]
fn manifests_start_the_program_as_it_can_be_started() {
    let mut seen = 0;
    for path in files(&root().join("deploy/manifests"), ".yaml") {
        let mut ours = Vec::new();
        for document in documents(&path) {
            containers(&document, &mut ours);
        }
        assert!(!ours.is_empty(), "{} starts nothing of ours", path.display());
        for container in ours {
            let mut words = vec!["holdfast".to_owned()];
            words.extend(as_words(container["args"].as_array().unwrap()));
            assert_eq!(misuse(&words), None, "{}: {words:?}", path.display());
            for variable in container["env"].as_array().unwrap_or(&Vec::new()) {
                let name = variable["name"].as_str().unwrap();
                assert!(variables().contains(name), "{}: nobody reads {name}", path.display());
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 4);
}

#[test]
fn units_start_the_program_as_it_can_be_started() {
    let mut seen = 0;
    for path in files(&root().join("deploy/systemd"), ".service") {
        let text = read(&path);
        let starts = text.lines().filter_map(|line| {
            let (key, command) = line.split_once('=')?;
            key.starts_with("Exec").then_some(command)
        });
        for start in starts {
            let command =
                start.strip_prefix("/usr/local/bin/").unwrap_or_else(|| panic!("{start}"));
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            assert_eq!(misuse(&words), None, "{}: {start}", path.display());
            seen += 1;
        }
    }
    assert_eq!(seen, 6);
}

/// What the chart makes of itself is checked where there is a helm; its flags, here.
#[test]
fn the_chart_names_flags_that_there_are() {
    let templates = root().join("deploy/chart/holdfast/templates");
    let common = read(&templates.join("_helpers.tpl"));
    let flags = |text: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("- --"));
        lines.map(|it| it.split('=').next().unwrap().to_owned()).collect()
    };
    for (file, command) in
        [("controllers", "controllers"), ("node", "node"), ("block-api", "block-api")]
    {
        let tree = definition();
        let command = tree.find_subcommand(command).unwrap();
        let known: BTreeSet<&str> =
            command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let text = read(&templates.join(format!("{file}.yaml")));
        let named = [flags(&text), flags(&common)].concat();
        assert!(named.len() > 3, "{file}: {named:?}");
        for flag in named {
            assert!(known.contains(flag.as_str()), "{file} names --{flag}");
        }
    }
}

/// Words of a text that could be metrics of ours.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|it: char| !(it.is_ascii_alphanumeric() || it == '_'));
    let ours = words.filter(|it| it.starts_with("holdfast_") || it.starts_with("etcdbr_"));
    ours.map(str::to_owned).collect()
}

/// Every metric that a process of ours can show, as whoever collects them names it.
async fn shown() -> BTreeSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let options = apiserver::Options {
        data_dir: folder.path().to_owned(),
        listen: ([127, 0, 0, 1], 0).into(),
        tls_sans: Vec::new(),
        tokens: apiserver::auth::tokens::StaticTokens::default(),
        audit: false,
        definitions: Vec::new(),
        services: apiserver::ServiceRanges::default(),
        controllers: Vec::new(),
        near: Vec::new(),
    };
    let tasks = tasks::Tasks::new();
    let mut registry = telemetry::Registry::new("holdfast");
    let timeout = std::time::Duration::from_mins(1);
    let server = apiserver::ApiServer::start(options, tasks.clone(), &mut registry).await.unwrap();
    let _ = crate::controllers::Gauges::new(&mut registry);
    let _ = blockapi::Figures::new(&mut registry);
    let _ = tasks.stop(timeout).await;
    server.close(timeout).await;
    let names = registry.names().iter().flat_map(|name| {
        ["", "_total", "_bucket", "_sum", "_count"].map(|end| format!("{name}{end}"))
    });
    let of_etcd = etcdguard::server::metrics::Metrics::default().encode();
    let of_etcd = of_etcd.lines().filter_map(|it| it.strip_prefix("# TYPE ")?.split(' ').next());
    let of_etcd: Vec<String> = of_etcd.map(str::to_owned).collect();
    let of_etcd =
        of_etcd.iter().flat_map(|name| ["", "_bucket", "_sum"].map(|end| format!("{name}{end}")));
    names.chain(of_etcd).collect()
}

#[tokio::test]
async fn alerts_and_panels_look_at_metrics_that_are_shown() {
    let shown = shown().await;
    let monitoring = root().join("deploy/monitoring");
    for name in ["rules.yaml", "rules.test.yaml", "dashboard.json"] {
        let named = metrics_in(&read(&monitoring.join(name)));
        assert!(named.len() > 5, "{name}: {named:?}");
        let unknown: Vec<_> = named.difference(&shown).collect();
        assert!(unknown.is_empty(), "{name} looks at {unknown:?}");
    }
}

/// The other way round: what was made for alerts has one.
#[test]
fn every_fact_that_is_told_of_objects_has_an_alert_or_a_panel() {
    let monitoring = root().join("deploy/monitoring");
    let text = read(&monitoring.join("rules.yaml")) + &read(&monitoring.join("dashboard.json"));
    let named = metrics_in(&text);
    // When a target was last verified is for whoever wants to know; there need be no schedule.
    let exempt = ["backup_target_verified_timestamp_seconds"];
    for fact in volumes::figures::FACTS.iter().filter(|it| !exempt.contains(&it.metric)) {
        assert!(named.contains(&format!("holdfast_{}", fact.metric)), "{}", fact.metric);
    }
}

/// A command line found in a text, and where.
struct Found {
    place: String,
    words: Vec<String>,
    /// Of a block: it can be typed as it is. Inside a sentence, only what is named has to be there.
    is_whole: bool,
}

/// Splits as a shell does, as far as documents go: quotes, and what ends a command.
fn shell_words(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars().peekable();
    let end = |word: &mut Option<String>, commands: &mut Vec<Vec<String>>| {
        if let (Some(word), Some(last)) = (word.take(), commands.last_mut()) {
            last.push(word);
        }
    };
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), letter) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '$') if letters.peek() == Some(&'(') => {
                // What another command says: any word will do.
                let mut depth = 0;
                for letter in letters.by_ref() {
                    depth += match letter {
                        '(' => 1,
                        ')' => -1,
                        _ => 0,
                    };
                    if depth == 0 {
                        break;
                    }
                }
                word.get_or_insert_default().push('1');
            }
            (None, ' ' | '\t') => end(&mut word, &mut commands),
            (None, ';' | '|' | '&' | '>' | '<' | '(' | ')') => {
                end(&mut word, &mut commands);
                commands.push(Vec::new());
            }
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    end(&mut word, &mut commands);
    commands
}

/// Commands of a block of a shell; variables that the block sets are put in.
fn in_block(place: &str, block: &str, found: &mut Vec<Found>) {
    // The directory where somebody is has a path.
    let block = block.replace("\\\n", " ").replace("$PWD", "/here");
    let mut set: Vec<(String, String)> = Vec::new();
    let mut here_document = None::<String>;
    for line in block.lines() {
        if let Some(mark) = &here_document {
            if line.trim() == mark {
                here_document = None;
            }
            continue;
        }
        if let Some((_, mark)) = line.split_once("<<") {
            let mark = mark.trim_start_matches('-').split_whitespace().next().unwrap_or_default();
            here_document = Some(mark.trim_matches(['\'', '"']).to_owned());
        }
        let mut line = line.to_owned();
        for (name, value) in &set {
            line = line.replace(&format!("${name}"), value);
        }
        for words in shell_words(&line) {
            let mut words = words.into_iter().skip_while(|it| {
                let is_set = it.split_once('=').is_some_and(|(name, _)| {
                    !name.is_empty()
                        && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
                });
                is_set || ["do", "then", "sudo", "time", "$", "!", "exec"].contains(&it.as_str())
            });
            if words.next().as_deref() == Some("holdfast") {
                let words = std::iter::once("holdfast".to_owned()).chain(words).collect();
                found.push(Found { place: place.to_owned(), words, is_whole: true });
            }
        }
        if let Some((name, value)) = line.trim().split_once("=\"") {
            set.push((name.to_owned(), value.trim_end_matches('"').to_owned()));
        }
    }
}

/// Commands in a document: in its blocks, and between backticks.
fn in_document(place: &str, text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    let mut block = None::<(bool, String)>;
    for line in text.lines() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut block, fence) {
            (None, Some(language)) => {
                let is_shell = ["sh", "bash", "console"].contains(&language.trim());
                block = Some((is_shell, String::new()));
            }
            (Some((is_shell, text)), Some(_)) => {
                if *is_shell {
                    in_block(place, text, &mut found);
                }
                block = None;
            }
            (Some((_, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {
                let quoted = line.split('`').skip(1).step_by(2);
                for quoted in quoted.filter(|it| it.starts_with("holdfast ")) {
                    let words = quoted.split_whitespace().map(str::to_owned).collect();
                    found.push(Found { place: place.to_owned(), words, is_whole: false });
                }
            }
        }
    }
    found
}

/// The first thing a command in a sentence names that is not there.
fn unknown_part(words: &[String]) -> Option<String> {
    let tree = definition();
    let mut command = &tree;
    let mut flags: BTreeSet<String> = BTreeSet::from(["help".into(), "version".into()]);
    let mut is_path = true;
    for word in words.iter().skip(1) {
        let word = word.trim_matches(['[', ']', '(', ')', ',', ';', '.']);
        if word.contains('…') {
            return None;
        }
        let long = |it: &clap::Command| -> Vec<String> {
            let names = it.get_arguments().flat_map(|it| {
                it.get_long_and_visible_aliases().unwrap_or_default().into_iter().map(str::to_owned)
            });
            names.collect()
        };
        if let Some(flag) = word.strip_prefix("--") {
            flags.extend(long(command));
            let flag = flag.split(['=', '|']).next().unwrap_or_default();
            if !flag.is_empty() && !flags.contains(flag) {
                return Some(format!("--{flag}"));
            }
            is_path = false;
        } else if is_path && command.has_subcommands() {
            // Several of them, or a name that stands for any.
            let parts: Vec<&str> = word.split('|').collect();
            let is_placeholder = word.chars().all(|it| it.is_uppercase() || it == '_');
            for part in &parts {
                if !is_placeholder && command.find_subcommand(part).is_none() {
                    let takes_more = command.get_positionals().next().is_some();
                    return (!takes_more).then(|| (*part).to_owned());
                }
            }
            match (parts.as_slice(), command.find_subcommand(word)) {
                ([_], Some(next)) => {
                    flags.extend(long(command));
                    command = next;
                }
                _ => return None,
            }
        }
    }
    None
}

/// Documents for those who use the program.
fn papers() -> Vec<PathBuf> {
    let root = root();
    let mut all = files(&root.join("docs"), ".md");
    // What was decided, and what it was decided against, may name what is not there.
    all.retain(|it| !it.components().any(|part| part.as_os_str() == "decisions"));
    all.extend(files(&root.join("deploy"), ".md"));
    all.extend(["README.md", "SECURITY.md"].map(|it| root.join(it)));
    all
}

#[test]
fn every_command_in_the_documents_can_be_typed() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in papers() {
        let place = path.strip_prefix(root()).unwrap().display().to_string();
        for found in in_document(&place, &read(&path)) {
            seen += 1;
            let line = found.words.join(" ");
            // It reads its own command line, in which a switch may be given a value.
            let is_own = found.words.get(1).is_some_and(|it| it == "etcd");
            let problem = if found.is_whole && !is_own {
                misuse(&found.words)
            } else {
                unknown_part(&found.words)
            };
            wrong.extend(problem.map(|it| format!("{}: `{line}`: {it}", found.place)));
        }
    }
    assert!(seen > 100, "only {seen} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_in_alerts_and_notes_can_be_typed() {
    let root = root();
    let rules = read(&root.join("deploy/monitoring/rules.yaml"));
    let rules = rules.replace("{{ $labels.", "").replace(" }}", "");
    let notes = read(&root.join("deploy/chart/holdfast/templates/NOTES.txt"));
    let mut found = in_document("rules", &rules);
    for line in notes.lines().filter(|it| it.trim_start().starts_with("holdfast ")) {
        in_block("notes", line, &mut found);
    }
    assert!(found.len() > 8);
    for found in found {
        assert_eq!(unknown_part(&found.words), None, "{}: {:?}", found.place, found.words);
    }
}

/// Whoever is called at night reads on where the alert says.
#[test]
fn every_alert_names_a_page_of_what_to_do_and_every_page_can_be_found() {
    let root = root();
    let folder = root.join("docs/operations");
    let rules: Vec<Value> = documents(&root.join("deploy/monitoring/rules.yaml"));
    let groups = rules[0]["groups"].as_array().unwrap();
    let alerts: Vec<&Value> =
        groups.iter().flat_map(|it| it["rules"].as_array().unwrap()).collect();
    assert!(alerts.len() > 10);
    let table = read(&root.join("docs/monitoring.md"));
    for alert in alerts {
        let name = alert["alert"].as_str().unwrap();
        assert!(table.contains(&format!("| {name} |")), "docs/monitoring.md lacks {name}");
        let told = alert["annotations"]["description"].as_str().unwrap();
        let page = told.split_once("docs/operations/").and_then(|it| it.1.split(".md").next());
        let page = page.unwrap_or_else(|| panic!("{name} names no page: {told}"));
        assert!(folder.join(format!("{page}.md")).is_file(), "{name}: there is no {page}.md");
    }
    let (list, book) = (read(&folder.join("README.md")), read(&root.join("docs/SUMMARY.md")));
    for page in files(&folder, ".md") {
        let page = page.file_name().unwrap().to_string_lossy().into_owned();
        let is_listed = list.contains(&format!("({page})")) || page == "README.md";
        assert!(is_listed && book.contains(&format!("(operations/{page})")), "{page}");
    }
}

/// Without helm: what the chart makes of the namespaces is what the manifests have.
#[test]
fn the_chart_gives_the_namespace_the_label_of_the_manifests() {
    let deploy = root().join("deploy");
    let label = "labels: {pod-security.kubernetes.io/enforce: privileged}";
    for file in ["rbac.yaml", "chart/holdfast/templates/rbac.yaml"] {
        assert!(read(&deploy.join(file)).contains(label), "{file}");
    }
}

#[test]
fn what_is_not_there_is_found_in_a_text() {
    let wrong = |text: &str| {
        in_document("here", text).iter().any(|it| {
            let problem = if it.is_whole { misuse(&it.words) } else { unknown_part(&it.words) };
            problem.is_some()
        })
    };
    assert!(wrong("```sh\nholdfast upp\n```"));
    assert!(wrong("```sh\nX=1 holdfast up --no-such-flag 1 > log &\n```"));
    assert!(wrong("call `holdfast volume shw v`"));
    assert!(wrong("call `holdfast up --no-such-flag`"));
    assert!(!wrong("```sh\nX=1 holdfast up --data-dir \"a b\" > log &\n```"));
    assert!(!wrong("call `holdfast volume show NAME`, `holdfast etcd …` or `holdfast up`"));
    assert!(!wrong("```yaml\nholdfast upp\n```"));
}

#[test]
fn the_reference_of_the_configuration_is_up_to_date() {
    let path = root().join("docs/configuration.md");
    assert!(
        read(&path) == crate::reference::configuration(),
        "docs/configuration.md is out of date: write it anew with `holdfast config reference`"
    );
}
