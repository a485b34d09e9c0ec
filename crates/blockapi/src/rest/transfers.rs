//! Volumes from one project to another.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq as _;

use super::Service;
use super::connections::connections;
use super::fault::{Fault, listing as list_fault};
use super::input::Fields;
use super::listing::{self, Field, Later, Resource};
use super::request::{Answer, Reply, Request};
use super::views;
use super::volumes::{NO_CLONES, NO_SNAPSHOTS_UNDER_WAY, find as find_volume};
use crate::auth::policy::{Needs, allow};
use crate::model::operation::Operation;
use crate::store::guard::{Change, Set};
use crate::store::limits::Demand;
use crate::store::list::Page;
use crate::store::transfers::Transfer;
use crate::store::volumes::Volume;
use crate::store::{hex, new_id, now};

const RESOURCE: Resource = Resource {
    fields: &[
        ("id", Field::Text("transfers.id")),
        ("name", Field::Text("transfers.display_name")),
        ("display_name", Field::Text("transfers.display_name")),
        ("volume_id", Field::Text("transfers.volume_id")),
        ("created_at", Field::Time("transfers.created_at")),
    ],
    members: &["name", "volume_id"],
    later: Later { pages: 59, ..Later::NOTHING },
};

/// Of a key and its salt.
fn hash(salt: &str, key: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(salt.as_bytes());
    hash.update(b":");
    hash.update(key.as_bytes());
    let bytes: [u8; 32] = hash.finalize().into();
    hex(&bytes)
}

async fn find(service: &Service, request: &Request, id: &str) -> Result<Transfer, Fault> {
    let found = service.store.transfer(id, request.scope()).await?;
    found.ok_or_else(|| Fault::no_such("Transfer", id))
}

pub(super) async fn show(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Reader, "volume:get_transfer")?;
    let transfer = find(service, request, id).await?;
    Ok(Reply::ok(json!({"transfer": views::transfer(request, &transfer)})))
}

/// The page a request asks for, of transfers that the caller may see.
pub(super) fn page(request: &Request) -> Result<Page, Fault> {
    let mut page = RESOURCE.page(request)?;
    listing::isolate(request, &mut page, "volumes.project_id")?;
    Ok(page)
}

pub(super) async fn list(service: &Service, request: &Request, detail: bool) -> Answer {
    allow(&request.caller, Needs::Reader, "volume:get_all_transfers")?;
    let page = page(request)?;
    let (found, count) = service.store.transfers(&page).await.map_err(list_fault("Transfer"))?;
    let items: Vec<Value> = found
        .iter()
        .map(|it| {
            if detail { views::transfer(request, it) } else { views::transfer_summary(request, it) }
        })
        .collect();
    let last = found.last().map(|it| it.id.as_str());
    let next = listing::next_link(request, "os-volume-transfer", &page, items.len(), count, last);
    Ok(Reply::ok(listing::body("transfers", items, ("transfers_links", next), count)))
}

/// A volume does not change hands under a client, who would go on reading and writing it.
async fn refuse_connected(service: &Service, volume: &Volume) -> Result<(), Fault> {
    match connections(service, volume).await?.first() {
        None => Ok(()),
        Some(client) => Err(Fault::invalid_volume(format!(
            "Volume {} is connected ({client}); terminate the connection before it is given away.",
            volume.id
        ))),
    }
}

pub(super) async fn create(service: &Service, request: &Request) -> Answer {
    allow(&request.caller, Needs::Member, "volume:create_transfer")?;
    let fields = Fields::of(request, "transfer", &[])?;
    let mut known = vec!["volume_id", "name"];
    known.extend(request.version.has(55).then_some("no_snapshots"));
    fields.only(&known)?;
    fields.required("volume_id")?;
    let volume_id = fields.uuid("volume_id")?;
    let volume_id = volume_id.ok_or_else(|| Fault::bad("'volume_id' is a required property"))?;
    let volume = find_volume(service, request, &volume_id).await?;
    refuse_connected(service, &volume).await?;
    let key = hex(&rand::random::<[u8; 8]>());
    let salt = hex(&rand::random::<[u8; 4]>());
    let new = Transfer {
        id: new_id(),
        volume_id: volume_id.clone(),
        name: fields.text("name")?,
        hash: hash(&salt, &key),
        salt,
        no_snapshots: fields.truth("no_snapshots")?.unwrap_or(false),
        source_project_id: Some(volume.project_id.clone()),
        destination_project_id: None,
        accepted: false,
        created_at: now(),
    };
    let store = &service.store;
    let mut tx = store.on_volume(&volume_id).await?;
    let change = service
        .when(request, &volume_id, Operation::Transfer)
        .only_if(NO_CLONES)
        .only_if(NO_SNAPSHOTS_UNDER_WAY)
        .set(Set::Status("awaiting-transfer"));
    if !change.apply(store, &mut tx).await? {
        drop(tx);
        let said = |_: &Volume, _: &str| "status must be available".to_owned();
        return Err(service.rejection(request, &volume_id, Operation::Transfer, said).await);
    }
    // One that was left when its volume was reset.
    store.end_transfers_of(&mut tx, &volume_id).await?;
    store.insert_transfer(&mut tx, &new).await?;
    tx.commit().await?;
    let mut view = views::transfer(request, &new);
    if let Some(view) = view.as_object_mut() {
        view.insert("auth_key".to_owned(), json!(key));
    }
    Ok(Reply::accepted(json!({"transfer": view})))
}

pub(super) async fn delete(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Member, "volume:delete_transfer")?;
    let transfer = find(service, request, id).await?;
    let store = &service.store;
    let mut tx = store.on_volume(&transfer.volume_id).await?;
    if !store.end_transfer(&mut tx, id, None).await? {
        return Err(Fault::no_such("Transfer", id));
    }
    Change::of(&transfer.volume_id)
        .while_status("awaiting-transfer")
        .set(Set::Status("available"))
        .apply(store, &mut tx)
        .await?;
    tx.commit().await?;
    Ok(Reply::empty(202))
}

pub(super) async fn accept(service: &Service, request: &Request, id: &str) -> Answer {
    allow(&request.caller, Needs::Member, "volume:accept_transfer")?;
    let fields = Fields::of(request, "accept", &[])?;
    fields.only(&["auth_key"])?;
    let key = fields.text("auth_key")?;
    let key = key.ok_or_else(|| Fault::bad("'auth_key' is a required property"))?;
    let store = &service.store;
    // Of any project: the key is what counts.
    let transfer = store.transfer(id, None).await?;
    let transfer = transfer.ok_or_else(|| Fault::no_such("Transfer", id))?;
    let given = hash(&transfer.salt, &key);
    if !bool::from(given.as_bytes().ct_eq(transfer.hash.as_bytes())) {
        return Err(Fault::bad(format!(
            "Invalid auth key: Attempt to transfer {id} with invalid auth key."
        )));
    }
    let volume = store.volume(&transfer.volume_id, None).await?;
    let volume = volume.ok_or_else(|| Fault::no_such("Volume", &transfer.volume_id))?;
    // Nobody is let in while it waits: whoever is connected now was before.
    refuse_connected(service, &volume).await?;
    let project = request.caller.project_id.as_str();
    let mut tx = store.on_volume(&volume.id).await?;
    let owner = volume.project_id.as_str();
    if owner != project {
        let sql = "SELECT COUNT(*) AS n, CAST(COALESCE(SUM(volume_size), 0) AS BIGINT) AS gib \
             FROM snapshots WHERE volume_id = $1 AND deleted = 0 AND project_id = $2";
        let row = tx.fetch_one(sql, &[volume.id.as_str().into(), owner.into()]).await?;
        let (snapshots, gigabytes) = match row {
            Some(row) if !transfer.no_snapshots => (row.int("n")?, row.int("gib")?),
            _ => (0, 0),
        };
        let demand = Demand {
            volumes: 1,
            snapshots,
            gigabytes: volume.size + gigabytes,
            type_name: volume.volume_type.as_deref(),
            type_id: Some(&volume.volume_type_id),
            ..Demand::default()
        };
        store.afford(&mut tx, project, demand).await??;
    }
    let change = Change::of(&volume.id)
        .while_status("awaiting-transfer")
        .set(Set::Status("available"))
        .column("project_id", project)
        .column("user_id", request.caller.user_id.as_str());
    if !change.apply(store, &mut tx).await? {
        return Err(Fault::invalid_volume("status must be awaiting-transfer"));
    }
    if !transfer.no_snapshots {
        // Not those of a project that had the volume before and kept them.
        let sql = "UPDATE snapshots SET project_id = $2, user_id = $3 WHERE volume_id = $1 \
             AND deleted = 0 AND project_id = $4";
        let user = request.caller.user_id.as_str();
        let values = [volume.id.as_str().into(), project.into(), user.into(), owner.into()];
        tx.execute(sql, &values).await?;
    }
    if !store.end_transfer(&mut tx, id, Some(project)).await? {
        return Err(Fault::no_such("Transfer", id));
    }
    tx.commit().await?;
    // Short at every version: who checks bodies knows no more of it.
    Ok(Reply::accepted(json!({"transfer": views::transfer_summary(request, &transfer)})))
}
