//! `x-kubernetes-validations`: read, compiled and typed while the schema is parsed.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::structure::Place;
use super::{MAX_RULES, Parser};
use crate::cause::Cause;
use crate::cel;
use crate::node::{Node, Rule};
use crate::path::Path;

const VALIDATIONS: &str = "x-kubernetes-validations";
const REASONS: [&str; 4] =
    ["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"];

impl Parser {
    /// Runs last: rules are typed by the finished node.
    pub(super) fn validations(
        &mut self,
        schema: &Map<String, Value>,
        node: &mut Node,
        path: &Path<'_>,
        place: Place,
    ) {
        let here = path.field(VALIDATIONS);
        for (index, rule) in self.array(schema, VALIDATIONS, path).iter().enumerate() {
            let here = here.index(index);
            self.rules += 1;
            if self.rules > MAX_RULES {
                self.forbidden(
                    &here,
                    &format!("a schema must not have more than {MAX_RULES} rules"),
                );
                return;
            }
            let Some(members) = rule.as_object() else {
                self.invalid(&here, rule, "must be an object");
                continue;
            };
            let rule = self.rule(members, node, &here);
            if rule.rule.trim().is_empty() {
                self.required(&here.field("rule"), "");
                continue;
            }
            self.compile(rule, node, &here, place);
        }
    }

    fn rule(&mut self, members: &Map<String, Value>, node: &Node, path: &Path<'_>) -> Rule {
        let rule = Rule {
            rule: self.text(members, "rule", path).unwrap_or_default(),
            message: self.text(members, "message", path),
            message_expression: self.text(members, "messageExpression", path),
            reason: self.text(members, "reason", path),
            field_path: self.text(members, "fieldPath", path),
            optional_old_self: self.flag(members, "optionalOldSelf", path),
        };
        if let Some(message) = &rule.message
            && (message.trim().is_empty() || message.contains(['\n', '\r']))
        {
            let value = Value::from(message.as_str());
            self.invalid(&path.field("message"), &value, "must be one line of text");
        }
        if rule.message.is_none() && rule.message_expression.is_none() && rule.rule.contains('\n') {
            self.required(&path.field("message"), "a rule of several lines needs a message");
        }
        if let Some(reason) = rule.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
            let field = path.field("reason").to_string();
            self.refuse(Cause::not_supported(field, &Value::from(reason), &REASONS));
        }
        if let Some(relative) = &rule.field_path
            && !points_to_field(node, relative)
        {
            let value = Value::from(relative.as_str());
            self.invalid(
                &path.field("fieldPath"),
                &value,
                "must be the path of a field below the rule",
            );
        }
        rule
    }

    fn compile(&mut self, rule: Rule, node: &mut Node, path: &Path<'_>, place: Place) {
        match cel::compile(node, &rule, place.root) {
            Ok(compiled) => {
                if compiled.uses_old() && !place.correlatable {
                    let value = Value::from(rule.rule.as_str());
                    let detail = "oldSelf cannot be used here: items of this list have no identity";
                    self.invalid(&path.field("rule"), &value, detail);
                    return;
                }
                node.compiled.push(Arc::new(compiled));
                node.rules.push(rule);
            }
            Err(failed) => {
                let source = match failed.member {
                    "rule" => Some(rule.rule),
                    _ => rule.message_expression,
                };
                let value = source.map_or(Value::Null, Value::from);
                self.invalid(&path.field(failed.member), &value, &failed.text);
            }
        }
    }
}

/// `.a.b`, `.a['b.c']`: steps through fields the schema knows.
fn points_to_field(node: &Node, path: &str) -> bool {
    let mut node = node;
    let mut rest = path.trim();
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let (name, after) = if let Some(quoted) = rest.strip_prefix("['") {
            match quoted.split_once("']") {
                Some(parts) => parts,
                None => return false,
            }
        } else if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            after.split_at(end)
        } else {
            return false;
        };
        match node.properties.get(name).or(node.additional.as_ref()) {
            Some(child) => node = child,
            None => return false,
        }
        rest = after;
    }
    true
}
