//! Generators shared by the property tests of this crate.

use proptest::prelude::*;
use serde_json::{Map, Value};

/// Scalars as objects hold them. Floats are eighths: they have one text form everywhere.
pub(crate) fn any_scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        (-80i32..80).prop_map(|eighths| Value::from(f64::from(eighths) / 8.0 + 0.0625)),
        "[a-z0-9 :#'\"\\\\\n~-]{0,8}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ]
}

/// Any JSON value, with few distinct names so that values meet each other.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    any_scalar().prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::btree_map("[a-d]|[a-z/~.-]{0,5}", inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}
