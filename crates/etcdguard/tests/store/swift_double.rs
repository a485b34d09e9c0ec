//! A Keystone and a Swift on loopback, as unkind as the real ones: tokens end, hashes are checked,
//! listings come late, objects in segments are what the listing says, errors repeat what was sent.
#![allow(clippy::disallowed_methods, reason = "it ends with the runtime of its test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use md5::{Digest as _, Md5};
use serde_json::{Value, json};

pub(crate) const CONTAINER: &str = "bkt";
const ACCOUNT: &str = "/v1/AUTH_1/";

#[derive(Default)]
pub(crate) struct Inside {
    pub(crate) password: String,
    pub(crate) objects: BTreeMap<String, Object>,
    tokens: BTreeSet<String>,
    pub(crate) tokens_given: u32,
    /// So many puts are answered with 503.
    pub(crate) overloaded: u32,
    /// Every put is answered with this.
    pub(crate) refuses: Option<StatusCode>,
    pub(crate) puts: u32,
    /// So often the last segment of an object is not seen.
    pub(crate) late: u32,
    pub(crate) seconds: i64,
}

#[derive(Clone, Default)]
pub(crate) struct Object {
    pub(crate) bytes: Bytes,
    pub(crate) manifest: Option<String>,
    /// Names of its segments, where it lists them itself.
    pub(crate) segments: Option<Vec<String>>,
    pub(crate) modified: jiff::Timestamp,
}

#[derive(Clone)]
pub(crate) struct Swift {
    inside: Arc<Mutex<Inside>>,
    pub(crate) url: String,
}

impl Swift {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let inside = Inside { password: "planted".into(), seconds: 3600, ..Inside::default() };
        let this = Self { inside: Arc::new(Mutex::new(inside)), url };
        let router = Router::new()
            .fallback(answer)
            .layer(DefaultBodyLimit::disable())
            .with_state(this.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        this
    }

    pub(crate) fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap()
    }

    pub(crate) fn end_tokens(&self) {
        self.inside().tokens.clear();
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.inside().objects.keys().cloned().collect()
    }
}

async fn answer(
    State(swift): State<Swift>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let path = uri.path();
    let query = uri.query().unwrap_or_default().as_bytes();
    let query: BTreeMap<String, String> = url::form_urlencoded::parse(query).into_owned().collect();
    if path == "/v3/auth/tokens" {
        return swift.token(&body);
    }
    let header = |name: &str| headers.get(name).map(|it| it.to_str().unwrap().to_owned());
    let mut inside = swift.inside();
    if header("x-auth-token").is_none_or(|token| !inside.tokens.contains(&token)) {
        return plain(StatusCode::UNAUTHORIZED, format!("{headers:?}"));
    }
    let Some(name) = path.strip_prefix(ACCOUNT) else {
        return plain(StatusCode::NOT_FOUND, "no account");
    };
    let (container, name) = name.split_once('/').unwrap_or((name, ""));
    if container != CONTAINER {
        return plain(StatusCode::NOT_FOUND, "no container");
    }
    let name = decoded(name);
    match (method, name.as_str()) {
        (Method::GET, "") => inside.list(&query),
        // Of nothing the length has to be said, too.
        (Method::PUT, _)
            if header("content-length").is_none() && header("transfer-encoding").is_none() =>
        {
            plain(StatusCode::LENGTH_REQUIRED, "Missing Content-Length header.")
        }
        (Method::PUT, _) => inside.put(name, &headers, body),
        (Method::DELETE, _) => inside.delete(&name, &query),
        (method, _) => inside.get(&name, method == Method::HEAD, header("range")),
    }
}

impl Swift {
    fn token(&self, body: &Bytes) -> Response<Body> {
        let mut inside = self.inside();
        let asked: Value = serde_json::from_slice(body).unwrap();
        let identity = &asked["auth"]["identity"];
        let user = &identity["password"]["user"];
        let application = &identity["application_credential"];
        let by_password = user["name"] == "tester"
            && user["domain"]["name"] == "Default"
            && user["password"] == inside.password
            && asked["auth"]["scope"]["project"]["name"] == "testing";
        let by_application = application["id"] == "app" && application["secret"] == inside.password;
        if !by_password && !by_application {
            return plain(StatusCode::UNAUTHORIZED, body.clone());
        }
        inside.tokens_given += 1;
        let token = format!("planted-token-{}", inside.tokens_given);
        inside.tokens.insert(token.clone());
        let ends = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(inside.seconds);
        let answer = json!({"token": {"expires_at": ends.to_string(), "catalog": [
            {"type": "object-store", "endpoints": [
                {"interface": "public", "region": "one", "url": format!("{}{ACCOUNT}", self.url)}]},
        ]}});
        let answer = Response::builder()
            .status(201)
            .header("x-subject-token", token)
            .body(Body::from(answer.to_string()));
        answer.unwrap()
    }
}

impl Inside {
    fn put(&mut self, name: String, headers: &HeaderMap, body: Bytes) -> Response<Body> {
        self.puts += 1;
        if let Some(status) = self.refuses {
            return plain(status, "");
        }
        if self.overloaded > 0 {
            self.overloaded -= 1;
            return plain(StatusCode::SERVICE_UNAVAILABLE, "");
        }
        let header = |name: &str| headers.get(name).map(|it| it.to_str().unwrap().to_owned());
        let hash = hash(&body);
        if header("etag").is_some_and(|wanted| wanted != hash) {
            return plain(StatusCode::UNPROCESSABLE_ENTITY, "");
        }
        let manifest = header("x-object-manifest");
        self.objects.insert(
            name,
            Object { bytes: body, manifest, segments: None, modified: jiff::Timestamp::now() },
        );
        Response::builder().status(201).header("etag", hash).body(Body::empty()).unwrap()
    }

    fn list(&self, query: &BTreeMap<String, String>) -> Response<Body> {
        let get = |name: &str| query.get(name).map_or("", String::as_str);
        let (prefix, marker) = (get("prefix"), get("marker"));
        let limit: usize = get("limit").parse().unwrap_or(10_000);
        let mut rows: Vec<Value> = Vec::new();
        for (name, object) in &self.objects {
            let Some(below) = name.strip_prefix(prefix) else { continue };
            let row = match below.split_once('/') {
                Some((dir, _)) if get("delimiter") == "/" => {
                    json!({"subdir": format!("{prefix}{dir}/")})
                }
                _ => json!({"name": name, "bytes": object.bytes.len(), "hash": hash(&object.bytes),
                            "last_modified": written(object.modified, "%Y-%m-%dT%H:%M:%S%.6f")}),
            };
            let shown = row["name"].as_str().or(row["subdir"].as_str()).unwrap();
            if shown > marker && rows.last() != Some(&row) && rows.len() < limit {
                rows.push(row);
            }
        }
        plain(StatusCode::OK, Value::from(rows).to_string())
    }

    fn contents(&mut self, object: &Object) -> (Bytes, String) {
        let Some(manifest) = &object.manifest else {
            return (object.bytes.clone(), hash(&object.bytes));
        };
        let manifest = decoded(manifest);
        let prefix = manifest.strip_prefix(&format!("{CONTAINER}/")).unwrap();
        let segments = self.objects.iter().filter(|(name, _)| name.starts_with(prefix));
        let mut segments: Vec<&Object> =
            segments.map(|(_, it)| it).filter(|it| it.manifest.is_none()).collect();
        if self.late > 0 {
            self.late -= 1;
            segments.pop();
        }
        let bytes: Vec<u8> = segments.iter().flat_map(|it| it.bytes.to_vec()).collect();
        let hashes: String = segments.iter().map(|it| hash(&it.bytes)).collect();
        (bytes.into(), format!("\"{}\"", hash(hashes.as_bytes())))
    }

    fn get(&mut self, name: &str, is_head: bool, range: Option<String>) -> Response<Body> {
        let Some(object) = self.objects.get(name).cloned() else {
            return plain(StatusCode::NOT_FOUND, "");
        };
        let (bytes, e_tag) = self.contents(&object);
        let modified = written(object.modified, "%a, %d %b %Y %H:%M:%S GMT");
        let mut answer =
            Response::builder().header("etag", e_tag).header("last-modified", modified);
        if let Some(manifest) = &object.manifest {
            answer = answer.header("x-object-manifest", manifest);
        }
        if object.segments.is_some() {
            answer = answer.header("x-static-large-object", "True");
        }
        let range = range.map(|range| {
            let (first, last) = range.trim_start_matches("bytes=").split_once('-').unwrap();
            (first.parse::<usize>().unwrap(), last.parse::<usize>().unwrap())
        });
        match range {
            Some((first, _)) if first >= bytes.len() => {
                plain(StatusCode::RANGE_NOT_SATISFIABLE, "")
            }
            Some((first, last)) => {
                let last = last.min(bytes.len() - 1);
                let shown = format!("bytes {first}-{last}/{}", bytes.len());
                let answer = answer.status(206).header("content-range", shown);
                answer.body(Body::from(bytes.slice(first..=last))).unwrap()
            }
            None if is_head => {
                answer.header("content-length", bytes.len()).body(Body::empty()).unwrap()
            }
            None => answer.body(Body::from(bytes)).unwrap(),
        }
    }

    fn delete(&mut self, name: &str, query: &BTreeMap<String, String>) -> Response<Body> {
        let Some(object) = self.objects.remove(name) else {
            return plain(StatusCode::NOT_FOUND, "");
        };
        match object.segments {
            Some(segments) if query.get("multipart-manifest").is_some_and(|it| it == "delete") => {
                self.objects.retain(|name, _| !segments.contains(name));
                plain(StatusCode::OK, json!({"Response Status": "200 OK"}).to_string())
            }
            Some(_) | None => plain(StatusCode::NO_CONTENT, ""),
        }
    }
}

fn plain(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).body(body.into()).unwrap()
}

pub(crate) fn hash(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

fn decoded(path: &str) -> String {
    let pair = format!("x={}", path.replace('+', "%2B"));
    url::form_urlencoded::parse(pair.as_bytes()).next().unwrap().1.into_owned()
}

fn written(time: jiff::Timestamp, form: &str) -> String {
    time.strftime(form).to_string()
}
