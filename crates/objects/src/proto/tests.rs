//! Bodies that real clients sent, bodies written by hand field by field, and noise.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Writes protobuf the way Go clients do: what is not set is written too.
#[derive(Debug, Default, Clone)]
struct Writer(Vec<u8>);

impl Writer {
    fn varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap());
        self
    }

    fn number(self, field: u64, value: i64) -> Self {
        self.varint(field << 3).varint(value.cast_unsigned())
    }

    fn bytes(self, field: u64, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        let mut whole = self.varint(field << 3 | 2).varint(value.len() as u64);
        whole.0.extend_from_slice(value);
        whole
    }

    fn message(self, field: u64, inner: Self) -> Self {
        self.bytes(field, inner.0)
    }

    fn double(self, field: u64, value: f64) -> Self {
        let mut whole = self.varint(field << 3 | 1);
        whole.0.extend_from_slice(&value.to_le_bytes());
        whole
    }

    fn entry(self, field: u64, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.message(field, new().bytes(1, key).bytes(2, value))
    }
}

fn new() -> Writer {
    Writer::default()
}

/// `metadata` with a name, as Go writes it: six empty strings, a zero and an unset time.
fn meta(name: &str) -> Writer {
    let strings = new().bytes(1, name).bytes(2, "").bytes(3, "").bytes(4, "").bytes(5, "");
    strings.bytes(6, "").number(7, 0).bytes(8, "")
}

fn envelope(api_version: &str, kind: &str, raw: Writer) -> Vec<u8> {
    let body = new()
        .message(1, new().bytes(1, api_version).bytes(2, kind))
        .message(2, raw)
        .bytes(3, "")
        .bytes(4, "");
    [MAGIC.as_slice(), &body.0].concat()
}

/// Decodes and checks the object, given without its `apiVersion` and `kind`.
fn check(api_version: &str, kind: &str, raw: Writer, mut expected: Value) {
    let decoded = decode(&envelope(api_version, kind, raw)).unwrap();
    assert_eq!((decoded.api_version.as_str(), decoded.kind.as_str()), (api_version, kind));
    expected["apiVersion"] = api_version.into();
    expected["kind"] = kind.into();
    assert_eq!(decoded.value, expected, "{kind}");
}

fn time(seconds: i64, nanos: i64) -> Writer {
    new().number(1, seconds).number(2, nanos)
}

macro_rules! recorded {
    ($($name:literal),* $(,)?) => {
        [$((
            $name,
            include_bytes!(concat!("../../testdata/kubectl/", $name, ".pb")).as_slice(),
            include_str!(concat!("../../testdata/kubectl/", $name, ".json")),
        )),*]
    };
}

/// (name, body as kubectl 1.32 sent it, object as kubectl prints it less what is not set)
const RECORDED: &[(&str, &[u8], &str)] = &recorded![
    "clusterrole",
    "clusterrolebinding",
    "configmap",
    "cronjob",
    "deployment",
    "ingress",
    "job",
    "job-full",
    "job-zero",
    "namespace",
    "poddisruptionbudget",
    "priorityclass",
    "quota",
    "role",
    "rolebinding",
    "secret",
    "selfsubjectaccessreview",
    "selfsubjectreview",
    "service",
    "serviceaccount",
    "tokenrequest",
];

/// `job-full` sets every field of a pod template, `job-zero` writes the zero of every field.
#[test]
fn bodies_of_kubectl_decode_to_what_kubectl_prints() {
    for (name, body, expected) in RECORDED {
        let decoded = decode(body).unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected: Value = serde_json::from_str(expected).unwrap();
        let differences = differences(&decoded.value, &expected, "");
        assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n"));
    }
}

fn differences(found: &Value, expected: &Value, path: &str) -> Vec<String> {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            let names: std::collections::BTreeSet<_> =
                found.keys().chain(expected.keys()).collect();
            let none = Value::Null;
            let pairs = names.iter().map(|name| {
                let inner = format!("{path}.{name}");
                let pair =
                    (found.get(*name).unwrap_or(&none), expected.get(*name).unwrap_or(&none));
                differences(pair.0, pair.1, &inner)
            });
            pairs.flatten().collect()
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            let pairs = found.iter().zip(expected).enumerate();
            pairs.flat_map(|(i, (a, b))| differences(a, b, &format!("{path}[{i}]"))).collect()
        }
        _ if found == expected => Vec::new(),
        _ => vec![format!("{path}: found {found}, expected {expected}")],
    }
}

/// Written and read again, an object says what it said.
#[track_caller]
fn returns(value: &Value) {
    let again = decode(&encode(value).unwrap()).unwrap();
    let differences = differences(&again.value, value, "");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn what_kubectl_sent_is_written_as_it_was_read() {
    for (_, body, _) in RECORDED {
        returns(&decode(body).unwrap().value);
    }
    returns(&decode(include_bytes!("../../testdata/definition.pb")).unwrap().value);
}

#[test]
fn what_was_set_to_nothing_is_written_and_what_was_not_is_left_out() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a",
        "creationTimestamp": null}, "immutable": false, "data": {"k": ""}});
    let expected = new()
        .message(1, new().bytes(1, "a"))
        .message(2, new().bytes(1, "k").bytes(2, ""))
        .number(4, 0);
    assert_eq!(bare("v1", "ConfigMap", &map).unwrap(), expected.0);
    let whole = new().message(1, new().bytes(1, "v1").bytes(2, "ConfigMap")).message(2, expected);
    assert_eq!(encode(&map).unwrap(), [MAGIC.as_slice(), &whole.0].concat());
}

#[test]
fn what_is_no_such_object_is_told_with_its_place() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": 1}});
    let error = encode(&map).unwrap_err().to_string();
    assert_eq!(error, "member data of core.v1.ConfigMap is not text");
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget"});
    assert!(matches!(encode(&widget), Err(EncodeError::UnknownKind { .. })));
}

/// Encoded from the message types of k8s-pb: every form a schema may take.
#[test]
fn a_definition_decodes_with_its_whole_schema() {
    let decoded = decode(include_bytes!("../../testdata/definition.pb")).unwrap();
    let expected: Value =
        serde_json::from_str(include_str!("../../testdata/definition.json")).unwrap();
    let differences = differences(&decoded.value, &expected, "");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn configuration_and_secrets_decode() {
    let raw = new().message(1, meta("a")).entry(2, "k", "v").entry(2, "empty", "");
    check(
        "v1",
        "ConfigMap",
        raw.entry(3, "bin", [0, 255]).number(4, 0),
        json!({"metadata": {"name": "a"}, "data": {"k": "v", "empty": ""},
               "binaryData": {"bin": "AP8="}, "immutable": false}),
    );
    let raw = new().message(1, meta("s")).entry(2, "k", "v").bytes(3, "Opaque");
    check(
        "v1",
        "Secret",
        raw.entry(4, "plain", "text").number(5, 1),
        json!({"metadata": {"name": "s"}, "data": {"k": "dg=="}, "type": "Opaque",
               "stringData": {"plain": "text"}, "immutable": true}),
    );
}

#[test]
fn metadata_decodes_in_full() {
    let owner =
        new().bytes(1, "Pod").bytes(3, "p").bytes(4, "u1").bytes(5, "v1").number(6, 0).number(7, 1);
    let managed = new()
        .bytes(1, "kubectl")
        .bytes(2, "Apply")
        .bytes(3, "v1")
        .message(4, time(1_700_000_000, 999_999_999))
        .bytes(6, "FieldsV1")
        .message(7, new().bytes(1, r#"{"f:data":{".":{}}}"#))
        .bytes(8, "");
    let raw = new()
        .bytes(1, "n")
        .bytes(2, "g-")
        .bytes(3, "ns")
        .bytes(5, "u")
        .bytes(6, "42")
        .number(7, 3)
        .message(8, time(1_700_000_000, 5))
        .message(9, time(-1, 0))
        .number(10, 0)
        .entry(11, "app", "")
        .entry(12, "note", "x")
        .message(13, owner)
        .bytes(14, "f/one")
        .bytes(14, "f/two")
        .message(17, managed);
    check(
        "v1",
        "Namespace",
        new()
            .message(1, raw)
            .message(2, new().bytes(1, "kubernetes"))
            .message(3, new().bytes(1, "")),
        json!({
            "metadata": {
                "name": "n", "generateName": "g-", "namespace": "ns", "uid": "u",
                "resourceVersion": "42", "generation": 3,
                "creationTimestamp": "2023-11-14T22:13:20Z",
                "deletionTimestamp": "1969-12-31T23:59:59Z",
                "deletionGracePeriodSeconds": 0,
                "labels": {"app": ""}, "annotations": {"note": "x"},
                "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "u1", "apiVersion": "v1",
                                     "controller": false, "blockOwnerDeletion": true}],
                "finalizers": ["f/one", "f/two"],
                "managedFields": [{"manager": "kubectl", "operation": "Apply", "apiVersion": "v1",
                    "time": "2023-11-14T22:13:20Z", "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:data": {".": {}}}}],
            },
            "spec": {"finalizers": ["kubernetes"]},
            "status": {},
        }),
    );
}

#[test]
fn leases_keep_microseconds_and_written_zeros() {
    let spec = new()
        .bytes(1, "me")
        .number(2, 15)
        .message(3, time(1_700_000_000, 0))
        .message(4, time(1_700_000_001, 123_456_789))
        .number(5, 0);
    check(
        "coordination.k8s.io/v1",
        "Lease",
        new().message(1, meta("leader")).message(2, spec),
        json!({"metadata": {"name": "leader"}, "spec": {
            "holderIdentity": "me", "leaseDurationSeconds": 15,
            "acquireTime": "2023-11-14T22:13:20.000000Z",
            "renewTime": "2023-11-14T22:13:21.123456Z",
            "leaseTransitions": 0}}),
    );
}

#[test]
fn both_views_of_events_decode() {
    let object = new().bytes(1, "Pod").bytes(2, "ns").bytes(3, "p").bytes(4, "").bytes(5, "v1");
    let raw = new()
        .message(1, meta("e"))
        .message(2, object.clone())
        .bytes(3, "Started")
        .bytes(4, "it runs")
        .message(5, new().bytes(1, "agent").bytes(2, ""))
        .message(6, time(1_700_000_000, 0))
        .bytes(7, "")
        .number(8, 1)
        .bytes(9, "Normal")
        .bytes(10, "")
        .message(11, new().number(1, 2).message(2, time(1_700_000_000, 1000)));
    check(
        "v1",
        "Event",
        raw.bytes(12, "").bytes(14, "c").bytes(15, "i"),
        json!({"metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p", "apiVersion": "v1"},
            "reason": "Started", "message": "it runs", "source": {"component": "agent"},
            "firstTimestamp": "2023-11-14T22:13:20Z", "count": 1, "type": "Normal",
            "series": {"count": 2, "lastObservedTime": "2023-11-14T22:13:20.000001Z"},
            "reportingComponent": "c", "reportingInstance": "i"}),
    );
    let raw = new().message(1, meta("e")).message(2, time(1_700_000_000, 0)).bytes(4, "c");
    let raw = raw.bytes(5, "i").bytes(6, "Run").bytes(7, "Started").message(8, object);
    check(
        "events.k8s.io/v1",
        "Event",
        raw.bytes(10, "it runs").bytes(11, "Normal").number(15, 0),
        json!({"metadata": {"name": "e"}, "eventTime": "2023-11-14T22:13:20.000000Z",
            "reportingController": "c", "reportingInstance": "i", "action": "Run",
            "reason": "Started", "note": "it runs", "type": "Normal",
            "regarding": {"kind": "Pod", "namespace": "ns", "name": "p", "apiVersion": "v1"}}),
    );
}

#[test]
fn delete_options_decode_in_the_version_of_any_client() {
    let raw = new()
        .number(1, 0)
        .message(2, new().bytes(1, "u").bytes(2, "7"))
        .number(3, 0)
        .bytes(4, "Background")
        .bytes(5, "All");
    for api_version in ["v1", "coordination.k8s.io/v1", "meta.k8s.io/v1", "example.com/v1alpha1"] {
        check(
            api_version,
            "DeleteOptions",
            raw.clone(),
            json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "u", "resourceVersion": "7"},
                   "orphanDependents": false, "propagationPolicy": "Background",
                   "dryRun": ["All"]}),
        );
    }
}

#[test]
fn reviews_decode() {
    let attributes = new().bytes(1, "ns").bytes(2, "get").bytes(3, "").bytes(5, "pods");
    let extra = new().bytes(1, "scopes").message(2, new().bytes(1, "").bytes(1, "b"));
    let spec = new().message(1, attributes).bytes(3, "jane").bytes(4, "ops").message(5, extra);
    check(
        "authorization.k8s.io/v1",
        "SubjectAccessReview",
        new().message(1, meta("")).message(2, spec.bytes(6, "")),
        json!({"metadata": {}, "spec": {
            "resourceAttributes": {"namespace": "ns", "verb": "get", "resource": "pods"},
            "user": "jane", "groups": ["ops"], "extra": {"scopes": ["", "b"]}}}),
    );
    check(
        "authentication.k8s.io/v1",
        "TokenReview",
        new().message(2, new().bytes(1, "secret").bytes(2, "a")),
        json!({"spec": {"token": "secret", "audiences": ["a"]}}),
    );
}

#[test]
fn claims_decode_with_quantities_and_an_empty_storage_class() {
    let storage = new().bytes(1, "storage").message(2, new().bytes(1, "1Gi"));
    let unset = new().bytes(1, "cpu").bytes(2, "");
    let resources = new().message(1, unset).message(2, storage);
    let spec = new().bytes(1, "ReadWriteOnce").message(2, resources).bytes(3, "").bytes(5, "");
    check(
        "v1",
        "PersistentVolumeClaim",
        new().message(1, meta("c")).message(2, spec).message(3, new().bytes(1, "")),
        json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"limits": {"cpu": "0"}, "requests": {"storage": "1Gi"}},
            "storageClassName": ""}, "status": {}}),
    );
}

#[test]
fn unknown_fields_are_skipped_whatever_they_hold() {
    let mut raw = new().message(1, meta("a")).number(900, 7).bytes(901, "x").double(902, 1.0);
    raw = raw.varint(903 << 3 | 5);
    raw.0.extend_from_slice(&[1, 2, 3, 4]);
    check("v1", "ConfigMap", raw, json!({"metadata": {"name": "a"}}));
}

#[test]
fn later_pieces_of_a_message_add_and_later_scalars_win() {
    let raw = new()
        .message(1, new().bytes(1, "a").bytes(3, "ns"))
        .message(1, new().bytes(1, "b").bytes(3, ""));
    check("v1", "ConfigMap", raw, json!({"metadata": {"name": "b"}}));
}

#[test]
fn packed_numbers_are_a_list_too() {
    let context = new().number(4, 5).message(4, new().varint(6).varint(7));
    check(
        "v1",
        "Pod",
        new().message(2, new().message(14, context)),
        json!({"spec": {"securityContext": {"supplementalGroups": [5, 6, 7]}}}),
    );
}

#[test]
fn bodies_that_are_not_protobuf_or_of_unknown_kind_are_named() {
    assert_eq!(decode(b"{}"), Err(ProtoError::NotProtobuf));
    let (api_version, kind) = ("example.com/v1".to_owned(), "Widget".to_owned());
    let unknown = decode(&envelope(&api_version, &kind, new()));
    assert_eq!(unknown, Err(ProtoError::UnknownKind { api_version, kind }));
    let json = new().bytes(4, "application/json");
    let body = [MAGIC.as_slice(), &json.0].concat();
    assert!(matches!(decode(&body), Err(ProtoError::Envelope { what: "content type", .. })));
}

#[test]
fn damaged_messages_are_refused_with_their_place() {
    let bad = |raw: Writer| decode(&envelope("v1", "ConfigMap", raw)).unwrap_err();
    let message = "core.v1.ConfigMap";
    assert_eq!(bad(new().number(1, 1)), ProtoError::WireType { message, field: 1 });
    assert_eq!(bad(new().bytes(4, "x")), ProtoError::WireType { message, field: 4 });
    assert_eq!(bad(new().number(2, 1)), ProtoError::WireType { message, field: 2 });
    assert_eq!(bad(new().varint(2)), ProtoError::Key(2));
    assert_eq!(bad(new().varint(1 << 3 | 3)), ProtoError::Key(11));
    assert_eq!(bad(new().varint(1 << 3 | 2).varint(u64::MAX)), ProtoError::Truncated);
    assert_eq!(bad(Writer(vec![0x80])), ProtoError::Truncated);
    assert_eq!(bad(Writer(vec![0xff; 11])), ProtoError::Varint);
    let text = bad(new().message(1, new().bytes(1, [0xff])));
    assert!(matches!(text, ProtoError::Value { message: "meta.v1.ObjectMeta", field: 1, .. }));
    let far = bad(new().message(1, new().message(8, time(i64::MAX, 0))));
    assert!(matches!(far, ProtoError::Value { message: "meta.v1.ObjectMeta", field: 8, .. }));
    let managed = new().message(7, new().bytes(1, "{"));
    let fields = bad(new().message(1, new().message(17, managed)));
    assert!(matches!(fields, ProtoError::Value { field: 7, .. }));
}

/// A definition whose schema nests `levels` times through `not`.
fn nested(levels: usize) -> Vec<u8> {
    let schema = (0..levels).fold(new().bytes(5, "object"), |inner, _| new().message(28, inner));
    let version = new().bytes(1, "v1").message(4, new().message(1, schema));
    let spec = new().message(7, version);
    envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", new().message(2, spec))
}

#[test]
fn nesting_has_a_limit() {
    assert!(decode(&nested(100)).is_ok());
    assert_eq!(decode(&nested(130)), Err(ProtoError::TooDeep));
    assert_eq!(decode(&nested(2000)), Err(ProtoError::TooDeep));
}

/// Two bytes a value on the wire must not become gigabytes in memory.
#[test]
fn the_number_of_values_has_a_limit() {
    let finalizers = |count: usize| {
        let meta = Writer([14 << 3 | 2, 0].repeat(count));
        decode(&envelope("v1", "ConfigMap", new().message(1, meta)))
    };
    let decoded = finalizers(200_000).unwrap();
    assert_eq!(decoded.value["metadata"]["finalizers"].as_array().unwrap().len(), 200_000);
    assert_eq!(finalizers(250_000), Err(ProtoError::TooMany));
    let packed = new().message(4, Writer(vec![0; 250_000]));
    let pod = new().message(2, new().message(14, packed));
    assert_eq!(decode(&envelope("v1", "Pod", pod)), Err(ProtoError::TooMany));
}

#[test]
fn a_body_cut_short_never_panics() {
    for (_, body, _) in RECORDED {
        for length in 0..body.len() {
            let _ = decode(&body[..length]);
        }
    }
}

proptest! {
    #[test]
    fn noise_never_panics(
        kind in prop::sample::select(crate::builtin::kinds().collect::<Vec<_>>()),
        raw in prop::collection::vec(any::<u8>(), 0..256),
    ) {
        let _ = decode(&raw);
        let _ = decode(&envelope(kind.0, kind.1, Writer(raw)));
    }

    #[test]
    fn damage_never_panics(
        which in 0..RECORDED.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut body = RECORDED[which].1.to_vec();
        for (place, byte) in damage {
            let place = place.index(body.len());
            body[place] = byte;
        }
        let _ = decode(&body);
    }

    /// Whatever a string member holds comes out as it went in; only the empty one is dropped.
    #[test]
    fn text_survives(name in "\\PC{0,40}", value in "\\PC{0,40}") {
        let raw = new().message(1, new().bytes(1, &name)).entry(2, "k", &value);
        let decoded = decode(&envelope("v1", "ConfigMap", raw)).unwrap();
        prop_assert_eq!(decoded.value["metadata"]["name"].as_str().unwrap_or_default(), name);
        prop_assert_eq!(&decoded.value["data"]["k"], &Value::String(value));
    }
}
