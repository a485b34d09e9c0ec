use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::any_json;

#[test]
fn repeated_members_are_reported_by_path_and_the_last_one_wins() {
    let cases = [
        (r#"{"a":1,"a":2}"#, json!({"a": 2}), vec!["a"]),
        (
            r#"{"spec":{"size":"s","n":1,"size":"l"}}"#,
            json!({"spec": {"size": "l", "n": 1}}),
            vec!["spec.size"],
        ),
        (
            r#"{"spec":{"ports":[{"a":1},{"a":1,"a":1,"a":3}]}}"#,
            json!({"spec": {"ports": [{"a": 1}, {"a": 3}]}}),
            vec!["spec.ports[1].a"],
        ),
        (r#"{"a":{"b":1},"c":{"b":1}}"#, json!({"a": {"b": 1}, "c": {"b": 1}}), vec![]),
    ];
    for (text, value, duplicates) in cases {
        let decoded = decode(text.as_bytes()).unwrap();
        assert_eq!(decoded.value, value, "{text}");
        assert_eq!(decoded.duplicates, duplicates, "{text}");
    }
}

#[test]
fn a_hostile_count_of_repeated_members_is_cut() {
    let long = "n".repeat(100_000);
    let many = r#""a":1,"#.repeat(10_000);
    let text = format!(r#"{{"{long}":{{{many}"a":2}}}}"#);
    let decoded = decode(text.as_bytes()).unwrap();
    assert_eq!(decoded.duplicates.len(), 1);
    assert!(decoded.duplicates[0].len() <= MAX_PATH_BYTES + 1);
}

#[test]
fn nesting_stops_at_the_limit() {
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    assert!(decode(nested(MAX_DEPTH).as_bytes()).is_ok());
    assert_eq!(decode(nested(MAX_DEPTH + 1).as_bytes()), Err(DecodeError::TooDeep));
    assert_eq!(decode("[".repeat(1_000_000).as_bytes()), Err(DecodeError::TooDeep));
    assert!(decode_yaml(nested(MAX_YAML_DEPTH).as_bytes()).is_ok());
    assert!(decode_yaml(nested(MAX_YAML_DEPTH + 1).as_bytes()).is_err());
    let object = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    assert!(decode_yaml(object(MAX_DEPTH).as_bytes()).is_ok());
    assert!(decode_yaml(object(MAX_DEPTH + 1).as_bytes()).is_err());
    assert!(decode_yaml("- ".repeat(100_000).as_bytes()).is_err());
}

#[test]
fn only_one_whole_json_document_is_accepted() {
    for text in ["", "{", "{x", "{} {}", "{}x", "nul", r#"{"a":}"#, "1e999", "[1,]", "\u{feff}{}"] {
        assert!(matches!(decode(text.as_bytes()), Err(DecodeError::Json(_))), "{text}");
    }
    assert!(decode(b"\"\xff\"").is_err());
}

#[test]
fn yaml_scalars_mean_what_kubernetes_means() {
    let text = "a: yes\nb: 0644\nc: '1'\nd: 1.5\ne: ~\nf: text\ng: -3\nh: 0x10\n1: one\ni: |\n  two\n  lines\n";
    let expected = json!({
        "a": true, "b": 420, "c": "1", "d": 1.5, "e": null, "f": "text", "g": -3, "h": 16,
        "1": "one", "i": "two\nlines\n",
    });
    assert_eq!(decode_yaml(text.as_bytes()).unwrap().value, expected);
}

#[test]
fn yaml_repeats_are_reported_too() {
    let decoded = decode_yaml(b"spec:\n  size: a\n  size: b\n").unwrap();
    assert_eq!(decoded.value, json!({"spec": {"size": "b"}}));
    assert_eq!(decoded.duplicates, ["spec.size"]);
    assert_eq!(decode_yaml(br#"{"a":1,"a":2}"#).unwrap().duplicates, ["a"]);
}

#[test]
fn yaml_aliases_and_merge_keys_work_within_bounds() {
    let text = "base: &b {x: 1, y: 2}\nuse: *b\nmore:\n  <<: *b\n  y: 3\n";
    let decoded = decode_yaml(text.as_bytes()).unwrap();
    assert_eq!(
        decoded.value,
        json!({"base": {"x": 1, "y": 2}, "use": {"x": 1, "y": 2}, "more": {"x": 1, "y": 3}})
    );
    assert!(decoded.duplicates.is_empty());
}

#[test]
fn yaml_bombs_are_refused() {
    let mut lines = vec!["a0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n".to_owned()];
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 9].join(",");
        lines.push(format!("a{level}: &a{level} [{items}]\n"));
    }
    assert!(matches!(decode_yaml(lines.concat().as_bytes()), Err(DecodeError::Yaml(_))));
}

#[test]
fn several_yaml_documents_are_refused_and_none_is_null() {
    assert!(decode_yaml(b"a: 1\n---\nb: 2\n").is_err());
    assert_eq!(decode_yaml(b"").unwrap().value, Value::Null);
    assert!(decode_yaml(b"a: .inf\n").is_err());
    assert!(decode_yaml(b"a: [\n").is_err());
}

#[test]
fn texts_that_look_like_other_scalars_stay_texts_in_yaml() {
    let value = json!({
        "a": "yes", "b": "0644", "c": "1.5", "d": "null", "e": "", "f": "a: b", "g": " x ", "h": "- y",
        "i": "two\nlines\n\n", "j": "#", "k": "~", "l": "on", "m": "\t", "n": "0x10", "o": "1_000",
        "yes": 1, "2026-01-01": "2026-01-01", "p": "é\u{7f}\u{85}", "q": {}, "r": [], "s": "<<",
    });
    assert_eq!(decode_yaml(encode_yaml(&value).as_bytes()).unwrap().value, value);
}

proptest! {
    #[test]
    fn json_survives(value in any_json()) {
        let decoded = decode(value.to_string().as_bytes()).unwrap();
        prop_assert_eq!(decoded.value, value);
        prop_assert!(decoded.duplicates.is_empty());
    }

    #[test]
    fn yaml_survives(value in any_json()) {
        let text = encode_yaml(&value);
        let decoded = decode_yaml(text.as_bytes());
        prop_assert_eq!(decoded.map(|decoded| decoded.value), Ok(value), "{}", text);
    }

    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), text in r#"[{}\[\]:,"&*a1 \n<-]{0,120}"#) {
        let _ = decode(&bytes);
        let _ = decode_yaml(&bytes);
        let _ = decode(text.as_bytes());
        let _ = decode_yaml(text.as_bytes());
    }
}
