use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::any_json;

fn matches(selector: &LabelSelector, labels: &[(&str, &str)]) -> bool {
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    selector.matches(|key| labels.get(key).copied())
}

#[test]
fn label_selectors_match_as_listed() {
    let labels = [("app", "a"), ("tier", "x"), ("n", "5"), ("x.io/y", "z"), ("empty", "")];
    let cases = [
        ("", true),
        ("   ", true),
        ("app=a", true),
        ("app==a", true),
        ("app = a , tier == x", true),
        ("app=b", false),
        ("app!=b", true),
        ("app!=a", false),
        ("absent!=a", true),
        ("app in (a,b)", true),
        ("app in ( b , c )", false),
        ("app in(a)", true),
        ("absent in (a)", false),
        ("app notin (a)", false),
        ("app notin (b)", true),
        ("absent notin (a)", true),
        ("app", true),
        ("absent", false),
        ("!app", false),
        ("! absent", true),
        ("!absent,app", true),
        ("n>4", true),
        ("n > 5", false),
        ("n<6", true),
        ("n<5", false),
        ("app>1", false),
        ("absent>1", false),
        ("n>-1", true),
        ("x.io/y=z", true),
        ("empty=", true),
        ("empty=,app=a", true),
        ("absent=", false),
        ("empty in (,a)", true),
        ("empty in ()", true),
        ("in in (a)", false),
        ("notin notin (a)", true),
    ];
    for (text, expected) in cases {
        let selector = LabelSelector::parse(text).unwrap();
        assert_eq!(matches(&selector, &labels), expected, "{text}");
    }
}

#[test]
fn malformed_label_selectors_are_refused() {
    let long = "a".repeat(64);
    let cases = [
        ",",
        "a,",
        ",a",
        "a,,b",
        "=a",
        "a=b=c",
        "a===b",
        "a in",
        "a in (",
        "a in (b",
        "a in b",
        "a in (b c)",
        "!",
        "!a=b",
        "!!a",
        "a!b",
        "a b",
        "(a)",
        "a>x",
        "a>",
        "a<b",
        "a=b)",
        "-a",
        "a-",
        "a b=c",
        "_",
        "a/b/c",
        "/a",
        "a/",
        "A.b/c",
        "a=-b",
        "a=b/c",
        "ä=b",
        "a=ä",
        "a in (b/c)",
        "a notin",
        "a>9223372036854775808",
        "a..b/c",
        &long,
    ];
    for text in cases {
        assert!(LabelSelector::parse(text).is_err(), "{text}");
    }
    assert!(LabelSelector::parse(&format!("a={long}")).is_err());
    assert!(LabelSelector::parse(&format!("{}/a", "a".repeat(254))).is_err());
}

#[test]
fn selector_objects_match_as_listed() {
    let labels = [("app", "a"), ("tier", "x")];
    let one = |key: &str, operator: &str, values: serde_json::Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    let cases = [
        (json!({}), true),
        (json!(null), false),
        (json!({"matchLabels": null, "matchExpressions": null}), true),
        (json!({"matchLabels": {"app": "a"}}), true),
        (json!({"matchLabels": {"app": "a", "tier": "y"}}), false),
        (one("app", "In", json!(["a", "b"])), true),
        (one("app", "NotIn", json!(["a"])), false),
        (one("absent", "NotIn", json!(["a"])), true),
        (one("app", "Exists", json!([])), true),
        (one("app", "DoesNotExist", json!(null)), false),
    ];
    for (value, expected) in cases {
        let selector = LabelSelector::from_value(&value).unwrap();
        assert_eq!(matches(&selector, &labels), expected, "{value}");
    }
    let refused = [
        json!([]),
        json!({"matchLabels": []}),
        json!({"matchLabels": {"a": 1}}),
        json!({"matchLabels": {"-": "a"}}),
        json!({"matchLabels": {"a": "-"}}),
        json!({"matchExpressions": {}}),
        json!({"matchExpressions": [1]}),
        one("a", "In", json!([])),
        one("a", "Exists", json!(["b"])),
        one("a", "Near", json!(["b"])),
        one("a", "In", json!("b")),
        one("a", "In", json!([1])),
    ];
    for value in refused {
        assert!(LabelSelector::from_value(&value).is_err(), "{value}");
    }
}

#[test]
fn field_selectors_are_read_as_listed() {
    type Terms = &'static [(&'static str, FieldOperator, &'static str)];
    use FieldOperator::{Equal, NotEqual};
    let cases: [(&str, Terms); 9] = [
        ("", &[]),
        ("metadata.name=a", &[("metadata.name", Equal, "a")]),
        ("metadata.name==a", &[("metadata.name", Equal, "a")]),
        (
            "metadata.name!=a,spec.size=large",
            &[("metadata.name", NotEqual, "a"), ("spec.size", Equal, "large")],
        ),
        ("a=", &[("a", Equal, "")]),
        (r"a=x\,y,b=p\=q,c=\\", &[("a", Equal, "x,y"), ("b", Equal, "p=q"), ("c", Equal, "\\")]),
        ("a=!b", &[("a", Equal, "!b")]),
        (",a=b,", &[("a", Equal, "b")]),
        ("a=v1/x y", &[("a", Equal, "v1/x y")]),
    ];
    for (text, expected) in cases {
        let selector = FieldSelector::parse(text).unwrap();
        let found: Vec<_> = selector
            .requirements()
            .iter()
            .map(|one| (one.path.as_str(), one.operator, one.value.as_str()))
            .collect();
        assert_eq!(found, expected, "{text}");
    }
    for text in ["a", "a=b=c", r"a=\x", "a=\\", "=a", "!=a", "a=b,c", "a!b"] {
        assert!(FieldSelector::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_field_selector_tells_the_name_it_pins() {
    let name = |text: &str| FieldSelector::parse(text).unwrap().name().map(str::to_owned);
    assert_eq!(name("metadata.name=a"), Some("a".to_owned()));
    assert_eq!(name("spec.x=1,metadata.name==a"), Some("a".to_owned()));
    assert_eq!(name("metadata.name!=a"), None);
    assert_eq!(name(""), None);
    let selector = FieldSelector::parse("metadata.namespace=n").unwrap();
    assert_eq!(selector.namespace(), Some("n"));
}

#[test]
fn a_missing_field_has_the_empty_value() {
    let check = |text: &str| {
        FieldSelector::parse(text).unwrap().matches(|path| (path == "a").then_some("1"))
    };
    assert!(check("a=1") && check("b=") && check("b!=1") && check("a=1,b!=2"));
    assert!(!check("a=2") && !check("a!=1") && !check("b!=") && !check("b=1"));
}

proptest! {
    #[test]
    fn noise_never_panics(text in ".{0,60}", likely in r"[a-c1 ,=!()<>\\/.-]{0,30}|[ab] (not)?in \([a-c, ]{0,6}\)?", value in any_json()) {
        let _ = LabelSelector::parse(&text);
        let _ = LabelSelector::parse(&likely);
        let _ = FieldSelector::parse(&text);
        let _ = FieldSelector::parse(&likely);
        let _ = LabelSelector::from_value(&value);
        let _ = LabelSelector::from_value(&json!({"matchLabels": value.clone(), "matchExpressions": [value]}));
    }

    #[test]
    fn any_field_value_can_be_escaped(value in ".{0,20}") {
        let escaped = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        let selector = FieldSelector::parse(&format!("metadata.name={escaped}")).unwrap();
        prop_assert_eq!(selector.name(), Some(value.as_str()));
    }

    #[test]
    fn not_equal_is_the_opposite_of_equal(key in "[a-c]", wanted in "[a-c]", labels in prop::collection::btree_map("[a-c]", "[a-c]", 0..3)) {
        let get = |key: &str| labels.get(key).map(String::as_str);
        let equal = LabelSelector::parse(&format!("{key}={wanted}")).unwrap();
        let unequal = LabelSelector::parse(&format!("{key}!={wanted}")).unwrap();
        prop_assert_ne!(equal.matches(get), unequal.matches(get));
    }
}
