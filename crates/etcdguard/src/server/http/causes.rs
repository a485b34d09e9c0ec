//! That no cause is lost on its way to a log: what failed without why helps nobody.

use std::path::Path;

/// Where what is told has no cause beneath it, or is a text already.
const WHOLE: &[&str] = &[
    "Invalid snapshot {} found, ignoring it: {error}",
    "a connection ended with an error: {error}",
    "etcd could not be asked to restart: {error}",
    "{error}\");",
];

fn look(dir: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            look(&path, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            let is_log = line.contains("tracing::") && line.contains("{error}");
            if is_log && !WHOLE.iter().any(|whole| line.contains(&format!("(\"{whole}"))) {
                found.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
}

#[test]
fn logs_tell_the_whole_chain_of_causes() {
    let mut found = Vec::new();
    look(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert_eq!(found, Vec::<String>::new(), "write telemetry::Chain(&error)");
}
