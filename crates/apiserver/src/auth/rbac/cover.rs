//! Whether one set of rules grants everything another does.
//!
//! A wanted rule is taken apart into single permissions only where no held rule covers it whole,
//! and only up to a limit: beyond it the rule counts as not covered, so that a huge rule can be
//! refused but never smuggled in. So is the search of the held rules limited, by what is compared
//! with what: rules are as long as callers like, and as many.

use super::rule::{PolicyRule, has};

/// Most single permissions one check takes a rule apart into.
const MAX_PARTS: usize = 16 * 1024;
/// Most bytes of texts in those.
const MAX_PART_BYTES: usize = 4 << 20;
/// Most texts that a check compares with one another, see [`weight`]. Nobody else is authorized while
/// they are compared.
const MAX_COMPARISONS: usize = 1 << 22;
/// As many bytes are compared in about the time that a look at a text takes.
const BYTES_PER_LOOK: usize = 64;

/// The part of `wanted` that `held` does not grant, each as a rule with one resource or path.
pub fn missing<'a>(
    held: impl IntoIterator<Item = &'a PolicyRule>,
    wanted: &[PolicyRule],
) -> Vec<PolicyRule> {
    let mut held: Vec<_> = held.into_iter().map(Weighed::new).collect();
    // What is granted under every name covers the most, and short rules cost the least.
    held.sort_by_key(|it| (!it.rule.resource_names.is_empty(), it.all()));
    let mut held = Held { rules: held, left: Left(MAX_COMPARISONS) };
    let (mut parts_left, mut bytes_left) = (MAX_PARTS, MAX_PART_BYTES);
    let mut missing = Vec::new();
    for rule in wanted {
        if held.covers(rule) {
            continue;
        }
        let (parts, bytes) = (part_count(rule), part_bytes(rule));
        if parts > parts_left || bytes > bytes_left {
            missing.push(rule.clone());
            continue;
        }
        parts_left -= parts;
        bytes_left -= bytes;
        missing.extend(missing_parts(&mut held, rule));
    }
    missing
}

/// What one text costs to be compared with all of these, whatever they are.
fn weight(texts: &[String]) -> usize {
    texts.iter().map(|text| looks(text)).sum()
}

fn looks(text: &str) -> usize {
    1 + text.len() / BYTES_PER_LOOK
}

/// A rule with the weights of its lists.
struct Weighed<'a> {
    rule: &'a PolicyRule,
    verbs: usize,
    api_groups: usize,
    resources: usize,
    resource_names: usize,
    non_resource_urls: usize,
}

impl<'a> Weighed<'a> {
    fn new(rule: &'a PolicyRule) -> Self {
        Self {
            rule,
            verbs: weight(&rule.verbs),
            api_groups: weight(&rule.api_groups),
            resources: weight(&rule.resources),
            resource_names: weight(&rule.resource_names),
            non_resource_urls: weight(&rule.non_resource_urls),
        }
    }

    fn all(&self) -> usize {
        self.verbs + self.api_groups + self.resources + self.resource_names + self.non_resource_urls
    }
}

/// What may still be compared.
struct Left(usize);

impl Left {
    /// What is not there any more is not used up: something that costs less may still be looked at.
    fn take(&mut self, wanted: usize) -> bool {
        let left = self.0.checked_sub(wanted);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }

    /// Whether all of the texts are covered, each of which costs this much to look for.
    fn all(&mut self, texts: &[String], weight: usize, is_covered: impl Fn(&str) -> bool) -> bool {
        texts.iter().all(|text| self.take(looks(text).saturating_add(weight)) && is_covered(text))
    }
}

/// The rules a caller has, and how far they may still be looked at.
struct Held<'a> {
    rules: Vec<Weighed<'a>>,
    left: Left,
}

impl Held<'_> {
    /// Whether one of the rules grants the whole of `wanted`; not if that takes too long to find out.
    fn covers(&mut self, wanted: &PolicyRule) -> bool {
        for held in &self.rules {
            if !self.left.take(1) {
                return false;
            }
            if covers(held, wanted, &mut self.left) {
                return true;
            }
        }
        false
    }
}

/// Whether one held rule grants the whole of another.
fn covers(held: &Weighed<'_>, wanted: &PolicyRule, left: &mut Left) -> bool {
    let rule = held.rule;
    // Validation keeps paths and resources apart; a rule with both is not covered by half.
    left.all(&wanted.verbs, held.verbs, |verb| has(&rule.verbs, verb))
        && left.all(&wanted.non_resource_urls, held.non_resource_urls, |url| covers_path(rule, url))
        && left.all(&wanted.api_groups, held.api_groups, |group| has(&rule.api_groups, group))
        && left.all(&wanted.resources, held.resources, |it| covers_resource(rule, it))
        && (rule.resource_names.is_empty()
            || (!wanted.resource_names.is_empty()
                && left.all(&wanted.resource_names, held.resource_names, |name| {
                    rule.resource_names.iter().any(|held| held == name)
                })))
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

/// Bytes of the texts in all targets of a rule: each has its own.
fn part_bytes(rule: &PolicyRule) -> usize {
    let lists = [&rule.api_groups, &rule.resources, &rule.resource_names];
    let count = |list: &[String]| list.len().max(1);
    let targets = lists.iter().fold(1_usize, |all, list| all.saturating_mul(count(list)));
    // A text is in as many of them as there are for each one of its list.
    let of = |list: &&Vec<String>| {
        let bytes: usize = list.iter().map(String::len).sum();
        bytes.saturating_mul(targets / count(list))
    };
    let verbs: usize = rule.verbs.iter().map(String::len).sum();
    let urls: usize = rule.non_resource_urls.iter().map(String::len).sum();
    let verbs = verbs.saturating_mul(targets.saturating_add(rule.non_resource_urls.len()));
    lists.iter().map(of).fold(urls.saturating_add(verbs), usize::saturating_add)
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
