//! Who makes a request.
//!
//! Owns the shape of an identity and the reserved names of Kubernetes. Must never decide what the
//! identity may do: that is `rbac`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Name of the caller who presented nothing.
pub const ANONYMOUS: &str = "system:anonymous";
/// Group of callers who presented nothing.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group of everyone who proved an identity.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group that passes every authorization check, so that broken roles can always be repaired.
pub const MASTERS: &str = "system:masters";
/// Group of the nodes of a cluster.
pub const NODES: &str = "system:nodes";
/// Group of all service accounts; with `:NAMESPACE` appended, of those of one namespace.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// Prefix of a service account's user name: `system:serviceaccount:NAMESPACE:NAME`.
pub const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// Key in `extra` that says which certificate or token was used.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// An identity, as authentication or impersonation found it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    /// Empty when the credential names none.
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The caller who presented nothing.
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// A caller who proved an identity; `system:authenticated` is added to the groups.
    pub fn authenticated(
        name: impl Into<String>,
        uid: impl Into<String>,
        groups: impl IntoIterator<Item = String>,
    ) -> Self {
        let mut user =
            Self { name: name.into(), uid: uid.into(), groups: Vec::new(), extra: BTreeMap::new() };
        for group in groups {
            user.join(&group);
        }
        user.join(AUTHENTICATED);
        user
    }

    /// The identity of a service account.
    pub fn service_account(namespace: &str, name: &str, uid: impl Into<String>) -> Self {
        let groups = service_account_groups(namespace);
        Self::authenticated(service_account_user(namespace, name), uid, groups)
    }

    /// An administrator inside the process, for tests and measurements. Controllers have identities
    /// of their own: [`super::controller::Controller`].
    pub fn internal(component: &str) -> Self {
        Self::authenticated(format!("system:{component}"), "", [MASTERS.to_owned()])
    }

    /// Adds a group unless the user is in it already.
    pub fn join(&mut self, group: &str) {
        if !self.in_group(group) {
            self.groups.push(group.to_owned());
        }
    }

    #[must_use]
    pub fn with_extra(mut self, key: &str, value: impl Into<String>) -> Self {
        self.extra.entry(key.to_owned()).or_default().push(value.into());
        self
    }

    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|one| one == group)
    }

    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    /// The `userInfo` of reviews: empty parts are left out.
    pub fn to_json(&self) -> Value {
        let mut info = Map::new();
        info.insert("username".to_owned(), json!(self.name));
        if !self.uid.is_empty() {
            info.insert("uid".to_owned(), json!(self.uid));
        }
        if !self.groups.is_empty() {
            info.insert("groups".to_owned(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            info.insert("extra".to_owned(), json!(self.extra));
        }
        Value::Object(info)
    }
}

/// `system:serviceaccount:NAMESPACE:NAME`
pub fn service_account_user(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// Namespace and name in a service account's user name, or nothing for any other name.
pub fn split_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let whole = !namespace.is_empty() && !name.is_empty() && !name.contains(':');
    whole.then_some((namespace, name))
}

/// The groups every service account of a namespace is in.
pub fn service_account_groups(namespace: &str) -> [String; 2] {
    [SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_kept_once_and_in_order() {
        let user = User::authenticated("ada", "", ["a".into(), "b".into(), "a".into()]);
        assert_eq!(user.groups, ["a", "b", AUTHENTICATED]);
    }

    #[test]
    fn a_service_account_name_has_exactly_two_parts() {
        let cases = [
            ("system:serviceaccount:ns:name", Some(("ns", "name"))),
            ("system:serviceaccount:ns:", None),
            ("system:serviceaccount::name", None),
            ("system:serviceaccount:ns", None),
            ("system:serviceaccount:a:b:c", None),
            ("ada", None),
        ];
        for (name, wanted) in cases {
            assert_eq!(split_service_account(name), wanted, "{name}");
        }
    }

    #[test]
    fn user_info_leaves_out_what_is_empty() {
        assert_eq!(
            User::anonymous().to_json(),
            json!({"username": ANONYMOUS, "groups": [UNAUTHENTICATED]})
        );
    }
}
