//! Field names as CEL identifiers.

/// Words that cannot be identifiers, in the order of the language definition.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The identifier under which rules see a field; `None` if there is no way to write it.
pub(super) fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let first = name.chars().next()?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    if first.is_ascii_digit() || !name.chars().all(fits) {
        return None;
    }
    // Two underscores first: the other escapes are made of them.
    let name = name.replace("__", "__underscores__");
    Some(name.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__"))
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_become_identifiers_and_back_again_only_one_way() {
        let table = [
            ("plain", Some("plain")),
            ("snake_case", Some("snake_case")),
            ("namespace", Some("__namespace__")),
            ("a.b-c/d", Some("a__dot__b__dash__c__slash__d")),
            ("a__b", Some("a__underscores__b")),
            ("1st", None),
            ("sp ace", None),
            ("", None),
        ];
        for (name, wanted) in table {
            assert_eq!(escape(name).as_deref(), wanted, "{name}");
        }
    }
}
