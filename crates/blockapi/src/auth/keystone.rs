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
    /// How long answers are trusted.
    trust: Duration,
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
        let (own, known) = (tokio::sync::Mutex::default(), Mutex::default());
        Ok(Self { options, http, own, known, trust: TRUST })
    }

    /// Our own token; another than the one that was refused. Of many who were refused together, one
    /// gets a new token and the others use it.
    async fn own_token(&self, refused: Option<&str>) -> Result<String, AuthError> {
        let mut own = self.own.lock().await;
        if let Some(token) = own.as_ref().filter(|it| Some(it.as_str()) != refused) {
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
        let own = self.own_token(None).await?;
        let mut answer = self.ask(subject, &own).await?;
        if answer.status() == 401 {
            // Our own token ran out.
            answer = self.ask(subject, &self.own_token(Some(&own)).await?).await?;
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
        let known = read(&body, self.trust)?;
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

fn read(body: &Value, trust: Duration) -> Result<Known, AuthError> {
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
    Ok(Known { user_id, project_id, roles, until: Instant::now() + left.min(trust) })
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

    async fn service_token(&self, refused: Option<&str>) -> Result<Option<String>, AuthError> {
        self.own_token(refused).await.map(Some)
    }

    fn address(&self) -> Option<&str> {
        Some(&self.options.url)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use axum::extract::State;
    use http::{HeaderMap, StatusCode};

    use super::*;

    const PASSWORD: &str = "right";

    /// An identity service that is no kinder than a real one: it validates for nobody whose own token
    /// ran out, and tells garbage and expired tokens alike.
    #[derive(Debug, Default)]
    struct Double {
        /// What it gave to services and still takes from them.
        own: HashSet<String>,
        logins: usize,
        validations: usize,
        subjects: HashMap<String, Value>,
        /// Answered to every validation in place of the truth.
        broken: Option<(StatusCode, &'static str)>,
    }

    type Shared = Arc<Mutex<Double>>;

    async fn login(State(double): State<Shared>, body: String) -> (StatusCode, HeaderMap) {
        let mut double = double.lock().unwrap();
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body.pointer("/auth/scope/project/name"), Some(&json!("service")));
        let password = body.pointer("/auth/identity/password/user/password");
        if password != Some(&json!(PASSWORD)) {
            return (StatusCode::UNAUTHORIZED, HeaderMap::new());
        }
        double.logins += 1;
        let token = format!("own-{}", double.logins);
        double.own.insert(token.clone());
        let headers = [("x-subject-token".parse().unwrap(), token.parse().unwrap())];
        (StatusCode::CREATED, headers.into_iter().collect())
    }

    async fn validate(State(double): State<Shared>, headers: HeaderMap) -> (StatusCode, String) {
        let mut double = double.lock().unwrap();
        double.validations += 1;
        let text = |name: &str| headers.get(name).and_then(|it| it.to_str().ok()).unwrap();
        if !double.own.contains(text("x-auth-token")) {
            return (StatusCode::UNAUTHORIZED, "{}".to_owned());
        }
        if let Some((code, body)) = double.broken {
            return (code, body.to_owned());
        }
        match double.subjects.get(text("x-subject-token")) {
            Some(token) => (StatusCode::OK, json!({ "token": token }).to_string()),
            None => (StatusCode::NOT_FOUND, "{}".to_owned()),
        }
    }

    fn token(project: Option<&str>, roles: &[&str], expires: &str) -> Value {
        let roles: Vec<Value> = roles.iter().map(|it| json!({"id": "r", "name": it})).collect();
        let mut token = json!({"user": {"id": "u1", "name": "ann"}, "roles": roles,
            "expires_at": expires, "methods": ["password"]});
        if let (Some(project), Some(token)) = (project, token.as_object_mut()) {
            token.insert("project".to_owned(), json!({"id": project, "name": "p"}));
        }
        token
    }

    const LATER: &str = "2999-01-01T00:00:00.000000Z";

    async fn start(password: &str, trust: Duration) -> (Keystone, Shared, tasks::Tasks) {
        let double = Shared::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v3/", listener.local_addr().unwrap());
        let handlers = axum::routing::post(login).get(validate);
        let router =
            axum::Router::new().route("/v3/auth/tokens", handlers).with_state(double.clone());
        let tasks = tasks::Tasks::new();
        tasks.spawn_draining("double", move |stop| async move {
            let served = axum::serve(listener, router);
            served.with_graceful_shutdown(stop.stopping_owned()).await.unwrap();
        });
        let options = KeystoneOptions {
            url,
            user: "cinder".to_owned(),
            password: password.to_owned(),
            project: "service".to_owned(),
            user_domain: "Default".to_owned(),
            project_domain: "Default".to_owned(),
        };
        (Keystone { trust, ..Keystone::new(options).unwrap() }, double, tasks)
    }

    async fn caller(keystone: &Keystone, user: &str) -> Result<Caller, AuthError> {
        keystone.caller(Tokens { user: Some(user), service: None }).await
    }

    fn is_refused(outcome: &Result<Caller, AuthError>) -> bool {
        matches!(outcome, Err(AuthError::Unauthorized))
    }

    fn is_unavailable(outcome: &Result<Caller, AuthError>) -> bool {
        matches!(outcome, Err(AuthError::Unavailable(_)))
    }

    #[tokio::test]
    async fn a_token_is_asked_for_once_and_then_remembered() {
        let (keystone, double, _tasks) = start(PASSWORD, TRUST).await;
        let member = token(Some("p1"), &["member", "reader"], LATER);
        double.lock().unwrap().subjects.insert("good".to_owned(), member);
        for _ in 0..3 {
            let caller = caller(&keystone, "good").await.unwrap();
            assert_eq!((caller.user_id.as_str(), caller.project_id.as_str()), ("u1", "p1"));
            assert!(caller.has("member") && !caller.is_admin() && !caller.is_service);
        }
        let double = double.lock().unwrap();
        assert_eq!((double.logins, double.validations), (1, 1));
    }

    #[tokio::test]
    async fn tokens_that_are_none() {
        let (keystone, double, _tasks) = start(PASSWORD, TRUST).await;
        let put = |name: &str, token: Value| {
            double.lock().unwrap().subjects.insert(name.to_owned(), token);
        };
        put("unscoped", token(None, &[], LATER));
        put("expired", token(Some("p1"), &["admin"], "2001-01-01T00:00:00.000000Z"));
        put("strange", json!({"user": "ann"}));
        for name in ["unknown", "", "unscoped", "expired", "strange", "with\nnewline"] {
            assert!(is_refused(&caller(&keystone, name).await), "{name:?}");
        }
        assert!(is_refused(&keystone.caller(Tokens::default()).await));
    }

    /// A token that is revoked there works here as long as its answer is trusted, and no longer.
    #[tokio::test]
    async fn revoked_tokens_end() {
        let (keystone, double, _tasks) = start(PASSWORD, Duration::ZERO).await;
        double.lock().unwrap().subjects.insert("t".to_owned(), token(Some("p"), &["admin"], LATER));
        assert!(caller(&keystone, "t").await.unwrap().is_admin());
        double.lock().unwrap().subjects.clear();
        assert!(is_refused(&caller(&keystone, "t").await));
        let soon = read(&json!({"token": token(Some("p"), &[], LATER)}), TRUST).unwrap();
        assert!(soon.until <= Instant::now() + TRUST);
    }

    /// Of a crowd that finds the service's own token ended, one gets a new one.
    #[tokio::test]
    async fn an_own_token_that_ended_is_replaced_once() {
        let (keystone, double, _tasks) = start(PASSWORD, Duration::ZERO).await;
        double.lock().unwrap().subjects.insert("t".to_owned(), token(Some("p"), &[], LATER));
        caller(&keystone, "t").await.unwrap();
        double.lock().unwrap().own.clear();
        let all = futures::future::join_all((0..20).map(|_| caller(&keystone, "t"))).await;
        assert!(all.iter().all(Result::is_ok), "{all:?}");
        assert_eq!(double.lock().unwrap().logins, 2);
    }

    #[tokio::test]
    async fn services_speak_for_users() {
        let (keystone, double, _tasks) = start(PASSWORD, TRUST).await;
        {
            let mut double = double.lock().unwrap();
            let subjects = &mut double.subjects;
            subjects.insert("user".to_owned(), token(Some("p"), &["member"], LATER));
            subjects.insert("nova".to_owned(), token(Some("s"), &["service", "admin"], LATER));
            subjects.insert("other".to_owned(), token(Some("s"), &["member"], LATER));
        }
        let with = |service: &'static str| {
            keystone.caller(Tokens { user: Some("user"), service: Some(service) })
        };
        let seen = with("nova").await.unwrap();
        // The roles of the service are not the user's.
        assert!(seen.is_service && !seen.is_admin() && seen.project_id == "p");
        assert!(!with("other").await.unwrap().is_service);
        assert!(is_refused(&with("garbage").await));
    }

    /// What is wrong with the identity service is not told as a wrong token: clients would throw
    /// theirs away.
    #[tokio::test]
    async fn a_broken_identity_service_is_no_wrong_token() {
        let (keystone, double, _tasks) = start(PASSWORD, TRUST).await;
        double.lock().unwrap().subjects.insert("t".to_owned(), token(Some("p"), &[], LATER));
        for broken in [
            (StatusCode::FORBIDDEN, "{}"),
            (StatusCode::INTERNAL_SERVER_ERROR, "oops"),
            (StatusCode::SERVICE_UNAVAILABLE, ""),
            (StatusCode::MULTIPLE_CHOICES, "{}"),
            (StatusCode::OK, "<html>"),
        ] {
            double.lock().unwrap().broken = Some(broken);
            let seen = caller(&keystone, "t").await;
            assert!(is_unavailable(&seen), "{broken:?}: {seen:?}");
        }
        double.lock().unwrap().broken = None;
        assert!(caller(&keystone, "t").await.is_ok(), "nothing wrong is remembered");
        let (wrong, _, _tasks) = start("wrong", TRUST).await;
        assert!(is_unavailable(&caller(&wrong, "t").await));
        let nobody = KeystoneOptions { url: "http://127.0.0.1:1/v3".to_owned(), ..wrong.options };
        assert!(is_unavailable(&caller(&Keystone::new(nobody).unwrap(), "t").await));
    }
}
