//! Limit ranges: what single pods, containers and claims of a namespace get and may ask for.

use serde_json::{Value, json};

use crate::access::{at, list, list_mut, members, object_mut, text};
use crate::quantity::Quantity;

/// Notes what was filled in.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

fn items<'a>(ranges: &'a [Value], of: &str) -> impl Iterator<Item = &'a Value> {
    let all = ranges.iter().flat_map(|range| list(range, "spec.limits"));
    all.filter(move |item| text(item, "type") == of)
}

/// Gives the containers of a new pod what the ranges of its namespace say they have by default.
pub fn apply_limits(pod: &mut Value, ranges: &[Value]) {
    let mut done: Vec<String> = Vec::new();
    for (member, what) in [("initContainers", "init container"), ("containers", "container")] {
        for container in list_mut(pod, &format!("spec.{member}")) {
            let name = text(container, "name").to_owned();
            for (from, to, word) in
                [("defaultRequest", "requests", "request"), ("default", "limits", "limit")]
            {
                let filled = fill(container, ranges, from, to);
                if !filled.is_empty() {
                    done.push(format!("{} {word} for {what} {name}", filled.join(", ")));
                }
            }
        }
    }
    if done.is_empty() {
        return;
    }
    let text = format!("LimitRanger plugin set: {}", done.join("; "));
    if let Some(annotations) = object_mut(pod, "metadata.annotations") {
        annotations.insert(ANNOTATION.to_owned(), json!(text));
    }
}

/// The names of the resources that were missing.
fn fill(container: &mut Value, ranges: &[Value], from: &str, to: &str) -> Vec<String> {
    let mut filled: Vec<String> = Vec::new();
    for (resource, amount) in items(ranges, "Container").flat_map(|item| members(item, from)) {
        let path = format!("resources.{to}");
        if at(container, &path).is_some_and(|given| given.get(resource).is_some()) {
            continue;
        }
        if let Some(given) = object_mut(container, &path) {
            given.insert(resource.clone(), amount.clone());
            filled.push(resource.clone());
        }
    }
    filled.sort();
    filled
}

/// Why the ranges of its namespace refuse a new object; empty if they do not.
pub fn limit_violations(kind: &str, obj: &Value, ranges: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    match kind {
        "Pod" => {
            for item in items(ranges, "Container") {
                for container in list(obj, "spec.initContainers").iter().chain(containers(obj)) {
                    let amount = |side: &str, resource: &str| {
                        let all = at(container, &format!("resources.{side}"))?;
                        all.get(resource).and_then(quantity)
                    };
                    check(item, "Container", &amount, &mut found);
                }
            }
            for item in items(ranges, "Pod") {
                check(item, "Pod", &|side, resource| total(obj, side, resource), &mut found);
            }
        }
        "PersistentVolumeClaim" => {
            for item in items(ranges, kind) {
                let amount = |side: &str, resource: &str| {
                    // A claim asks for a size; there is no limit to go with it.
                    let all = at(obj, "spec.resources.requests")?;
                    (side == "requests").then(|| all.get(resource).and_then(quantity)).flatten()
                };
                check_claim(item, &amount, &mut found);
            }
        }
        _ => {}
    }
    found
}

fn containers(pod: &Value) -> &[Value] {
    list(pod, "spec.containers")
}

/// What all containers of a pod ask for together; init containers run before them, one by one.
/// Nothing if a container leaves it open.
fn total(pod: &Value, side: &str, resource: &str) -> Option<Quantity> {
    let amount = |container: &Value| {
        at(container, &format!("resources.{side}"))?.get(resource).and_then(quantity)
    };
    let sum = containers(pod)
        .iter()
        .try_fold(Quantity::ZERO, |sum, one| amount(one).map(|one| sum.plus(one)))?;
    let first = list(pod, "spec.initContainers").iter().filter_map(amount).max();
    Some(first.map_or(sum, |first| first.max(sum)))
}

fn quantity(value: &Value) -> Option<Quantity> {
    value.as_str().and_then(Quantity::parse)
}

type Amounts<'a> = dyn Fn(&str, &str) -> Option<Quantity> + 'a;

fn check(item: &Value, what: &str, amount: &Amounts<'_>, found: &mut Vec<String>) {
    for (resource, least) in members(item, "min") {
        let Some(bound) = quantity(least) else { continue };
        let say =
            |why: &str| format!("minimum {resource} usage per {what} is {}{why}", shown(least));
        match (amount("requests", resource), amount("limits", resource)) {
            (None, _) => found.push(say(".  No request is specified")),
            (Some(asked), _) if asked < bound => {
                found.push(say(&format!(", but request is {}", asked.shown())));
            }
            (_, Some(limit)) if limit < bound => {
                found.push(say(&format!(", but limit is {}", limit.shown())));
            }
            _ => {}
        }
    }
    for (resource, most) in members(item, "max") {
        let Some(bound) = quantity(most) else { continue };
        let say =
            |why: &str| format!("maximum {resource} usage per {what} is {}{why}", shown(most));
        match (amount("limits", resource), amount("requests", resource)) {
            (None, _) => found.push(say(".  No limit is specified")),
            (Some(limit), _) if limit > bound => {
                found.push(say(&format!(", but limit is {}", limit.shown())));
            }
            (_, Some(asked)) if asked > bound => {
                found.push(say(&format!(", but request is {}", asked.shown())));
            }
            _ => {}
        }
    }
    for (resource, ratio) in members(item, "maxLimitRequestRatio") {
        check_ratio(resource, ratio, what, amount, found);
    }
}

fn check_ratio(
    resource: &str,
    ratio: &Value,
    what: &str,
    amount: &Amounts<'_>,
    found: &mut Vec<String>,
) {
    let Some(bound) = quantity(ratio) else { return };
    let say = |why: &str| {
        let most = shown(ratio);
        format!("{resource} max limit to request ratio per {what} is {most}, but {why}")
    };
    match (amount("requests", resource), amount("limits", resource)) {
        (None, _) => found.push(say("no request is specified or request is 0")),
        (Some(asked), _) if asked == Quantity::ZERO => {
            found.push(say("no request is specified or request is 0"));
        }
        (_, None) => found.push(say("no limit is specified")),
        (Some(asked), Some(limit)) if limit.exceeds_ratio(asked, bound) => {
            found.push(say("the limit is more than that times the request"));
        }
        _ => {}
    }
}

fn check_claim(item: &Value, amount: &Amounts<'_>, found: &mut Vec<String>) {
    for (member, word) in [("min", "minimum"), ("max", "maximum")] {
        for (resource, bound) in members(item, member) {
            let (Some(limit), Some(asked)) = (quantity(bound), amount("requests", resource)) else {
                continue;
            };
            if (member == "min" && asked < limit) || (member == "max" && asked > limit) {
                let (bound, asked) = (shown(bound), asked.shown());
                found.push(format!(
                    "{word} {resource} usage per PersistentVolumeClaim is {bound}, but request is \
                     {asked}"
                ));
            }
        }
    }
}

fn shown(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
