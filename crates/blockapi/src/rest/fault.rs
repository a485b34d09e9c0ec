//! Rejections and failures in the dialect's shapes.

use http::StatusCode;
use serde_json::{Value, json};

use crate::sql::DbError;
use crate::store::limits::Exceeded;
use crate::store::list::ListError;

const INTERNAL: &str =
    "The server has either erred or is incapable of performing the requested operation.";
const UNAVAILABLE: &str =
    "The database does not answer now. Nothing was changed; try again in a few seconds.";
/// Seconds until a client whose request found no database may try again.
const OUTAGE_RETRY_AFTER: &str = "5";

/// What a request ends in that is not done.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: u16,
    pub(crate) message: String,
    pub(crate) retry_after: Option<&'static str>,
    pub(crate) shape: Shape,
}

/// How its body looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `{"badRequest": {"code": 400, "message": "…"}}`
    Named,
    /// As the identity middleware answers.
    Unauthorized,
    /// As the router answers for a path that is nothing.
    NoRoute,
}

impl Fault {
    pub(crate) fn new(code: u16, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None, shape: Shape::Named }
    }

    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    pub(crate) fn invalid_volume(message: impl AsRef<str>) -> Self {
        Self::bad(format!("Invalid volume: {}", message.as_ref()))
    }

    pub(crate) fn invalid_snapshot(message: impl AsRef<str>) -> Self {
        Self::bad(format!("Invalid snapshot: {}", message.as_ref()))
    }

    pub(crate) fn invalid_backup(message: impl AsRef<str>) -> Self {
        Self::bad(format!("Invalid backup: {}", message.as_ref()))
    }

    pub(crate) fn invalid_input(message: impl AsRef<str>) -> Self {
        Self::bad(format!("Invalid input received: {}", message.as_ref()))
    }

    pub(crate) fn malformed() -> Self {
        Self::bad("Malformed request body")
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(404, message)
    }

    pub(crate) fn no_such(kind: &str, id: &str) -> Self {
        Self::not_found(format!("{kind} {id} could not be found."))
    }

    /// What exists only from a later microversion on.
    pub(crate) fn not_yet() -> Self {
        Self::not_found("The resource could not be found.")
    }

    pub(crate) fn no_route() -> Self {
        Self { shape: Shape::NoRoute, ..Self::not_found("The resource could not be found.") }
    }

    pub(crate) fn forbidden(rule: &str) -> Self {
        Self::new(403, format!("Policy doesn't allow {rule} to be performed."))
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "The request you have made requires authentication.";
        Self { shape: Shape::Unauthorized, ..Self::new(401, message) }
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(409, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { retry_after: Some(OUTAGE_RETRY_AFTER), ..Self::new(503, message) }
    }

    pub(crate) fn internal() -> Self {
        Self::new(500, INTERNAL)
    }

    fn name(&self) -> &'static str {
        match self.code {
            400 => "badRequest",
            401 => "unauthorized",
            403 => "forbidden",
            404 => "itemNotFound",
            405 => "badMethod",
            409 => "conflictingRequest",
            413 => "overLimit",
            415 => "badMediaType",
            501 => "notImplemented",
            503 => "serviceUnavailable",
            _ => "computeFault",
        }
    }

    pub(crate) fn body(&self) -> Value {
        match self.shape {
            Shape::Unauthorized => json!({
                "error": {"code": self.code, "title": "Unauthorized", "message": self.message}
            }),
            Shape::NoRoute => json!({
                "message": format!("{}<br /><br />\n\n\n", self.message),
                "code": "404 Not Found",
                "title": "Not Found"
            }),
            Shape::Named => {
                let mut inner = json!({"code": self.code, "message": self.message});
                if let (413, Some(after), Some(inner)) =
                    (self.code, self.retry_after, inner.as_object_mut())
                {
                    inner.insert("retryAfter".to_owned(), after.into());
                }
                json!({ self.name(): inner })
            }
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl From<DbError> for Fault {
    fn from(error: DbError) -> Self {
        // The only place this is logged, with its causes; the client sees no internals.
        if error.is_outage() {
            tracing::warn!(error = %telemetry::Chain(&error), "a request found no database");
            return Self::unavailable(UNAVAILABLE);
        }
        tracing::error!(error = %telemetry::Chain(&error), "a request failed in the database");
        Self::internal()
    }
}

/// A list whose marker is of no row: the fault names what the list is of.
pub(crate) fn listing(kind: &'static str) -> impl Fn(ListError) -> Fault {
    move |error| match error {
        ListError::Marker(id) => Fault::no_such(kind, &id),
        ListError::Db(error) => error.into(),
    }
}

impl From<Exceeded> for Fault {
    fn from(it: Exceeded) -> Self {
        let Exceeded { resource, limit, used, asked } = it;
        let message = if resource == "per_volume_gigabytes" {
            format!(
                "VolumeSizeExceedsLimit: Requested volume size {asked}G is larger than maximum \
                 allowed limit {limit}G."
            )
        } else if resource.starts_with("volumes") {
            format!(
                "VolumeLimitExceeded: Maximum number of volumes allowed ({limit}) exceeded for quota \
                 '{resource}'."
            )
        } else if resource.starts_with("snapshots") {
            format!("SnapshotLimitExceeded: Maximum number of snapshots allowed ({limit}) exceeded")
        } else if resource == "backups" {
            format!("BackupLimitExceeded: Maximum number of backups allowed ({limit}) exceeded")
        } else if resource == "backup_gigabytes" {
            format!(
                "VolumeBackupSizeExceedsAvailableQuota: Requested backup exceeds allowed Backup \
                 gigabytes quota. Requested {asked}G, quota is {limit}G and {used}G has been consumed."
            )
        } else {
            format!(
                "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed \
                 {resource} quota. Requested {asked}G, quota is {limit}G and {used}G has been consumed."
            )
        };
        Self { retry_after: Some("0"), ..Self::new(413, message) }
    }
}
