//! Why a service will not serve us, as far as its answer says so: in words that name the place, the
//! key and what to do. Pure. Never shows a secret: of an answer only its code and message are kept, of
//! a request only the id of the key.

use std::fmt;

use crate::error::Error;

/// How much of an answer is looked at.
pub(crate) const ANSWER_MAX_BYTES: usize = 64 << 10;
/// How much of a text of the service is shown.
const SHOWN_MAX_CHARS: usize = 300;
const UNKNOWN: &str = "unknown";
/// How services call it that a rule of theirs keeps an object: OSS, and Azure twice.
const LOCKED_CODES: [&str; 3] =
    ["FileImmutable", "BlobImmutableDueToPolicy", "BlobImmutableDueToLegalHold"];
/// S3 has no code of its own for it, and Google says it in JSON.
const LOCKED_WORDS: &str = "protected by object lock";
const LOCKED_REASON: &str = "\"retentionPolicyNotMet\"";

/// What was asked, of whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// As in `https://host:port`.
    pub(crate) endpoint: String,
    pub(crate) bucket: String,
    pub(crate) method: String,
    /// The id of the key it was signed with, and for which region.
    pub(crate) key_id: Option<String>,
    pub(crate) region: Option<String>,
    /// The objects of a bucket were asked for: where it is there, so is the list.
    pub(crate) is_listing: bool,
    /// Not the store was asked but who gives machines their credentials.
    pub(crate) is_for_credentials: bool,
}

/// What helps where there are none.
pub(crate) const GIVE_CREDENTIALS: &str = "no credentials were given, so it was asked for those of \
    this machine; give some: for S3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, for Google \
    GOOGLE_SERVICE_ACCOUNT_KEY";

impl Asked {
    /// Whether a request goes to one of the services that give credentials to machines and workloads.
    pub(crate) fn is_credential_service(host: &str, path: &str) -> bool {
        let name = host.split(':').next().unwrap_or_default();
        name.starts_with("169.254.")
            || name.starts_with("metadata")
            || name.starts_with("sts.")
            || path.starts_with("/latest/")
            || path.starts_with("/computeMetadata/")
            || path.starts_with("/metadata/")
    }

    /// Key and region as the signature of S3 names them: `Credential=ID/DATE/REGION/s3/…`.
    pub(crate) fn signed(authorization: &str) -> (Option<String>, Option<String>) {
        let scope = authorization.split_once("Credential=").map_or("", |(_, rest)| rest);
        let mut parts = scope.split([',', ' ']).next().unwrap_or_default().split('/');
        let (id, _, region) = (parts.next(), parts.next(), parts.next());
        let given = |text: Option<&str>| text.filter(|it| !it.is_empty()).map(shown);
        (given(id), given(region))
    }
}

/// What was answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a str,
    /// Of its headers.
    pub(crate) bucket_region: Option<&'a str>,
    pub(crate) date: Option<&'a str>,
    pub(crate) location: Option<&'a str>,
}

impl Answer<'_> {
    fn tag(&self, name: &str) -> Option<String> {
        let (_, rest) = self.body.split_once(&format!("<{name}>"))?;
        let (text, _) = rest.split_once(&format!("</{name}>"))?;
        Some(shown(text)).filter(|text| !text.is_empty())
    }
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    NoBucket,
    /// The region it is in, if that was said.
    OtherRegion {
        is_in: Option<String>,
    },
    /// To another address, for whatever reason.
    Elsewhere {
        to: String,
    },
    /// Times as they were written.
    Clock {
        ours: String,
        theirs: String,
    },
    UnknownKey,
    Signature,
    Expired,
    /// Who gives credentials to machines has none for this one.
    NoCredentials,
    /// A rule of the store keeps the object, whoever asks.
    Locked,
    Denied,
}

/// Whether a text of the library, which drops the answer it was made of, tells of such a rule.
pub(crate) fn tells_of_a_lock(text: &str) -> bool {
    let is_code = |code: &&str| text.contains(&format!("(code: {code})"));
    LOCKED_CODES.iter().any(is_code) || text.contains(LOCKED_WORDS)
}

/// A service that answered, and will not do it whoever asks again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub(crate) reason: Reason,
    pub(crate) asked: Asked,
    /// Its own words.
    pub(crate) said: String,
}

impl Rejection {
    /// Nothing where the answer is not about who asks whom: an object that is not there, a condition
    /// that does not hold, a service that is overloaded.
    pub(crate) fn of(asked: Asked, answer: &Answer<'_>, now: &str) -> Option<Self> {
        let code = answer.tag("Code").unwrap_or_default();
        let reason = reason(&asked, &code, answer, now)?;
        let reason = if asked.is_for_credentials { Reason::NoCredentials } else { reason };
        let message = answer.tag("Message").unwrap_or_default();
        let said = [format!("status {}", answer.status), code, message];
        let said: Vec<String> = said.into_iter().filter(|part| !part.is_empty()).collect();
        Some(Self { reason, asked, said: said.join(", ") })
    }

    /// Whether other rights or another key would help.
    pub(crate) fn is_denial(&self) -> bool {
        match self.reason {
            Reason::UnknownKey
            | Reason::Signature
            | Reason::Expired
            | Reason::NoCredentials
            | Reason::Denied => true,
            Reason::NoBucket
            | Reason::OtherRegion { .. }
            | Reason::Elsewhere { .. }
            | Reason::Clock { .. }
            | Reason::Locked => false,
        }
    }

    pub(crate) fn into_error(self: Box<Self>, what: String) -> Error {
        match self.reason {
            Reason::Locked => Error::Locked { what, source: self },
            _ if self.is_denial() => Error::Denied { what, source: self },
            _ => Error::Refused { what, rejection: self },
        }
    }
}

fn reason(asked: &Asked, code: &str, answer: &Answer<'_>, now: &str) -> Option<Reason> {
    let is_in = || answer.bucket_region.map(shown).or_else(|| answer.tag("Region"));
    let is_locked = || {
        LOCKED_CODES.contains(&code)
            || answer.tag("Message").is_some_and(|text| text.contains(LOCKED_WORDS))
            || answer.body.contains(LOCKED_REASON)
    };
    Some(match (answer.status, code) {
        (403 | 409, _) if is_locked() => Reason::Locked,
        (404, "NoSuchBucket" | "ContainerNotFound") => Reason::NoBucket,
        (404, _) if asked.is_listing => Reason::NoBucket,
        (301 | 302 | 307 | 308, "") if answer.bucket_region.is_none() => {
            Reason::Elsewhere { to: shown(answer.location.unwrap_or(UNKNOWN)) }
        }
        (301 | 302 | 307 | 308, _)
        | (400, "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException") => {
            Reason::OtherRegion { is_in: is_in() }
        }
        (400 | 403, "RequestTimeTooSkewed") => Reason::Clock {
            ours: answer.tag("RequestTime").unwrap_or_else(|| now.to_owned()),
            theirs: answer
                .tag("ServerTime")
                .or_else(|| answer.date.map(shown))
                .unwrap_or_else(|| UNKNOWN.to_owned()),
        },
        (400 | 401 | 403, "InvalidAccessKeyId") => Reason::UnknownKey,
        (400 | 401 | 403, "SignatureDoesNotMatch") => Reason::Signature,
        (400 | 401 | 403, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") => {
            Reason::Expired
        }
        // A request by HEAD is answered without words.
        (400, "") if answer.bucket_region.is_some() => Reason::OtherRegion { is_in: is_in() },
        (401 | 403, _) => Reason::Denied,
        _ => return None,
    })
}

impl fmt::Display for Rejection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Asked { endpoint, bucket, method, key_id, region, .. } = &self.asked;
        let key = key_id
            .as_ref()
            .map_or("a request without a key".to_owned(), |id| format!("the key id {id}"));
        let region = region.as_deref().unwrap_or("that was asked");
        match &self.reason {
            Reason::NoBucket => write!(
                out,
                "bucket {bucket} does not exist at {endpoint} (or is not visible to these \
                 credentials: {key}); make it, or correct its name, its region or the endpoint",
            ),
            Reason::OtherRegion { is_in: Some(is_in) } => write!(
                out,
                "bucket {bucket} is not in the region {region} of {endpoint}, but in {is_in}; name \
                 that region in the URL",
            ),
            Reason::OtherRegion { is_in: None } => write!(
                out,
                "bucket {bucket} is not in the region {region} of {endpoint}; name the region it is \
                 in, or the endpoint of that region",
            ),
            Reason::Elsewhere { to } => write!(
                out,
                "{endpoint} sends us elsewhere, to {to}; give the endpoint of the object store itself",
            ),
            Reason::Clock { ours, theirs } => write!(
                out,
                "the clocks are too far apart: this machine says {ours}, {endpoint} says {theirs}; \
                 set the clock that is wrong",
            ),
            Reason::UnknownKey => write!(
                out,
                "{endpoint} does not know {key}; check the id, and that the endpoint is the one it \
                 was made for",
            ),
            Reason::Signature => write!(
                out,
                "{endpoint} does not accept the signature of {key}; check that the secret key \
                 belongs to it and has no blanks or line ends around it, and that no proxy changes \
                 requests",
            ),
            Reason::Expired => write!(
                out,
                "the session token of {key} has expired or is wrong for {endpoint}; get a new one",
            ),
            Reason::NoCredentials => write!(out, "{endpoint} gives none: {GIVE_CREDENTIALS}"),
            Reason::Locked => write!(
                out,
                "{endpoint} keeps it by a rule of bucket {bucket}; it can be changed or removed when \
                 that rule lets go of it",
            ),
            Reason::Denied => write!(
                out,
                "{endpoint} refuses {method} in bucket {bucket} to {key}; check the rights of that \
                 key on the bucket (list, read, write, delete)",
            ),
        }?;
        write!(out, " ({})", self.said)
    }
}

impl std::error::Error for Rejection {}

/// A text of the service as it may stand in ours.
fn shown(text: &str) -> String {
    let plain = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(SHOWN_MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTHORIZATION: &str = "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20261115/eu-west-1/s3/\
                                 aws4_request, SignedHeaders=host, Signature=feed";

    fn asked() -> Asked {
        let (key_id, region) = Asked::signed(AUTHORIZATION);
        Asked {
            endpoint: "http://127.0.0.1:9".into(),
            bucket: "backups".into(),
            method: "GET".into(),
            key_id,
            region,
            is_listing: false,
            is_for_credentials: false,
        }
    }

    fn refused(status: u16, body: &str) -> Option<String> {
        let answer = Answer { status, body, ..Answer::default() };
        Some(Rejection::of(asked(), &answer, "2026-11-15T00:00:00Z")?.to_string())
    }

    fn error(code: &str, more: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>No</Message>{more}</Error>"
        )
    }

    #[test]
    fn each_reason_names_the_place_and_what_to_do() {
        for (status, body, parts) in [
            (
                404,
                error("NoSuchBucket", ""),
                &["bucket backups does not exist at http://127.0.0.1:9", "not visible", "make it"]
                    [..],
            ),
            (
                400,
                error("AuthorizationHeaderMalformed", "<Region>us-east-2</Region>"),
                &["not in the region eu-west-1", "but in us-east-2", "in the URL"],
            ),
            (301, error("PermanentRedirect", ""), &["name the region it is in"]),
            (
                403,
                error(
                    "RequestTimeTooSkewed",
                    "<RequestTime>20261115T100000Z</RequestTime><ServerTime>2026-11-15T12:00:00Z\
                     </ServerTime>",
                ),
                &[
                    "20261115T100000Z",
                    "http://127.0.0.1:9 says 2026-11-15T12:00:00Z",
                    "set the clock",
                ],
            ),
            (403, error("RequestTimeTooSkewed", ""), &["2026-11-15T00:00:00Z", "says unknown"]),
            (403, error("InvalidAccessKeyId", ""), &["does not know the key id AKIAEXAMPLE"]),
            (403, error("SignatureDoesNotMatch", ""), &["the key id AKIAEXAMPLE", "secret key"]),
            (400, error("ExpiredToken", "<Token-0>hidden</Token-0>"), &["get a new one"]),
            (
                403,
                error("AccessDenied", ""),
                &[
                    "refuses GET in bucket backups to the key id AKIAEXAMPLE",
                    "403, AccessDenied, No",
                ],
            ),
            (403, String::new(), &["check the rights", "(status 403)"]),
            (409, error("FileImmutable", ""), &["by a rule of bucket backups", "FileImmutable"]),
            (409, error("BlobImmutableDueToPolicy", ""), &["by a rule of bucket backups"]),
            (
                403,
                "<Error><Code>AccessDenied</Code><Message>Access Denied because object protected by \
                 object lock.</Message></Error>"
                    .to_owned(),
                &["by a rule of bucket backups"],
            ),
            (
                403,
                r#"{"error":{"errors":[{"reason": "retentionPolicyNotMet"}],"code":403}}"#.to_owned(),
                &["by a rule of bucket backups"],
            ),
            (302, "<html>".to_owned(), &["http://127.0.0.1:9 sends us elsewhere, to unknown"]),
            (401, "<html>proxy</html>".to_owned(), &["check the rights"]),
        ] {
            let text = refused(status, &body).unwrap();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert!(!text.contains("hidden") && !text.contains("feed"), "{text}");
        }
    }

    #[test]
    fn without_credentials_it_says_how_to_give_them() {
        let asked = Asked { is_for_credentials: true, key_id: None, ..asked() };
        let answer = Answer { status: 403, ..Answer::default() };
        let text = Rejection::of(asked, &answer, "").unwrap().to_string();
        assert!(text.contains("no credentials were given"), "{text}");
        assert!(text.contains("AWS_ACCESS_KEY_ID"), "{text}");
        for (host, path, is_one) in [
            ("169.254.169.254", "/latest/api/token", true),
            ("127.0.0.1:9", "/latest/api/token", true),
            ("metadata.google.internal", "/computeMetadata/v1/x", true),
            ("sts.eu-west-1.amazonaws.com", "/", true),
            ("127.0.0.1:9000", "/backups/dir/latest", false),
            ("backups.s3.eu-west-1.amazonaws.com", "/", false),
        ] {
            assert_eq!(Asked::is_credential_service(host, path), is_one, "{host}{path}");
        }
    }

    #[test]
    fn what_is_not_about_who_asks_is_passed_on() {
        for (status, code) in [
            (404, "NoSuchKey"),
            (404, ""),
            (400, "InvalidRequest"),
            (409, "ConditionalRequestConflict"),
            (412, "PreconditionFailed"),
            (416, "InvalidRange"),
            (503, "SlowDown"),
            (304, ""),
        ] {
            assert_eq!(refused(status, &error(code, "")), None, "{status} {code}");
        }
    }

    #[test]
    fn a_request_without_a_key_says_so_and_noise_is_cut() {
        let nobody = Asked { key_id: None, region: None, ..asked() };
        let long = format!("<Message>{}\n</Message>", "x".repeat(10_000));
        let answer = Answer { status: 403, body: &long, ..Answer::default() };
        let text = Rejection::of(nobody, &answer, "").unwrap().to_string();
        assert!(text.contains("to a request without a key"), "{text}");
        assert!(text.len() < 1000, "{}", text.len());
        assert_eq!(Asked::signed("Bearer secret"), (None, None));
    }
}
