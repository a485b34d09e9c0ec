//! From an HTTP request to the page or the action it is for: who asks, whether the request is their
//! own, what it wants. The headers of every answer are set here.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Api;
use kube::api::{ListParams, PostParams};
use percent_encoding::percent_decode_str;
use secrecy::SecretString;
use tokio::sync::Semaphore;

use crate::actions::{self, Action};
use crate::blocks::Blocks;
use crate::caller::Caller;
use crate::pages::{self, Content, PageId};
use crate::reach::Reach;
use crate::session::{LIFETIME, Session, Sessions, Standing};
use crate::view::{Frame, Page, Problem, SignIn, Theme};
use crate::visit::Visit;
use crate::{assets, live};

const SESSION_COOKIE: &str = "holdfast_session";
const THEME_COOKIE: &str = "holdfast_theme";
/// What pages send that keep themselves up to date.
const PART: &str = "x-holdfast-part";
const MAX_FORM_BYTES: usize = 64 * 1024;
/// A form is small: one that is not there by then will not come, and its connection is wanted.
const FORM_TIMEOUT: Duration = Duration::from_secs(10);
/// For a place among those who sign in.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// Tokens that are tried at the same time, and how long each that fails holds its place.
const SIGN_INS_AT_ONCE: usize = 4;
const REJECTION_PAUSE: Duration = Duration::from_millis(500);
const THEME_SECONDS: i64 = 365 * 24 * 3600;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What all requests share.
#[derive(Debug)]
pub(crate) struct App {
    reach: Arc<dyn Reach>,
    blocks: Option<Blocks>,
    sessions: Sessions,
    sign_ins: Semaphore,
    /// Reached inside TLS.
    secure: bool,
    pub(crate) stop: tasks::Stop,
}

impl App {
    pub(crate) fn new(
        reach: Arc<dyn Reach>,
        blocks: Option<Blocks>,
        secure: bool,
        stop: tasks::Stop,
    ) -> Self {
        let sign_ins = Semaphore::new(SIGN_INS_AT_ONCE);
        Self { reach, blocks, sessions: Sessions::default(), sign_ins, secure, stop }
    }

    pub(crate) fn has_blocks(&self) -> bool {
        self.blocks.is_some()
    }

    pub(crate) fn blocks(&self) -> Option<&Blocks> {
        self.blocks.as_ref()
    }
}

/// Why a request has no page for an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Oops {
    /// The session is over, or its token no longer counts.
    #[error("you are not signed in")]
    SignedOut,
    #[error("there is no such page")]
    NoPage,
    #[error("you may not list {0}")]
    Hidden(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Api(Box<kube::Error>),
    #[error("the page cannot be drawn")]
    Draw(#[from] askama::Error),
}

impl From<kube::Error> for Oops {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 401 => Self::SignedOut,
            kube::Error::Api(status) => Self::Api(Box::new(kube::Error::Api(status))),
            other => Self::Api(Box::new(other)),
        }
    }
}

impl Oops {
    /// In words, with what to do.
    pub(crate) fn told(&self) -> (StatusCode, String, &'static str) {
        match self {
            Self::Api(error) => match error.as_ref() {
                kube::Error::Api(status) => {
                    let code = StatusCode::from_u16(status.code);
                    let hint = match status.code {
                        403 => "Ask an administrator for the right, or sign in as somebody else.",
                        404 => "It may have been removed meanwhile.",
                        409 => {
                            "It is there already, or was changed meanwhile; look, and try again."
                        }
                        _ => "The API said so; nothing was changed.",
                    };
                    (code.unwrap_or(StatusCode::BAD_GATEWAY), status.message.clone(), hint)
                }
                other => (
                    StatusCode::BAD_GATEWAY,
                    format!("The API does not answer: {}", telemetry::Chain(other)),
                    "Is it running? Try again in a moment.",
                ),
            },
            Self::Hidden(_) => (
                StatusCode::FORBIDDEN,
                self.to_string(),
                "Ask an administrator for the right, or sign in as somebody else.",
            ),
            Self::Refused(_) => {
                (StatusCode::BAD_REQUEST, self.to_string(), "Correct it, and try again.")
            }
            Self::NoPage => (StatusCode::NOT_FOUND, self.to_string(), "Choose one above."),
            Self::SignedOut => (StatusCode::UNAUTHORIZED, self.to_string(), "Sign in again."),
            Self::Draw(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                self.to_string(),
                "The log of the server says more.",
            ),
        }
    }
}

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new().fallback(move |request: Request<Body>| {
        let app = app.clone();
        async move { with_headers(answer(app, request).await) }
    })
}

fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    // Without it forms of our own pages would not say where they come from.
    set(header::REFERRER_POLICY, "same-origin");
    set(header::CACHE_CONTROL, "no-store");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()");
    response
}

async fn answer(app: Arc<App>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    if !app.secure && !is_of_this_machine(&parts.headers) {
        // A name that somebody else made to point here.
        return plain(StatusCode::MISDIRECTED_REQUEST, "use the address that the server printed");
    }
    match parts.method {
        Method::GET | Method::HEAD => get(app, &parts).await,
        Method::POST if !is_own(&parts.headers, app.secure) => {
            plain(StatusCode::FORBIDDEN, "the form is not of this site")
        }
        Method::POST => post(app, &parts, body).await,
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and POST are known here"),
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

async fn get(app: Arc<App>, parts: &Parts) -> Response {
    let path = parts.uri.path();
    if let Some(asset) = assets::find(path) {
        let headers = [
            (header::CONTENT_TYPE, asset.kind),
            (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        ];
        return (headers, asset.text).into_response();
    }
    if path == "/sign-in" {
        return sign_in_page(parts, StatusCode::OK, None);
    }
    let is_live = path == "/live";
    let Some(visit) = visit(app, parts, is_live) else {
        if is_live {
            return plain(StatusCode::UNAUTHORIZED, "sign in again");
        }
        return see("/sign-in");
    };
    if is_live {
        let page = field(parts.uri.query().unwrap_or_default().as_bytes(), "page");
        return match page.as_deref().and_then(PageId::parse) {
            Some(page) => live::changes(visit, page),
            None => plain(StatusCode::NOT_FOUND, "there is no such page"),
        };
    }
    let shown = show(&visit, &segments(path)).await;
    shown.unwrap_or_else(|oops| problem(&visit, parts, &oops))
}

/// The parts of a path, decoded.
fn segments(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|it| !it.is_empty());
    parts.map(|it| percent_decode_str(it).decode_utf8_lossy().into_owned()).collect()
}

async fn show(visit: &Visit, segments: &[String]) -> Result<Response, Oops> {
    let (page, content) = match segments {
        [] => (PageId::Overview, PageId::Overview.content(visit).await?),
        [name] => {
            let page = PageId::parse(name).filter(|it| *it != PageId::Overview);
            let page = page.ok_or(Oops::NoPage)?;
            (page, page.content(visit).await?)
        }
        [folder, name] if folder == "volumes" && actions::is_name(name) => {
            (PageId::Volumes, pages::of_volume(visit, name).await?)
        }
        _ => return Err(Oops::NoPage),
    };
    draw(visit, page, content)
}

fn draw(visit: &Visit, page: PageId, content: Content) -> Result<Response, Oops> {
    let Content { title, forms, sections } = content;
    let frame = visit.frame(Some(page));
    let page = Page { frame, title, forms, sections, live: page.name() };
    Ok(html(StatusCode::OK, page.render()?))
}

fn html(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

fn problem(visit: &Visit, parts: &Parts, oops: &Oops) -> Response {
    if matches!(oops, Oops::SignedOut) {
        if let Some(id) = cookie(&parts.headers, SESSION_COOKIE) {
            visit.app.sessions.end(&id);
        }
        return see("/sign-in");
    }
    let (status, told, hint) = oops.told();
    let title = match status {
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::NOT_FOUND => "Not found",
        _ => "That did not work",
    };
    let page =
        Problem { frame: visit.frame(None), title: title.to_owned(), told, hint: hint.to_owned() };
    match page.render() {
        Ok(text) => html(status, text),
        Err(error) => {
            tracing::error!(%error, "a page cannot be drawn");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "the page cannot be drawn")
        }
    }
}

fn sign_in_page(parts: &Parts, status: StatusCode, refused: Option<&str>) -> Response {
    let frame = Frame {
        theme: theme(&parts.headers),
        here: "/sign-in".to_owned(),
        signed: None,
        note: None,
    };
    let page = SignIn { frame, refused: refused.map(str::to_owned) };
    page.render().map_or_else(
        |_| plain(StatusCode::INTERNAL_SERVER_ERROR, "the page cannot be drawn"),
        |text| html(status, text),
    )
}

fn theme(headers: &HeaderMap) -> Theme {
    cookie(headers, THEME_COOKIE).map(|it| Theme::parse(&it)).unwrap_or_default()
}

fn visit(app: Arc<App>, parts: &Parts, is_live: bool) -> Option<Visit> {
    let now = Timestamp::now();
    let is_part = is_live || parts.headers.contains_key(PART);
    let id = cookie(&parts.headers, SESSION_COOKIE)?;
    let session: Arc<Session> = app.sessions.find(&id, caller(parts), !is_part, now)?;
    let client = app.reach.client(&session.token)?;
    let here = parts.uri.path().to_owned();
    let theme = theme(&parts.headers);
    Some(Visit { app, session, client, theme, here, is_part, now })
}

/// As the door has found out.
fn caller(parts: &Parts) -> Caller {
    parts.extensions.get().copied().unwrap_or(Caller::Unseen)
}

async fn post(app: Arc<App>, parts: &Parts, body: Body) -> Response {
    let limited = http_body_util::Limited::new(body, MAX_FORM_BYTES);
    let Ok(form) = tokio::time::timeout(FORM_TIMEOUT, limited.collect()).await else {
        return plain(StatusCode::REQUEST_TIMEOUT, "the form did not come in time");
    };
    let Ok(form) = form.map(http_body_util::Collected::to_bytes) else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "the form is too long");
    };
    match parts.uri.path() {
        "/theme" => return choose_theme(&app, &form),
        "/sign-in" => return sign_in(&app, parts, &form).await,
        _ => {}
    }
    let Some(visit) = visit(app, parts, false) else { return see("/sign-in") };
    if !visit.session.is_from_our_page(&field(&form, "csrf").unwrap_or_default()) {
        return plain(
            StatusCode::FORBIDDEN,
            "the form is not of this session; load the page again",
        );
    }
    if parts.uri.path() == "/sign-out" {
        if let Some(id) = cookie(&parts.headers, SESSION_COOKIE) {
            visit.app.sessions.end(&id);
        }
        return with_cookie(see("/sign-in"), &set_cookie(SESSION_COOKIE, "", 0, visit.app.secure));
    }
    act(&visit, parts, &form).await
}

/// Does what a form asks for, and goes back to a page that says what came of it.
async fn act(visit: &Visit, parts: &Parts, form: &Bytes) -> Response {
    let Some(action) = Action::parse(&segments(parts.uri.path())) else {
        return problem(visit, parts, &Oops::NoPage);
    };
    let back = action.back();
    match action.run(visit, &|name| field(form, name).map(|it| it.trim().to_owned())).await {
        Ok(done) => {
            visit.leave(done.told, false);
            see(&done.then.unwrap_or(back))
        }
        Err(oops @ Oops::SignedOut) => problem(visit, parts, &oops),
        Err(oops) => {
            let (_, told, hint) = oops.told();
            visit.leave(format!("{told} {hint}"), true);
            see(&back)
        }
    }
}

async fn sign_in(app: &Arc<App>, parts: &Parts, form: &Bytes) -> Response {
    let token = field(form, "token").unwrap_or_default();
    let token = token.trim();
    let token = token.strip_prefix("Bearer ").unwrap_or(token).to_owned();
    let namespace = field(form, "namespace").unwrap_or_default().trim().to_owned();
    let refuse = |status, why| sign_in_page(parts, status, Some(why));
    if token.is_empty() || token.len() > MAX_TOKEN_BYTES {
        return refuse(StatusCode::BAD_REQUEST, "That is not a token.");
    }
    if !namespace.is_empty() && !actions::is_namespace(&namespace) {
        return refuse(StatusCode::BAD_REQUEST, "That is not the name of a namespace.");
    }
    let Ok(Ok(place)) = tokio::time::timeout(SIGN_IN_TIMEOUT, app.sign_ins.acquire()).await else {
        return plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many are signing in at the moment; try again in a minute",
        );
    };
    let token = SecretString::from(token);
    let found = standing(app, &token, namespace).await;
    // Who was refused waits without it: they must not keep others from signing in.
    drop(place);
    let standing = match found {
        Ok(standing) => standing,
        Err(Oops::SignedOut) => {
            // Whoever guesses waits.
            tokio::time::sleep(REJECTION_PAUSE).await;
            return refuse(StatusCode::UNAUTHORIZED, "The API does not accept this token.");
        }
        Err(oops) => {
            let (status, told, _) = oops.told();
            return refuse(status, &told);
        }
    };
    let first = PageId::first(standing.sees_volumes);
    let id = app.sessions.begin(token, standing, caller(parts), Timestamp::now());
    let seconds = LIFETIME.as_secs();
    with_cookie(see(&first), &set_cookie(SESSION_COOKIE, &id, seconds, app.secure))
}

/// Who the owner of a token is, and where they work.
async fn standing(app: &App, token: &SecretString, namespace: String) -> Result<Standing, Oops> {
    let client = app.reach.client(token).ok_or(Oops::SignedOut)?;
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let user = review.status.and_then(|it| it.user_info?.username).unwrap_or_default();
    let own = user.strip_prefix("system:serviceaccount:").and_then(|it| it.split(':').next());
    let mut namespaces: Vec<String> = [Some(namespace), own.map(str::to_owned)]
        .into_iter()
        .flatten()
        .filter(|it| !it.is_empty())
        .collect();
    namespaces.dedup();
    let volumes: Api<api::longhorn::Volume> = Api::namespaced(client, people::NAMESPACE);
    let sees_volumes = match volumes.list_metadata(&ListParams::default().limit(1)).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => false,
        Err(error) => return Err(error.into()),
    };
    Ok(Standing { user, namespaces, sees_volumes })
}

fn choose_theme(app: &App, form: &Bytes) -> Response {
    let theme = Theme::parse(&field(form, "theme").unwrap_or_default());
    let here = field(form, "here").filter(|it| is_here(it)).unwrap_or_else(|| "/".to_owned());
    with_cookie(see(&here), &set_cookie(THEME_COOKIE, theme.name(), THEME_SECONDS, app.secure))
}

/// A path on this site, and on no other.
fn is_here(path: &str) -> bool {
    let mut letters = path.bytes();
    let begins = letters.next() == Some(b'/') && !matches!(letters.next(), Some(b'/' | b'\\'));
    begins && path.bytes().all(|it| it.is_ascii_graphic())
}

/// Another page, with a GET.
pub(crate) fn see(path: &str) -> Response {
    let place = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, place)]).into_response()
}

fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
    response
}

fn set_cookie(name: &str, value: &str, seconds: i64, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|it| it.to_str().ok());
    let mut pairs = all.flat_map(|it| it.split(';')).filter_map(|it| it.trim().split_once('='));
    let value = pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
    value.filter(|it| !it.is_empty())
}

fn field(form: &[u8], name: &str) -> Option<String> {
    let mut pairs = url::form_urlencoded::parse(form);
    pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|it| it.to_str().ok())
}

/// Whether the client called this machine by its address. A page of a stranger whose name points
/// here is not let in, whatever it may do with what it reads.
fn is_of_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = text_of(headers, "host") else { return false };
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|it| it.is_ascii_digit()) { name } else { host }
    });
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || bare.parse::<std::net::IpAddr>().is_ok()
}

/// Whether a form comes from a page of this site, as far as the browser says.
fn is_own(headers: &HeaderMap, secure: bool) -> bool {
    let site = text_of(headers, "sec-fetch-site").is_none_or(|it| it == "same-origin");
    let scheme = if secure { "https" } else { "http" };
    let host = text_of(headers, "host").unwrap_or_default();
    let origin = text_of(headers, "origin").is_none_or(|it| it == format!("{scheme}://{host}"));
    site && origin
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn strangers_names_for_this_machine_are_refused() {
        for (host, wanted) in [
            ("127.0.0.1:7480", true),
            ("localhost:7480", true),
            ("[::1]:7480", true),
            ("[::1]", true),
            ("10.1.2.3", true),
            ("evil.example:7480", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            assert_eq!(is_of_this_machine(&headers(&[("host", host)])), wanted, "{host}");
        }
        assert!(!is_of_this_machine(&HeaderMap::new()));
    }

    #[test]
    fn forms_of_other_sites_are_refused() {
        let host = ("host", "127.0.0.1:7480");
        assert!(is_own(&headers(&[host]), false));
        assert!(is_own(&headers(&[host, ("origin", "http://127.0.0.1:7480")]), false));
        assert!(!is_own(&headers(&[host, ("origin", "http://127.0.0.1:9999")]), false));
        assert!(!is_own(&headers(&[host, ("origin", "null")]), false));
        assert!(!is_own(&headers(&[host, ("sec-fetch-site", "same-site")]), false));
        assert!(!is_own(&headers(&[host, ("origin", "http://127.0.0.1:7480")]), true));
    }

    #[test]
    fn one_is_sent_back_to_this_site_only() {
        for (path, wanted) in [
            ("/volumes", true),
            ("/", true),
            ("//evil.example", false),
            ("/\\evil.example", false),
            ("https://evil.example", false),
            ("/a\r\nset-cookie: x", false),
            ("", false),
        ] {
            assert_eq!(is_here(path), wanted, "{path:?}");
        }
    }

    #[test]
    fn cookies_are_read_among_others() {
        let held = headers(&[("cookie", "a=1; holdfast_session=abc; holdfast_theme=dark")]);
        assert_eq!(cookie(&held, SESSION_COOKIE).as_deref(), Some("abc"));
        assert_eq!(theme(&held), Theme::Dark);
        assert_eq!(cookie(&headers(&[("cookie", "holdfast_session=")]), SESSION_COOKIE), None);
        let set = set_cookie(SESSION_COOKIE, "x", 5, true);
        for word in ["HttpOnly", "SameSite=Strict", "Secure", "Path=/"] {
            assert!(set.contains(word), "{set}");
        }
    }
}
