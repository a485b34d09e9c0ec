//! From the table to [`Node`] trees. Messages are built once and shared.

use std::collections::HashMap;
use std::sync::Arc;

use super::table::{Field, MessageId, Shape, Table, Type};
use crate::node::{Checks, JsonType, Node};

/// The one recursive type. Its members are the schema module's affair: any object passes here.
const SCHEMA: &str = "apiextensions.v1.JsonSchemaProps";
const OBJECT_META: &str = "meta.v1.ObjectMeta";

pub(super) struct Shapes {
    table: &'static Table,
    built: HashMap<MessageId, Arc<Node>>,
    leaves: Vec<(Type, Arc<Node>)>,
}

impl Shapes {
    pub(super) fn new(table: &'static Table) -> Self {
        Self { table, built: HashMap::new(), leaves: Vec::new() }
    }

    pub(super) fn object_meta(&mut self) -> Arc<Node> {
        self.table.named(OBJECT_META).map(|id| self.message(id)).unwrap_or_default()
    }

    /// A kind: its message and the two members protobuf keeps in the envelope.
    pub(super) fn root(&mut self, id: MessageId) -> Arc<Node> {
        let mut node = Node::clone(&self.message(id));
        for member in ["apiVersion", "kind"] {
            node.properties.insert(member.to_owned(), self.value(Type::String));
        }
        Arc::new(node)
    }

    fn message(&mut self, id: MessageId) -> Arc<Node> {
        if let Some(done) = self.built.get(&id) {
            return Arc::clone(done);
        }
        let message = self.table.message(id);
        let mut node =
            Node { kind: Some(JsonType::Object), map_atomic: message.atomic, ..Node::default() };
        if message.name == SCHEMA {
            node.preserve_unknown = true;
        } else {
            for field in &message.fields {
                self.add(&mut node, field);
            }
        }
        let node = Arc::new(node);
        self.built.insert(id, Arc::clone(&node));
        node
    }

    fn add(&mut self, node: &mut Node, field: &Field) {
        if let Some(member) = field.member {
            node.properties.insert(member.to_owned(), self.field(field));
        } else if let Type::Message(id) = field.of {
            let inner = self.message(id);
            let members = inner.properties.iter();
            node.properties.extend(members.map(|(name, node)| (name.clone(), Arc::clone(node))));
        }
    }

    fn field(&mut self, field: &Field) -> Arc<Node> {
        let value = self.value(field.of);
        let mut node = match field.shape {
            Shape::One if is_plain(field) => return value,
            Shape::One => Node::clone(&value),
            Shape::List => Node {
                kind: Some(JsonType::Array),
                items: Some(value),
                list_type: field.list.clone(),
                ..Node::default()
            },
            Shape::Map => {
                Node { kind: Some(JsonType::Object), additional: Some(value), ..Node::default() }
            }
        };
        node.map_atomic |= field.atomic;
        node.patch = field.patch.clone();
        node.default.clone_from(&field.default);
        Arc::new(node)
    }

    fn value(&mut self, of: Type) -> Arc<Node> {
        if let Type::Message(id) = of {
            return self.message(id);
        }
        if let Some((_, node)) = self.leaves.iter().find(|(known, _)| *known == of) {
            return Arc::clone(node);
        }
        let node = Arc::new(leaf(of));
        self.leaves.push((of, Arc::clone(&node)));
        node
    }
}

/// Nothing about the field that its type does not say: the node of the type can be shared.
fn is_plain(field: &Field) -> bool {
    !field.atomic && field.patch == crate::node::PatchStrategy::Replace && field.default.is_none()
}

fn leaf(of: Type) -> Node {
    match of {
        Type::String => typed(JsonType::String, None),
        Type::Bytes => typed(JsonType::String, Some("byte")),
        Type::Int32 => typed(JsonType::Integer, Some("int32")),
        Type::Int64 => typed(JsonType::Integer, Some("int64")),
        Type::Bool => typed(JsonType::Boolean, None),
        Type::Double => typed(JsonType::Number, Some("double")),
        Type::Time => typed(JsonType::String, Some("date-time")),
        // Both kinds of time have one format; the title tells who writes six decimals.
        Type::MicroTime => {
            Node { title: "MicroTime".to_owned(), ..typed(JsonType::String, Some("date-time")) }
        }
        Type::Quantity => quantity(),
        Type::IntOrString => {
            let checks = Checks { format: Some("int-or-string".to_owned()), ..Checks::default() };
            Node { int_or_string: true, checks, ..Node::default() }
        }
        Type::Strings => Node {
            kind: Some(JsonType::Array),
            items: Some(Arc::new(typed(JsonType::String, None))),
            ..Node::default()
        },
        Type::Json
        | Type::SchemaOrBool
        | Type::SchemaOrArray
        | Type::SchemaOrStrings
        | Type::Message(_) => Node { preserve_unknown: true, ..Node::default() },
    }
}

fn typed(kind: JsonType, format: Option<&str>) -> Node {
    let checks = Checks { format: format.map(str::to_owned), ..Checks::default() };
    Node { kind: Some(kind), checks, ..Node::default() }
}

/// Clients send `"1Gi"`, `5` and `0.5` alike.
fn quantity() -> Node {
    let any_of = vec![typed(JsonType::String, None), typed(JsonType::Number, None)];
    let checks = Checks { format: Some("quantity".to_owned()), any_of, ..Checks::default() };
    Node { checks, ..Node::default() }
}
