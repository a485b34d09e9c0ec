//! Volumes of the Block Storage API, read over its own protocol.
//!
//! Beside the embedded server it asks nobody who they are and listens on loopback alone. What it
//! tells is shown to those who may list all volumes anyway, and nothing is ever asked of it but that.

use std::time::Duration;

use serde::Deserialize;

/// The release of the protocol that tells both status fields.
const MICROVERSION: &str = "volume 3.72";
const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// Who asks: the service has no users of its own here.
const TOKEN: &str = "dashboard:dashboard";

#[derive(Debug)]
pub(crate) struct Blocks {
    url: String,
    client: reqwest::Client,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Volume {
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    /// In gibibytes.
    pub(crate) size: u64,
    pub(crate) status: String,
    pub(crate) backup_status: Option<String>,
    #[serde(rename = "os-vol-tenant-attr:tenant_id")]
    pub(crate) project: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Backup {
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    pub(crate) volume_id: Option<String>,
    pub(crate) size: Option<u64>,
    pub(crate) status: String,
    pub(crate) fail_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Volumes {
    volumes: Vec<Volume>,
}

#[derive(Debug, Deserialize)]
struct Backups {
    backups: Vec<Backup>,
}

/// Why nothing can be told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BlocksError {
    #[error("the Block Storage API does not answer: {0}")]
    Http(#[from] reqwest::Error),
    #[error("the Block Storage API answers {0}")]
    Status(u16),
    #[error("the Block Storage API tells more than {MAX_BODY_BYTES} bytes")]
    TooLong,
    #[error("the Block Storage API answers something else: {0}")]
    Shape(#[from] serde_json::Error),
}

impl Blocks {
    /// `url` is that of the version, as `http://127.0.0.1:8776/v3`.
    pub(crate) fn new(url: String) -> Result<Self, reqwest::Error> {
        // It is on this machine, which no proxy elsewhere can reach.
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build()?;
        Ok(Self { url, client })
    }

    pub(crate) async fn volumes(&self) -> Result<Vec<Volume>, BlocksError> {
        Ok(serde_json::from_slice::<Volumes>(&self.get("volumes").await?)?.volumes)
    }

    pub(crate) async fn backups(&self) -> Result<Vec<Backup>, BlocksError> {
        Ok(serde_json::from_slice::<Backups>(&self.get("backups").await?)?.backups)
    }

    async fn get(&self, of: &str) -> Result<Vec<u8>, BlocksError> {
        let url = format!("{}/{of}/detail?all_tenants=1&limit=1000", self.url);
        let request = self.client.get(url).header("x-auth-token", TOKEN);
        let mut answer = request.header("openstack-api-version", MICROVERSION).send().await?;
        if !answer.status().is_success() {
            return Err(BlocksError::Status(answer.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_BODY_BYTES {
                return Err(BlocksError::TooLong);
            }
        }
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::process::Command;

    use super::*;

    /// By which the test knows that it was started by itself: variables are those of a whole process.
    const URL: &str = "HOLDFAST_TEST_BLOCKS_URL";

    #[tokio::test]
    async fn the_service_of_this_machine_is_asked_around_a_proxy() {
        if let Ok(url) = std::env::var(URL) {
            let blocks = Blocks::new(url).unwrap();
            assert!(blocks.volumes().await.unwrap().is_empty());
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v3", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            let body = "{\"volumes\":[]}";
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:";
            write!(stream, "{head} {}\r\n\r\n{body}", body.len()).unwrap();
        });
        let own = "blocks::tests::the_service_of_this_machine_is_asked_around_a_proxy";
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", own]).env(URL, url);
        // Nobody listens there.
        again.env("http_proxy", "http://127.0.0.1:9").env("HTTP_PROXY", "http://127.0.0.1:9");
        again.env_remove("no_proxy").env_remove("NO_PROXY").env_remove("REQUEST_METHOD");
        let out = again.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    }
}
