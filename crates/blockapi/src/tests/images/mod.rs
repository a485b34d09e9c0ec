//! Volumes from images and images from volumes: a Glance and an NBD server that are as strict as the
//! real ones, and real sockets between them.

mod world;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::rig::{NEW, OLD, Rig, id_of};
use world::{FILL, World};

const TIMEOUT: Duration = Duration::from_mins(1);
/// An image whose bytes end within a block and within a piece.
const BYTES: usize = 3 * (1 << 20) + 1234;

fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Lets the worker work until a volume has a status.
async fn until(rig: &Rig, volume: &str, wanted: &str) {
    let began = Instant::now();
    loop {
        rig.passes(1).await;
        let (status, _) = rig.both(volume).await;
        if status == wanted {
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "{volume} is {status}, not {wanted}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn from_image(rig: &Rig, image: &str) -> String {
    let body = json!({"volume": {"size": 1, "imageRef": image}});
    id_of(&rig.call("POST", "/volumes", body, NEW).await, "volume")
}

#[tokio::test]
async fn a_volume_holds_what_its_image_holds_and_so_do_its_copies() {
    let mut rig = Rig::new().await;
    let world = World::beside(&mut rig).await;
    let data = noise(BYTES);
    let image = world.image(&data, &json!({"hw_disk_bus": "virtio"}));
    let volume = from_image(&rig, &image).await;
    until(&rig, &volume, "available").await;
    let held = world.held(&volume);
    assert!(held.starts_with(&data), "the bytes are the image's");
    assert!(held[BYTES.next_multiple_of(4096)..].iter().all(|it| *it == FILL), "and no others");
    let seen = rig.get(&format!("/volumes/{volume}"), OLD).await.body;
    assert_eq!(seen["volume"]["bootable"], "true");
    let kept = &seen["volume"]["volume_image_metadata"];
    assert_eq!((&kept["image_id"], &kept["hw_disk_bus"]), (&json!(image), &json!("virtio")));
    assert_eq!(rig.backend.connected(&volume), Vec::<String>::new(), "the copy let go of it");

    let body = json!({"volume": {"source_volid": volume, "size": 1}});
    let copy = id_of(&rig.call("POST", "/volumes", body, NEW).await, "volume");
    until(&rig, &copy, "available").await;
    let seen = rig.get(&format!("/volumes/{copy}"), OLD).await.body;
    assert_eq!(seen["volume"]["bootable"], "true");
    assert_eq!(&seen["volume"]["volume_image_metadata"]["image_id"], &json!(image));
}

#[tokio::test]
async fn volumes_inside_tls_are_filled_and_read_alike() {
    let mut rig = Rig::new().await;
    let world = World::inside_tls(&mut rig).await;
    let data = noise(BYTES);
    let image = world.image(&data, &json!({}));
    let volume = from_image(&rig, &image).await;
    until(&rig, &volume, "available").await;
    assert!(world.held(&volume).starts_with(&data), "the bytes are the image's");
    // Whoever cannot be believed gets nothing.
    rig.backend.mood(|it| it.authority = Some(String::new()));
    let other = from_image(&rig, &image).await;
    until(&rig, &other, "downloading").await;
    rig.age().await;
    rig.worker.started = jiff::Timestamp::UNIX_EPOCH;
    until(&rig, &other, "error").await;
    assert!(world.held(&other).is_empty());
}

/// Whoever gets a volume gets all of its image.
#[tokio::test]
async fn nobody_has_a_volume_while_its_image_is_written() {
    let mut rig = Rig::new().await;
    let world = World::beside(&mut rig).await;
    let image = world.image(&noise(BYTES), &json!({}));
    world.hold(true);
    let volume = from_image(&rig, &image).await;
    until(&rig, &volume, "downloading").await;
    rig.passes(5).await;
    let server = uuid::Uuid::new_v4().to_string();
    let body = json!({"attachment": {"volume_uuid": volume, "instance_uuid": server}});
    assert_eq!(rig.call("POST", "/attachments", body, NEW).await.code, 400);
    let connector = json!({"connector": {"host": "h"}});
    let refused = rig.action(&volume, "os-initialize_connection", connector, NEW).await;
    assert_eq!(refused.code, 400, "{refused:?}");
    rig.expect(&volume, "downloading", None).await;
    world.hold(false);
    until(&rig, &volume, "available").await;
    rig.attach(&volume, &server).await;
}

/// A worker that lost its work may not know it, and goes on writing as long as its connection is up.
#[tokio::test]
async fn a_volume_is_its_users_when_the_connection_of_the_copy_is_down() {
    let mut rig = Rig::new().await;
    let world = World::beside(&mut rig).await;
    let image = world.image(&noise(BYTES), &json!({}));
    rig.backend.mood(|it| it.hold_connections = true);
    let volume = from_image(&rig, &image).await;
    until(&rig, &volume, "downloading").await;
    let began = Instant::now();
    while !world.held(&volume).starts_with(&noise(BYTES)) {
        assert!(began.elapsed() < TIMEOUT, "nobody copies");
        rig.passes(1).await;
    }
    rig.passes(20).await;
    rig.expect(&volume, "downloading", None).await;
    // Another worker takes over: it does not copy again.
    rig.worker.name = "worker-2".to_owned();
    rig.worker.copies = crate::images::Copies::new(tasks::Tasks::new());
    rig.store.release("worker-1").await.unwrap();
    world.hold(true);
    rig.passes(5).await;
    rig.expect(&volume, "downloading", None).await;
    rig.backend.mood(|it| it.hold_connections = false);
    until(&rig, &volume, "available").await;
}

/// Cut off or not: who gets a volume after a copy was cancelled must not share it with the copy.
#[tokio::test]
async fn nobody_is_connected_beside_a_copy_that_was_cancelled() {
    let mut rig = Rig::new().await;
    let world = World::beside(&mut rig).await;
    let image = world.image(&noise(BYTES), &json!({}));
    world.hold(true);
    rig.backend.mood(|it| it.hold_connections = true);
    let volume = from_image(&rig, &image).await;
    until(&rig, &volume, "downloading").await;
    let began = Instant::now();
    while !rig.backend.connected(&volume).contains(&"image-copy".to_owned()) {
        assert!(began.elapsed() < TIMEOUT, "nobody copies");
        rig.passes(1).await;
    }
    let reset = json!({"status": "available"});
    assert_eq!(rig.action(&volume, "os-reset_status", reset, NEW).await.code, 202);
    rig.passes(3).await;
    let connector = json!({"connector": {"host": "h"}});
    let refused = rig.action(&volume, "os-initialize_connection", connector.clone(), NEW).await;
    assert_eq!(refused.code, 400, "{refused:?}");
    rig.backend.mood(|it| it.hold_connections = false);
    rig.passes(2).await;
    let made = rig.action(&volume, "os-initialize_connection", connector, NEW).await;
    assert_eq!(made.code, 200, "{made:?}");
}

/// A copy that is no longer wanted ends, and nothing is connected any more.
#[tokio::test]
async fn a_copy_that_is_cancelled_writes_nothing_more() {
    let mut rig = Rig::new().await;
    let world = World::beside(&mut rig).await;
    let image = world.image(&noise(BYTES), &json!({}));
    world.hold(true);
    let volume = from_image(&rig, &image).await;
    until(&rig, &volume, "downloading").await;
    let began = Instant::now();
    while !rig.backend.connected(&volume).contains(&"image-copy".to_owned()) {
        assert!(began.elapsed() < TIMEOUT, "nobody copies");
        rig.passes(1).await;
    }
    let reset = json!({"status": "error"});
    assert_eq!(rig.action(&volume, "os-reset_status", reset, NEW).await.code, 202);
    world.hold(false);
    rig.passes(3).await;
    rig.expect(&volume, "error", None).await;
    assert_eq!(rig.backend.connected(&volume), Vec::<String>::new());
    world.served().await;
    assert!(world.held(&volume).iter().all(|it| *it == FILL), "not one byte was written");
}

#[tokio::test]
async fn images_that_cannot_be_used_are_refused_with_what_to_do() {
    let mut rig = Rig::new().await;
    let refused = async |rig: &Rig, image: &str| {
        let body = json!({"volume": {"size": 1, "imageRef": image}});
        let answer = rig.call("POST", "/volumes", body, NEW).await;
        assert_eq!(answer.code, 400, "{answer:?}");
        answer.body["badRequest"]["message"].as_str().unwrap().to_owned()
    };
    let unknown = uuid::Uuid::new_v4().to_string();
    assert!(refused(&rig, &unknown).await.contains("--glance-url"));
    let volume = rig.volume().await;
    let upload = json!({"image_name": "x"});
    let answer = rig.action(&volume, "os-volume_upload_image", upload.clone(), NEW).await;
    assert!(answer.body.to_string().contains("--glance-url"), "{answer:?}");

    let world = World::beside(&mut rig).await;
    let with = |fields: Value| world.image(b"x", &fields);
    for (image, said) in [
        (unknown.clone(), "unable to access"),
        ("not-an-id".to_owned(), "unable to access"),
        (with(json!({"disk_format": "qcow2"})), "qemu-img convert"),
        (with(json!({"min_disk": 2})), "minDisk size 2GB"),
        (with(json!({"status": "queued"})), "not active"),
        (with(json!({"size": (1_i64 << 30) + 1})), "larger than volume size 1GB"),
    ] {
        let told = refused(&rig, &image).await;
        assert!(told.contains(said), "{told}");
    }
    // With a token that the image service does not take.
    rig.token = format!("stranger:{}", super::rig::PROJECT);
    assert!(refused(&rig, &with(json!({}))).await.contains("unable to access"));
    let vhd = json!({"image_name": "x", "disk_format": "vhd"});
    assert_eq!(rig.action(&volume, "os-volume_upload_image", vhd, NEW).await.code, 400);
}

/// Data that is not what the image says is not served as the image.
#[tokio::test]
async fn damaged_data_does_not_become_a_volume() {
    let mut rig = Rig::new().await;
    let world = World::beside(&mut rig).await;
    let image = world.image(&noise(BYTES), &json!({"os_hash_value": "00"}));
    let volume = from_image(&rig, &image).await;
    until(&rig, &volume, "downloading").await;
    rig.worker.started = jiff::Timestamp::UNIX_EPOCH;
    rig.age().await;
    until(&rig, &volume, "error").await;
    let messages = rig.get("/messages", NEW).await.body.to_string();
    assert!(messages.contains("copy image to volume"), "{messages}");
    rig.ok("DELETE", &format!("/volumes/{volume}"), Value::Null, NEW).await;
}

/// The service's own token ends while it works; it gets another.
#[tokio::test]
async fn a_token_that_ended_is_replaced() {
    let mut rig = Rig::new().await;
    let world = World::beside(&mut rig).await;
    let image = world.image(&noise(100), &json!({}));
    world.end_tokens();
    let volume = from_image(&rig, &image).await;
    until(&rig, &volume, "available").await;
}

#[tokio::test]
async fn an_image_is_of_one_moment_of_its_volume() {
    let mut rig = Rig::new().await;
    let world = World::beside(&mut rig).await;
    let volume = rig.volume().await;
    let before = rig.backend.volumes();
    let upload = json!({"image_name": "mine", "container_format": "bare", "visibility": "private"});
    let answer = rig.action(&volume, "os-volume_upload_image", upload, NEW).await;
    assert_eq!(answer.code, 202, "{answer:?}");
    let made = &answer.body["os-volume_upload_image"];
    let image = made["image_id"].as_str().unwrap().to_owned();
    assert_eq!((&made["status"], &made["disk_format"]), (&json!("uploading"), &json!("raw")));
    // Its status is its own meanwhile; a backup goes its way.
    assert_eq!(rig.backup(&volume, false).await.code, 400);
    until(&rig, &volume, "available").await;
    let data = world.data_of(&image);
    assert_eq!(data.len(), world::EXPORT_BYTES);
    assert!(data.iter().all(|it| *it == FILL));
    rig.settle().await;
    assert_eq!(rig.backend.volumes(), before, "what it was read from is gone");

    // In use it takes force, as a backup does.
    rig.attach(&volume, &uuid::Uuid::new_v4().to_string()).await;
    let plain = json!({"image_name": "again"});
    assert_eq!(rig.action(&volume, "os-volume_upload_image", plain, NEW).await.code, 400);
    let forced = json!({"image_name": "again", "force": true});
    assert_eq!(rig.action(&volume, "os-volume_upload_image", forced, NEW).await.code, 202);
    until(&rig, &volume, "in-use").await;
}

/// An image that comes to nothing is not left behind.
#[tokio::test]
async fn an_upload_that_fails_takes_its_image_back() {
    let mut rig = Rig::new().await;
    let world = World::beside(&mut rig).await;
    let volume = rig.volume().await;
    rig.backend.mood(|moods| moods.fail_connections = Some("no way in".to_owned()));
    let upload = json!({"image_name": "mine"});
    let answer = rig.action(&volume, "os-volume_upload_image", upload, NEW).await;
    assert_eq!(answer.code, 202, "{answer:?}");
    until(&rig, &volume, "available").await;
    assert_eq!(world.images(), 0);
}

#[tokio::test]
async fn a_volume_is_imaged_anew() {
    let mut rig = Rig::new().await;
    let world = World::beside(&mut rig).await;
    let volume = rig.volume().await;
    let mut data = noise(1 << 20);
    // Zeros are written too: there was something else before.
    data.extend(vec![0; 1 << 20]);
    let image = world.image(&data, &json!({}));
    let asked = json!({"image_id": image});
    assert_eq!(rig.action(&volume, "os-reimage", asked.clone(), "3.67").await.code, 404);
    let backup = rig.backup(&volume, false).await;
    assert_eq!(backup.code, 202);
    assert_eq!(rig.action(&volume, "os-reimage", asked.clone(), NEW).await.code, 400);
    rig.settle().await;
    assert_eq!(rig.action(&volume, "os-reimage", asked, NEW).await.code, 202);
    rig.expect(&volume, "downloading", None).await;
    until(&rig, &volume, "available").await;
    assert!(world.held(&volume).starts_with(&data));
}

/// A server that says too early that it has its volume does not end with half an image.
#[tokio::test]
async fn a_reserved_volume_is_imaged_to_the_end() {
    let mut rig = Rig::new().await;
    let world = World::beside(&mut rig).await;
    let image = world.image(&noise(BYTES), &json!({}));
    let volume = rig.volume().await;
    let body = json!({"attachment": {"volume_uuid": volume}});
    let attachment = id_of(&rig.call("POST", "/attachments", body, NEW).await, "attachment");
    world.hold(true);
    let asked = json!({"image_id": image, "reimage_reserved": true});
    assert_eq!(rig.action(&volume, "os-reimage", asked, NEW).await.code, 202);
    rig.passes(5).await;
    let path = format!("/attachments/{attachment}/action");
    rig.ok("POST", &path, json!({"os-complete": {}}), NEW).await;
    rig.passes(5).await;
    rig.expect(&volume, "downloading", None).await;
    world.hold(false);
    until(&rig, &volume, "in-use").await;
    assert!(world.held(&volume).starts_with(&noise(BYTES)));
}

/// An image is not written over a volume before the snapshots are taken that were asked for before.
#[tokio::test]
async fn a_snapshot_is_of_what_was_there_before_the_next_image() {
    let mut rig = Rig::new().await;
    let world = World::beside(&mut rig).await;
    let image = world.image(&[7; 4096], &json!({}));
    let volume = rig.volume().await;
    let body = json!({"snapshot": {"volume_id": volume}});
    rig.ok("POST", "/snapshots", body, NEW).await;
    let again = json!({"image_id": image});
    let early = rig.action(&volume, "os-reimage", again.clone(), NEW).await;
    assert_eq!(early.code, 400, "{early:?}");
    rig.settle().await;
    assert_eq!(rig.action(&volume, "os-reimage", again, NEW).await.code, 202);
}

/// Zeros are left out of a volume that is empty; after a try that came to nothing it is not.
#[tokio::test]
async fn a_copy_that_is_begun_again_leaves_nothing_of_the_one_before() {
    let mut rig = Rig::new().await;
    let world = World::beside(&mut rig).await;
    let (zeros, data) = (vec![0; 1 << 20], noise(1 << 20));
    let right = [&zeros[..], &data].concat();
    let image = world.image(&right, &json!({}));
    world.send_instead(&image, &[&data[..], &zeros].concat());
    let volume = from_image(&rig, &image).await;
    let began = Instant::now();
    while !world.held(&volume).starts_with(&data) {
        rig.passes(1).await;
        assert!(began.elapsed() < TIMEOUT, "the first try writes nothing");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.send_instead(&image, &right);
    until(&rig, &volume, "available").await;
    assert!(world.held(&volume).starts_with(&right));
}
