//! Tokens of a Keystone: validated there, remembered for a while.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{AuthError, Caller, Identity, Tokens};

/// How long an answer of the identity service is trusted: a token revoked there works here at most
/// this long.
const TRUST: Duration = Duration::from_mins(1);
const REMEMBERED: usize = 10_000;
const TIMEOUT: Duration = Duration::from_secs(10);

/// How to reach the identity service and as whom.
#[derive(Clone)]
pub struct KeystoneOptions {
    /// As in `http://127.0.0.1:5000/v3`.
    pub url: String,
    pub user: String,
    pub password: String,
    pub project: String,
    pub user_domain: String,
    pub project_domain: String,
}

impl std::fmt::Debug for KeystoneOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeystoneOptions")
            .field("url", &self.url)
            .field("user", &self.user)
            .field("project", &self.project)
            .finish_non_exhaustive()
    }
}

/// What is known of a token: its caller's user, project and roles.
#[derive(Debug, Clone)]
struct Known {
    user_id: String,
    project_id: String,
    roles: Vec<String>,
    until: Instant,
}

#[derive(Debug)]
pub struct Keystone {
    options: KeystoneOptions,
    http: reqwest::Client,
    /// Our own token.
    own: tokio::sync::Mutex<Option<String>>,
    /// By the hash of the token: tokens are secrets.
    known: Mutex<HashMap<[u8; 32], Known>>,
}

fn unavailable(error: impl std::error::Error) -> AuthError {
    AuthError::Unavailable(telemetry::Chain(&error).to_string())
}

impl Keystone {
    pub fn new(options: KeystoneOptions) -> Result<Self, AuthError> {
        let http = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(unavailable)?;
        Ok(Self { options, http, own: tokio::sync::Mutex::default(), known: Mutex::default() })
    }

    async fn own_token(&self, fresh: bool) -> Result<String, AuthError> {
        let mut own = self.own.lock().await;
        if let (Some(token), false) = (own.as_ref(), fresh) {
            return Ok(token.clone());
        }
        let options = &self.options;
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": {
                "name": options.user, "domain": {"name": options.user_domain},
                "password": options.password}}},
            "scope": {"project": {"name": options.project, "domain": {"name": options.project_domain}}},
        }});
        let answer = self
            .http
            .post(format!("{}/auth/tokens", options.url.trim_end_matches('/')))
            .header("content-type", "application/json")
            .body(body.to_string())
            .send()
            .await
            .map_err(unavailable)?;
        if answer.status() != 201 {
            return Err(AuthError::Unavailable(format!(
                "it refused the user {} of this service with {}",
                options.user,
                answer.status()
            )));
        }
        let token = answer.headers().get("x-subject-token").and_then(|it| it.to_str().ok());
        let token =
            token.ok_or_else(|| AuthError::Unavailable("it gave no token".to_owned()))?.to_owned();
        *own = Some(token.clone());
        Ok(token)
    }

    async fn validate(&self, subject: &str) -> Result<Known, AuthError> {
        let key: [u8; 32] = Sha256::digest(subject.as_bytes()).into();
        if let Some(known) = self.remembered(&key) {
            return Ok(known);
        }
        let mut answer = self.ask(subject, &self.own_token(false).await?).await?;
        if answer.status() == 401 {
            // Our own token ran out.
            answer = self.ask(subject, &self.own_token(true).await?).await?;
        }
        match answer.status().as_u16() {
            200 => {}
            404 => return Err(AuthError::Unauthorized),
            other => {
                return Err(AuthError::Unavailable(format!(
                    "it answered a validation with {other}"
                )));
            }
        }
        let text = answer.text().await.map_err(unavailable)?;
        let body: Value = serde_json::from_str(&text).map_err(unavailable)?;
        let known = read(&body)?;
        self.remember(key, known.clone());
        Ok(known)
    }

    async fn ask(&self, subject: &str, own: &str) -> Result<reqwest::Response, AuthError> {
        let url = format!("{}/auth/tokens?nocatalog", self.options.url.trim_end_matches('/'));
        let request = self.http.get(url).header("x-auth-token", own);
        request.header("x-subject-token", subject).send().await.map_err(|error| {
            // A token that cannot be a header is none.
            if error.is_builder() { AuthError::Unauthorized } else { unavailable(error) }
        })
    }

    fn remembered(&self, key: &[u8; 32]) -> Option<Known> {
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match known.get(key) {
            Some(found) if found.until > Instant::now() => Some(found.clone()),
            Some(_) => {
                known.remove(key);
                None
            }
            None => None,
        }
    }

    fn remember(&self, key: [u8; 32], one: Known) {
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            let now = Instant::now();
            known.retain(|_, it| it.until > now);
            if known.len() >= REMEMBERED {
                known.clear();
            }
        }
        known.insert(key, one);
    }
}

fn read(body: &Value) -> Result<Known, AuthError> {
    let text = |path: &str| body.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let user_id = text("/token/user/id").ok_or(AuthError::Unauthorized)?;
    // A token without a project is of no use here.
    let project_id = text("/token/project/id").ok_or(AuthError::Unauthorized)?;
    let roles = body.pointer("/token/roles").and_then(Value::as_array);
    let roles = roles.map_or_else(Vec::new, |roles| {
        roles.iter().filter_map(|it| it.get("name")?.as_str().map(str::to_owned)).collect()
    });
    let left = text("/token/expires_at")
        .and_then(|it| it.parse::<jiff::Timestamp>().ok())
        .map(|it| it.duration_since(jiff::Timestamp::now()));
    let left = match left {
        Some(left) => Duration::try_from(left).map_err(|_| AuthError::Unauthorized)?,
        None => Duration::ZERO,
    };
    Ok(Known { user_id, project_id, roles, until: Instant::now() + left.min(TRUST) })
}

#[async_trait]
impl Identity for Keystone {
    async fn caller(&self, tokens: Tokens<'_>) -> Result<Caller, AuthError> {
        let subject = tokens.user.filter(|it| !it.is_empty()).ok_or(AuthError::Unauthorized)?;
        let known = self.validate(subject).await?;
        let is_service = match tokens.service {
            None => false,
            Some(token) => self.validate(token).await?.roles.iter().any(|it| it == "service"),
        };
        Ok(Caller {
            user_id: known.user_id,
            project_id: known.project_id,
            roles: known.roles,
            is_service,
        })
    }

    fn address(&self) -> Option<&str> {
        Some(&self.options.url)
    }
}
