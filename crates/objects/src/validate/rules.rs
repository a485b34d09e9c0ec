//! Runs the CEL rules of a schema over an object, within one budget for the whole object.

use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::KeyRef;
use serde_json::Value;

use super::MAX_CAUSES;
use super::lists::{by_key, item_key};
use super::scalars::shown;
use crate::cause::{Cause, Reason};
use crate::cel::{Budget, Compiled, Verdict, convert};
use crate::node::{ListType, Node, Rule};
use crate::path::Path;

pub(super) fn run(node: &Node, new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let mut run = Run { budget: Budget::default(), spent: false, causes };
    let place = Place { json: new, cel: None };
    let old = old.map(|json| Place { json, cel: None });
    run.walk(node, &place, old.as_ref(), &Path::Root(""), true);
}

/// A value in both forms; the second is made once, at the topmost node with rules, and shared by
/// everything below.
struct Place<'a> {
    json: &'a Value,
    cel: Option<Cel>,
}

impl<'a> Place<'a> {
    fn converted(&self, node: &Node, resource: bool) -> Place<'a> {
        let cel = self.cel.clone().unwrap_or_else(|| convert(node, self.json, resource));
        Place { json: self.json, cel: Some(cel) }
    }

    fn member(&self, name: &str) -> Option<Place<'a>> {
        let json = self.json.get(name)?;
        let cel = match &self.cel {
            Some(Cel::Map(map)) => map.get(&KeyRef::String(name)).cloned(),
            _ => None,
        };
        Some(Place { json, cel })
    }

    fn item(&self, index: usize) -> Option<Place<'a>> {
        let json = self.json.get(index)?;
        let cel = match &self.cel {
            Some(Cel::List(items)) => items.get(index).cloned(),
            _ => None,
        };
        Some(Place { json, cel })
    }
}

struct Run<'a> {
    budget: Budget,
    spent: bool,
    causes: &'a mut Vec<Cause>,
}

impl Run<'_> {
    fn walk(
        &mut self,
        node: &Node,
        new: &Place<'_>,
        old: Option<&Place<'_>>,
        path: &Path<'_>,
        resource: bool,
    ) {
        if !node.rules_below || self.spent || new.json.is_null() || self.causes.len() >= MAX_CAUSES
        {
            return;
        }
        if node.compiled.is_empty() {
            return self.below(node, new, old, path);
        }
        let old = old.filter(|old| !old.json.is_null());
        let new = new.converted(node, resource);
        let looks_back = node.compiled.iter().any(|rule| rule.uses_old());
        let old = old.map(|old| {
            if looks_back {
                old.converted(node, resource)
            } else {
                Place { json: old.json, cel: old.cel.clone() }
            }
        });
        for (rule, compiled) in node.rules.iter().zip(&node.compiled) {
            self.rule(rule, compiled, &new, old.as_ref(), path);
        }
        self.below(node, &new, old.as_ref(), path);
    }

    fn below(&mut self, node: &Node, new: &Place<'_>, old: Option<&Place<'_>>, path: &Path<'_>) {
        match new.json {
            Value::Object(members) => {
                for name in members.keys() {
                    let (child, path) = if let Some(child) = node.properties.get(name) {
                        (child, path.field(name))
                    } else if let Some(child) = &node.additional {
                        (child, path.key(name))
                    } else {
                        continue;
                    };
                    if let Some(new) = new.member(name).filter(|_| child.rules_below) {
                        let old = old.and_then(|old| old.member(name));
                        self.walk(child, &new, old.as_ref(), &path, false);
                    }
                }
            }
            Value::Array(items) => self.items(node, items, new, old, path),
            _ => {}
        }
    }

    fn items(
        &mut self,
        node: &Node,
        items: &[Value],
        new: &Place<'_>,
        old: Option<&Place<'_>>,
        path: &Path<'_>,
    ) {
        let Some(child) = node.items.as_ref().filter(|child| child.rules_below) else { return };
        let old_items = old.and_then(|old| old.json.as_array());
        let index = match (&node.list_type, old_items) {
            (ListType::Map { keys }, Some(items)) => Some((keys, by_key(keys, items))),
            _ => None,
        };
        for (position, item) in items.iter().enumerate() {
            let Some(new) = new.item(position) else { continue };
            // Items that cannot be told apart have no past.
            let old = index.as_ref().and_then(|(keys, map)| {
                map.get(&item_key(keys, item)).map(|json| Place { json, cel: None })
            });
            self.walk(child, &new, old.as_ref(), &path.index(position), false);
        }
    }

    fn rule(
        &mut self,
        rule: &Rule,
        compiled: &Compiled,
        new: &Place<'_>,
        old: Option<&Place<'_>>,
        path: &Path<'_>,
    ) {
        let Some(this) = new.cel.as_ref().filter(|_| !self.spent) else { return };
        if compiled.uses_old() && old.is_none() && !rule.optional_old_self {
            return;
        }
        let before = old.and_then(|old| old.cel.as_ref());
        let text = match compiled.judge(this, before, &mut self.budget) {
            Verdict::Holds => return,
            Verdict::Fails => compiled
                .message(this, before, &mut self.budget)
                .or_else(|| rule.message.clone())
                .unwrap_or_else(|| format!("failed rule: {}", rule.rule)),
            Verdict::Error(text) => format!("the rule {} cannot be evaluated: {text}", rule.rule),
            Verdict::Spent => {
                self.spent = true;
                "the validation rules of this object take too long".to_owned()
            }
        };
        // Ratcheting: what nobody touched may keep violating. Transition rules always count.
        let unchanged = old.is_some_and(|old| old.json == new.json);
        if self.spent || compiled.uses_old() || !unchanged {
            self.causes.push(cause(rule, new.json, path, &text));
        }
    }
}

fn cause(rule: &Rule, value: &Value, path: &Path<'_>, text: &str) -> Cause {
    let field = match &rule.field_path {
        Some(relative) => format!("{path}{relative}"),
        None => path.to_string(),
    };
    let field = field.strip_prefix('.').unwrap_or(&field).to_owned();
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => Cause::forbidden(field, text),
        Some("FieldValueRequired") => Cause::required(field, text),
        Some("FieldValueDuplicate") => {
            let text = format!("Duplicate value: {}: {text}", shown(value));
            Cause::new(Reason::Duplicate, field, text)
        }
        _ if value.is_object() || value.is_array() => {
            Cause::new(Reason::Invalid, field, format!("Invalid value: {text}"))
        }
        _ => Cause::invalid(field, &shown(value), text),
    }
}
