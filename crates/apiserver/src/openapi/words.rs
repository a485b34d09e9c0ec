//! The published names and descriptions of built-in types, for `kubectl explain`.
//!
//! They are kept compressed and read when a document is made, which is cached: nobody asks for all of
//! them often enough to keep a megabyte of text in memory.

use std::collections::HashMap;
use std::io::Read as _;

use objects::builtin::openapi::Words;

/// Made by `cargo xtask codegen`, which explains the format.
const COMPRESSED: &[u8] = include_bytes!("descriptions.gz");

#[derive(Debug, Default)]
pub(super) struct Published {
    messages: HashMap<String, Message>,
}

#[derive(Debug, Default)]
struct Message {
    name: String,
    about: String,
    members: HashMap<String, String>,
}

impl Published {
    pub(super) fn read() -> Self {
        let mut text = String::new();
        // It is part of this build, and a test reads it.
        if let Err(error) = flate2::read::GzDecoder::new(COMPRESSED).read_to_string(&mut text) {
            tracing::error!(%error, "the descriptions of built-in types are not readable");
        }
        let mut published = Self::default();
        let mut current = Message::default();
        let mut id = String::new();
        for line in text.lines() {
            let Some((name, about)) = line.split_once(' ') else { continue };
            if name == "message" {
                published.messages.insert(std::mem::take(&mut id), std::mem::take(&mut current));
                let mut words = about.splitn(3, ' ');
                words.next().unwrap_or_default().clone_into(&mut id);
                words.next().unwrap_or_default().clone_into(&mut current.name);
                current.about = quoted(words.next().unwrap_or_default());
            } else {
                current.members.insert(name.to_owned(), quoted(about));
            }
        }
        published.messages.insert(id, current);
        published
    }
}

fn quoted(text: &str) -> String {
    serde_json::from_str(text).unwrap_or_default()
}

impl Words for Published {
    fn name(&self, message: &str) -> Option<&str> {
        self.messages.get(message).map(|one| one.name.as_str())
    }

    fn about(&self, message: &str) -> Option<&str> {
        self.messages.get(message).map(|one| one.about.as_str())
    }

    fn about_member(&self, message: &str, member: &str) -> Option<&str> {
        self.messages.get(message)?.members.get(member).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_their_members_are_described() {
        let words = Published::read();
        assert_eq!(words.name("core.v1.Pod"), Some("io.k8s.api.core.v1.Pod"));
        assert!(words.about("core.v1.Pod").is_some_and(|text| text.contains("containers")));
        let about = words.about_member("core.v1.PodSpec", "nodeName");
        assert!(about.is_some_and(|text| text.contains("node")));
        assert!(words.messages.len() > 300, "{}", words.messages.len());
    }
}
