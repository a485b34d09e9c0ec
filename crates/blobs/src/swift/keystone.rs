//! Who we are to an `OpenStack`: tokens of Keystone v3, and where its catalogue says objects are.
//!
//! Owns: the request for a token and what its answer says. Never: when a token is asked for again.

use jiff::{SignedDuration, Timestamp};
use object_store::client::HttpRequest;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use crate::timeouts::Waiting;
use crate::wire::{self, Fault, refused};

const TOKEN_HEADER: &str = "x-subject-token";
const ANSWER_MAX_BYTES: usize = 1 << 20;
/// A token is renewed so long before it ends.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_mins(1);
/// Where an answer does not say when its token ends.
const TOKEN_LIFE: SignedDuration = SignedDuration::from_mins(5);

/// Who asks for a token.
#[derive(Debug, Clone)]
pub enum SwiftIdentity {
    /// A user, in a project; both in one domain.
    Password { username: String, password: SecretString, project: String, domain: String },
    /// By its id.
    ApplicationCredential { id: String, secret: SecretString },
    /// By its name, which is one of its user's.
    NamedApplicationCredential {
        name: String,
        secret: SecretString,
        username: String,
        domain: String,
    },
}

impl SwiftIdentity {
    /// As it may be shown.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Password { username, .. } => username,
            Self::ApplicationCredential { id, .. } => id,
            Self::NamedApplicationCredential { name, .. } => name,
        }
    }

    fn request(&self) -> Value {
        match self {
            Self::Password { username, password, project, domain } => json!({"auth": {
                "identity": {"methods": ["password"], "password": {"user": {
                    "name": username,
                    "domain": {"name": domain},
                    "password": password.expose_secret(),
                }}},
                "scope": {"project": {"name": project, "domain": {"name": domain}}},
            }}),
            Self::ApplicationCredential { id, secret } => json!({"auth": {"identity": {
                "methods": ["application_credential"],
                "application_credential": {"id": id, "secret": secret.expose_secret()},
            }}}),
            Self::NamedApplicationCredential { name, secret, username, domain } => {
                json!({"auth": {"identity": {
                    "methods": ["application_credential"],
                    "application_credential": {
                        "name": name,
                        "secret": secret.expose_secret(),
                        "user": {"name": username, "domain": {"name": domain}},
                    },
                }}})
            }
        }
    }
}

/// A token, and where it is good for.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) token: SecretString,
    /// Of the account: containers are below.
    pub(super) storage: Url,
    ends: Timestamp,
}

impl Session {
    pub(super) fn is_good(&self, now: Timestamp) -> bool {
        self.ends.checked_sub(RENEW_BEFORE).is_ok_and(|end| now < end)
    }
}

#[derive(Deserialize)]
struct Answer {
    token: Token,
}

#[derive(Deserialize)]
struct Token {
    expires_at: Option<String>,
    #[serde(default)]
    catalog: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(default)]
    interface: String,
    region: Option<String>,
    region_id: Option<String>,
    url: String,
}

/// Whom to ask for tokens.
#[derive(Debug)]
pub(super) struct Keystone {
    pub(super) url: Url,
    pub(super) region: Option<String>,
    pub(super) identity: SwiftIdentity,
}

impl Keystone {
    pub(super) async fn session(&self, client: &Waiting) -> Result<Session, Fault> {
        let request = self.request()?;
        let mut asked = client.asked(&request);
        asked.key_id = Some(self.identity.name().to_owned());
        let answer = client.ask(request).await.map_err(|error| Fault::of(&error))?;
        let status = answer.status();
        if !status.is_success() {
            return Err(refused(asked, &answer));
        }
        let bad = |what: &'static str| Fault::Answer { status: status.as_u16(), what };
        let token = answer.headers().get(TOKEN_HEADER).and_then(|it| it.to_str().ok());
        let token = token.map(SecretString::from).ok_or(bad("a token without X-Subject-Token"))?;
        let body = wire::body(answer, ANSWER_MAX_BYTES).await?;
        let answer: Answer =
            serde_json::from_slice(&body).map_err(|_| bad("no JSON of a token"))?;
        let ends = answer.token.expires_at.as_deref().and_then(|text| text.parse().ok());
        let ends = ends.unwrap_or_else(|| Timestamp::now() + TOKEN_LIFE);
        Ok(Session { token, storage: self.storage(&answer.token.catalog)?, ends })
    }

    fn request(&self) -> Result<HttpRequest, Fault> {
        let mut url = self.url.clone();
        {
            let mut parts = url.path_segments_mut().map_err(|()| Fault::Url)?;
            parts.pop_if_empty();
            // Addresses are given with the version and without.
            if !self.url.path().trim_end_matches('/').ends_with("/v3") {
                parts.push("v3");
            }
            parts.extend(["auth", "tokens"]);
        }
        let body = serde_json::to_vec(&self.identity.request()).map_err(|_| Fault::Url)?;
        http::Request::post(url.as_str())
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json")
            .body(body.into())
            .map_err(|_| Fault::Url)
    }

    fn storage(&self, catalog: &[Entry]) -> Result<Url, Fault> {
        let endpoints = catalog.iter().filter(|it| it.kind == "object-store");
        let mut public =
            endpoints.flat_map(|it| &it.endpoints).filter(|it| it.interface == "public");
        let wanted = |endpoint: &&Endpoint| {
            self.region.as_ref().is_none_or(|region| {
                [&endpoint.region, &endpoint.region_id].contains(&&Some(region.clone()))
            })
        };
        let found = public.find(wanted).ok_or_else(|| Fault::NoObjectStore {
            region: self.region.clone().unwrap_or_else(|| "any region".to_owned()),
        })?;
        let url = Url::parse(&found.url).map_err(|_| Fault::Url)?;
        if matches!(url.scheme(), "http" | "https") { Ok(url) } else { Err(Fault::Url) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keystone(url: &str, region: Option<&str>) -> Keystone {
        let identity =
            SwiftIdentity::ApplicationCredential { id: "i".into(), secret: "hidden".into() };
        let region = region.map(str::to_owned);
        Keystone { url: Url::parse(url).unwrap(), region, identity }
    }

    #[test]
    fn tokens_are_asked_for_at_the_third_version() {
        for (url, wanted) in [
            ("https://k:5000/v3", "https://k:5000/v3/auth/tokens"),
            ("https://k:5000/v3/", "https://k:5000/v3/auth/tokens"),
            ("https://k:5000", "https://k:5000/v3/auth/tokens"),
            ("https://k/identity/", "https://k/identity/v3/auth/tokens"),
        ] {
            assert_eq!(keystone(url, None).request().unwrap().uri(), wanted);
        }
        assert!(!format!("{:?}", keystone("https://k", None)).contains("hidden"));
    }

    #[test]
    fn the_catalogue_says_where_objects_are() {
        let catalog: Vec<Entry> = serde_json::from_value(json!([
            {"type": "volumev3", "endpoints": [{"interface": "public", "url": "http://no"}]},
            {"type": "object-store", "endpoints": [
                {"interface": "admin", "region": "r1", "url": "http://admin"},
                {"interface": "public", "region": "r1", "url": "http://one/v1/AUTH_x"},
                {"interface": "public", "region_id": "r2", "url": "https://two/v1/AUTH_x"}]},
        ]))
        .unwrap();
        let storage = |region| keystone("http://k", region).storage(&catalog).map(String::from);
        assert_eq!(storage(None).unwrap(), "http://one/v1/AUTH_x");
        assert_eq!(storage(Some("r2")).unwrap(), "https://two/v1/AUTH_x");
        assert!(storage(Some("r3")).unwrap_err().to_string().contains("r3"));
    }

    #[test]
    fn a_token_is_renewed_before_it_ends() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let session = |seconds| Session {
            token: "t".into(),
            storage: Url::parse("http://s").unwrap(),
            ends: now + SignedDuration::from_secs(seconds),
        };
        assert!(session(120).is_good(now));
        assert!(!session(59).is_good(now));
    }
}
