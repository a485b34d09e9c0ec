//! The forms of label keys and values.

const MAX_NAME: usize = 63;
const MAX_PREFIX: usize = 253;

/// Checks a label key: a name, or a DNS subdomain, a slash and a name.
pub(super) fn key(text: &str) -> Result<(), String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if prefix.is_some_and(|prefix| !is_subdomain(prefix)) {
        return Err(format!("label key {text:?} has an invalid prefix: must be a DNS subdomain"));
    }
    if name.is_empty() || !is_name(name) {
        return Err(format!(
            "label key {text:?} is invalid: the name part must have 1 to {MAX_NAME} characters: \
             letters, digits, '-', '_' or '.', with a letter or digit at both ends"
        ));
    }
    Ok(())
}

/// Checks a label value: empty, or formed like a name.
pub(super) fn value(text: &str) -> Result<(), String> {
    if text.is_empty() || is_name(text) {
        return Ok(());
    }
    Err(format!(
        "label value {text:?} is invalid: must be empty or have at most {MAX_NAME} characters: \
         letters, digits, '-', '_' or '.', with a letter or digit at both ends"
    ))
}

fn is_name(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_NAME
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = label.as_bytes();
        bytes.first().copied().is_some_and(lower)
            && bytes.last().copied().is_some_and(lower)
            && bytes.iter().all(|byte| lower(*byte) || *byte == b'-')
    };
    text.len() <= MAX_PREFIX && text.split('.').all(is_label)
}
