//! The graph in the documents and the tests of `backup::decide` speak of the same edges.

use std::collections::BTreeSet;

const DOCUMENT: &str = include_str!("../../../docs/state-machines.md");
const TESTS: &str = include_str!("../src/backup/decide/tests.rs");

/// `initNabCreate` as `init_nab_create`, `NAB_START` as `nab_start`, `updateDBRStatus` as
/// `update_dbr_status`.
fn snake(node: &str) -> String {
    let letters: Vec<char> = node.chars().collect();
    let mut name = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| letters.get(at));
        let after = letters.get(at + 1);
        let begins = letter.is_uppercase()
            && before.is_some_and(|it| {
                it.is_lowercase()
                    || (it.is_uppercase() && after.is_some_and(|it| it.is_lowercase()))
            });
        if begins {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// The edges of the drawing, as names of tests.
fn edges() -> BTreeSet<String> {
    let (_, rest) = DOCUMENT.split_once("## A tenant's backup").expect("the section is gone");
    let (_, rest) = rest.split_once("```mermaid\n").expect("the drawing is gone");
    let (drawing, _) = rest.split_once("```").expect("the drawing has no end");
    let edges = drawing.lines().filter_map(|line| {
        let (from, to) = line.trim().split_once(" -->")?;
        let to = to.split_once("| ").map_or(to, |(_, to)| to).trim();
        Some(format!("{}_to_{}", snake(from), snake(to)))
    });
    edges.collect()
}

/// The names of the tests of edges; those of what the graph does not draw come after them.
fn tests() -> BTreeSet<String> {
    let (drawn, _) = TESTS.split_once("mod beyond").expect("the last module is gone");
    let names = drawn.lines().filter_map(|line| line.trim().strip_prefix("fn ")?.split('(').next());
    names.filter(|name| name.contains("_to_")).map(str::to_owned).collect()
}

#[test]
fn every_edge_of_the_graph_has_a_test_and_every_such_test_an_edge() {
    let (edges, tests) = (edges(), tests());
    let untested: Vec<_> = edges.difference(&tests).collect();
    let undrawn: Vec<_> = tests.difference(&edges).collect();
    assert!(untested.is_empty(), "edges without a test: {untested:?}");
    assert!(undrawn.is_empty(), "tests without an edge: {undrawn:?}");
    assert_eq!(edges.len(), 70, "the graph has lost or gained edges");
}
