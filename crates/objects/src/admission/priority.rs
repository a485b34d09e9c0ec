//! The priority of a pod: its class says it, never the pod.

use serde_json::{Value, json};

use crate::access::{at, integer, is_true, set, text};

/// Classes that every cluster has, with their values.
pub const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];
const PREEMPT: &str = "PreemptLowerPriority";

/// Writes the priority of a new pod into it; the error says why there is none.
pub fn resolve_priority(pod: &mut Value, classes: &[Value]) -> Result<(), String> {
    let name = text(pod, "spec.priorityClassName").to_owned();
    let (value, policy) = if name.is_empty() {
        match default_class(classes) {
            None => (0, PREEMPT.to_owned()),
            Some(class) => {
                set(pod, "spec.priorityClassName", text(class, "metadata.name"));
                content(class)
            }
        }
    } else {
        named(classes, &name)
            .ok_or_else(|| format!("no PriorityClass with name {name} was found"))?
    };
    if let Some(given) = integer(pod, "spec.priority").filter(|given| *given != value) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; the class \
             of the pod says {value}"
        ));
    }
    let given = text(pod, "spec.preemptionPolicy");
    if !given.is_empty() && given != policy {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; the \
             class of the pod says {policy}"
        ));
    }
    set(pod, "spec.priority", value);
    set(pod, "spec.preemptionPolicy", policy);
    Ok(())
}

/// Two defaults are a mistake that must not raise anybody: the lower one counts.
fn default_class(classes: &[Value]) -> Option<&Value> {
    let defaults = classes.iter().filter(|class| is_true(class, "globalDefault"));
    defaults.min_by_key(|class| integer(class, "value").unwrap_or_default())
}

fn named(classes: &[Value], name: &str) -> Option<(i64, String)> {
    let system = || {
        let (_, value) = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name)?;
        Some((*value, PREEMPT.to_owned()))
    };
    let class = classes.iter().find(|class| text(class, "metadata.name") == name);
    class.map(content).or_else(system)
}

fn content(class: &Value) -> (i64, String) {
    let policy = at(class, "preemptionPolicy").unwrap_or(&json!(PREEMPT)).clone();
    let value = integer(class, "value").unwrap_or_default();
    (value, policy.as_str().unwrap_or(PREEMPT).to_owned())
}
