//! The dashboard over HTTP, with the real API server behind it: who gets in, what a caller without
//! rights sees, which forms are taken, and that what lives by a session ends with it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

use std::sync::Arc;
use std::time::Duration;

use apiserver::auth::tokens::StaticTokens;
use apiserver::{ApiServer, Options as ServerOptions};
use dashboard::{Dashboard, Options, Reach};
use reqwest::{Client, Response, StatusCode};
use secrecy::SecretString;
use tasks::Tasks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const TOKENS: &str = "admin-token,admin,1,\"system:masters\"\nbob-token,bob,2\n";
const TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug)]
struct Embedded(ApiServer);

impl Reach for Embedded {
    fn client(&self, token: &SecretString) -> Option<kube::Client> {
        let service = dashboard::bearer(self.0.caller_service(), token)?;
        Some(kube::Client::new(service, "default"))
    }
}

struct Site {
    url: String,
    browser: Client,
    tasks: Tasks,
    _dir: tempfile::TempDir,
}

impl Site {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tasks = Tasks::new();
        let mut metrics = telemetry::Registry::new("test");
        let data_dir = dir.path().join("data");
        durable_dir(&data_dir);
        let options = ServerOptions {
            data_dir,
            listen: ([127, 0, 0, 1], 0).into(),
            tls_sans: Vec::new(),
            tokens: StaticTokens::parse(TOKENS).unwrap(),
            audit: false,
            definitions: api::crds(),
            services: apiserver::ServiceRanges {
                addresses: "10.96.0.0/12".parse().unwrap(),
                node_ports: 30000..=32767,
            },
            controllers: Vec::new(),
            near: Vec::new(),
        };
        let server = ApiServer::start(options, tasks.clone(), &mut metrics).await.unwrap();
        let options = Options {
            listen: ([127, 0, 0, 1], 0).into(),
            tls: None,
            reach: Arc::new(Embedded(server)),
            blocks: None,
        };
        let pages = Dashboard::start(options, &tasks).await.unwrap();
        let policy = reqwest::redirect::Policy::none();
        let browser = Client::builder().redirect(policy).timeout(TIMEOUT).build().unwrap();
        Self { url: pages.url().to_owned(), browser, tasks, _dir: dir }
    }

    async fn get(&self, path: &str, cookie: &str) -> Response {
        let request = self.browser.get(format!("{}{path}", self.url)).header("cookie", cookie);
        request.send().await.unwrap()
    }

    async fn post(&self, path: &str, cookie: &str, form: &str) -> Response {
        let request = self.browser.post(format!("{}{path}", self.url)).header("cookie", cookie);
        request.body(form.to_owned()).send().await.unwrap()
    }

    /// The cookie of a new session, and where it leads.
    async fn sign_in(&self, token: &str) -> (String, String) {
        let answer = self.post("/sign-in", "", &format!("token={token}&namespace=team-b")).await;
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        let set = header("set-cookie");
        assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
        (set.split(';').next().unwrap().to_owned(), header("location"))
    }

    async fn stop(self) {
        let _ = self.tasks.stop(TIMEOUT).await;
    }
}

/// A directory that belongs to nobody else, as the server wants it.
fn durable_dir(path: &std::path::Path) {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().mode(0o700).create(path).unwrap();
}

fn proof(page: &str) -> String {
    let from = page.find("name=\"csrf\" value=\"").unwrap() + "name=\"csrf\" value=\"".len();
    page[from..].split('"').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_has_the_rights_of_its_token_and_ends_with_it() {
    let site = Site::start().await;
    // Nobody gets in without a token that the API takes.
    assert_eq!(site.get("/volumes", "").await.headers()["location"], "/sign-in");
    assert_eq!(site.get("/live?page=volumes", "").await.status(), StatusCode::UNAUTHORIZED);
    let refused = site.post("/sign-in", "", "token=nonsense").await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert!(!refused.text().await.unwrap().contains("nonsense"));

    // Bob has no rights, and his session has none either.
    let (bob, first) = site.sign_in("bob-token").await;
    assert_eq!(first, "/tenants");
    let page = site.get("/tenants", &bob).await.text().await.unwrap();
    assert!(page.contains("You may not list nonadminbackups"), "{page}");
    let form = format!("csrf={}&name=data&size=2MiB&replicas=1", proof(&page));
    site.post("/volumes", &bob, &form).await;
    let page = site.get("/tenants", &bob).await.text().await.unwrap();
    assert!(page.contains("volumes.longhorn.io is forbidden"), "{page}");
    assert_eq!(site.get("/volumes/data", &bob).await.status(), StatusCode::FORBIDDEN);

    // The administrator makes what Bob could not; a form of Bob's does nothing in that session.
    let (admin, first) = site.sign_in("admin-token").await;
    assert_eq!(first, "/");
    assert_eq!(site.post("/volumes", &admin, &form).await.status(), StatusCode::FORBIDDEN);
    let page = site.get("/volumes", &admin).await.text().await.unwrap();
    let own = proof(&page);
    let form = format!("csrf={own}&name=data&size=2MiB&replicas=1");
    let made = site.post("/volumes", &admin, &form).await;
    // The namespace is made by controllers, and none run here.
    assert_eq!(made.status(), StatusCode::SEE_OTHER);
    let page = site.get("/volumes", &admin).await.text().await.unwrap();
    assert!(
        page.contains("namespaces &#34;longhorn-system&#34; not found") || page.contains(">data<")
    );

    // A page that listens hears the end of its session.
    let mut live = site.get("/live?page=volumes", &admin).await;
    assert_eq!(live.status(), StatusCode::OK);
    site.post("/sign-out", &admin, &format!("csrf={own}")).await;
    let mut heard = String::new();
    while let Some(chunk) = live.chunk().await.unwrap() {
        heard += &String::from_utf8_lossy(&chunk);
    }
    assert!(heard.contains("event: over"), "{heard}");
    assert_eq!(site.get("/", &admin).await.headers()["location"], "/sign-in");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_session_listens_to_a_few_pages_only() {
    let site = Site::start().await;
    let (admin, _) = site.sign_in("admin-token").await;
    let mut open = Vec::new();
    for _ in 0..8 {
        let live = site.get("/live?page=backups", &admin).await;
        assert_eq!(live.status(), StatusCode::OK);
        open.push(live);
    }
    let more = site.get("/live?page=backups", &admin).await;
    assert_eq!(more.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(site.get("/live?page=nothing", &admin).await.status(), StatusCode::NOT_FOUND);
    drop(open);
    site.stop().await;
}

#[tokio::test]
async fn tokens_do_not_travel_in_the_clear() {
    #[derive(Debug)]
    struct Nowhere;
    impl Reach for Nowhere {
        fn client(&self, _: &SecretString) -> Option<kube::Client> {
            None
        }
    }
    let options = Options {
        listen: ([0, 0, 0, 0], 0).into(),
        tls: None,
        reach: Arc::new(Nowhere),
        blocks: None,
    };
    let refused = Dashboard::start(options, &Tasks::new()).await.unwrap_err();
    assert!(refused.to_string().contains("in the clear"), "{refused}");
}

/// Its connection is one of a limited number.
#[tokio::test]
async fn a_form_that_does_not_come_is_not_waited_for() {
    let site = Site::start().await;
    let address = site.url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head =
        format!("POST /sign-in HTTP/1.1\r\nHost: {address}\r\nContent-Length: 60000\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    let read = tokio::time::timeout(TIMEOUT, stream.read_exact(&mut answer)).await;
    read.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    site.stop().await;
}

/// What a program of another user of this machine gets for a request.
fn ask_as_a_stranger(port: u16, request: &str) -> Option<String> {
    use std::os::unix::process::CommandExt as _;
    const NOBODY: u32 = 65534;
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf '{request}' >&3; cat <&3");
    let asked =
        std::process::Command::new("bash").arg("-c").arg(script).uid(NOBODY).output().ok()?;
    Some(String::from_utf8_lossy(&asked.stdout).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cookie_that_another_user_of_the_machine_got_hold_of_opens_nothing() {
    let site = Site::start().await;
    let (admin, _) = site.sign_in("admin-token").await;
    let port = site.url.rsplit(':').next().and_then(|it| it.parse().ok()).unwrap();
    let request = format!(
        "GET /volumes HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nCookie: {admin}\\r\\nConnection: close\\r\\n\\r\\n"
    );
    let asked = tokio::task::spawn_blocking(move || ask_as_a_stranger(port, &request)).await;
    match asked.unwrap() {
        Some(answer) => {
            assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
            assert!(answer.to_lowercase().contains("location: /sign-in"), "{answer}");
        }
        None => println!("skipped: only root can start a program as another user"),
    }
    assert_eq!(site.get("/volumes", &admin).await.status(), StatusCode::OK);
    site.stop().await;
}
