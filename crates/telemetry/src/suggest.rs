//! The known word somebody may have meant, for messages about mistyped ones. Pure.

/// More letters than any name we know: what is longer is no typing error.
const WORD_MAX_BYTES: usize = 64;

/// The nearest of `known`, if one is near: begun alike, or at most two letters off.
pub fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    if word.len() < 2 || word.len() > WORD_MAX_BYTES {
        return None;
    }
    let word = word.to_ascii_lowercase();
    known
        .filter_map(|name| {
            let lower = name.to_ascii_lowercase();
            let begun = lower.starts_with(&word) && word.len() >= 3;
            let distance = if begun { 1 } else { distance(&word, &lower) };
            let near = distance <= 2 && distance < word.len().min(lower.len());
            near.then_some((distance, name))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Letters to insert, remove or replace.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.chars().enumerate() {
        let mut diagonal = index;
        let mut before = index + 1;
        let mut next = vec![before];
        for (other, above) in right.iter().zip(row.iter().skip(1)) {
            let replaced = diagonal + usize::from(*other != letter);
            before = replaced.min(above + 1).min(before + 1);
            diagonal = *above;
            next.push(before);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["info", "expand", "snapshots", "snapshot", "ls-replica"];

    #[test]
    fn distances_count_letters() {
        for (left, right, wanted) in
            [("", "", 0), ("a", "", 1), ("info", "inof", 2), ("expnad", "expand", 2), ("a", "b", 1)]
        {
            assert_eq!(distance(left, right), wanted, "{left} {right}");
            assert_eq!(distance(right, left), wanted, "{right} {left}");
        }
    }

    #[test]
    fn only_what_is_near_is_suggested() {
        let nearest = |word| nearest(word, KNOWN.into_iter());
        assert_eq!(nearest("inof"), Some("info"));
        assert_eq!(nearest("snapsot"), Some("snapshot"));
        assert_eq!(nearest("exp"), Some("expand"));
        assert_eq!(nearest("ls-replicas"), Some("ls-replica"));
        assert_eq!(nearest("x"), None);
        assert_eq!(nearest("backup"), None);
        assert_eq!(nearest("éé"), None);
    }
}
