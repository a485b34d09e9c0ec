//! A client that leaves before it is answered: what it asked for is not left half done.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::rig::{NEW, Rig};
use crate::serve::{Limits, serve};

/// Waits until something is so; the test's own patience ends it.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let patience = Duration::from_mins(1);
    let waited = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(patience, waited).await.unwrap();
}

#[tokio::test]
async fn a_client_that_leaves_while_it_is_connected_leaves_nothing_reserved() {
    let rig = Rig::new().await;
    let volume = rig.volume().await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = tasks::Tasks::new();
    let router = rig.service.clone().router(tasks.clone());
    tasks.spawn("door", serve(listener, router, Limits::default(), tasks.clone()));
    rig.backend.mood(|moods| moods.hold_connects = true);
    let body = json!({"attachment": {"volume_uuid": volume, "connector": {"host": "h"}}});
    let body = body.to_string();
    let head = format!(
        "POST /v3/attachments HTTP/1.1\r\nhost: {address}\r\nx-auth-token: {}\r\n\
         openstack-api-version: volume {NEW}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        rig.token,
        body.len()
    );
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(head.as_bytes()).await.unwrap();
    until(async || !rig.backend.connected(&volume).is_empty()).await;
    rig.expect(&volume, "reserved", None).await;
    drop(client);
    until(async || tasks.list().iter().all(|it| !it.name.contains("block-connection"))).await;
    // What it waited for comes to nothing.
    rig.backend.mood(|moods| moods.fail_connections = Some("no node is ready".to_owned()));
    until(async || rig.both(&volume).await.0 == "available").await;
    assert_eq!(rig.backend.connected(&volume), Vec::<String>::new());
    assert_eq!(rig.get("/attachments", NEW).await.body["attachments"], json!([]));
    tasks.stop(Duration::from_mins(1)).await.unwrap();
}
