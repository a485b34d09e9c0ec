//! Passing a request on to the sidecar of the leading member, which alone takes snapshots.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, Uri};
use tasks::Tasks;
use url::Url;

use super::client::{self, RequestError, Trust};
use crate::etcd::{Etcd, EtcdError};

/// For questions that are answered at once.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    #[error("the own member does not tell who leads")]
    Etcd(#[source] EtcdError),
    #[error("no member leads")]
    NoLeader,
    #[error("this member leads")]
    Own,
    #[error("the leading member has no client URL")]
    NoUrl,
    #[error("the sidecar of the leading member cannot be asked")]
    Request(#[source] RequestError),
    #[error("the sidecar of the leading member does not lead")]
    NotHealthy,
}

/// What is needed to find and ask another sidecar.
#[derive(Debug, Clone)]
pub struct Forwarder {
    pub etcd: Etcd,
    /// All sidecars listen on the same one.
    pub port: u16,
    /// Authorities of their certificates.
    pub authorities: String,
    /// A snapshot is answered when it is saved.
    pub timeout: Duration,
    pub tasks: Tasks,
}

impl Forwarder {
    pub async fn forward(
        &self,
        method: Method,
        uri: &Uri,
    ) -> Result<Response<Bytes>, ForwardError> {
        let leader = self.leader().await?;
        let trust = Trust::of(&self.authorities).map_err(ForwardError::Request)?;
        let health = self.ask(Method::GET, &leader, "/healthz", &trust, LOOK_TIMEOUT).await?;
        if health.body().as_ref() != super::HEALTHY.as_bytes() {
            return Err(ForwardError::NotHealthy);
        }
        let path = uri.path_and_query().map_or("/", |it| it.as_str());
        self.ask(method, &leader, path, &trust, self.timeout).await
    }

    async fn ask(
        &self,
        method: Method,
        leader: &Url,
        path: &str,
        trust: &Trust,
        timeout: Duration,
    ) -> Result<Response<Bytes>, ForwardError> {
        let target = leader.join(path).map_err(|_| ForwardError::NoUrl)?;
        // A path cannot lead to another host.
        if target.origin() != leader.origin() {
            return Err(ForwardError::NoUrl);
        }
        client::request(method, &target, trust, timeout, &self.tasks)
            .await
            .map_err(ForwardError::Request)
    }

    /// Where the leading sidecar listens: on the host of its etcd, on our own port.
    async fn leader(&self) -> Result<Url, ForwardError> {
        let status = self.etcd.status(LOOK_TIMEOUT).await.map_err(ForwardError::Etcd)?;
        if status.leader == 0 {
            return Err(ForwardError::NoLeader);
        }
        if status.header.is_some_and(|header| header.member_id == status.leader) {
            return Err(ForwardError::Own);
        }
        let members = self.etcd.members(LOOK_TIMEOUT).await.map_err(ForwardError::Etcd)?;
        let leader = members.iter().find(|member| member.id == status.leader);
        let url = leader.and_then(|member| member.client_ur_ls.first());
        let url = url.ok_or(ForwardError::NoUrl)?;
        target(url, self.port).ok_or(ForwardError::NoUrl)
    }
}

fn target(client_url: &str, port: u16) -> Option<Url> {
    let mut url = Url::parse(client_url).ok()?;
    url.host_str()?;
    url.set_port(Some(port)).ok()?;
    url.set_path("/");
    url.set_query(None);
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sidecar_is_beside_its_etcd() {
        let target = |url| target(url, 8080).map(String::from);
        assert_eq!(target("https://a.b:2379").as_deref(), Some("https://a.b:8080/"));
        assert_eq!(target("http://[::1]:2379/x?y").as_deref(), Some("http://[::1]:8080/"));
        assert_eq!(target("unix:///x"), None);
        assert_eq!(target("nonsense"), None);
    }
}
