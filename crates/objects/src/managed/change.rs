//! What differs between two versions of an object, as field sets.

use serde_json::{Map, Value};

use super::set::FieldSet;
use super::shape::{At, Containers, Items, Shape, collect};

/// A difference. Members of either set stand for the whole value at their path.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// Fields that are new or have a new value.
    pub(super) set: FieldSet,
    /// Fields that are no more.
    pub(super) gone: FieldSet,
}

impl Change {
    pub(super) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.gone.is_empty()
    }

    fn replaced(at: At<'_>, old: &Value, new: &Value) -> Self {
        let mut gone = collect(at, old, Containers::All);
        gone.owned = false;
        let mut set = collect(at, new, Containers::All);
        set.owned = true;
        Self { set, gone }
    }
}

/// Compares the values at a place.
pub(super) fn diff(at: At<'_>, old: &Value, new: &Value) -> Change {
    match (at.shape(old), at.shape(new)) {
        (Shape::Leaf, Shape::Leaf) if old == new => Change::default(),
        (Shape::Object(old), Shape::Object(new)) => diff_objects(at, old, new),
        (Shape::Items(kind, old), Shape::Items(_, new)) => diff_items(at, kind, old, new),
        _ => Change::replaced(at, old, new),
    }
}

fn diff_objects(at: At<'_>, old: &Map<String, Value>, new: &Map<String, Value>) -> Change {
    let mut change = Change::default();
    for (name, after) in new.iter().filter(|(name, _)| at.tracks(name)) {
        let below = at.field(name);
        match old.get(name) {
            Some(before) => {
                let part = diff(below, before, after);
                add_field(&mut change.set, name, part.set);
                add_field(&mut change.gone, name, part.gone);
            }
            None => add_field(&mut change.set, name, collect(below, after, Containers::All)),
        }
    }
    for (name, before) in old {
        if at.tracks(name) && !new.contains_key(name) {
            let gone = collect(at.field(name), before, Containers::All);
            add_field(&mut change.gone, name, gone);
        }
    }
    change
}

fn diff_items(at: At<'_>, kind: Items<'_>, old: &[Value], new: &[Value]) -> Change {
    // Most lists do not change, and naming items costs more than comparing them.
    if old == new {
        return Change::default();
    }
    let (Some(before), Some(after)) = (kind.index(old), kind.index(new)) else {
        let whole = |items: &[Value]| Value::Array(items.to_vec());
        return Change::replaced(at, &whole(old), &whole(new));
    };
    let mut change = Change::default();
    for (element, position) in &after {
        let Some(item) = new.get(*position) else { continue };
        if let Some(previous) = before.get(element).and_then(|position| old.get(*position)) {
            let part = diff(at.item(), previous, item);
            add_item(&mut change.set, element, part.set);
            add_item(&mut change.gone, element, part.gone);
        } else {
            add_item(&mut change.set, element, collect(at.item(), item, Containers::All));
        }
    }
    for element in before.keys().filter(|element| !after.contains_key(*element)) {
        let gone = FieldSet { owned: true, ..FieldSet::default() };
        add_item(&mut change.gone, element, gone);
    }
    change
}

pub(super) fn add_field(set: &mut FieldSet, name: &str, child: FieldSet) {
    if !child.is_empty() {
        set.fields.insert(name.to_owned(), child);
    }
}

pub(super) fn add_item(set: &mut FieldSet, element: &str, child: FieldSet) {
    if !child.is_empty() {
        set.items.insert(element.to_owned(), child);
    }
}
