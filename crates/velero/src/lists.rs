//! Lists of what is in and what is out, with patterns. Pure.

/// What is in: nothing named means everything. What is out wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    pub(crate) includes: Vec<String>,
    pub(crate) excludes: Vec<String>,
}

impl Lists {
    pub(crate) fn new(includes: Option<&Vec<String>>, excludes: Option<&Vec<String>>) -> Self {
        let own = |list: Option<&Vec<String>>| list.cloned().unwrap_or_default();
        Self { includes: own(includes), excludes: own(excludes) }
    }

    pub(crate) fn includes_everything(&self) -> bool {
        self.excludes.is_empty() && self.has_open_includes()
    }

    fn has_open_includes(&self) -> bool {
        self.includes.is_empty() || self.includes.iter().any(|one| one == "*")
    }

    pub(crate) fn excludes(&self, name: &str) -> bool {
        self.excludes.iter().any(|pattern| matches(pattern, name))
    }

    pub(crate) fn holds(&self, name: &str) -> bool {
        if self.excludes(name) {
            return false;
        }
        self.has_open_includes() || self.includes.iter().any(|pattern| matches(pattern, name))
    }

    /// Every item through `resolve`, which may leave it as it is.
    #[must_use]
    pub(crate) fn resolved(&self, resolve: impl Fn(&str) -> Vec<String>) -> Self {
        let each = |list: &[String]| list.iter().flat_map(|one| resolve(one)).collect();
        Self { includes: each(&self.includes), excludes: each(&self.excludes) }
    }

    /// What is wrong with them, in the words that users know.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.includes.len() > 1 && self.includes.iter().any(|one| one == "*") {
            let text = "includes list must either contain '*' only, or a non-empty list of items";
            found.push(text.to_owned());
        }
        if self.excludes.iter().any(|one| one == "*") {
            found.push("excludes list cannot contain '*'".to_owned());
        }
        found.extend(self.contradictions());
        found
    }

    /// The same for the lists of one scope, where `*` may be excluded.
    pub(crate) fn scoped_problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.includes.len() > 1 && self.includes.iter().any(|one| one == "*") {
            let text = "includes list must either contain '*' only, or a non-empty list of items";
            found.push(text.to_owned());
        }
        if self.excludes.iter().any(|one| one == "*") && !self.includes.is_empty() {
            found.push("when exclude is '*', include cannot have value".to_owned());
        }
        found.extend(self.contradictions());
        found
    }

    fn contradictions(&self) -> impl Iterator<Item = String> {
        self.excludes
            .iter()
            .filter(|one| *one != "*" && self.includes.contains(one))
            .map(|one| format!("excludes list cannot contain an item in the includes list: {one}"))
    }
}

/// Whether a text is more than a plain name.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// `*` any number of characters, `?` one, `[a-c]` one of these.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    glob(&pattern, &name)
}

/// Without recursion over stars, so that no pattern takes long.
fn glob(pattern: &[char], name: &[char]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where the last star was, and how much of the name it had taken.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        let step = pattern.get(p).and_then(|_| one(pattern.get(p..)?, *name.get(n)?));
        match (pattern.get(p), step) {
            (Some('*'), _) => {
                star = Some((p, n));
                p += 1;
            }
            (Some(_), Some(len)) => {
                p += len;
                n += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|c| *c == '*')
}

/// How much of the pattern this one character uses up; `None` if it does not fit.
fn one(pattern: &[char], c: char) -> Option<usize> {
    match pattern.first()? {
        '*' => None,
        '?' => Some(1),
        '[' => match pattern.iter().position(|c| *c == ']') {
            Some(end) => class(pattern.get(1..end)?, c).then_some(end + 1),
            None => (c == '[').then_some(1),
        },
        plain => (*plain == c).then_some(1),
    }
}

fn class(class: &[char], c: char) -> bool {
    let mut rest = class;
    while let Some((first, after)) = rest.split_first() {
        if let ['-', last, tail @ ..] = after {
            if (*first..=*last).contains(&c) {
                return true;
            }
            rest = tail;
            continue;
        }
        if *first == c {
            return true;
        }
        rest = after;
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lists(includes: &[&str], excludes: &[&str]) -> Lists {
        let own = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
        Lists { includes: own(includes), excludes: own(excludes) }
    }

    #[test]
    fn patterns_match_as_people_expect() {
        for (pattern, name, wanted) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "abd", false),
            ("?b", "ab", true),
            ("?b", "b", false),
            ("t[0-3]", "t2", true),
            ("t[0-3]", "t4", false),
            ("t[xy]z", "tyz", true),
            ("pods", "pods", true),
            ("pods", "pod", false),
            ("*.apps", "deployments.apps", true),
        ] {
            assert_eq!(matches(pattern, name), wanted, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_out_wins() {
        assert!(lists(&[], &[]).holds("x") && lists(&["*"], &[]).holds("x"));
        assert!(!lists(&["x"], &["x"]).holds("x"));
        assert!(!lists(&["y"], &[]).holds("x"));
        assert!(lists(&["*"], &[]).includes_everything());
        assert!(!lists(&["*"], &["x"]).includes_everything());
    }

    #[test]
    fn contradictions_are_told_in_known_words() {
        let text = lists(&["a"], &["a"]).problems();
        assert_eq!(text, ["excludes list cannot contain an item in the includes list: a"]);
        assert_eq!(lists(&[], &["*"]).problems(), ["excludes list cannot contain '*'"]);
        assert!(lists(&["*", "a"], &[]).problems()[0].starts_with("includes list must either"));
        assert!(lists(&[], &["*"]).scoped_problems().is_empty());
        assert_eq!(
            lists(&["a"], &["*"]).scoped_problems(),
            ["when exclude is '*', include cannot have value"]
        );
    }

    proptest! {
        #[test]
        fn noise_never_panics(pattern in "[a*?\\[\\]-]{0,12}", name in "[ab\\[-]{0,12}") {
            let _ = matches(&pattern, &name);
            prop_assert!(matches("*", &name));
        }
    }
}
