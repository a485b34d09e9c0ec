use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::auth::user::MASTERS;

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

fn role(namespace: &str, name: &str, rules: &[Value]) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}, "rules": rules})
}

fn binding(namespace: &str, name: &str, role: (&str, &str), subjects: &Value) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "roleRef": {"kind": role.0, "name": role.1},
        "subjects": subjects,
    })
}

fn ada() -> User {
    User::authenticated("ada", "", ["dev".to_owned()])
}

fn to_ada() -> Value {
    json!([{"kind": "User", "name": "ada"}])
}

/// `verb group/resource[/sub] namespace name`, `-` for empty.
fn ask(index: &RbacIndex, user: &User, question: &str) -> bool {
    let words: Vec<_> = question.split(' ').map(|it| if it == "-" { "" } else { it }).collect();
    let mut target = words[1].splitn(3, '/');
    let wanted = Attributes {
        verb: words[0],
        group: target.next().unwrap(),
        resource: target.next().unwrap(),
        subresource: target.next().unwrap_or(""),
        namespace: words[2],
        name: words[3],
        ..Attributes::of(user)
    };
    index.authorize(&wanted).allowed
}

/// `ada` with these rules everywhere.
fn everywhere(rules: &[Value]) -> RbacIndex {
    let mut index = RbacIndex::default();
    index.upsert(Kind::ClusterRole, &role("", "r", rules));
    index.upsert(Kind::ClusterRoleBinding, &binding("", "b", ("ClusterRole", "r"), &to_ada()));
    index
}

#[test]
fn a_rule_matches_what_it_names() {
    let named = json!({"apiGroups": [""], "resources": ["configmaps", "pods/log"], "resourceNames": ["only"], "verbs": ["*"]});
    let cases: &[(Value, &str, bool)] = &[
        (rule(&[""], &["pods"], &["get"]), "get /pods ns x", true),
        (rule(&[""], &["pods"], &["get"]), "list /pods ns -", false),
        (rule(&[""], &["pods"], &["get"]), "get apps/pods ns x", false),
        (rule(&["*"], &["pods"], &["get"]), "get apps/pods ns x", true),
        (rule(&[""], &["pods"], &["get"]), "get /pods/log ns x", false),
        (rule(&[""], &["pods/log"], &["get"]), "get /pods/log ns x", true),
        (rule(&[""], &["pods/log"], &["get"]), "get /pods ns x", false),
        (rule(&[""], &["*"], &["get"]), "get /pods/log ns x", true),
        (rule(&[""], &["*/log"], &["get"]), "get /pods/log ns x", true),
        (rule(&[""], &["*/log"], &["get"]), "get /pods ns x", false),
        (rule(&[""], &["*/log"], &["get"]), "get /pods/exec ns x", false),
        (rule(&[""], &["pods/*"], &["get"]), "get /pods/log ns x", false),
        (rule(&[""], &["pods"], &["*"]), "anything /pods ns x", true),
        (rule(&[""], &["pods"], &["get"]), "* /pods ns x", false),
        (named.clone(), "get /configmaps ns only", true),
        (named.clone(), "get /configmaps ns other", false),
        (named.clone(), "list /configmaps ns -", false),
        (named.clone(), "list /configmaps ns only", true),
        (named.clone(), "create /configmaps ns -", false),
        (named.clone(), "create /configmaps ns only", false),
        (named.clone(), "create /pods/log ns only", true),
        (named, "deletecollection /configmaps ns -", false),
        (json!({"apiGroups": [""], "resources": ["pods"]}), "get /pods ns x", false),
        (json!("noise"), "get /pods ns x", false),
    ];
    for (rule, question, wanted) in cases {
        let got = ask(&everywhere(std::slice::from_ref(rule)), &ada(), question);
        assert_eq!(got, *wanted, "{rule}: {question}");
    }
}

#[test]
fn paths_match_exactly_or_by_prefix_and_only_through_cluster_bindings() {
    let urls = json!({"nonResourceURLs": ["/a", "/b/*"], "verbs": ["get"]});
    let user = ada();
    let get = |index: &RbacIndex, path| {
        let wanted = Attributes { verb: "get", path: Some(path), ..Attributes::of(&user) };
        index.authorize(&wanted).allowed
    };
    let index = everywhere(std::slice::from_ref(&urls));
    for (path, wanted) in
        [("/a", true), ("/a/", false), ("/b/", true), ("/b/c/d", true), ("/b", false), ("", false)]
    {
        assert_eq!(get(&index, path), wanted, "{path}");
    }
    assert!(get(&everywhere(&[json!({"nonResourceURLs": ["*"], "verbs": ["get"]})]), "/x"));
    assert!(!get(&everywhere(&[rule(&["*"], &["*"], &["*"])]), "/a"));

    let mut index = RbacIndex::default();
    index.upsert(Kind::ClusterRole, &role("", "r", &[urls]));
    index.upsert(Kind::RoleBinding, &binding("ns", "b", ("ClusterRole", "r"), &to_ada()));
    let wanted =
        Attributes { verb: "get", namespace: "ns", path: Some("/a"), ..Attributes::of(&user) };
    assert!(!index.authorize(&wanted).allowed);
    assert!(index.rules_for(&user, "ns").non_resource.is_empty());
}

#[test]
fn a_role_binding_counts_only_in_its_namespace() {
    let read = [rule(&[""], &["secrets"], &["list"])];
    let mut index = RbacIndex::default();
    index.upsert(Kind::ClusterRole, &role("", "r", &read));
    index.upsert(Kind::RoleBinding, &binding("ns", "b", ("ClusterRole", "r"), &to_ada()));
    assert!(ask(&index, &ada(), "list /secrets ns -"));
    assert!(!ask(&index, &ada(), "list /secrets other -"));
    assert!(!ask(&index, &ada(), "list /secrets - -"));
    index.upsert(Kind::ClusterRoleBinding, &binding("", "b", ("ClusterRole", "r"), &to_ada()));
    assert!(ask(&index, &ada(), "list /secrets - -"));
    index.remove(Kind::ClusterRoleBinding, "", "b");
    assert!(!ask(&index, &ada(), "list /secrets - -"));
    index.remove(Kind::RoleBinding, "ns", "b");
    assert!(!ask(&index, &ada(), "list /secrets ns -"));
}

#[test]
fn a_role_is_found_only_from_its_own_namespace() {
    let read = [rule(&[""], &["secrets"], &["list"])];
    let mut index = RbacIndex::default();
    index.upsert(Kind::Role, &role("a", "r", &read));
    index.upsert(Kind::RoleBinding, &binding("b", "b", ("Role", "r"), &to_ada()));
    index.upsert(Kind::ClusterRoleBinding, &binding("", "b", ("Role", "r"), &to_ada()));
    for question in ["list /secrets a -", "list /secrets b -", "list /secrets - -"] {
        assert!(!ask(&index, &ada(), question), "{question}");
    }
    index.upsert(Kind::RoleBinding, &binding("a", "b", ("Role", "r"), &to_ada()));
    assert!(ask(&index, &ada(), "list /secrets a -"));
    index.remove(Kind::Role, "a", "r");
    assert!(!ask(&index, &ada(), "list /secrets a -"));
}

#[test]
fn subjects_are_users_groups_and_service_accounts() {
    let bot = User::service_account("ns", "bot", "u");
    let cases = [
        (json!([{"kind": "User", "name": "ada"}]), true, false),
        (json!([{"kind": "Group", "name": "dev"}]), true, false),
        (json!([{"kind": "Group", "name": "ada"}]), false, false),
        (json!([{"kind": "User", "name": "dev"}]), false, false),
        (json!([{"kind": "ServiceAccount", "name": "bot", "namespace": "ns"}]), false, true),
        (json!([{"kind": "ServiceAccount", "name": "bot"}]), false, true),
        (json!([{"kind": "ServiceAccount", "name": "bot", "namespace": "other"}]), false, false),
        (json!([{"kind": "User", "name": "system:serviceaccount:ns:bot"}]), false, true),
        (json!([{"kind": "Group", "name": "system:serviceaccounts:ns"}]), false, true),
        (json!([{"kind": "Group", "name": "system:authenticated"}]), true, true),
        (json!([{"kind": "Robot", "name": "ada"}]), false, false),
        (json!(null), false, false),
    ];
    for (subjects, for_ada, for_bot) in cases {
        let mut index = RbacIndex::default();
        index.upsert(Kind::Role, &role("ns", "r", &[rule(&[""], &["pods"], &["get"])]));
        index.upsert(Kind::RoleBinding, &binding("ns", "b", ("Role", "r"), &subjects));
        assert_eq!(ask(&index, &ada(), "get /pods ns x"), for_ada, "{subjects}");
        assert_eq!(ask(&index, &bot, "get /pods ns x"), for_bot, "{subjects}");
    }
}

#[test]
fn masters_need_no_role_and_reasons_name_the_binding() {
    let root = User::authenticated("root", "", [MASTERS.to_owned()]);
    assert!(ask(&RbacIndex::default(), &root, "delete x/y ns z"));
    let index = everywhere(&[rule(&[""], &["pods"], &["get"])]);
    let user = ada();
    let wanted = Attributes { verb: "get", resource: "pods", ..Attributes::of(&user) };
    assert_eq!(
        index.authorize(&wanted).reason,
        r#"RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "ada""#
    );
}

#[test]
fn a_changed_binding_forgets_its_old_subjects() {
    let mut index = everywhere(&[rule(&[""], &["pods"], &["get"])]);
    let other = json!([{"kind": "User", "name": "bob"}]);
    index.upsert(Kind::ClusterRoleBinding, &binding("", "b", ("ClusterRole", "r"), &other));
    assert!(!ask(&index, &ada(), "get /pods - x"));
    index.upsert(Kind::ClusterRoleBinding, &binding("", "b", ("ClusterRole", "r"), &to_ada()));
    index.upsert(Kind::ClusterRoleBinding, &json!({"metadata": {"name": "b"}}));
    assert!(!ask(&index, &ada(), "get /pods - x"));
}

#[test]
fn a_namespaced_object_without_its_namespace_grants_nothing() {
    let mut index = RbacIndex::default();
    index.upsert(Kind::ClusterRole, &role("", "r", &[rule(&[""], &["pods"], &["get"])]));
    index.upsert(Kind::RoleBinding, &binding("", "b", ("ClusterRole", "r"), &to_ada()));
    assert!(!ask(&index, &ada(), "get /pods - x"));
    assert!(!ask(&index, &ada(), "get /pods ns x"));
}

fn labelled(name: &str, labels: &Value, rules: &[Value]) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "rules": rules})
}

fn aggregated(name: &str, labels: &Value, wanted: &Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": labels},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": wanted}]},
        "rules": [rule(&["*"], &["*"], &["*"])],
    })
}

#[test]
fn an_aggregated_role_has_the_rules_of_what_it_selects_and_never_its_own() {
    let mut index = RbacIndex::default();
    index.upsert(Kind::ClusterRoleBinding, &binding("", "b", ("ClusterRole", "top"), &to_ada()));
    index.upsert(Kind::ClusterRole, &aggregated("top", &json!({}), &json!({"to": "top"})));
    assert!(!ask(&index, &ada(), "get /pods - x"));
    let pods = labelled("pods", &json!({"to": "mid"}), &[rule(&[""], &["pods"], &["get"])]);
    index.upsert(Kind::ClusterRole, &pods);
    assert!(!ask(&index, &ada(), "get /pods - x"));
    // Through another aggregated role, in a circle.
    index.upsert(
        Kind::ClusterRole,
        &aggregated("mid", &json!({"to": "top"}), &json!({"to": "mid"})),
    );
    index.upsert(
        Kind::ClusterRole,
        &aggregated("back", &json!({"to": "mid"}), &json!({"to": "top"})),
    );
    assert!(ask(&index, &ada(), "get /pods - x"));
    let stale = index.stale_aggregations();
    assert_eq!(
        stale.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["back", "mid", "top"]
    );
    assert_eq!(json!(stale[2].1), json!([rule(&[""], &["pods"], &["get"])]));
    // Once written back, nothing is stale.
    for (name, rules) in stale {
        let (labels, wanted) = match name.as_str() {
            "top" => (json!({}), json!({"to": "top"})),
            "mid" => (json!({"to": "top"}), json!({"to": "mid"})),
            _ => (json!({"to": "mid"}), json!({"to": "top"})),
        };
        let mut object = aggregated(&name, &labels, &wanted);
        object["rules"] = json!(rules);
        index.upsert(Kind::ClusterRole, &object);
    }
    assert_eq!(index.stale_aggregations(), []);
    index.remove(Kind::ClusterRole, "", "pods");
    assert!(!ask(&index, &ada(), "get /pods - x"));
}

fn rules(values: &[Value]) -> Vec<PolicyRule> {
    PolicyRule::list(Some(&json!(values)))
}

#[test]
fn held_rules_cover_what_they_grant_together() {
    let all = rule(&["*"], &["*"], &["*"]);
    let two = [rule(&[""], &["pods"], &["get"]), rule(&[""], &["pods"], &["list"])];
    let named = json!({"apiGroups": [""], "resources": ["pods"], "resourceNames": ["a", "b"], "verbs": ["get"]});
    let one_name =
        json!({"apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"], "verbs": ["get"]});
    let url = |url: &str| json!({"nonResourceURLs": [url], "verbs": ["get"]});
    let cases: Vec<(Vec<Value>, Value, bool)> = vec![
        (vec![all.clone()], two[0].clone(), true),
        (two.to_vec(), rule(&[""], &["pods"], &["get", "list"]), true),
        (two.to_vec(), rule(&[""], &["pods"], &["*"]), false),
        (two.to_vec(), rule(&["*"], &["pods"], &["get"]), false),
        (two.to_vec(), rule(&[""], &["*"], &["get"]), false),
        (two.to_vec(), rule(&[""], &["pods/log"], &["get"]), false),
        (vec![rule(&[""], &["*"], &["get"])], rule(&[""], &["pods/log", "*/x"], &["get"]), true),
        (vec![rule(&[""], &["*/log"], &["get"])], rule(&[""], &["pods/log"], &["get"]), true),
        (vec![rule(&[""], &["pods/log"], &["get"])], rule(&[""], &["*/log"], &["get"]), false),
        (vec![two[0].clone()], named.clone(), true),
        (vec![named.clone()], two[0].clone(), false),
        (vec![named.clone()], one_name.clone(), true),
        (vec![one_name], named, false),
        (vec![url("/a/*")], url("/a/b"), true),
        (vec![url("/a/*")], url("/a/b/*"), true),
        (vec![url("/a/b")], url("/a/*"), false),
        (vec![url("*")], url("/a/*"), true),
        (vec![url("/a")], url("/a"), true),
        (vec![all], url("/a"), false),
        (
            vec![url("/a")],
            json!({"nonResourceURLs": ["/a"], "apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}),
            false,
        ),
    ];
    for (held, wanted, covered) in cases {
        let missing = missing(&rules(&held), &rules(std::slice::from_ref(&wanted)));
        assert_eq!(missing.is_empty(), covered, "{held:?} for {wanted}: {missing:?}");
    }
}

#[test]
fn a_rule_too_big_to_take_apart_is_not_covered() {
    let many: Vec<String> = (0..1000).map(|number| format!("r{number}")).collect();
    let wanted =
        json!({"apiGroups": many, "resources": many, "resourceNames": many, "verbs": ["get"]});
    let held = rules(&[rule(&[""], &["pods"], &["get"])]);
    assert_eq!(missing(&held, &rules(std::slice::from_ref(&wanted))).len(), 1);
    let all = rules(&[rule(&["*"], &["*"], &["*"])]);
    assert!(missing(&all, &rules(&[wanted])).is_empty());
}

#[test]
fn comparing_many_rules_with_many_ends() {
    let named = |group: &str, count: usize| -> Vec<Value> {
        let one = |at: usize| json!({"apiGroups": [group], "resources": ["pods"], "resourceNames": [format!("n{at}")], "verbs": ["get"]});
        (0..count).map(one).collect()
    };
    let held = rules(&named("", 4096));
    let mut wanted = named("else", 300);
    wanted.extend(named("", 1));
    assert_eq!(missing(&held, &rules(&wanted)).len(), 301, "the last was not looked for any more");
    assert!(missing(&held, &held[..10]).is_empty());
    // Who has the right under every name finds it, however many names there are.
    let mut held = named("", 4096);
    held.push(rule(&[""], &["pods"], &["get"]));
    assert!(missing(&rules(&held), &rules(&named("", 4096))).is_empty());
}

/// The rules are looked at while no right can change, and so while nothing can be written.
#[test]
fn comparing_long_rules_with_long_ones_ends() {
    let verbs =
        |texts: Vec<String>| json!({"apiGroups": [""], "resources": ["pods"], "verbs": texts});
    let often = |text: &str, count: usize| vec![text.to_owned(); count];
    let mut held = often("get", 60_000);
    held.push("list".to_owned());
    let wanted = rules(&[verbs(often("list", 400))]);
    assert_eq!(missing(&rules(&[verbs(held.clone())]), &wanted).len(), 1, "taken as not held");
    // Who has it in a word, has it.
    let short = rules(&[verbs(held), rule(&[""], &["pods"], &["list"])]);
    assert!(missing(&short, &wanted).is_empty());
}

/// Each single permission has the texts of all that it is of.
#[test]
fn a_rule_of_long_texts_is_not_taken_apart() {
    let resources: Vec<String> = (0..4000).map(|number| format!("r{number}")).collect();
    let long = "x".repeat(50_000);
    let held = rules(&[rule(&[""], &["pods"], &["get"])]);
    for wanted in [
        json!({"apiGroups": [long], "resources": resources, "verbs": ["get"]}),
        json!({"apiGroups": [""], "resources": resources, "verbs": [long]}),
        json!({"nonResourceURLs": resources, "verbs": [long]}),
    ] {
        assert_eq!(missing(&held, &rules(&[wanted])).len(), 1);
    }
    let few = json!({"apiGroups": [long], "resources": ["a", "b"], "verbs": ["get"]});
    assert_eq!(missing(&held, &rules(&[few])).len(), 2);
}

#[test]
fn what_one_is_told_of_ones_rights_stays_short() {
    let mut index = RbacIndex::default();
    let long = "x".repeat(1 << 20);
    for number in 0..64 {
        let mut one = rule(&[""], &["pods"], &["get"]);
        one["resourceNames"] = json!([format!("{number}{long}")]);
        let name = format!("r{number}");
        index.upsert(Kind::Role, &role("ns", &name, &[one]));
        index.upsert(Kind::RoleBinding, &binding("ns", &name, ("Role", &name), &to_ada()));
    }
    let told = index.rules_for(&ada(), "ns");
    let bytes: usize = told.iter().flat_map(|it| &it.resource_names).map(String::len).sum();
    assert!(!told.is_whole && bytes <= 5 << 20, "{bytes}");
}

#[test]
fn nobody_writes_a_role_beyond_their_own_rights() {
    let index = everywhere(&[rule(&[""], &["pods"], &["get", "list"])]);
    let check =
        |object: &Value, old: Option<&Value>| check_role(&index, &ada(), Kind::Role, object, old);
    let within = role("ns", "x", &[rule(&[""], &["pods"], &["get"])]);
    let beyond = role("ns", "x", &[rule(&[""], &["pods", "secrets"], &["get"])]);
    assert_eq!(check(&within, None), Ok(()));
    let refused = check(&beyond, None).unwrap_err().to_string();
    assert_eq!(
        refused,
        "user \"ada\" (groups=[\"dev\" \"system:authenticated\"]) is attempting to grant RBAC \
         permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}"
    );
    // Who cannot grant it may still change what grants nothing.
    let mut annotated = beyond.clone();
    annotated["metadata"]["annotations"] = json!({"a": "b"});
    assert_eq!(check(&annotated, Some(&beyond)), Ok(()));
    let mut relabelled = beyond.clone();
    relabelled["metadata"]["labels"] = json!({"aggregate": "yes"});
    assert!(check(&relabelled, Some(&beyond)).is_err());
    let aggregating = aggregated("x", &json!({}), &json!({"a": "b"}));
    assert!(check_role(&index, &ada(), Kind::ClusterRole, &aggregating, None).is_err());
    let root = User::internal("root");
    assert_eq!(check_role(&index, &root, Kind::ClusterRole, &aggregating, None), Ok(()));
    let escalator = everywhere(&[rule(&[GROUP], &["roles"], &["escalate"])]);
    assert_eq!(check_role(&escalator, &ada(), Kind::Role, &beyond, None), Ok(()));
}

#[test]
fn nobody_binds_a_role_beyond_their_own_rights() {
    let mut index = everywhere(&[rule(&[""], &["pods"], &["get"])]);
    index.upsert(Kind::ClusterRole, &role("", "small", &[rule(&[""], &["pods"], &["get"])]));
    index.upsert(Kind::ClusterRole, &role("", "big", &[rule(&[""], &["secrets"], &["get"])]));
    let bind = |index: &RbacIndex, name| {
        let object = binding("ns", "x", ("ClusterRole", name), &to_ada());
        check_binding(index, &ada(), &object, None)
    };
    assert_eq!(bind(&index, "small"), Ok(()));
    assert!(matches!(bind(&index, "big"), Err(EscalationError::NotHeld(_))));
    let ghost = bind(&index, "ghost").unwrap_err();
    assert_eq!(ghost.to_string(), r#"clusterroles.rbac.authorization.k8s.io "ghost" not found"#);
    let mut may_bind = rule(&[GROUP], &["clusterroles"], &["bind"]);
    may_bind["resourceNames"] = json!(["big"]);
    index.upsert(Kind::ClusterRole, &role("", "r", &[may_bind]));
    assert_eq!(bind(&index, "big"), Ok(()));
    assert!(bind(&index, "small").is_err());
}

fn any_rule() -> impl Strategy<Value = Value> {
    let words = |all: &'static [&'static str]| prop::sample::subsequence(all, 1..=all.len());
    let urls = words(&["/a", "/b/*", "*"])
        .prop_map(|urls| json!({"nonResourceURLs": urls, "verbs": ["get"]}));
    let resources = (
        words(&["", "g", "*"]),
        words(&["pods", "pods/log", "*/log", "*"]),
        words(&["get", "list", "create", "*"]),
        prop::sample::subsequence(vec!["a", "b"], 0..=2),
    )
        .prop_map(|(groups, resources, verbs, names)| {
            json!({"apiGroups": groups, "resources": resources, "verbs": verbs, "resourceNames": names})
        });
    prop_oneof![1 => urls, 4 => resources]
}

fn any_question() -> impl Strategy<Value = String> {
    ("(get|list|create|x)", "(|g|h)/(pods|other)(/log|)", "(ns|other|-)", "(a|b|c|-)")
        .prop_map(|(verb, target, namespace, name)| format!("{verb} {target} {namespace} {name}"))
}

proptest! {
    /// More roles and bindings never take anything away.
    #[test]
    fn grants_are_additive(
        first in prop::collection::vec(any_rule(), 0..3),
        second in prop::collection::vec(any_rule(), 0..3),
        question in any_question(),
    ) {
        let mut index = everywhere(&first);
        let before = ask(&index, &ada(), &question);
        index.upsert(Kind::Role, &role("ns", "more", &second));
        index.upsert(Kind::RoleBinding, &binding("ns", "more", ("Role", "more"), &to_ada()));
        let after = ask(&index, &ada(), &question);
        prop_assert!(!before || after);
        // And what came is gone again with the binding.
        index.remove(Kind::RoleBinding, "ns", "more");
        prop_assert_eq!(ask(&index, &ada(), &question), before);
    }

    /// If nothing is missing, whatever the wanted rules allow the held rules allow.
    #[test]
    fn covered_rules_allow_nothing_more(
        held in prop::collection::vec(any_rule(), 0..4),
        wanted in prop::collection::vec(any_rule(), 1..3),
        questions in prop::collection::vec(any_question(), 16),
    ) {
        let gap = missing(&rules(&held), &rules(&wanted));
        let (held, wanted) = (everywhere(&held), everywhere(&wanted));
        for question in questions {
            if gap.is_empty() && ask(&wanted, &ada(), &question) {
                prop_assert!(ask(&held, &ada(), &question), "{}", question);
            }
        }
    }

    /// Held and missing together cover the wanted rules.
    #[test]
    fn what_is_missing_is_enough(
        held in prop::collection::vec(any_rule(), 0..4),
        wanted in prop::collection::vec(any_rule(), 1..3),
    ) {
        let (held, wanted) = (rules(&held), rules(&wanted));
        let gap = missing(&held, &wanted);
        prop_assert!(missing(held.iter().chain(&gap), &wanted).is_empty());
    }

    /// Rules listed for a user are those that decide.
    #[test]
    fn listed_rules_decide_as_the_index_does(
        cluster in prop::collection::vec(any_rule(), 0..3),
        own in prop::collection::vec(any_rule(), 0..3),
        question in any_question(),
    ) {
        let mut index = everywhere(&cluster);
        index.upsert(Kind::Role, &role("ns", "own", &own));
        index.upsert(Kind::RoleBinding, &binding("ns", "own", ("Role", "own"), &to_ada()));
        let namespace = question.split(' ').nth(2).unwrap().replace('-', "");
        let listed = index.rules_for(&ada(), &namespace);
        let listed: Vec<_> = listed.iter().map(|rule| json!(rule)).collect();
        prop_assert_eq!(ask(&everywhere(&listed), &ada(), &question), ask(&index, &ada(), &question));
    }

    #[test]
    fn noise_never_panics(text in "[\\[\\]{}\":,a-z0-9]{0,60}") {
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            let mut index = RbacIndex::default();
            for kind in [Kind::Role, Kind::ClusterRole, Kind::RoleBinding, Kind::ClusterRoleBinding] {
                index.upsert(kind, &value);
                index.upsert(kind, &json!({"metadata": {"name": "x"}, "rules": value, "subjects": value, "aggregationRule": value, "roleRef": value}));
            }
        }
    }
}

#[test]
fn a_role_bound_many_times_is_looked_at_once() {
    let mut index = RbacIndex::default();
    let names: Vec<String> = (0..MANY).map(|number| format!("c{number}")).collect();
    let long = json!({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": names,
        "verbs": ["get"]});
    index.upsert(Kind::Role, &role("ns", "long", std::slice::from_ref(&long)));
    for number in 0..200 {
        let binding = binding("ns", &format!("b{number}"), ("Role", "long"), &to_ada());
        index.upsert(Kind::RoleBinding, &binding);
    }
    index.upsert(Kind::Role, &role("ns", "own", &[rule(&[""], &["pods"], &["get"])]));
    index.upsert(Kind::RoleBinding, &binding("ns", "last", ("Role", "own"), &to_ada()));
    assert!(ask(&index, &ada(), "get /pods ns x"));
    // As many roles are more than is looked at; what the cluster grants counts as before.
    for number in 0..200 {
        let name = format!("r{number}");
        index.upsert(Kind::Role, &role("ns", &name, std::slice::from_ref(&long)));
        let binding = binding("ns", &format!("b{number}"), ("Role", &name), &to_ada());
        index.upsert(Kind::RoleBinding, &binding);
    }
    assert!(!ask(&index, &ada(), "get /pods ns x"));
    index.upsert(Kind::ClusterRole, &role("", "all", &[rule(&[""], &["pods"], &["get"])]));
    index.upsert(Kind::ClusterRoleBinding, &binding("", "all", ("ClusterRole", "all"), &to_ada()));
    assert!(ask(&index, &ada(), "get /pods ns x"));
    assert!(ask(&index, &ada(), "get /pods other x"));
}

/// Entries of a long rule.
const MANY: usize = 1000;

#[test]
fn what_was_left_in_a_namespace_that_is_gone_grants_nothing() {
    let mut index = RbacIndex::default();
    index.upsert(Kind::Role, &role("ns", "r", &[rule(&[""], &["pods"], &["get"])]));
    index.upsert(Kind::RoleBinding, &binding("ns", "b", ("Role", "r"), &to_ada()));
    let may = |index: &RbacIndex| ask(index, &ada(), "get /pods ns x");
    assert!(may(&index));
    index.leave("ns");
    assert!(!may(&index));
    index.enter("ns");
    assert!(may(&index));
    index.only_in(|name| name != "ns");
    assert!(!may(&index));
    index.remove(Kind::RoleBinding, "ns", "b");
    index.upsert(Kind::RoleBinding, &binding("ns", "b", ("Role", "r"), &to_ada()));
    assert!(may(&index), "it was made in a namespace that is there");
}

#[test]
fn a_namespace_full_of_bindings_is_looked_at_so_far_and_no_further() {
    let mut index = RbacIndex::default();
    index.upsert(Kind::Role, &role("ns", "first", &[rule(&[""], &["pods"], &["get"])]));
    index.upsert(Kind::RoleBinding, &binding("ns", "a", ("Role", "first"), &to_ada()));
    for number in 0..(1 << 16) {
        let name = format!("b{number:05}");
        index.upsert(Kind::RoleBinding, &binding("ns", &name, ("Role", "first"), &to_ada()));
    }
    index.upsert(Kind::Role, &role("ns", "last", &[rule(&[""], &["secrets"], &["get"])]));
    index.upsert(Kind::RoleBinding, &binding("ns", "c", ("Role", "last"), &to_ada()));
    assert!(ask(&index, &ada(), "get /pods ns x"));
    assert!(!ask(&index, &ada(), "get /secrets ns x"), "it is one too many");
    let rules = index.rules_for(&ada(), "ns");
    assert_eq!((rules.resource.len(), rules.is_whole), (1, false));
    let elsewhere = index.rules_for(&ada(), "other");
    assert!(elsewhere.is_whole);
}

#[test]
fn rules_of_many_entries_are_told_so_far_and_no_further() {
    let mut index = RbacIndex::default();
    let names: Vec<String> = (0..MANY).map(|number| format!("c{number}")).collect();
    for number in 0..200 {
        let name = format!("r{number:03}");
        let long = json!({"apiGroups": [""], "resources": [format!("things{number}")],
            "resourceNames": names, "verbs": ["get"]});
        index.upsert(Kind::Role, &role("ns", &name, &[long]));
        index.upsert(Kind::RoleBinding, &binding("ns", &name, ("Role", &name), &to_ada()));
    }
    let rules = index.rules_for(&ada(), "ns");
    assert!(!rules.is_whole && rules.resource.len() < 100, "{}", rules.resource.len());
}

#[test]
fn only_what_changes_a_right_is_a_change() {
    let mut index = RbacIndex::default();
    let noted = |mut object: Value| {
        object["metadata"]["annotations"] = json!({"note": "x"});
        object
    };
    let all = [
        (Kind::Role, role("ns", "r", &[rule(&[""], &["pods"], &["get"])])),
        (Kind::ClusterRole, role("", "r", &[rule(&[""], &["pods"], &["get"])])),
        (Kind::RoleBinding, binding("ns", "b", ("Role", "r"), &to_ada())),
        (Kind::ClusterRoleBinding, binding("", "b", ("ClusterRole", "r"), &to_ada())),
    ];
    for (kind, object) in all {
        assert!(index.upsert(kind, &object), "{kind:?} is new");
        assert!(!index.upsert(kind, &noted(object.clone())), "{kind:?} grants the same");
        let mut other = object;
        match kind {
            Kind::Role | Kind::ClusterRole => other["rules"][0]["verbs"] = json!(["list"]),
            _ => other["subjects"] = json!([{"kind": "User", "name": "bob"}]),
        }
        assert!(index.upsert(kind, &other), "{kind:?} grants something else");
    }
    let mut labelled = role("", "r", &[rule(&[""], &["pods"], &["list"])]);
    labelled["metadata"]["labels"] = json!({"to": "edit"});
    assert!(index.upsert(Kind::ClusterRole, &labelled), "others may take it in by its labels");
}
