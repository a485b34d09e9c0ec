//! Volumes attached and detached.

use std::collections::BTreeMap;
use std::time::Duration;

use api::longhorn::{
    AttacherType, AttachmentTicket, Engine, Node, Replica, Volume, VolumeAttachment, VolumeState,
};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use people::or_dash;
use people::volume::state;
use serde_json::json;

use crate::connection::{Connection, explained};
use crate::output::{self, Hint};
use crate::waiting::{Stand, Wait};

/// The ticket by which this command attaches.
const TICKET: &str = "holdfast-cli";

/// Attaches and says where the volume is served.
pub(crate) async fn attach(
    at: &Connection,
    name: &str,
    node: Option<String>,
    timeout: Duration,
) -> anyhow::Result<String> {
    let client = at.client().await?;
    let volume = super::ordinary(&client, name, &format!("attach {name}")).await?;
    let node = match node {
        Some(node) => fitting(&client, name, &volume, node).await?,
        None => choose_node(&client, name, &volume).await?,
    };
    let ticket = AttachmentTicket {
        id: Some(TICKET.to_owned()),
        kind: Some(AttacherType::LonghornApi),
        node_id: Some(node),
        parameters: Some(BTreeMap::from([("disableFrontend".to_owned(), "false".to_owned())])),
        generation: None,
    };
    let attachments: Api<VolumeAttachment> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let patch = json!({ "spec": { "attachmentTickets": { TICKET: ticket } } });
    attachments
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(|error| explained(error, &format!("attach volume {name}")))?;
    let wait = Wait::up_to(timeout);
    wait.until(&attachments, name, ticket_stand).await?;
    let engines: Api<Engine> = Api::namespaced(client, crate::NAMESPACE);
    endpoint(&engines, name, &wait).await
}

fn ticket_stand(attachment: Option<&VolumeAttachment>) -> Stand {
    let Some(attachment) = attachment else { return Stand::Failed("it was removed".to_owned()) };
    let statuses = attachment.status.as_ref();
    let ticket = statuses
        .and_then(|it| it.attachment_ticket_statuses.as_ref())
        .and_then(|it| it.get(TICKET));
    match ticket {
        Some(ticket) if ticket.satisfied => Stand::Done,
        Some(ticket) => {
            let conditions = ticket.conditions.as_deref().unwrap_or_default();
            let mut told = conditions.iter().filter_map(|it| it.message.as_deref());
            Stand::Going(or_dash(told.rfind(|it| !it.is_empty()).unwrap_or("attaching")))
        }
        None => Stand::Going("requested".to_owned()),
    }
}

/// Where the engine of a volume serves it: a moment after it is attached.
async fn endpoint(engines: &Api<Engine>, volume: &str, wait: &Wait) -> anyhow::Result<String> {
    let wanted = ListParams::default().labels(&format!("longhornvolume={volume}"));
    let found = engines.list(&wanted).await.map_err(|error| explained(error, "list engines"))?;
    let engine = found.items.first().map(ResourceExt::name_any);
    let engine = engine.ok_or_else(|| anyhow::anyhow!("volume {volume} has no engine"))?;
    wait.until(engines, &engine, |it| match it.map(served_at) {
        None => Stand::Failed("it was removed".to_owned()),
        Some(None) => Stand::Going("starting".to_owned()),
        Some(Some(_)) => Stand::Done,
    })
    .await?;
    let engine = engines.get(&engine).await.map_err(|error| explained(error, "find the engine"))?;
    served_at(&engine)
        .ok_or_else(|| anyhow::anyhow!("volume {volume} is attached, but not served"))
        .hint(format!("look at it with `holdfast volume show {volume}`"))
}

fn served_at(engine: &Engine) -> Option<String> {
    engine.status.as_ref()?.endpoint.clone().filter(|it| !it.is_empty())
}

/// A node that was named: one that is there, and no other than the one the volume is on already.
async fn fitting(
    client: &kube::Client,
    name: &str,
    volume: &Volume,
    node: String,
) -> anyhow::Result<String> {
    let nodes: Api<Node> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let found = nodes.get(&node).await;
    found.map_err(|error| explained(error, &format!("attach volume {name} to node {node}")))?;
    let here = volume.status.as_ref().and_then(|it| it.current_node_id.clone());
    if let Some(here) = here.filter(|it| !it.is_empty() && *it != node) {
        return Err(anyhow::anyhow!("volume {name} is attached to node {here}"))
            .hint(format!("detach it first with `holdfast volume detach {name} --wait`"));
    }
    Ok(node)
}

/// The node it is on, else one that holds a copy and can serve.
async fn choose_node(client: &kube::Client, name: &str, volume: &Volume) -> anyhow::Result<String> {
    let here = volume.status.as_ref().and_then(|it| it.current_node_id.clone());
    if let Some(here) = here.filter(|it| !it.is_empty()) {
        return Ok(here);
    }
    let nodes: Api<Node> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let nodes = nodes.list(&ListParams::default()).await;
    let nodes = nodes.map_err(|error| explained(error, "list nodes"))?;
    let ready: Vec<_> = nodes.items.iter().filter(|it| people::node::ready(it)).collect();
    let replicas: Api<Replica> = Api::namespaced(client.clone(), crate::NAMESPACE);
    let wanted = ListParams::default().labels(&format!("longhornvolume={name}"));
    let replicas =
        replicas.list(&wanted).await.map_err(|error| explained(error, "list replicas"))?;
    let holds = |node: &str| {
        replicas.items.iter().any(|it| it.spec.instance.node_id.as_deref() == Some(node))
    };
    let chosen = ready.iter().find(|it| holds(&it.name_any())).or(ready.first());
    chosen
        .map(|it| it.name_any())
        .ok_or_else(|| anyhow::anyhow!("no node is ready"))
        .hint("look at them with `holdfast node ls`")
}

pub(super) async fn detach(at: &Connection, name: &str, wait: &Wait) -> anyhow::Result<()> {
    let attachments = at.volumes::<VolumeAttachment>().await?;
    let patch = json!({ "spec": { "attachmentTickets": { TICKET: null } } });
    attachments
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(|error| explained(error, &format!("detach volume {name}")))?;
    let volumes = at.volumes::<Volume>().await?;
    wait.until(&volumes, name, |volume| match volume.map(state) {
        None => Stand::Failed("it was removed".to_owned()),
        Some(VolumeState::Detached) => Stand::Done,
        Some(other) => Stand::Going(or_dash(other.as_str())),
    })
    .await?;
    let end = if wait.wait { "is detached" } else { "is being detached" };
    Ok(output::say(&format!("volume {name} {end}"))?)
}
