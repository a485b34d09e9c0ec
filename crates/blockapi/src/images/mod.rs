//! Images of a Glance: looked at and made for callers with their own tokens, read and written for
//! the worker with the service's. Only raw images: their bytes are those of the volume.

mod copy;
mod disk;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use serde_json::{Value, json};

pub(crate) use copy::{Claim, Copies, CopyError, State, fill, upload};
pub(crate) use disk::Place;

use crate::auth::Identity;

/// For short questions.
const TIMEOUT: Duration = Duration::from_secs(20);
/// A stream of data that stands still for longer is cut off.
const STILL: Duration = Duration::from_mins(1);
/// The longest description of an image that is read.
const DESCRIPTION_BYTES: usize = 1 << 20;
/// The format whose bytes are those of a volume.
pub(crate) const RAW: &str = "raw";

/// Why something is not done about an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImageError {
    /// It is not there, or not for this caller.
    #[error("there is no image {0}, or it may not be used")]
    NotFound(String),
    #[error("the image service refused it: {0}")]
    Refused(String),
    #[error("the image service did not accept the token")]
    Unauthorized,
    /// Trying again may help.
    #[error("the image service does not answer: {0}")]
    Unreachable(String),
}

/// What is known of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) size: i64,
    pub(crate) min_disk: i64,
    pub(crate) disk_format: String,
    /// SHA-512 or SHA-256 of the data, with the name of the algorithm.
    pub(crate) hash: Option<(String, String)>,
    /// What volumes made from it keep of it.
    pub(crate) kept: BTreeMap<String, String>,
}

/// Keys of an image that volumes keep, beside its own properties.
const KEPT: [&str; 6] =
    ["checksum", "container_format", "disk_format", "min_disk", "min_ram", "size"];
/// Keys that are of the image service and mean nothing on a volume.
const NOT_KEPT: [&str; 20] = [
    "id",
    "name",
    "status",
    "visibility",
    "protected",
    "owner",
    "created_at",
    "updated_at",
    "tags",
    "self",
    "file",
    "schema",
    "direct_url",
    "locations",
    "virtual_size",
    "os_hidden",
    "os_hash_algo",
    "os_hash_value",
    "stores",
    "os_glance_importing_to_stores",
];
const VALUE_CHARS: usize = 255;

impl Image {
    fn of(body: &Value) -> Option<Self> {
        let text = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_owned);
        let number = |key: &str| body.get(key).and_then(Value::as_i64).unwrap_or_default();
        let (id, name) = (text("id")?, text("name").unwrap_or_default());
        let mut kept = BTreeMap::from([
            ("image_id".to_owned(), id.clone()),
            ("image_name".to_owned(), name.clone()),
        ]);
        for (key, value) in body.as_object()? {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => continue,
            };
            let is_kept = KEPT.contains(&key.as_str()) || !NOT_KEPT.contains(&key.as_str());
            let fits = key.chars().count() <= VALUE_CHARS && value.chars().count() <= VALUE_CHARS;
            if is_kept && fits {
                kept.insert(key.clone(), value);
            }
        }
        Some(Self {
            id,
            name,
            status: text("status").unwrap_or_default(),
            size: number("size"),
            min_disk: number("min_disk"),
            disk_format: text("disk_format").unwrap_or_default(),
            hash: text("os_hash_algo").zip(text("os_hash_value")),
            kept,
        })
    }
}

/// An image that is to be.
#[derive(Debug, Clone)]
pub(crate) struct NewImage {
    pub(crate) name: String,
    pub(crate) container_format: String,
    pub(crate) disk_format: String,
    pub(crate) visibility: Option<String>,
    pub(crate) protected: Option<bool>,
    pub(crate) min_disk: i64,
}

/// A Glance.
#[derive(Debug, Clone)]
pub struct Glance {
    url: String,
    http: reqwest::Client,
}

fn unreachable(error: impl std::error::Error) -> ImageError {
    ImageError::Unreachable(telemetry::Chain(&error).to_string())
}

impl Glance {
    /// By its address, as in <http://127.0.0.1:9292>.
    pub fn new(url: &str) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            .connect_timeout(TIMEOUT)
            .read_timeout(STILL)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let url = url.trim_end_matches('/').trim_end_matches("/v2").to_owned();
        Ok(Self { url, http })
    }

    fn request(
        &self,
        method: http::Method,
        token: Option<&str>,
        path: &str,
    ) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}/v2/images{path}", self.url));
        match token {
            Some(token) => request.header("x-auth-token", token),
            None => request,
        }
    }

    /// Sends a request; an answer that is no success becomes an error.
    async fn send(
        &self,
        request: reqwest::RequestBuilder,
        id: &str,
    ) -> Result<reqwest::Response, ImageError> {
        let answer = request.send().await.map_err(unreachable)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let said = body_of(answer).await.unwrap_or_default();
        let said = String::from_utf8_lossy(&said).chars().take(200).collect::<String>();
        Err(match status.as_u16() {
            401 => ImageError::Unauthorized,
            403 | 404 => ImageError::NotFound(id.to_owned()),
            408 | 429 | 500.. => ImageError::Unreachable(format!("{status} {said}")),
            _ => ImageError::Refused(format!("{status} {said}")),
        })
    }

    async fn described(
        &self,
        request: reqwest::RequestBuilder,
        id: &str,
    ) -> Result<Image, ImageError> {
        let answer = self.send(request.timeout(TIMEOUT), id).await?;
        let body = body_of(answer).await?;
        let body = serde_json::from_slice(&body).map_err(unreachable)?;
        Image::of(&body).ok_or_else(|| ImageError::Unreachable("its answer is no image".to_owned()))
    }

    pub(crate) async fn show(&self, token: Option<&str>, id: &str) -> Result<Image, ImageError> {
        self.described(self.request(http::Method::GET, token, &format!("/{id}")), id).await
    }

    /// Makes an image that has no data yet.
    pub(crate) async fn create(
        &self,
        token: Option<&str>,
        new: &NewImage,
    ) -> Result<Image, ImageError> {
        let mut body = json!({
            "name": new.name, "container_format": new.container_format,
            "disk_format": new.disk_format, "min_disk": new.min_disk,
        });
        if let Some(body) = body.as_object_mut() {
            if let Some(visibility) = &new.visibility {
                body.insert("visibility".to_owned(), json!(visibility));
            }
            if let Some(protected) = new.protected {
                body.insert("protected".to_owned(), json!(protected));
            }
        }
        let request = self.request(http::Method::POST, token, "");
        let request = request.header("content-type", "application/json").body(body.to_string());
        self.described(request, &new.name).await
    }

    pub(crate) async fn delete(&self, token: Option<&str>, id: &str) -> Result<(), ImageError> {
        let request = self.request(http::Method::DELETE, token, &format!("/{id}"));
        self.send(request.timeout(TIMEOUT), id).await.map(drop)
    }

    /// The data of an image, piece by piece.
    async fn read(
        &self,
        token: Option<&str>,
        id: &str,
    ) -> Result<impl Stream<Item = Result<bytes::Bytes, ImageError>> + Send + use<>, ImageError>
    {
        let request = self.request(http::Method::GET, token, &format!("/{id}/file"));
        Ok(self.send(request, id).await?.bytes_stream().map_err(unreachable))
    }

    /// Gives an image its data.
    async fn write(
        &self,
        token: Option<&str>,
        id: &str,
        size: u64,
        data: impl Stream<Item = std::io::Result<bytes::Bytes>> + Send + 'static,
    ) -> Result<(), ImageError> {
        let request = self.request(http::Method::PUT, token, &format!("/{id}/file"));
        let request = request
            .header("content-type", "application/octet-stream")
            .header("content-length", size)
            .body(reqwest::Body::wrap_stream(data));
        self.send(request, id).await.map(drop)
    }
}

/// A short answer.
async fn body_of(answer: reqwest::Response) -> Result<Vec<u8>, ImageError> {
    let mut body = Vec::new();
    let mut pieces = answer.bytes_stream();
    while let Some(piece) = pieces.next().await {
        body.extend_from_slice(&piece.map_err(unreachable)?);
        if body.len() > DESCRIPTION_BYTES {
            return Err(ImageError::Unreachable("its answer is too long".to_owned()));
        }
    }
    Ok(body)
}

/// A Glance as the service itself uses it.
#[derive(Debug, Clone)]
pub(crate) struct Images {
    pub(crate) glance: Glance,
    pub(crate) identity: Arc<dyn Identity>,
}

/// Asks with the service's own token, and once more with a new one if that has ended.
macro_rules! as_service {
    ($images:expr, $token:ident => $ask:expr) => {{
        let own = $images.token(None).await?;
        let $token = own.as_deref();
        match $ask {
            Err($crate::images::ImageError::Unauthorized) if own.is_some() => {
                let new = $images.token(own.as_deref()).await?;
                let $token = new.as_deref();
                $ask
            }
            other => other,
        }
    }};
}
pub(crate) use as_service;

impl Images {
    async fn token(&self, refused: Option<&str>) -> Result<Option<String>, ImageError> {
        self.identity.service_token(refused).await.map_err(unreachable)
    }

    pub(crate) async fn show(&self, id: &str) -> Result<Image, ImageError> {
        as_service!(self, token => self.glance.show(token, id).await)
    }

    pub(crate) async fn delete(&self, id: &str) -> Result<(), ImageError> {
        as_service!(self, token => self.glance.delete(token, id).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_volume_keeps_of_its_image() {
        let image = Image::of(&json!({
            "id": "i1", "name": "cirros", "status": "active", "size": 1024, "min_disk": 2,
            "min_ram": 0, "disk_format": "raw", "container_format": "bare", "checksum": "c",
            "owner": "p", "visibility": "public", "tags": ["x"], "protected": false,
            "os_hash_algo": "sha512", "os_hash_value": "ff", "hw_disk_bus": "virtio",
            "long": "x".repeat(300), "virtual_size": null,
        }))
        .unwrap();
        assert_eq!((image.size, image.min_disk), (1024, 2));
        assert_eq!(image.hash, Some(("sha512".to_owned(), "ff".to_owned())));
        let kept: Vec<&str> = image.kept.keys().map(String::as_str).collect();
        let expected = [
            "checksum",
            "container_format",
            "disk_format",
            "hw_disk_bus",
            "image_id",
            "image_name",
            "min_disk",
            "min_ram",
            "size",
        ];
        assert_eq!(kept, expected);
    }
}
