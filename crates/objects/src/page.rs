//! Continue tokens of paged lists: which snapshot a list reads, and after which key it goes on.
//!
//! Owns: the token's text form. Never: knows what the key means or whether the snapshot still exists.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};

/// Longest token that is read; ours are far shorter, for names have limits.
pub const MAX_TOKEN_BYTES: usize = 4096;
/// Stands for "no snapshot" in the text form.
const NEWEST: i64 = -1;
const VERSION: &str = "meta.k8s.io/v1";

// Clients treat tokens as opaque, but proxies and people strip the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Where the next page of a list begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Resource version of the snapshot all pages come from. `None`: the snapshot is gone, and the
    /// client goes on with whatever is newest, knowing that the pages may not fit together.
    pub revision: Option<u64>,
    /// Storage key of the last item already sent.
    pub start: String,
}

/// Why a text is not a continue token. All of these are the client's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("continue key is not valid: longer than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    #[error("continue key is not valid: not base64url")]
    Encoding,
    #[error("continue key is not valid: not a token")]
    Malformed,
    #[error("continue key is not valid: unknown version")]
    Version,
    #[error("continue key is not valid: incomplete")]
    Incomplete,
}

#[derive(Serialize, Deserialize)]
struct Body {
    v: String,
    rv: serde_json::Number,
    start: String,
}

impl Token {
    pub fn encode(&self) -> String {
        let revision = self.revision.map_or(NEWEST.into(), serde_json::Number::from);
        let body = serde_json::json!({ "v": VERSION, "rv": revision, "start": self.start });
        BASE64.encode(body.to_string())
    }

    pub fn decode(text: &str) -> Result<Self, TokenError> {
        if text.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong);
        }
        let bytes = BASE64.decode(text).map_err(|_| TokenError::Encoding)?;
        let body: Body = serde_json::from_slice(&bytes).map_err(|_| TokenError::Malformed)?;
        if body.v != VERSION {
            return Err(TokenError::Version);
        }
        let revision = match (body.rv.as_u64(), body.rv.as_i64()) {
            (Some(0), _) => return Err(TokenError::Incomplete),
            (Some(revision), _) => Some(revision),
            (None, Some(NEWEST)) => None,
            (None, _) => return Err(TokenError::Malformed),
        };
        if body.start.is_empty() {
            return Err(TokenError::Incomplete);
        }
        Ok(Self { revision, start: body.start })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn garbage_is_told_apart() {
        let body = |text: &str| BASE64.encode(text);
        let cases = [
            ("xxx".to_owned(), TokenError::Encoding),
            ("not base64!".to_owned(), TokenError::Encoding),
            (String::new(), TokenError::Malformed),
            (body("{}"), TokenError::Malformed),
            (body(r#"{"v":"meta.k8s.io/v1","rv":-2,"start":"a"}"#), TokenError::Malformed),
            (body(r#"{"v":"v9","rv":1,"start":"a"}"#), TokenError::Version),
            (body(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#), TokenError::Incomplete),
            (body(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#), TokenError::Incomplete),
            ("A".repeat(MAX_TOKEN_BYTES + 1), TokenError::TooLong),
        ];
        for (text, error) in cases {
            assert_eq!(Token::decode(&text), Err(error), "{text}");
        }
    }

    #[test]
    fn padding_is_optional() {
        let body = br#"{"v":"meta.k8s.io/v1","rv":7,"start":"ns/abc"}"#;
        let padded = base64::engine::general_purpose::URL_SAFE.encode(body);
        assert!(padded.ends_with('='));
        let token = Token { revision: Some(7), start: "ns/abc".to_owned() };
        assert_eq!(Token::decode(&padded), Ok(token));
    }

    proptest! {
        #[test]
        fn a_token_survives_its_text(revision in prop::option::of(1u64..), start in ".{1,300}") {
            let token = Token { revision, start };
            prop_assert_eq!(Token::decode(&token.encode()), Ok(token));
        }

        #[test]
        fn noise_never_panics(text in ".{0,200}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Token::decode(&text);
            let _ = Token::decode(&BASE64.encode(bytes));
        }
    }
}
