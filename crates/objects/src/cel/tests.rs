//! Rules as authors write them: what compiles, what they find, what they may cost.

use serde_json::{Value as Json, json};

use super::*;
use crate::schema;

fn node() -> Node {
    schema::parse(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "name": {"type": "string"},
            "size": {"type": "integer"},
            "ratio": {"type": "number"},
            "on": {"type": "boolean"},
            "prio": {"type": "integer", "nullable": true},
            "port": {"x-kubernetes-int-or-string": true},
            "when": {"type": "string", "format": "date-time"},
            "wait": {"type": "string", "format": "duration"},
            "data": {"type": "string", "format": "byte"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "ports": {"type": "array", "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "port": {"type": "integer"}}}},
            "attrs": {"type": "object", "additionalProperties": {"type": "string"}},
            "blob": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "namespace": {"type": "string"},
            "a-b.c": {"type": "string"}
        }}}}),
        "schema",
    )
    .unwrap()
}

fn rule(text: &str) -> Rule {
    Rule { rule: text.to_owned(), ..Rule::default() }
}

fn judge(text: &str, object: &Json, old: Option<&Json>) -> Verdict {
    let node = node();
    let compiled =
        compile(&node, &rule(text), true).unwrap_or_else(|e| panic!("{text}: {}", e.text));
    let this = convert(&node, object, true);
    let old = old.map(|old| convert(&node, old, true));
    compiled.judge(&this, old.as_ref(), &mut Budget::default())
}

fn sample() -> Json {
    json!({"apiVersion": "x.io/v1", "kind": "X", "metadata": {"name": "n", "labels": {"a": "b"}},
        "spec": {
        "name": "Ünï-code", "size": 3, "ratio": 2, "on": true, "prio": null, "port": "http",
        "when": "2024-01-02T03:04:05Z", "wait": "1h30m", "data": "aGk=", "tags": ["b", "a"],
        "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}], "attrs": {"k": "v", "x-y": "z"},
        "blob": {"free": 1}, "namespace": "ns", "a-b.c": "odd"}})
}

#[test]
fn rules_that_hold() {
    for text in [
        "self.metadata.name == 'n' && self.kind == 'X' && self.apiVersion == 'x.io/v1'",
        "size(self.spec.name) == 8",
        "self.spec.name.size() == 8",
        "self.spec.size * 2 - 1 == 5 && self.spec.size % 2 == 1 && -self.spec.size == -3",
        "self.spec.ratio / 2.0 == 1.0",
        "self.spec.ratio < self.spec.size",
        "has(self.spec.prio) && self.spec.prio == null",
        "!has(self.metadata.generateName)",
        "type(self.spec.port) == string && self.spec.port == 'http'",
        "self.spec.when < timestamp('2025-01-01T00:00:00Z') && self.spec.when.getFullYear() == 2024",
        "self.spec.wait == duration('90m')",
        "self.spec.data == b'hi' && size(self.spec.data) == 2",
        "self.spec.tags.all(t, t.matches('^[a-z]$'))",
        "self.spec.tags.exists(t, t == 'a') && self.spec.tags.exists_one(t, t == 'b')",
        "self.spec.tags.map(t, t + '!') == ['b!', 'a!']",
        "self.spec.tags.filter(t, t > 'a') == ['b']",
        "self.spec.ports.map(p, p.port > 1, p.name) == ['b']",
        "'k' in self.spec.attrs && self.spec.attrs['x-y'] == 'z' && self.spec.attrs.k == 'v'",
        "self.spec.attrs.all(k, k.size() <= 3)",
        "'a' in self.spec.tags && !('c' in self.spec.tags)",
        "self.spec.__namespace__ == 'ns' && self.spec.a__dash__b__dot__c == 'odd'",
        "self.spec.ports[1].port == 2",
        "self.spec.?name.orValue('x') == 'Ünï-code'",
        "self.metadata.?generateName.orValue('none') == 'none'",
        "self.metadata.?generateName.hasValue() == false",
        "self.spec.attrs[?'nope'].orValue('d') == 'd'",
        "self.spec.?name.optMap(n, n.size()).orValue(0) == 8",
        "optional.of(1).or(optional.none()).value() == 1",
        "self.spec.tags.isSorted() == false && self.spec.tags.sort() == ['a', 'b']",
        "self.spec.ports.map(p, p.port).sum() == 3 && [1, 5, 2].max() == 5",
        "self.spec.tags.join(',') == 'b,a' && 'a,b'.split(',') == ['a', 'b']",
        "self.spec.name.lowerAscii().replace('-', '_').startsWith('Ü')",
        "sets.contains(self.spec.tags, ['a'])",
        "quantity('1Gi').isGreaterThan(quantity('500Mi')) && isQuantity('10k')",
        "quantity('1e28').compareTo(quantity('1n')) == 1 && !isQuantity('1e999999999')",
        "semver('1.2.3').isLessThan(semver('2.0.0')) && semver('1.2.3').major() == 1",
        "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
        "url('https://h:8/p').getHostname() == 'h' && isURL('https://x')",
        "'%s-%d'.format(['a', 1]) == 'a-1'",
        "math.greatest(1, 3) == 3 && math.abs(-2) == 2",
        "!format.dns1123Label().validate('OK').hasValue() == false",
        "base64.encode(b'hi') == 'aGk='",
        "self.spec.size == 3 ? true : self.spec.tags[9] == 'x'",
        "true || 1 / 0 == 1",
        "1 / 0 == 1 || true",
        "!(false && 1 / 0 == 1) && !(1 / 0 == 1 && false)",
        "[1, 2, 3].exists(x, 1 / (x - 2) == 1)",
        "{'a': 1}.a == 1 && {'a': 1} == {'a': 1}",
        "string(self.spec.size) == '3' && int('3') == 3 && double(3) == 3.0",
        "self.spec.name.contains('code') && self.spec.name.endsWith('code')",
        "lists.range(3) == [0, 1, 2]",
        "dyn(1) == 1",
        "cel.bind(n, self.spec.size, n * n == 9)",
        "duration(self.spec.wait) == duration('5400s')",
        "string(self.spec.on) == 'true' && bool('true') && string(1.5) == '1.5'",
        "string(self.spec.when).startsWith('2024')",
    ] {
        assert_eq!(judge(text, &sample(), None), Verdict::Holds, "{text}");
    }
}

#[test]
fn rules_that_fail_or_cannot_be_evaluated() {
    assert_eq!(judge("self.spec.size > 3", &sample(), None), Verdict::Fails);
    for text in [
        "self.metadata.generateName == 'x'",
        "1 / 0 == 1",
        "self.spec.tags[7] == 'x'",
        "9223372036854775807 + self.spec.size > 0",
        "self.spec.attrs.nope == 'x'",
        "self.spec.tags.all(t, self.spec.ports[9].port == 1)",
        "quantity('junk').isInteger()",
        "quantity('1e999999999').isGreaterThan(quantity('1'))",
        "quantity('1').isLessThan(quantity('1e999999999'))",
        "quantity('1').isGreaterThan(quantity('1e-999999999'))",
        "self.spec.name.substring(100) == ''",
    ] {
        assert!(matches!(judge(text, &sample(), None), Verdict::Error(_)), "{text}");
    }
}

#[test]
fn rules_that_cannot_work_do_not_compile() {
    let node = node();
    for text in [
        "self.spec.name.foo",
        "self.spec.name.foo > 1",
        "self.spec.bogus == 1",
        "self.spec.ports.all(p, p.bogus == 1)",
        "self.spec.blob.free == 1",
        "self.metadata.labels.a == 'b'",
        "self.spec.name == 1",
        "self.spec.size == '1'",
        "self.spec.size < 'x'",
        "self.spec.name + 1 == 'x'",
        "self.spec.name && true",
        "self.spec.size",
        "unknown == 1",
        "nofunc(self)",
        "self.spec.name.nomethod()",
        "self.spec.name.startsWith()",
        "self.spec.name.startsWith('a', 'b')",
        "self.spec.size.startsWith('a')",
        "self.spec.size.all(x, true)",
        "self.spec.name[0] == 'a'",
        "1 in self.spec.tags",
        "self.spec.name.matches('(')",
        "self.spec.name ==",
        "Foo{a: 1} == 1",
        "!!self.spec.on",
        "",
        "  ",
        "self.spec.tags.all(a, self.spec.tags.all(b, self.spec.tags.all(c, self.spec.tags.all(d, self.spec.tags.all(e, true)))))",
    ] {
        assert!(compile(&node, &rule(text), true).is_err(), "{text:?} compiles");
    }
}

#[test]
fn message_expressions_are_typed_and_make_text() {
    let node = node();
    let with = |text: &str| Rule {
        rule: "false".to_owned(),
        message_expression: Some(text.to_owned()),
        ..Rule::default()
    };
    let failed = compile(&node, &with("1"), true).unwrap_err();
    assert_eq!(failed.member, "messageExpression");
    let compiled = compile(&node, &with("'size is ' + string(self.spec.size)"), true).unwrap();
    let this = convert(&node, &sample(), true);
    let text = compiled.message(&this, None, &mut Budget::default());
    assert_eq!(text.as_deref(), Some("size is 3"));
}

#[test]
fn the_past_is_an_optional_when_asked_for() {
    let node = node();
    let rule = Rule {
        rule: "!oldSelf.hasValue() || oldSelf.value().spec.size <= self.spec.size".to_owned(),
        optional_old_self: true,
        ..Rule::default()
    };
    let compiled = compile(&node, &rule, true).unwrap();
    assert!(compiled.uses_old());
    let value = |size: i64| convert(&node, &json!({"spec": {"size": size}}), true);
    let mut budget = Budget::default();
    assert_eq!(compiled.judge(&value(1), None, &mut budget), Verdict::Holds);
    assert_eq!(compiled.judge(&value(2), Some(&value(1)), &mut budget), Verdict::Holds);
    assert_eq!(compiled.judge(&value(1), Some(&value(2)), &mut budget), Verdict::Fails);
    let chained =
        Rule { rule: "oldSelf.?spec.?size.orValue(0) <= self.spec.size".to_owned(), ..rule };
    let compiled = compile(&node, &chained, true).unwrap();
    assert_eq!(compiled.judge(&value(1), None, &mut budget), Verdict::Holds);
    assert_eq!(compiled.judge(&value(1), Some(&value(2)), &mut budget), Verdict::Fails);
}

#[test]
fn a_hostile_rule_runs_out_of_budget_instead_of_time() {
    let doubling = format!("size(['x']{}) > 0", ".map(x, x + x)".repeat(40));
    let lists = format!("size([[1]]{}) > 0", ".map(x, [x, x])".repeat(40));
    let flat = format!("[[1]]{}.flatten(50).size() > 0", ".map(x, [x, x])".repeat(40));
    let growing =
        format!("'aaaaaaaa'{}.size() > 0", ".replace('a', 'aaaaaaaaaaaaaaaa')".repeat(20));
    for text in [
        "lists.range(100000).all(a, lists.range(100000).all(b, a + b >= 0))",
        "lists.range(1000000000).size() > 0",
        "lists.range(50000).map(x, 'a' + string(x)).distinct().size() > 0",
        "'%.999999999f'.format([1.0]) == ''",
        doubling.as_str(),
        growing.as_str(),
        flat.as_str(),
    ] {
        let verdict = judge(text, &sample(), None);
        assert!(matches!(verdict, Verdict::Spent | Verdict::Error(_)), "{text}: {verdict:?}");
    }
    // Shared parts make this list look huge, yet it is small.
    assert_eq!(judge(&lists, &sample(), None), Verdict::Holds);
}

#[test]
fn long_and_deep_sources_neither_overflow_nor_hang() {
    let node = node();
    let deep = |open: &str, close: &str, count: usize| {
        format!("{}true{}", open.repeat(count), close.repeat(count))
    };
    for text in [
        format!("self{}", ".a".repeat(4900)),
        format!("1{} > 0", "+1".repeat(4900)),
        format!("true{}", " && true".repeat(1200)),
        format!("{}true", "true ? true : ".repeat(600)),
        deep("(", ")", 55),
        deep("[", "]", 55),
        deep("!(", ")", 55),
        deep("[1].all(x,", ")", 55),
        "!".repeat(9000),
        "(".repeat(9000),
        "'".repeat(9000),
    ] {
        let _ = compile(&node, &rule(&text), true);
    }
}

mod noise {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn never_panics(text in "[a-z0-9()\\[\\]{}.,'\"!?:=<>&|+*/% -]{0,60}") {
            let _ = compile(&node(), &rule(&text), true);
        }

        #[test]
        fn rules_made_of_words_never_panic(words in proptest::collection::vec(
            proptest::sample::select(vec![
                "self", ".spec", ".name", ".size", ".tags", "(", ")", "[", "]", "0", "'a'", "==", "+",
                "&&", "||", "!", ".all(x,", ".map(x,", "x", ".size()", "size(", "has(", ",", "?", ":",
                ".orValue(", ".?name", "oldSelf", "in", "-", "1.5", "null", ".format(", ".join()",
            ]), 0..14)) {
            let text = words.concat();
            let node = node();
            if let Ok(compiled) = compile(&node, &rule(&text), true) {
                let this = convert(&node, &sample(), true);
                let _ = compiled.judge(&this, Some(&this), &mut Budget::default());
            }
        }
    }
}

#[test]
fn loops_with_two_variables_see_keys_and_values() {
    for text in [
        "self.spec.attrs.all(k, v, k != v)",
        "self.spec.attrs.exists(k, v, k == 'x-y' && v == 'z')",
        "self.spec.attrs.existsOne(k, v, v == 'v')",
        "!self.spec.attrs.existsOne(k, v, v != '')",
        "self.spec.tags.all(i, tag, i < 2 && tag == ['b', 'a'][i])",
        "self.spec.ports.exists(i, port, port.port == i + 1)",
        "self.spec.attrs.transformList(k, v, k + v).exists(x, x == 'kv')",
        "self.spec.tags.transformList(i, tag, i > 0, tag) == ['a']",
        "self.spec.attrs.transformMap(k, v, v + '!')['k'] == 'v!'",
        "self.spec.attrs.transformMap(k, v, k == 'k', v) == {'k': 'v'}",
        "self.spec.tags.transformMap(i, tag, tag)[1] == 'a'",
        "self.spec.attrs.transformMapEntry(k, v, {v: k})['z'] == 'x-y'",
        "self.spec.attrs.transformMapEntry(k, v, v == 'v', {v: k}) == {'v': 'k'}",
        "self.spec.attrs.all(k, v, self.spec.attrs.exists(l, w, k == l && v == w))",
        // A variable hides nothing once its loop is over.
        "self.spec.attrs.all(self, v, v != '') && self.spec.size == 3",
    ] {
        assert_eq!(judge(text, &sample(), None), Verdict::Holds, "{text}");
    }
    assert!(matches!(
        judge("self.spec.attrs.transformMapEntry(k, v, {'same': v}) != {}", &sample(), None),
        Verdict::Error(_)
    ));
    for bad in [
        "self.spec.attrs.all(k, k, true)",
        "self.spec.attrs.all(k, 'v', true)",
        "self.spec.attrs.all(k, v, w)",
        "self.spec.attrs.all(k, v, v)",
        "self.spec.size.all(k, v, true)",
        "self.spec.attrs.transformMapEntry(k, v, v) == {}",
        "self.spec.attrs.transformList(k, v) == []",
        "self.spec.attrs.all(k, v, v == 1)",
    ] {
        assert!(compile(&node(), &rule(bad), true).is_err(), "{bad}");
    }
}

#[test]
fn loops_with_two_variables_stay_within_the_budget() {
    let tags: Vec<String> = (0..400).map(|i| i.to_string()).collect();
    let object = json!({"spec": {"tags": tags}});
    let deep = "self.spec.tags.all(i, a, self.spec.tags.all(j, b, self.spec.tags.all(k, c, \
                i + j + k >= 0)))";
    assert_eq!(judge(deep, &object, None), Verdict::Spent);
    let wide = "self.spec.tags.transformMap(i, a, self.spec.tags.transformMapEntry(j, b, \
                self.spec.tags.transformMap(k, c, c) ).size()) != {}";
    assert!(!matches!(judge_or_refuse(wide, &object), Some(Verdict::Holds)));
}

fn judge_or_refuse(text: &str, object: &Json) -> Option<Verdict> {
    let node = node();
    let compiled = compile(&node, &rule(text), true).ok()?;
    Some(compiled.judge(&convert(&node, object, true), None, &mut Budget::default()))
}
