//! Whose rights a restore is carried out with. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use crate::names::ASKED_BY;

/// What the names of the embedded server's own controllers begin with.
const CONTROLLERS: &str = "holdfast:controller:";

/// Whether the API server writes down who asked for a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Askers {
    /// It does, and nobody else can.
    Recorded,
    /// The annotation is like any other: anybody's.
    Unknown,
}

#[derive(Debug, Deserialize)]
struct Asker {
    username: String,
    #[serde(default)]
    groups: Vec<String>,
}

/// The note for the executor; `None` where nobody is known. `account`: the service account that
/// administrators have set.
pub fn run_as(
    namespace: &str,
    annotations: Option<&BTreeMap<String, String>>,
    askers: Askers,
    account: Option<&str>,
) -> Option<String> {
    if let Some(account) = account {
        let user = format!("system:serviceaccount:{namespace}:{account}");
        let own = format!("system:serviceaccounts:{namespace}");
        let groups = ["system:serviceaccounts", &own, "system:authenticated"];
        return Some(json!({"user": user, "groups": groups}).to_string());
    }
    if askers == Askers::Unknown {
        return None;
    }
    let asker: Asker = serde_json::from_str(annotations?.get(ASKED_BY)?).ok()?;
    // A program that copies what somebody else wrote asks for nothing itself.
    let is_somebody = !asker.username.is_empty() && !asker.username.starts_with(CONTROLLERS);
    is_somebody.then(|| json!({"user": asker.username, "groups": asker.groups}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(text: &str) -> BTreeMap<String, String> {
        [(ASKED_BY.to_owned(), text.to_owned())].into()
    }

    #[test]
    fn who_asked_is_believed_only_where_the_server_wrote_it() {
        let alice = notes(r#"{"username":"alice","groups":["a,b"]}"#);
        let of = |askers| run_as("t", Some(&alice), askers, None);
        assert_eq!(of(Askers::Recorded).unwrap(), r#"{"groups":["a,b"],"user":"alice"}"#);
        assert_eq!(of(Askers::Unknown), None);
        for text in [
            "",
            "alice",
            r#"{"username":""}"#,
            r#"{"groups":["system:masters"]}"#,
            r#"{"username":"holdfast:controller:velero"}"#,
        ] {
            assert_eq!(run_as("t", Some(&notes(text)), Askers::Recorded, None), None, "{text}");
        }
    }

    #[test]
    fn an_account_that_administrators_set_comes_before_everybody() {
        let alice = notes(r#"{"username":"alice"}"#);
        for askers in [Askers::Recorded, Askers::Unknown] {
            let run_as = run_as("t", Some(&alice), askers, Some("restorer")).unwrap();
            assert!(run_as.contains("system:serviceaccount:t:restorer"), "{run_as}");
            assert!(!run_as.contains("alice"));
        }
    }
}
