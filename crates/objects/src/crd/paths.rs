//! The JSON paths a definition contains.

use crate::node::{JsonType, Node};

/// `.a.b.c` with plain names: the form of scale and selectable fields.
pub(super) fn is_plain(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('.') else { return false };
    let step = |step: &str| {
        !step.is_empty() && step.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    rest.split('.').all(step)
}

/// A path a printer column may use: starts at the object, with brackets and quotes closed.
pub(super) fn is_column(path: &str) -> bool {
    if !path.starts_with('.') || path.len() < 2 || path.contains(['{', '}']) {
        return false;
    }
    let (mut open, mut quote, mut escaped) = (0_i32, None, false);
    for c in path.chars() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(inside), c) if c == inside => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[' | '(') => open += 1,
            (None, ']' | ')') => open -= 1,
            _ => {}
        }
        if open < 0 {
            return false;
        }
    }
    open == 0 && quote.is_none() && !path.ends_with('.')
}

/// The schema of the value at a plain path.
pub(super) fn find<'a>(node: &'a Node, path: &str) -> Option<&'a Node> {
    path.split('.').skip(1).try_fold(node, |node, step| {
        node.properties.get(step).or(node.additional.as_ref()).map(AsRef::as_ref)
    })
}

/// Values a field selector can compare.
pub(super) fn is_selectable(node: &Node) -> bool {
    matches!(node.kind, Some(JsonType::String | JsonType::Boolean | JsonType::Integer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_columns_and_fields() {
        for good in [
            ".spec.size",
            ".status.conditions[?(@.type==\"Ready\")].status",
            ".a['b.c']",
            ".a[0].b[*]",
        ] {
            assert!(is_column(good), "{good}");
        }
        for bad in ["", ".", "spec", ".a[", ".a]", ".a['b]", "{.a}", ".a."] {
            assert!(!is_column(bad), "{bad}");
        }
        for good in [".spec", ".spec.replicas", ".a_b.c-d"] {
            assert!(is_plain(good), "{good}");
        }
        for bad in ["", ".", "spec", ".a[0]", ".a..b", ".a."] {
            assert!(!is_plain(bad), "{bad}");
        }
    }
}
