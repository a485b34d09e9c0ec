//! Lists in strategic merge patches: replaced, united, or merged by key.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{DELETE_PRIMITIVES, Directive, ORDER, directive, failed, merge_object, plain};
use crate::node::{Node, PatchStrategy};
use crate::patch::PatchError;

pub(super) fn merge(
    node: Option<&Node>,
    target: &mut Vec<Value>,
    patch: &[Value],
) -> Result<(), PatchError> {
    let items = node.and_then(|node| node.items.as_deref());
    match node.map(|node| &node.patch) {
        Some(PatchStrategy::MergePrimitive) => {
            let order = Order::of_patch(None, target, patch);
            let mut known: HashSet<String> = target.iter().map(Value::to_string).collect();
            target.extend(patch.iter().filter(|item| known.insert(item.to_string())).cloned());
            order.arrange_items(target);
            Ok(())
        }
        Some(PatchStrategy::MergeByKey { key, .. }) => merge_by_key(items, key, target, patch),
        Some(PatchStrategy::Replace | PatchStrategy::RetainKeys) | None => {
            replace(items, target, patch)
        }
    }
}

/// The patch's items become the list; those that only carry a directive do not.
fn replace(
    node: Option<&Node>,
    target: &mut Vec<Value>,
    patch: &[Value],
) -> Result<(), PatchError> {
    target.clear();
    for item in patch {
        let only_directive = matches!(item, Value::Object(members)
            if members.len() == 1 && directive(members)? == Directive::Replace);
        if !only_directive {
            target.extend(plain(node, item)?);
        }
    }
    Ok(())
}

fn merge_by_key(
    node: Option<&Node>,
    key: &str,
    target: &mut Vec<Value>,
    patch: &[Value],
) -> Result<(), PatchError> {
    let mut changes = Vec::with_capacity(patch.len());
    for item in patch {
        let Value::Object(members) = item else {
            return Err(failed(&format!("an item of a list merged by {key:?} is not an object")));
        };
        let directive = directive(members)?;
        if directive == Directive::Replace {
            return replace(node, target, patch);
        }
        let id = members
            .get(key)
            .ok_or_else(|| failed(&format!("an item of a list merged by {key:?} lacks it")))?;
        changes.push((id.to_string(), directive, members));
    }
    let order = Order::of_patch(Some(key), target, patch);
    let mut known = index(Some(key), target);
    let mut removed = HashSet::new();
    for (id, directive, members) in changes {
        if directive == Directive::Delete {
            removed.insert(id);
            continue;
        }
        let known_item = known.get(&id).and_then(|at| target.get_mut(*at));
        if let Some(Value::Object(item)) = known_item {
            merge_object(node, item, members)?;
        } else {
            let mut item = Map::new();
            merge_object(node, &mut item, members)?;
            known.insert(id, target.len());
            target.push(Value::Object(item));
        }
    }
    if !removed.is_empty() {
        target.retain(|item| !identity(Some(key), item).is_some_and(|id| removed.contains(&id)));
    }
    order.arrange_items(target);
    Ok(())
}

/// `$deleteFromPrimitiveList/FIELD`
pub(super) fn delete_primitives(
    target: &mut Map<String, Value>,
    field: &str,
    values: &Value,
) -> Result<(), PatchError> {
    let Value::Array(values) = values else {
        return Err(failed(&format!("{DELETE_PRIMITIVES}{field} must be a list")));
    };
    match target.get_mut(field) {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(items)) => {
            let gone: HashSet<String> = values.iter().map(Value::to_string).collect();
            items.retain(|item| !gone.contains(&item.to_string()));
            Ok(())
        }
        Some(_) => Err(failed(&format!("{field:?} is not a list"))),
    }
}

/// The order of a merged list, which `$setElementOrder/FIELD` gives or else the patch itself: listed
/// items follow it; others keep their place among them as far as their old neighbours tell it. So an
/// item the list did not have comes before those that nobody mentioned.
pub(super) struct Order<'p> {
    key: Option<&'p str>,
    field: &'p str,
    /// Place in the order by identity.
    places: HashMap<String, usize>,
    /// Position in the list before the patch by identity.
    before: HashMap<String, usize>,
}

impl<'p> Order<'p> {
    /// Every item the patch adds or changes must have its place in the order.
    pub(super) fn read(
        key: Option<&'p str>,
        field: &'p str,
        order: &Value,
        target: &Map<String, Value>,
        patch: &Map<String, Value>,
    ) -> Result<Self, PatchError> {
        let places = places(key, field, order)?;
        for item in items(patch, field) {
            let merged = match item {
                Value::Object(members) => directive(members)? == Directive::Merge,
                _ => true,
            };
            if merged && !identity(key, item).is_some_and(|id| places.contains_key(&id)) {
                let why = format!("{ORDER}{field} does not list every item of {field:?}");
                return Err(failed(&why));
            }
        }
        Ok(Self { key, field, places, before: index(key, items(target, field)) })
    }

    /// The order of a patch without `$setElementOrder`; `target` is the list before it.
    fn of_patch(key: Option<&'p str>, target: &[Value], patch: &[Value]) -> Self {
        let places = index(key, patch);
        Self { key, field: "", places, before: index(key, target) }
    }

    pub(super) fn arrange(&self, target: &mut Map<String, Value>) {
        if let Some(Value::Array(items)) = target.get_mut(self.field) {
            self.arrange_items(items);
        }
    }

    fn arrange_items(&self, items: &mut Vec<Value>) {
        let mut listed = Vec::new();
        let mut others = Vec::new();
        for item in std::mem::take(items) {
            let id = identity(self.key, &item).unwrap_or_default();
            let before = self.before.get(&id).copied();
            match self.places.get(&id) {
                Some(place) => listed.push((*place, before, item)),
                None => others.push((before, item)),
            }
        }
        listed.sort_by_key(|(place, ..)| *place);
        let mut others = others.into_iter().peekable();
        for (_, before, item) in listed {
            // A new item has no old neighbours and waits for nobody.
            while let Some((_, other)) = others.next_if(|(other, _)| *other < before) {
                items.push(other);
            }
            items.push(item);
        }
        items.extend(others.map(|(_, item)| item));
    }
}

fn items<'v>(members: &'v Map<String, Value>, field: &str) -> &'v [Value] {
    members.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn places(
    key: Option<&str>,
    field: &str,
    order: &Value,
) -> Result<HashMap<String, usize>, PatchError> {
    let Value::Array(order) = order else {
        return Err(failed(&format!("{ORDER}{field} must be a list")));
    };
    let mut places = HashMap::with_capacity(order.len());
    for (place, item) in order.iter().enumerate() {
        let id = identity(key, item)
            .ok_or_else(|| failed(&format!("{ORDER}{field} has an item without the merge key")))?;
        places.entry(id).or_insert(place);
    }
    Ok(places)
}

fn index(key: Option<&str>, items: &[Value]) -> HashMap<String, usize> {
    let mut known = HashMap::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        if let Some(id) = identity(key, item) {
            known.entry(id).or_insert(at);
        }
    }
    known
}

/// What tells an item apart: its merge key, or the scalar itself.
fn identity(key: Option<&str>, item: &Value) -> Option<String> {
    match key {
        Some(key) => item.get(key).map(Value::to_string),
        None => Some(item.to_string()),
    }
}
