//! What clients cannot take from others by taking too much, or by taking nothing.

use std::time::Duration;

use apiserver::ConnectionLimits;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::sockets::{PATIENCE, connect, read_until, request};
use crate::support::{MAPS, World};

const LOOK_EVERY: Duration = Duration::from_millis(5);
const MIB: usize = 1 << 20;

fn connections(world: &World) -> usize {
    world.tasks.list().iter().filter(|task| task.name == "connection").count()
}

async fn until_connections(world: &World, wanted: usize) {
    let deadline = Instant::now() + PATIENCE;
    while connections(world) != wanted {
        assert!(Instant::now() < deadline, "{} connections, not {wanted}", connections(world));
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[tokio::test]
async fn a_list_that_nobody_reads_is_given_up() {
    let limits =
        ConnectionLimits { write_patience: Duration::from_millis(400), ..Default::default() };
    let world = World::start_with(limits).await;
    for number in 0..16 {
        let body = json!({"metadata": {"name": format!("m{number}")},
            "data": {"a": "x".repeat(MIB)}});
        world.post(MAPS, &body).await.is(201);
    }
    let mut reader = connect(&world, &["http/1.1"]).await;
    reader.write_all(request("GET", MAPS, "").as_bytes()).await.unwrap();
    // One that reads is served to the end, however slowly it goes about it.
    let mut other = connect(&world, &["http/1.1"]).await;
    other.write_all(request("GET", &format!("{MAPS}?limit=1"), "").as_bytes()).await.unwrap();
    read_until(&mut other, "\"items\"").await;
    drop(other);
    until_connections(&world, 0).await;
    drop(reader);
}

#[tokio::test]
async fn a_crowd_of_silent_strangers_locks_nobody_out() {
    let limits = ConnectionLimits {
        connections: 32,
        strangers: 8,
        one_caller: 8,
        kept: 4,
        ..Default::default()
    };
    let world = World::start_with(limits).await;
    let mut inside = connect(&world, &["http/1.1"]).await;
    inside.write_all(request("GET", "/version", "").as_bytes()).await.unwrap();
    read_until(&mut inside, "gitVersion").await;
    let mut crowd = Vec::new();
    for _ in 0..100 {
        crowd.push(TcpStream::connect(world.server.address()).await.unwrap());
    }
    until_connections(&world, 9).await;
    let mut late = connect(&world, &["http/1.1"]).await;
    for stream in [&mut late, &mut inside] {
        stream
            .write_all(request("GET", "/api/v1/namespaces/default", "").as_bytes())
            .await
            .unwrap();
        read_until(stream, "\"Namespace\"").await;
    }
    // Nor does one caller take all: the ninth is told to come again.
    let mut held = vec![late, inside];
    let refused = loop {
        let mut more = connect(&world, &["http/1.1"]).await;
        more.write_all(request("GET", "/version", "").as_bytes()).await.unwrap();
        let answer = read_until(&mut more, "}").await;
        if !answer.starts_with("HTTP/1.1 200") {
            break answer;
        }
        held.push(more);
    };
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    assert!(refused.to_lowercase().contains("retry-after: 1"), "{refused}");
    assert_eq!(held.len(), 24, "an administrator has all that is not for strangers");
}
