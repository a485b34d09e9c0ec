//! Licence expressions: `MIT OR (Apache-2.0 AND BSD-3-Clause)`. Pure.

/// Whether an expression can be kept to with only the licences that `allowed` names.
pub(super) fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    // An old way to write OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let kept = either(&mut words, allowed);
    kept && words.next().is_none()
}

type Words<'w> = std::iter::Peekable<std::str::SplitWhitespace<'w>>;

fn either(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut kept = both(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        kept |= both(words, allowed);
    }
    kept
}

fn both(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut kept = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        kept &= one(words, allowed);
    }
    kept
}

fn one(words: &mut Words<'_>, allowed: &[String]) -> bool {
    match words.next() {
        None => false,
        Some("(") => either(words, allowed) & words.next_if_eq(&")").is_some(),
        Some(licence) => {
            let mut name = licence.to_owned();
            if words.next_if_eq(&"WITH").is_some() {
                name = format!("{name} WITH {}", words.next().unwrap_or_default());
            }
            allowed.contains(&name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_kept_to_or_not() {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        for (expression, wanted) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("MIT/Apache-2.0", true),
            ("Unlicense / GPL-3.0", false),
            ("MIT AND GPL-3.0", false),
            ("MIT AND (GPL-3.0 OR Apache-2.0)", true),
            ("(MIT OR Apache-2.0) AND GPL-3.0", false),
            ("GPL-3.0 OR MIT AND Apache-2.0", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("MIT WITH LLVM-exception", false),
            ("(MIT", false),
            ("MIT)", false),
            ("MIT MIT", false),
            ("", false),
        ] {
            assert_eq!(is_allowed(expression, &allowed), wanted, "{expression}");
        }
    }
}
