//! Whether one set of rules grants everything another does.
//!
//! A wanted rule is taken apart into single permissions only where no held rule covers it whole,
//! and only up to a limit: beyond it the rule counts as not covered, so that a huge rule can be
//! refused but never smuggled in. So is the search of the held rules limited.

use super::rule::{PolicyRule, has};

/// Most single permissions one check takes a rule apart into.
const MAX_PARTS: usize = 16 * 1024;
/// Most pairs of a held rule and a wanted one that a check looks at. Both are as many as callers
/// like to store, and nobody else is authorized while many are compared.
const MAX_COMPARISONS: usize = 1 << 20;

/// The part of `wanted` that `held` does not grant, each as a rule with one resource or path.
pub fn missing<'a>(
    held: impl IntoIterator<Item = &'a PolicyRule>,
    wanted: &[PolicyRule],
) -> Vec<PolicyRule> {
    let mut held: Vec<_> = held.into_iter().collect();
    // What is granted under every name covers the most, so it is found first.
    held.sort_by_key(|rule| !rule.resource_names.is_empty());
    let mut held = Held { rules: held, comparisons_left: MAX_COMPARISONS };
    let mut parts_left = MAX_PARTS;
    let mut missing = Vec::new();
    for rule in wanted {
        if held.covers(rule) {
            continue;
        }
        let parts = part_count(rule);
        if parts > parts_left {
            missing.push(rule.clone());
            continue;
        }
        parts_left -= parts;
        missing.extend(missing_parts(&mut held, rule));
    }
    missing
}

/// The rules a caller has, and how often they may still be looked at.
struct Held<'a> {
    rules: Vec<&'a PolicyRule>,
    comparisons_left: usize,
}

impl Held<'_> {
    /// Whether one of the rules grants the whole of `wanted`; not if that takes too long to find out.
    fn covers(&mut self, wanted: &PolicyRule) -> bool {
        let looks = self.rules.len().min(self.comparisons_left);
        let found = self.rules.iter().take(looks).position(|held| covers(held, wanted));
        self.comparisons_left -= found.map_or(looks, |at| at + 1);
        found.is_some()
    }
}

/// Whether one held rule grants the whole of another.
fn covers(held: &PolicyRule, wanted: &PolicyRule) -> bool {
    let verbs = wanted.verbs.iter().all(|verb| has(&held.verbs, verb));
    if !verbs {
        return false;
    }
    // Validation keeps paths and resources apart; a rule with both is not covered by half.
    let paths = wanted.non_resource_urls.iter().all(|url| covers_path(held, url));
    paths
        && wanted.api_groups.iter().all(|group| has(&held.api_groups, group))
        && wanted.resources.iter().all(|resource| covers_resource(held, resource))
        && covers_names(held, wanted)
}

fn covers_resource(held: &PolicyRule, wanted: &str) -> bool {
    let (resource, subresource) = wanted.split_once('/').unwrap_or((wanted, ""));
    match (resource, subresource) {
        // `*` is every resource with its subresources, `*/sub` one subresource of every resource:
        // a list of names never amounts to that.
        ("*", "") => held.resources.iter().any(|one| one == "*"),
        ("*", _) => held.resources.iter().any(|one| one == "*" || one == wanted),
        _ => held.matches_resource(resource, subresource),
    }
}

fn covers_names(held: &PolicyRule, wanted: &PolicyRule) -> bool {
    held.resource_names.is_empty()
        || (!wanted.resource_names.is_empty()
            && wanted.resource_names.iter().all(|name| held.resource_names.contains(name)))
}

/// A wanted pattern is covered by the same pattern or by a wider one.
fn covers_path(held: &PolicyRule, wanted: &str) -> bool {
    match wanted.strip_suffix('*') {
        None => held.matches_path(wanted),
        Some(prefix) => held
            .non_resource_urls
            .iter()
            .filter_map(|url| url.strip_suffix('*'))
            .any(|held| prefix.starts_with(held)),
    }
}

fn part_count(rule: &PolicyRule) -> usize {
    let count = |list: &[String]| list.len().max(1);
    let resources = [&rule.api_groups, &rule.resources, &rule.resource_names];
    let resources = resources.iter().fold(1_usize, |total, list| total.saturating_mul(count(list)));
    resources.saturating_add(rule.non_resource_urls.len()).saturating_mul(count(&rule.verbs))
}

/// Takes the rule apart and keeps what no held rule grants; verbs of one target stay together.
fn missing_parts(held: &mut Held<'_>, rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut missing = Vec::new();
    for target in targets(rule) {
        let mut single = target.clone();
        let mut verbs = rule.verbs.clone();
        verbs.retain(|verb| {
            single.verbs = vec![verb.clone()];
            !held.covers(&single)
        });
        if !verbs.is_empty() {
            missing.push(PolicyRule { verbs, ..target });
        }
    }
    missing
}

/// Every single target of a rule, without verbs.
fn targets(rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut targets = Vec::new();
    for url in &rule.non_resource_urls {
        targets.push(PolicyRule { non_resource_urls: vec![url.clone()], ..PolicyRule::default() });
    }
    for group in &rule.api_groups {
        for resource in &rule.resources {
            let target = PolicyRule {
                api_groups: vec![group.clone()],
                resources: vec![resource.clone()],
                ..PolicyRule::default()
            };
            if rule.resource_names.is_empty() {
                targets.push(target);
                continue;
            }
            targets.extend(
                rule.resource_names.iter().map(|name| PolicyRule {
                    resource_names: vec![name.clone()],
                    ..target.clone()
                }),
            );
        }
    }
    targets
}
