//! The texts of a rejection, as clients and people match on them.

use super::rbac::Attributes;

/// The message of a 403 for a request that no rule allows.
pub fn forbidden_message(wanted: &Attributes<'_>) -> String {
    let user = &wanted.user.name;
    if let Some(path) = wanted.path {
        return format!("forbidden: User {user:?} cannot {} path {path:?}", wanted.verb);
    }
    let Attributes { verb, group, resource, subresource, namespace, name, .. } = wanted;
    let dot = if group.is_empty() { "" } else { "." };
    let object = if name.is_empty() { String::new() } else { format!(" {name:?}") };
    let slash = if subresource.is_empty() { "" } else { "/" };
    let full = format!("{resource}{slash}{subresource}");
    let scope = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {namespace:?}")
    };
    format!(
        "{resource}{dot}{group}{object} is forbidden: User {user:?} cannot {verb} resource {full:?} \
         in API group {group:?} {scope}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::User;

    #[test]
    fn the_texts_are_those_clients_know() {
        let ada = User::authenticated("ada", "", []);
        let base = Attributes { verb: "get", ..Attributes::of(&ada) };
        let widgets = Attributes { group: "acme.io", resource: "widgets", namespace: "ns", ..base };
        let cases = [
            (
                Attributes { name: "x", ..widgets },
                r#"widgets.acme.io "x" is forbidden: User "ada" cannot get resource "widgets" in API group "acme.io" in the namespace "ns""#,
            ),
            (
                Attributes { verb: "update", name: "x", subresource: "status", ..widgets },
                r#"widgets.acme.io "x" is forbidden: User "ada" cannot update resource "widgets/status" in API group "acme.io" in the namespace "ns""#,
            ),
            (
                Attributes { verb: "list", resource: "namespaces", ..base },
                r#"namespaces is forbidden: User "ada" cannot list resource "namespaces" in API group "" at the cluster scope"#,
            ),
            (
                Attributes { path: Some("/p"), ..base },
                r#"forbidden: User "ada" cannot get path "/p""#,
            ),
        ];
        for (wanted, text) in cases {
            assert_eq!(forbidden_message(&wanted), text);
        }
    }
}
