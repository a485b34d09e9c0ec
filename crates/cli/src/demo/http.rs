//! Small documents over HTTP, from services on this machine.

use std::time::Duration;

use anyhow::Context as _;
use reqwest::{Client, Method};
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_BODY_BYTES: usize = 8 << 20;

/// Asks services of this machine, around any proxy.
pub(super) fn client() -> anyhow::Result<Client> {
    Client::builder().no_proxy().timeout(TIMEOUT).build().context("cannot make a client of HTTP")
}

/// An answer, be it good or not.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Answer {
    pub(super) fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// What the service says of its rejection, wherever it says so.
    pub(super) fn why(&self) -> String {
        let inner = self.body.as_object().and_then(|it| it.values().next());
        let told = [self.body.get("message"), inner.and_then(|it| it.get("message"))];
        let told = told.into_iter().flatten().find_map(Value::as_str);
        told.map_or_else(|| format!("status {}", self.status), str::to_owned)
    }
}

/// What stands at a place of a document; nothing where there is none.
pub(super) fn at<'a>(document: &'a Value, place: &str) -> &'a Value {
    document.pointer(place).unwrap_or(&Value::Null)
}

pub(super) async fn ask(
    client: &Client,
    method: Method,
    url: &str,
    headers: &[(&'static str, &str)],
    body: Option<&Value>,
) -> anyhow::Result<Answer> {
    let mut request = client.request(method, url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    let mut answer = request.send().await.with_context(|| format!("{url} does not answer"))?;
    let status = answer.status().as_u16();
    let mut text = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        text.extend_from_slice(&chunk);
        anyhow::ensure!(text.len() <= MAX_BODY_BYTES, "{url} answers more than anybody asked for");
    }
    let body = if text.is_empty() { Value::Null } else { serde_json::from_slice(&text)? };
    Ok(Answer { status, body })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rejection_is_told_in_the_words_of_the_service() {
        let why = |body| Answer { status: 400, body }.why();
        assert_eq!(why(json!({"badRequest": {"code": 400, "message": "too small"}})), "too small");
        assert_eq!(why(json!({"message": "etcd is away", "code": 14})), "etcd is away");
        assert_eq!(why(Value::Null), "status 400");
    }
}
