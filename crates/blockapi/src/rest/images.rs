//! Volumes from images and images from volumes, where an image service is configured.

use serde_json::{Value, json};

use super::Service;
use super::connections::connections;
use super::fault::Fault;
use super::input::{self, Fields};
use super::request::{Answer, Reply, Request};
use super::volumes::find;
use crate::images::{Image, ImageError, Images, NewImage, RAW};
use crate::model::operation::Operation;
use crate::sql::Tx;
use crate::store::guard::{Change, Set};
use crate::store::volumes::Volume;
use crate::store::work::Verb;
use crate::store::{Pairs, new_id};

const GIB: i64 = 1 << 30;
/// As the dialect says it, whatever the reason.
const NO_IMAGE: &str = "Invalid image identifier or unable to access requested image.";
const CONTAINERS: [&str; 7] = ["ami", "ari", "aki", "bare", "ovf", "ova", "docker"];

impl Service {
    fn images(&self) -> Result<&Images, Fault> {
        self.images.as_deref().ok_or_else(|| {
            Fault::bad(
                "There is no image service here: volumes cannot be copied to or from images. Its \
                 operator names one with --glance-url.",
            )
        })
    }
}

/// The caller's own token: what is not for them is not copied for them.
fn token(request: &Request) -> Option<&str> {
    request.headers.get("x-auth-token").and_then(|it| it.to_str().ok())
}

fn fault(error: ImageError) -> Fault {
    match error {
        ImageError::NotFound(_) | ImageError::Unauthorized => Fault::bad(NO_IMAGE),
        ImageError::Refused(why) => Fault::bad(format!("The image service refused it: {why}")),
        ImageError::Unreachable(why) => {
            tracing::warn!(why, "the image service cannot be asked");
            Fault::unavailable(
                "The image service does not answer now. Nothing was changed; try again in a few \
                 seconds.",
            )
        }
    }
}

/// The image a volume is to be filled from, checked: it must be readable here and fit.
pub(super) async fn source(
    service: &Service,
    request: &Request,
    reference: &str,
    gib: i64,
) -> Result<Image, Fault> {
    let images = service.images()?;
    // An address of an image ends with its id.
    let id = reference.rsplit('/').next().unwrap_or_default();
    let id = uuid::Uuid::parse_str(id).map_err(|_| Fault::bad(NO_IMAGE))?.to_string();
    let image = images.glance.show(token(request), &id).await.map_err(fault)?;
    if image.status != "active" {
        return Err(Fault::invalid_input(format!(
            "Image {id} is not active: it is {}.",
            image.status
        )));
    }
    if image.disk_format != RAW {
        return Err(Fault::invalid_input(format!(
            "Image {id} has the format {}, and only raw images are copied to volumes here; convert it \
             first, as with qemu-img convert -O raw.",
            image.disk_format
        )));
    }
    if gib < image.min_disk {
        return Err(Fault::invalid_input(format!(
            "Volume size {gib}GB cannot be smaller than the image minDisk size {}GB.",
            image.min_disk
        )));
    }
    if image.size > gib.saturating_mul(GIB) {
        return Err(Fault::invalid_input(format!(
            "Size of specified image {}GB is larger than volume size {gib}GB.",
            (image.size + GIB - 1) / GIB
        )));
    }
    Ok(image)
}

/// What the worker needs to fill a volume.
pub(super) fn order(image: &Image, holder: &str, is_new: bool) -> Value {
    json!({"image": image.id, "kept": image.kept, "holder": holder, "new": is_new})
}

pub(super) async fn reimage(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
    let fields = Fields::from("os-reimage", args)?;
    fields.only(&["image_id", "reimage_reserved"])?;
    fields.required("image_id")?;
    let wanted = fields.uuid("image_id")?.ok_or_else(|| Fault::bad(NO_IMAGE))?;
    let operation = if fields.truth("reimage_reserved")? == Some(true) {
        Operation::ReimageReserved
    } else {
        Operation::Reimage
    };
    let volume = find(service, request, id).await?;
    let image = source(service, request, &wanted, volume.size).await?;
    if let Some(client) = connections(service, &volume).await?.into_iter().next() {
        return Err(Fault::invalid_volume(format!(
            "Volume {id} is connected ({client}); what a client uses is not replaced."
        )));
    }
    let store = &service.store;
    let mut tx = store.on_volume(id).await?;
    let change = service
        .when_behind(request, &volume, operation)
        .only_if(super::volumes::NO_CLONES)
        .only_if(super::volumes::NO_SNAPSHOTS_UNDER_WAY)
        .set(Set::RememberStatus)
        .set(Set::Status("downloading"));
    if !change.apply(store, &mut tx).await? {
        drop(tx);
        let said = |_: &Volume, seen: &str| {
            format!("Volume {id} status must be available or error, but current status is: {seen}.")
        };
        return Err(service.rejection(request, id, operation, said).await);
    }
    let detail = order(&image, volume.backend_name(), false);
    store.ask(&mut tx, Verb::VolumeFill, id, &detail, &request.id).await?;
    tx.commit().await?;
    store.wake();
    Ok(Reply::empty(202))
}

pub(super) async fn upload(service: &Service, request: &Request, id: &str, args: Value) -> Answer {
    let fields = Fields::from("os-volume_upload_image", args)?;
    let mut known = vec!["image_name", "force", "disk_format", "container_format"];
    if request.version.has(1) {
        known.extend(["visibility", "protected"]);
    }
    fields.only(&known)?;
    let name = fields.text("image_name")?.filter(|it| !it.is_empty());
    let name = name.ok_or_else(|| Fault::bad("'image_name' is a required property"))?;
    let images = service.images()?;
    let force = fields.truth("force")?.unwrap_or(false);
    let disk_format = fields.text("disk_format")?.unwrap_or_else(|| RAW.to_owned());
    if disk_format != RAW {
        return Err(Fault::bad(format!(
            "Images are made in the format raw here, not {disk_format}; convert it afterwards, as with \
             qemu-img convert."
        )));
    }
    let container = fields.text("container_format")?.unwrap_or_else(|| "bare".to_owned());
    if !CONTAINERS.contains(&container.as_str()) {
        return Err(Fault::bad(format!("The container format {container} is not known.")));
    }
    let visibility = fields.text("visibility")?;
    let is_public = visibility.as_deref() == Some("public");
    if is_public && !request.caller.is_admin() {
        return Err(Fault::forbidden("volume_extension:volume_actions:upload_public"));
    }
    let volume = find(service, request, id).await?;
    let operation = if force { Operation::UploadForced } else { Operation::Upload };
    let refused = |_: &Volume, _: &str| format!("Volume {id} status must be available or in-use");
    if !service.when(request, id, operation).run(&service.store).await? {
        return Err(service.rejection(request, id, operation, refused).await);
    }
    let new = NewImage {
        name,
        container_format: container,
        disk_format,
        visibility: visibility.clone(),
        protected: fields.truth("protected")?,
        min_disk: volume.size,
    };
    let image = images.glance.create(token(request), &new).await.map_err(fault)?;
    if let Err(refused) = begin_upload(service, request, (id, &volume), &image, operation).await {
        // Nobody would ever give it data.
        if let Err(error) = images.glance.delete(token(request), &image.id).await {
            tracing::warn!(image = image.id, %error, "an image without data is left behind");
        }
        return Err(refused);
    }
    let after = find(service, request, id).await?;
    let mut view = json!({
        "id": id, "updated_at": after.updated_at, "status": "uploading",
        "display_description": after.description, "size": after.size,
        "volume_type": after.volume_type, "image_id": image.id, "image_name": image.name,
        "container_format": new.container_format, "disk_format": new.disk_format,
    });
    if let (true, Some(view)) = (request.version.has(1), view.as_object_mut()) {
        view.insert("visibility".to_owned(), json!(visibility));
        view.insert("protected".to_owned(), json!(new.protected.unwrap_or(false)));
    }
    Ok(Reply::accepted(json!({ "os-volume_upload_image": view })))
}

async fn begin_upload(
    service: &Service,
    request: &Request,
    (id, volume): (&str, &Volume),
    image: &Image,
    operation: Operation,
) -> Result<(), Fault> {
    let store = &service.store;
    let mut tx = store.on_volume(id).await?;
    let change = service
        .when_behind(request, volume, operation)
        .set(Set::RememberStatus)
        .set(Set::Status("uploading"));
    if !change.apply(store, &mut tx).await? {
        drop(tx);
        let said = |_: &Volume, _: &str| format!("Volume {id} status must be available or in-use");
        return Err(service.rejection(request, id, operation, said).await);
    }
    let detail = json!({"image": image.id, "place": new_id(), "holder": volume.backend_name()});
    store.ask(&mut tx, Verb::VolumeUpload, id, &detail, &request.id).await?;
    tx.commit().await?;
    store.wake();
    Ok(())
}

/// Refuses what became another project's since it was looked at.
async fn hold_own(
    service: &Service,
    request: &Request,
    id: &str,
    tx: &mut Tx,
) -> Result<(), Fault> {
    if Service::own(request, Change::of(id)).apply(&service.store, tx).await? {
        return Ok(());
    }
    Err(Fault::no_such("Volume", id))
}

pub(super) async fn set_metadata(
    service: &Service,
    request: &Request,
    id: &str,
    args: Value,
) -> Answer {
    let fields = Fields::from("os-set_image_metadata", args)?;
    fields.required("metadata")?;
    let new = fields.metadata("metadata")?.unwrap_or_default();
    find(service, request, id).await?;
    let mut tx = service.store.on_volume(id).await?;
    hold_own(service, request, id, &mut tx).await?;
    Pairs::VolumeImage.put(&mut tx, id, &new).await?;
    input::few_pairs(&Pairs::VolumeImage.get_in(&mut tx, id).await?)?;
    tx.commit().await?;
    let volume = find(service, request, id).await?;
    Ok(Reply::ok(json!({"metadata": volume.image_metadata})))
}

pub(super) async fn unset_metadata(
    service: &Service,
    request: &Request,
    id: &str,
    args: Value,
) -> Answer {
    let fields = Fields::from("os-unset_image_metadata", args)?;
    let key = fields.text("key")?.ok_or_else(|| Fault::bad("'key' is a required property"))?;
    find(service, request, id).await?;
    let mut tx = service.store.on_volume(id).await?;
    hold_own(service, request, id, &mut tx).await?;
    if !Pairs::VolumeImage.remove(&mut tx, id, &key).await? {
        return Err(Fault::not_found(format!("Metadata property {key} of volume {id} not found.")));
    }
    tx.commit().await?;
    Ok(Reply::empty(200))
}
