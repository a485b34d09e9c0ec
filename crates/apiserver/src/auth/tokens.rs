//! Static bearer tokens from a file, in the format of Kubernetes' `--token-auth-file`.
//!
//! A line is `token,user,uid` or `token,user,uid,"group1,group2"`. Only digests are kept: the
//! tokens themselves are gone after parsing and can reach no log, error or core dump.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::user::User;

/// Longest token file that is read.
pub const MAX_FILE_BYTES: usize = 1 << 20;
/// Most tokens in a file: every lookup looks at all of them.
pub const MAX_TOKENS: usize = 4096;

/// The accounts of a token file.
#[derive(Clone, Default)]
pub struct StaticTokens {
    entries: Vec<Entry>,
}

#[derive(Clone)]
struct Entry {
    digest: [u8; 32],
    user: User,
}

/// Why a token file is refused. Names lines, never their content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    #[error("the token file has more than {MAX_FILE_BYTES} bytes")]
    TooLong,
    #[error("the token file has more than {MAX_TOKENS} tokens")]
    TooMany,
    #[error("line {line}: a quote is not closed or stands in the middle of a field")]
    Quote { line: usize },
    #[error("line {line}: at least three columns are needed: token,user,uid[,\"group1,group2\"]")]
    Columns { line: usize },
    #[error("line {line}: the {column} is empty")]
    Empty { line: usize, column: &'static str },
    #[error("line {line}: the token is the same as that of line {first}")]
    Duplicate { line: usize, first: usize },
}

impl StaticTokens {
    /// Reads the text of a token file.
    pub fn parse(text: &str) -> Result<Self, TokenFileError> {
        if text.len() > MAX_FILE_BYTES {
            return Err(TokenFileError::TooLong);
        }
        let mut seen = std::collections::HashMap::new();
        let mut entries = Vec::new();
        for Record { line, fields } in records(text)? {
            let entry = entry(line, &fields)?;
            if let Some(first) = seen.insert(entry.digest, line) {
                return Err(TokenFileError::Duplicate { line, first });
            }
            entries.push(entry);
            if entries.len() > MAX_TOKENS {
                return Err(TokenFileError::TooMany);
            }
        }
        Ok(Self { entries })
    }

    /// Adds one token, as `holdfast up` does for the token it makes itself.
    #[must_use]
    pub fn with(mut self, token: &str, user: User) -> Self {
        if !token.is_empty() {
            self.entries.push(Entry { digest: digest(token), user });
        }
        self
    }

    /// The account of a token. Takes the same time whichever entry matches.
    pub fn find(&self, token: &str) -> Option<&User> {
        let wanted = digest(token);
        let mut found = None;
        for entry in &self.entries {
            if bool::from(entry.digest.ct_eq(&wanted)) && found.is_none() {
                found = Some(&entry.user);
            }
        }
        found
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let users = self.entries.iter().map(|entry| &entry.user.name);
        f.debug_struct("StaticTokens").field("users", &users.collect::<Vec<_>>()).finish()
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn entry(line: usize, fields: &[String]) -> Result<Entry, TokenFileError> {
    let [token, name, uid, rest @ ..] = fields else {
        return Err(TokenFileError::Columns { line });
    };
    if token.is_empty() {
        return Err(TokenFileError::Empty { line, column: "token" });
    }
    if name.is_empty() {
        return Err(TokenFileError::Empty { line, column: "user" });
    }
    let groups = rest.first().map(String::as_str).unwrap_or_default();
    let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
    let user = User::authenticated(name, uid, groups.map(str::to_owned));
    Ok(Entry { digest: digest(token), user })
}

struct Record {
    line: usize,
    fields: Vec<String>,
}

/// Splits the text by the rules of RFC 4180; blank lines are skipped.
fn records(text: &str) -> Result<Vec<Record>, TokenFileError> {
    let mut out = Vec::new();
    let mut chars = text.strip_prefix('\u{feff}').unwrap_or(text).chars().peekable();
    let mut line = 1;
    while chars.peek().is_some() {
        let start = line;
        let mut fields = Vec::new();
        loop {
            let (field, end) = field(&mut chars, &mut line)?;
            fields.push(field);
            if end == End::Record {
                break;
            }
        }
        let blank = matches!(fields.as_slice(), [only] if only.trim().is_empty());
        if !blank {
            out.push(Record { line: start, fields });
        }
    }
    Ok(out)
}

#[derive(PartialEq, Eq)]
enum End {
    Field,
    Record,
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Takes one field and the delimiter after it.
fn field(chars: &mut Chars<'_>, line: &mut usize) -> Result<(String, End), TokenFileError> {
    while chars.next_if(|next| matches!(next, ' ' | '\t')).is_some() {}
    let start = *line;
    let mut field = String::new();
    if chars.next_if_eq(&'"').is_some() {
        quoted(chars, line, &mut field)?;
        while chars.next_if(|next| matches!(next, ' ' | '\t' | '\r')).is_some() {}
        return match chars.next() {
            Some(',') => Ok((field, End::Field)),
            Some('\n') => {
                *line += 1;
                Ok((field, End::Record))
            }
            None => Ok((field, End::Record)),
            Some(_) => Err(TokenFileError::Quote { line: start }),
        };
    }
    let end = loop {
        match chars.next() {
            Some(',') => break End::Field,
            Some('\n') => {
                *line += 1;
                break End::Record;
            }
            None => break End::Record,
            Some('"') => return Err(TokenFileError::Quote { line: start }),
            Some(other) => field.push(other),
        }
    };
    field.truncate(field.trim_end().len());
    Ok((field, end))
}

/// The rest of a quoted field, up to its closing quote; `""` stands for one quote.
fn quoted(
    chars: &mut Chars<'_>,
    line: &mut usize,
    field: &mut String,
) -> Result<(), TokenFileError> {
    let start = *line;
    loop {
        match chars.next() {
            Some('"') if chars.next_if_eq(&'"').is_some() => field.push('"'),
            Some('"') => return Ok(()),
            Some(other) => {
                *line += usize::from(other == '\n');
                field.push(other);
            }
            None => return Err(TokenFileError::Quote { line: start }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_file_gives_user_uid_and_groups() {
        let text =
            "\n  \r\nsecret1,ada,u1,\"dev, ops\"\r\nsecret2,bob,\n\n\"se\"\"cret,3\",cy,u3,one\n";
        let tokens = StaticTokens::parse(text).unwrap();
        assert_eq!(tokens.len(), 3);
        let ada = tokens.find("secret1").unwrap();
        assert_eq!((ada.name.as_str(), ada.uid.as_str()), ("ada", "u1"));
        assert_eq!(ada.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(tokens.find("secret2").unwrap().groups, ["system:authenticated"]);
        assert_eq!(tokens.find("se\"cret,3").unwrap().name, "cy");
        assert!(tokens.find("secret").is_none());
        assert!(tokens.find("").is_none());
    }

    #[test]
    fn faults_name_their_line() {
        use TokenFileError as E;
        let cases = [
            ("a,b\n", E::Columns { line: 1 }),
            ("\nt,u,1\nx,\n", E::Columns { line: 3 }),
            (",u,1", E::Empty { line: 1, column: "token" }),
            ("t,,1", E::Empty { line: 1, column: "user" }),
            ("t,u,1\nt,v,2", E::Duplicate { line: 2, first: 1 }),
            ("t,u,1,\"a", E::Quote { line: 1 }),
            ("t,u,1,\"a\"b", E::Quote { line: 1 }),
            ("t,u\"v,1", E::Quote { line: 1 }),
        ];
        for (text, wanted) in cases {
            assert_eq!(StaticTokens::parse(text).err(), Some(wanted), "{text:?}");
        }
    }

    #[test]
    fn debug_never_shows_a_token() {
        let tokens = StaticTokens::parse("tell-nobody,ada,1").unwrap();
        assert!(!format!("{tokens:?}").contains("tell-nobody"));
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in "[\\x00-\\x7f,\"\n]{0,200}") {
            let _ = StaticTokens::parse(&text);
        }

        #[test]
        fn any_quoted_token_is_found_again(token in "[ -~]{1,40}", group in "[a-z]{1,8}") {
            let text = format!("\"{}\",user,uid,{group}\n", token.replace('"', "\"\""));
            let tokens = StaticTokens::parse(&text).unwrap();
            prop_assert!(tokens.find(&token).unwrap().in_group(&group));
        }
    }
}
