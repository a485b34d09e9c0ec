//! Connections of clients to volumes: making them, taking them down, and who has one.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Service;
use super::fault::Fault;
use super::input::Fields;
use super::request::{Answer, Reply, Request};
use super::volumes::find;
use crate::model::operation::Operation;
use crate::store::guard::{Change, Set};
use crate::store::volumes::Volume;
use crate::store::work::Verb;
use crate::worker::backend::{BackendError, Progress};

/// How long a connection may take to be made while a client waits.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(50);
const CONNECT_POLL: Duration = Duration::from_millis(200);
const HOST: &str = "host-";

/// Takes a connection down, now or, if that cannot be, later.
pub(super) async fn disconnect(service: &Service, volume: &Volume, attachment: &str) {
    let Err(error) = service.backend.disconnect(volume.backend_name(), attachment).await else {
        return;
    };
    tracing::warn!(volume = volume.id, attachment, %error, "a connection is not taken down yet");
    let detail = json!({"volume": volume.backend_name(), "name": attachment});
    // Of one host there may be connections to many volumes.
    let key = format!("{}/{attachment}", volume.backend_name());
    let asked = async {
        let mut tx = service.store.db.begin().await?;
        service.store.ask(&mut tx, Verb::Disconnect, &key, &detail, "").await?;
        tx.commit().await
    };
    if let Err(error) = asked.await {
        tracing::warn!(attachment, error = %telemetry::Chain(&error), "nor remembered");
    }
}

/// Who is connected to a volume, for those who must know.
pub(super) async fn connections(service: &Service, volume: &Volume) -> Result<Vec<String>, Fault> {
    let known = service.backend.connections(volume.backend_name()).await;
    known.map_err(|error| {
        tracing::warn!(volume = volume.id, %error, "connections cannot be looked up");
        Fault::unavailable("The volume service does not answer now; nothing was changed.")
    })
}

/// Takes down what hosts have without an attachment: one host's, or all.
pub(super) async fn disconnect_hosts(
    service: &Service,
    volume: &Volume,
    connector: Option<&Value>,
) -> Result<(), Fault> {
    let names = if let Some(connector @ Value::Object(_)) = connector {
        vec![connection_name(connector)]
    } else {
        connections(service, volume).await?
    };
    for name in names.iter().filter(|it| it.starts_with(HOST)) {
        disconnect(service, volume, name).await;
    }
    Ok(())
}

/// What a client needs to use a volume, within the time it can be made to wait.
pub(super) async fn connect(
    service: &Service,
    volume: &Volume,
    attachment: &str,
    connector: &Value,
) -> Result<Value, Fault> {
    let began = Instant::now();
    loop {
        let outcome = service.backend.connect(volume.backend_name(), attachment, connector).await;
        match outcome {
            Ok(Progress::Done(connection)) => {
                return with_limits(service, volume, connection).await;
            }
            Ok(Progress::Failed(why)) | Err(BackendError::Refused(why)) => {
                return Err(Fault::invalid_volume(format!(
                    "Volume {} cannot be connected: {why}",
                    volume.id
                )));
            }
            Ok(Progress::Running) | Err(BackendError::Unreachable(_))
                if began.elapsed() < CONNECT_TIMEOUT =>
            {
                tokio::time::sleep(CONNECT_POLL).await;
            }
            Ok(Progress::Running) => {
                return Err(Fault::unavailable(format!(
                    "Volume {} is not ready to be connected yet; try again.",
                    volume.id
                )));
            }
            Err(BackendError::Unreachable(why)) => {
                tracing::warn!(volume = volume.id, why, "a volume cannot be connected");
                return Err(Fault::unavailable(
                    "The volume service does not answer now; try again in a few seconds.",
                ));
            }
        }
    }
}

/// The limits that whoever uses a volume is to keep go with its address.
async fn with_limits(
    service: &Service,
    volume: &Volume,
    mut connection: Value,
) -> Result<Value, Fault> {
    let limits = service.store.front_end_qos(&volume.volume_type_id).await?;
    if let (Some((_, specs)), Some(connection)) = (limits, connection.as_object_mut()) {
        connection.insert("qos_specs".to_owned(), json!(specs));
    }
    Ok(connection)
}

pub(super) async fn initialize(
    service: &Service,
    request: &Request,
    id: &str,
    args: Value,
) -> Answer {
    let fields = Fields::from("os-initialize_connection", args)?;
    let connector = fields.required("connector")?.clone();
    if !connector.is_object() {
        return Err(Fault::bad("Must specify 'connector' as an object."));
    }
    let volume = find(service, request, id).await?;
    if !service.when(request, id, Operation::InitializeConnection).run(&service.store).await? {
        let said = |_: &Volume, _: &str| {
            "The volume connection cannot be initialized in maintenance mode.".to_owned()
        };
        return Err(service.rejection(request, id, Operation::InitializeConnection, said).await);
    }
    let name = connection_name(&connector);
    let mut connection = connect(service, &volume, &name, &connector).await?;
    // That took a while: what is being replaced by now, or was, must not be used.
    let still = service.when_behind(request, &volume, Operation::InitializeConnection);
    if !still.run(&service.store).await? {
        disconnect(service, &volume, &name).await;
        let said = |_: &Volume, seen: &str| format!("Volume {id} became {seen} meanwhile.");
        return Err(service.rejection(request, id, Operation::InitializeConnection, said).await);
    }
    let volume = match find(service, request, id).await {
        Ok(volume) => volume,
        Err(fault) => {
            disconnect(service, &volume, &name).await;
            return Err(fault);
        }
    };
    let attached = volume.admin_metadata.get("attached_mode").map(String::as_str);
    put_mode(&mut connection, access_mode(volume.is_readonly(), [attached, None]));
    let kind = connection.get("driver_volume_type").cloned().unwrap_or_else(|| json!("nbd"));
    Ok(Reply::ok(json!({"connection_info": {
        "driver_volume_type": kind, "data": connection, "enforce_multipath": false,
    }})))
}

/// How a client may use a volume: what is declared read-only is written by nobody, whatever was asked
/// for; and whoever asked to read only does no more.
pub(super) fn access_mode(is_readonly: bool, asked: [Option<&str>; 2]) -> &'static str {
    if is_readonly || asked.contains(&Some("ro")) { "ro" } else { "rw" }
}

pub(super) fn put_mode(connection: &mut Value, mode: &str) {
    if let Some(connection) = connection.as_object_mut() {
        connection.insert("access_mode".to_owned(), json!(mode));
    }
}

/// A connection without an attachment is told apart by the host that asked for it.
fn connection_name(connector: &Value) -> String {
    let host = connector.get("host").and_then(Value::as_str).unwrap_or("unknown");
    let clean = |it: char| if it.is_ascii_alphanumeric() || it == '-' { it } else { '-' };
    let host: String = host.chars().take(60).map(clean).collect();
    format!("{HOST}{}", host.to_lowercase())
}

pub(super) async fn terminate(
    service: &Service,
    request: &Request,
    id: &str,
    args: Value,
) -> Answer {
    let fields = Fields::from("os-terminate_connection", args)?;
    let connector = fields.required("connector")?.clone();
    let volume = find(service, request, id).await?;
    disconnect(service, &volume, &connection_name(&connector)).await;
    let change = Change::of(id).set(Set::StatusFrom("attaching"));
    Service::own(request, change).run(&service.store).await?;
    Ok(Reply::empty(202))
}
