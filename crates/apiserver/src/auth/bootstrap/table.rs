//! The roles that programs of a cluster expect, read from `roles.txt`, which explains its format.

use serde_json::{Value, json};

use super::GROUP;
use crate::auth::rbac::Kind;

const TEXT: &str = include_str!("roles.txt");

/// A role or a binding as the table has it.
#[derive(Debug, Default)]
struct Entry {
    is_binding: bool,
    name: String,
    namespace: Option<String>,
    /// The role a binding gives.
    role: String,
    rules: Vec<Value>,
    subjects: Vec<Value>,
}

/// Every object of the table.
pub(super) fn objects() -> Vec<(Kind, Value)> {
    entries().into_iter().map(Entry::into_object).collect()
}

/// The rules of one cluster role, for roles that add their own.
pub(super) fn rules(role: &str) -> Vec<Value> {
    let mut all = entries().into_iter();
    let found = all.find(|entry| !entry.is_binding && entry.name == role);
    found.map(|entry| entry.rules).unwrap_or_default()
}

fn entries() -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in TEXT.lines().filter(|line| !line.starts_with('#')) {
        if let Some(rest) = line.strip_prefix("role ") {
            let (name, namespace) = placed(rest);
            entries.push(Entry { name, namespace, ..Entry::default() });
        } else if let Some(rest) = line.strip_prefix("bind ") {
            entries.extend(binding(rest));
        } else if let Some(entry) = entries.last_mut() {
            entry.rules.extend(rule(line));
        }
    }
    entries
}

/// `NAME` or `NAME in NAMESPACE`
fn placed(text: &str) -> (String, Option<String>) {
    match text.split_once(" in ") {
        Some((name, namespace)) => (name.to_owned(), Some(namespace.to_owned())),
        None => (text.to_owned(), None),
    }
}

/// `NAME [in NAMESPACE] [ROLE]: KIND:NAME…`
fn binding(text: &str) -> Option<Entry> {
    // Names hold colons, but none that a space or the end of the line follows.
    let (head, subjects) = match text.split_once(": ") {
        Some((head, subjects)) => (head, subjects),
        None => (text.strip_suffix(':')?, ""),
    };
    let mut words = head.split(' ');
    let name = words.next()?;
    let mut rest: Vec<&str> = words.collect();
    let namespace = (rest.first() == Some(&"in")).then(|| {
        rest.remove(0);
        rest.remove(0).to_owned()
    });
    Some(Entry {
        is_binding: true,
        name: name.to_owned(),
        namespace,
        role: (*rest.first().unwrap_or(&name)).to_owned(),
        subjects: subjects.split(' ').filter_map(subject).collect(),
        ..Entry::default()
    })
}

fn subject(text: &str) -> Option<Value> {
    let (kind, name) = text.split_once(':')?;
    Some(match kind {
        "user" => json!({"apiGroup": GROUP, "kind": "User", "name": name}),
        "group" => json!({"apiGroup": GROUP, "kind": "Group", "name": name}),
        _ => {
            let (namespace, name) = name.split_once('/')?;
            json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
        }
    })
}

fn rule(line: &str) -> Option<Value> {
    let list = |text: &str| -> Vec<String> { text.split(',').map(str::to_owned).collect() };
    let mut words = line.split(' ');
    let (first, second, verbs) = (words.next()?, words.next()?, words.next()?);
    if first == "url" {
        return Some(json!({"nonResourceURLs": list(second), "verbs": list(verbs)}));
    }
    let groups: Vec<&str> =
        first.split(',').map(|group| if group == "-" { "" } else { group }).collect();
    let mut rule = json!({"apiGroups": groups, "resources": list(second), "verbs": list(verbs)});
    if let Some(names) = words.next().and_then(|names| names.strip_prefix('=')) {
        crate::set_member(&mut rule, "resourceNames", list(names).into());
    }
    Some(rule)
}

impl Entry {
    fn into_object(self) -> (Kind, Value) {
        let cluster = self.namespace.is_none();
        let (kind, rest) = if self.is_binding {
            let role = if cluster { "ClusterRole" } else { "Role" };
            let reference = json!({"apiGroup": GROUP, "kind": role, "name": self.role});
            let rest = json!({"roleRef": reference, "subjects": self.subjects});
            (if cluster { Kind::ClusterRoleBinding } else { Kind::RoleBinding }, rest)
        } else {
            let rest = json!({"rules": self.rules});
            (if cluster { Kind::ClusterRole } else { Kind::Role }, rest)
        };
        let name = match kind {
            Kind::Role => "Role",
            Kind::RoleBinding => "RoleBinding",
            Kind::ClusterRole => "ClusterRole",
            Kind::ClusterRoleBinding => "ClusterRoleBinding",
        };
        let mut object = super::object(name, &self.name, &[], rest);
        if let (Some(namespace), Some(metadata)) = (self.namespace, object.get_mut("metadata")) {
            crate::set_member(metadata, "namespace", namespace.into());
        }
        (kind, object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = TEXT.lines().filter(|line| !line.starts_with('#')).count();
        let read: usize = entries().iter().map(|entry| 1 + entry.rules.len()).sum();
        assert_eq!(read, lines);
        let bound = entries().iter().filter(|entry| entry.is_binding).count();
        assert!(bound > 40, "{bound}");
    }

    #[test]
    fn every_binding_gives_a_role_that_is_there() {
        let all = entries();
        let own = ["cluster-admin", "system:discovery"];
        for binding in all.iter().filter(|entry| entry.is_binding) {
            let given = |role: &&Entry| {
                !role.is_binding && role.name == binding.role && role.namespace == binding.namespace
            };
            let known = all.iter().any(|role| given(&role)) || own.contains(&&*binding.role);
            assert!(known, "{binding:?}");
        }
    }
}
