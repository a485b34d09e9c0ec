//! Google's credentials for parties elsewhere (workload identity federation): a token of theirs is
//! exchanged for one of Google's, and that, if asked for, for one of a service account.
//!
//! Owns: the file that says how, and the two exchanges. The subject's token is read anew for each:
//! it is short-lived, and whoever mounts it replaces it. Never shows a token, nor an answer: it may
//! repeat one.

mod json;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use jiff::Timestamp;
use object_store::CredentialProvider;
use object_store::client::HttpRequest;
use object_store::gcp::GcpCredential;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::{Host, Url};

pub(crate) use self::json::JsonWrites;
use crate::open::{OpenError, Place, failed};
use crate::timeouts::Waiting;
use crate::wire::{self, Fault};

const TYPE: &str = "external_account";
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// Of a token, and of an answer that holds one.
const TOKEN_MAX_BYTES: usize = 256 << 10;
/// A token is renewed so long before it ends.
const RENEW_BEFORE: Duration = Duration::from_mins(2);
/// Where an answer does not say how long its token is good.
const TOKEN_LIFE: Duration = Duration::from_mins(10);
/// What machines ask for their own identity, without TLS.
const METADATA: [&str; 2] = ["169.254.169.254", "metadata.google.internal"];

/// Of an answer or a file.
#[derive(Debug, Deserialize)]
#[serde(from = "String")]
struct Secret(SecretString);

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

#[derive(Debug, Deserialize)]
struct Account {
    #[serde(rename = "type")]
    kind: String,
    audience: String,
    subject_token_type: String,
    token_url: String,
    credential_source: Source,
    service_account_impersonation_url: Option<String>,
    #[serde(default)]
    service_account_impersonation: Impersonation,
    client_id: Option<String>,
    client_secret: Option<Secret>,
    workforce_pool_user_project: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Impersonation {
    token_lifetime_seconds: Option<u32>,
}

/// Where the subject's token is.
#[derive(Debug, Deserialize)]
struct Source {
    file: Option<PathBuf>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, Secret>,
    #[serde(default)]
    format: Format,
}

#[derive(Debug, Default, Deserialize)]
struct Format {
    #[serde(rename = "type", default)]
    kind: String,
    subject_token_field_name: Option<String>,
}

/// What is wrong with such a file.
#[derive(Debug, thiserror::Error)]
enum BadAccount {
    #[error("it is no JSON of an {TYPE}: {0}")]
    Json(&'static str),
    #[error("its {name} is no URL that tokens may be sent to: https is, and http on loopback")]
    Url { name: &'static str },
    #[error(
        "its credential_source names neither a file nor a url; programs and the identities of AWS \
         machines are not asked here"
    )]
    Source,
    #[error("its format must be text, or json with a subject_token_field_name")]
    Format,
}

impl Account {
    fn parse(text: &str) -> Result<Self, BadAccount> {
        // What it says of the text may hold a part of it.
        let account: Self = serde_json::from_str(text)
            .map_err(|_| BadAccount::Json("a member is missing, or is no text"))?;
        if account.kind != TYPE {
            return Err(BadAccount::Json("its type is another"));
        }
        check_url("token_url", &account.token_url, &[])?;
        if let Some(url) = &account.service_account_impersonation_url {
            check_url("service_account_impersonation_url", url, &[])?;
        }
        match (&account.credential_source.file, &account.credential_source.url) {
            (Some(_), None) => {}
            (None, Some(url)) => check_url("credential_source.url", url, &METADATA)?,
            (Some(_), Some(_)) | (None, None) => return Err(BadAccount::Source),
        }
        let Format { kind, subject_token_field_name } = &account.credential_source.format;
        match (kind.as_str(), subject_token_field_name) {
            ("" | "text", _) | ("json", Some(_)) => Ok(account),
            _ => Err(BadAccount::Format),
        }
    }
}

/// Tokens go over TLS, or nowhere.
fn check_url(name: &'static str, text: &str, plain: &[&str]) -> Result<(), BadAccount> {
    let bad = || BadAccount::Url { name };
    let url = Url::parse(text).map_err(|_| bad())?;
    let is_near = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback() || plain.contains(&text_of(&url)),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || plain.contains(&name),
        None => return Err(bad()),
    };
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_near => Ok(()),
        _ => Err(bad()),
    }
}

fn text_of(url: &Url) -> &str {
    url.host_str().unwrap_or_default()
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
enum NoToken {
    #[error("the subject's token in {path} cannot be read", path = path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("the subject's token is empty, or not where the format says")]
    Subject,
    #[error(
        "{whom} refused the exchange of the token with status {status}{code}; check the audience, \
         the provider of the pool, and who may take the service account on"
    )]
    Refused { whom: &'static str, status: u16, code: String },
    #[error("{whom} cannot be asked for a token: {why}")]
    Silent { whom: &'static str, why: String },
    #[error("{whom} gave no token in its answer")]
    Answer { whom: &'static str },
}

#[derive(Deserialize)]
struct Exchanged {
    access_token: Secret,
    expires_in: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Impersonated {
    access_token: Secret,
    expire_time: Option<Timestamp>,
}

/// A token, and until when it is used.
struct Held {
    credential: Arc<GcpCredential>,
    until: Instant,
}

pub(crate) struct External {
    account: Account,
    client: Waiting,
    held: Mutex<Option<Held>>,
}

impl fmt::Debug for External {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("External")
            .field("audience", &self.account.audience)
            .finish_non_exhaustive()
    }
}

impl External {
    pub(crate) fn open(place: &Place, account: &str) -> Result<Self, OpenError> {
        let account =
            Account::parse(account).map_err(|error| OpenError::Build { source: error.into() })?;
        // Which addresses may be asked without TLS was checked above.
        let client = place.connector().waiting(&place.client(true)?).map_err(failed)?;
        Ok(Self { account, client, held: Mutex::new(None) })
    }

    async fn token(&self) -> Result<Held, NoToken> {
        let subject = self.subject().await?;
        let (token, life) = self.exchange(&subject).await?;
        let (token, life) = match &self.account.service_account_impersonation_url {
            Some(url) => self.impersonate(url, &token).await?,
            None => (token, life),
        };
        let bearer = token.expose_secret().to_owned();
        let until = Instant::now() + life.saturating_sub(RENEW_BEFORE);
        Ok(Held { credential: Arc::new(GcpCredential { bearer }), until })
    }

    async fn subject(&self) -> Result<SecretString, NoToken> {
        let source = &self.account.credential_source;
        let bytes = match (&source.file, &source.url) {
            (Some(path), _) => {
                durable::read_limited(path, TOKEN_MAX_BYTES).map(Bytes::from).map_err(|error| {
                    NoToken::File { path: path.clone(), source: std::io::Error::other(error) }
                })?
            }
            (None, Some(url)) => {
                let mut request = http::Request::get(url.as_str());
                for (name, value) in &source.headers {
                    request = request.header(name, value.0.expose_secret());
                }
                self.ask("the source of the subject's token", request, Bytes::new()).await?
            }
            (None, None) => return Err(NoToken::Subject),
        };
        let text = match source.format.subject_token_field_name.as_deref() {
            Some(name) if source.format.kind == "json" => {
                let json: BTreeMap<String, serde_json::Value> =
                    serde_json::from_slice(&bytes).map_err(|_| NoToken::Subject)?;
                json.get(name).and_then(|it| it.as_str()).map(str::to_owned)
            }
            _ => String::from_utf8(bytes.to_vec()).ok(),
        };
        let text = text.map(|it| it.trim().to_owned()).filter(|it| !it.is_empty());
        text.map(SecretString::from).ok_or(NoToken::Subject)
    }

    fn exchange_form(&self, subject: &SecretString) -> String {
        let account = &self.account;
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", GRANT)
            .append_pair("audience", &account.audience)
            .append_pair("scope", SCOPE)
            .append_pair("requested_token_type", ACCESS_TOKEN)
            .append_pair("subject_token_type", &account.subject_token_type)
            .append_pair("subject_token", subject.expose_secret());
        if let (Some(project), None) = (&account.workforce_pool_user_project, &account.client_id) {
            let options = serde_json::json!({"userProject": project}).to_string();
            form.append_pair("options", &options);
        }
        form.finish()
    }

    async fn exchange(&self, subject: &SecretString) -> Result<(SecretString, Duration), NoToken> {
        const WHOM: &str = "Google's token service";
        let account = &self.account;
        let mut request = http::Request::post(account.token_url.as_str())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let (Some(id), Some(secret)) = (&account.client_id, &account.client_secret) {
            let pair = BASE64_STANDARD.encode(format!("{id}:{}", secret.0.expose_secret()));
            request = request.header(AUTHORIZATION, format!("Basic {pair}"));
        }
        let body = self.ask(WHOM, request, self.exchange_form(subject).into()).await?;
        let answer: Exchanged =
            serde_json::from_slice(&body).map_err(|_| NoToken::Answer { whom: WHOM })?;
        let life = answer.expires_in.map_or(TOKEN_LIFE, Duration::from_secs);
        Ok((answer.access_token.0, life))
    }

    async fn impersonate(
        &self,
        url: &str,
        token: &SecretString,
    ) -> Result<(SecretString, Duration), NoToken> {
        const WHOM: &str = "the service account that was to be taken on";
        let lifetime = self.account.service_account_impersonation.token_lifetime_seconds;
        let lifetime = lifetime.unwrap_or(3600);
        let body = serde_json::json!({"scope": [SCOPE], "lifetime": format!("{lifetime}s")});
        let request = http::Request::post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(AUTHORIZATION, format!("Bearer {}", token.expose_secret()));
        let body = self.ask(WHOM, request, body.to_string().into()).await?;
        let answer: Impersonated =
            serde_json::from_slice(&body).map_err(|_| NoToken::Answer { whom: WHOM })?;
        let left = answer.expire_time.map(|end| end.duration_since(Timestamp::now()));
        let left = left.and_then(|left| Duration::try_from(left).ok());
        Ok((answer.access_token.0, left.unwrap_or(TOKEN_LIFE)))
    }

    async fn ask(
        &self,
        whom: &'static str,
        request: http::request::Builder,
        body: Bytes,
    ) -> Result<Bytes, NoToken> {
        let silent = |fault: Fault| NoToken::Silent { whom, why: fault.to_string() };
        let request: HttpRequest = request
            .header(ACCEPT, "application/json")
            .body(body.into())
            .map_err(|_| silent(Fault::Url))?;
        let answer = self.client.ask(request).await.map_err(|error| silent(Fault::of(&error)))?;
        let status = answer.status();
        let body = wire::body(answer, TOKEN_MAX_BYTES).await.map_err(silent)?;
        match status.as_u16() {
            200..=299 => Ok(body),
            500..=599 | 429 => {
                let why = format!("status {}", status.as_u16());
                Err(NoToken::Silent { whom, why })
            }
            status => Err(NoToken::Refused { whom, status, code: code(&body) }),
        }
    }
}

/// The one word of an error by which it is known.
fn code(body: &[u8]) -> String {
    let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let words = [json.pointer("/error/status"), json.pointer("/error")];
    let word = words.into_iter().flatten().find_map(|it| it.as_str());
    let is_word = |it: &&str| {
        it.len() <= 40 && it.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
    };
    word.filter(is_word).map(|word| format!(" ({word})")).unwrap_or_default()
}

#[async_trait]
impl CredentialProvider for External {
    type Credential = GcpCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<GcpCredential>> {
        let mut held = self.held.lock().await;
        if let Some(held) = held.as_ref().filter(|held| Instant::now() < held.until) {
            return Ok(Arc::clone(&held.credential));
        }
        let fresh = self.token().await.map_err(|error| match error {
            NoToken::Silent { .. } => {
                object_store::Error::Generic { store: "GCS", source: error.into() }
            }
            NoToken::File { .. }
            | NoToken::Subject
            | NoToken::Refused { .. }
            | NoToken::Answer { .. } => object_store::Error::Unauthenticated {
                path: self.account.audience.clone(),
                source: error.into(),
            },
        })?;
        let credential = Arc::clone(&fresh.credential);
        *held = Some(fresh);
        Ok(credential)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(more: &str) -> Result<Account, BadAccount> {
        let text = format!(
            r#"{{"type":"external_account","audience":"//iam/x","subject_token_type":"jwt"{more}}}"#
        );
        Account::parse(&text)
    }

    #[test]
    fn tokens_are_sent_over_tls_or_not_at_all() {
        let file = r#","credential_source":{"file":"/t"}"#;
        assert!(
            account(&format!(r#","token_url":"https://sts.googleapis.com/v1/token"{file}"#))
                .is_ok()
        );
        assert!(account(&format!(r#","token_url":"http://127.0.0.1:9/token"{file}"#)).is_ok());
        for (more, part) in [
            (format!(r#","token_url":"http://sts.example.org/token"{file}"#), "token_url"),
            (
                format!(
                    r#","token_url":"https://a","service_account_impersonation_url":"http://b/c"{file}"#
                ),
                "service_account_impersonation_url",
            ),
            (
                r#","token_url":"https://a","credential_source":{"executable":{"command":"x"}}"#
                    .to_owned(),
                "programs",
            ),
            (
                r#","token_url":"https://a","credential_source":{"url":"http://b/"}"#.to_owned(),
                "credential_source.url",
            ),
            (
                r#","token_url":"https://a","credential_source":{"file":"/t","format":{"type":"json"}}"#
                    .to_owned(),
                "subject_token_field_name",
            ),
            (String::new(), "missing"),
        ] {
            let error = account(&more).unwrap_err().to_string();
            assert!(error.contains(part), "{more}: {error}");
        }
        let metadata =
            r#","token_url":"https://a","credential_source":{"url":"http://169.254.169.254/x"}"#;
        assert!(account(metadata).is_ok());
    }

    #[test]
    fn of_an_error_only_its_word_is_shown() {
        assert_eq!(
            code(br#"{"error":"invalid_grant","error_description":"hidden"}"#),
            " (invalid_grant)"
        );
        assert_eq!(code(br#"{"error":{"status":"PERMISSION_DENIED"}}"#), " (PERMISSION_DENIED)");
        assert_eq!(code(br#"{"error":"eyJ0b2tlbg.x"}"#), "");
    }
}
