//! What clients cannot take from others by taking too much, or by taking nothing.

use std::time::Duration;

use apiserver::store::{Quota, Size};
use apiserver::{ConnectionLimits, ServerLimits};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::sockets::{TIMEOUT, connect, read_until, request, request_by};
use crate::support::{MAPS, TABLE, World};

const LOOK_EVERY: Duration = Duration::from_millis(5);
const MIB: usize = 1 << 20;

fn connections(world: &World) -> usize {
    world.tasks.list().iter().filter(|task| task.name == "connection").count()
}

async fn until_connections(world: &World, wanted: usize) {
    let deadline = Instant::now() + TIMEOUT;
    while connections(world) != wanted {
        assert!(Instant::now() < deadline, "{} connections, not {wanted}", connections(world));
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[tokio::test]
async fn a_list_that_nobody_reads_is_given_up() {
    // What the one who reads may miss of a loaded machine.
    let limits = ConnectionLimits { write_timeout: Duration::from_secs(3), ..Default::default() };
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

const TENANTS: [&str; 4] = ["tenant-0", "tenant-1", "tenant-2", "tenant-3"];

#[tokio::test]
async fn a_crowd_of_tenants_leaves_the_administrator_connections() {
    let limits = ConnectionLimits {
        connections: 32,
        strangers: 8,
        one_caller: 8,
        kept: 6,
        ..Default::default()
    };
    let world = World::start_with(limits).await;
    let mut inside = Vec::new();
    let mut refused = 0;
    for tenant in TENANTS {
        for _ in 0..12 {
            let mut stream = connect(&world, &["http/1.1"]).await;
            let ask = request_by(tenant, "GET", "/version", "");
            stream.write_all(ask.as_bytes()).await.unwrap();
            let answer = read_until(&mut stream, "}").await;
            if answer.starts_with("HTTP/1.1 200") {
                inside.push(stream);
            } else {
                assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
                refused += 1;
            }
        }
    }
    // 24 are not for strangers, and 6 of those are not for tenants either.
    assert_eq!((inside.len(), refused), (18, 30));
    let mut held = Vec::new();
    for _ in 0..6 {
        let mut late = connect(&world, &["http/1.1"]).await;
        let ask = request("GET", "/api/v1/namespaces/default", "");
        late.write_all(ask.as_bytes()).await.unwrap();
        read_until(&mut late, "\"Namespace\"").await;
        held.push(late);
    }
    drop(inside);
}

#[tokio::test]
async fn a_crowd_of_tenants_with_unfinished_bodies_leaves_the_administrator_room() {
    let world = World::start().await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    world.post(bindings, &tenants_rule()).await.is(201);
    // Four times the share of one, which is more than all of them may have.
    let part = vec![b' '; 2_900_000];
    let begin = async |tenant: &str| {
        let mut stream = connect(&world, &["http/1.1"]).await;
        let head = request_by(tenant, "POST", MAPS, "content-length: 3000000\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // Whoever is refused may be cut off.
        let _ = stream.write_all(&part).await;
        stream
    };
    let mut crowd = Vec::new();
    for tenant in TENANTS {
        for _ in 0..12 {
            crowd.push(begin(tenant).await);
        }
    }
    let mut body = json!({"metadata": {"name": "m"}}).to_string().into_bytes();
    body.resize(part.len(), b' ');
    let ask = async |token: &str| {
        let mut stream = connect(&world, &["http/1.1"]).await;
        let length = format!("content-length: {}\r\n", body.len());
        let head = request_by(token, "POST", &format!("{MAPS}?dryRun=All"), &length);
        stream.write_all(head.as_bytes()).await.unwrap();
        let _ = stream.write_all(&body).await;
        let answer = read_until(&mut stream, "\r\n").await;
        answer.get(9..12).unwrap_or_default().to_owned()
    };
    for tenant in TENANTS {
        // What the crowd has sent may lie in the sockets still; or, on a slow machine, those who came first
        // were given up by now.
        let mut answer = ask(tenant).await;
        for _ in 0..50 {
            if answer == "429" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            crowd.push(begin(tenant).await);
            answer = ask(tenant).await;
        }
        assert_eq!(answer, "429", "{tenant} got more than there is for tenants");
    }
    assert_eq!(ask("secret").await, "201");
    drop(crowd);
}

/// On one thread: what works without a pause lets nobody else have a turn. A dry run, because a
/// commit would be such a pause.
#[tokio::test]
async fn a_merge_of_long_lists_holds_nobody_up() {
    let world = World::start().await;
    let names: Vec<String> = (0..10_000).map(|number| format!("c{number}")).collect();
    let subjects = |group: &str| -> Vec<_> {
        let subject = |name: &String| {
            json!({"kind": "ServiceAccount", "namespace": group,
            "name": name})
        };
        names.iter().map(subject).collect()
    };
    world.maps(&["small"]).await;
    let binding = json!({"metadata": {"name": "many"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "none"},
        "subjects": subjects("a")});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings?dryRun=All";
    let merged = world.post(bindings, &binding);
    let mut merged = std::pin::pin!(merged);
    let small = format!("{MAPS}/small");
    let mut served = 0;
    let answer = loop {
        tokio::select! {
            biased;
            answer = &mut merged => break answer,
            other = world.get(&small) => {
                other.is(200);
                served += 1;
                tokio::task::yield_now().await;
            }
        }
    };
    answer.is(201);
    assert!(served > 20, "only {served} others were served while one was worked on");
}

const ADMIN: Option<&str> = Some("Bearer secret");

#[tokio::test]
async fn a_crowd_of_strangers_that_take_no_answer_locks_nobody_out() {
    let limits = ConnectionLimits { connections: 32, strangers: 8, ..Default::default() };
    let world = World::start_with(limits).await;
    let mut crowd = Vec::new();
    for _ in 0..12 {
        let mut stream = ask_within(0, &world, 1, None).await;
        // The head of the answer needs no window: the request is being served.
        let mut head = [0; 9];
        while head[3] != 1 {
            stream.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            stream.read_exact(&mut payload).await.unwrap();
        }
        crowd.push(stream);
    }
    let mut late = connect(&world, &["http/1.1"]).await;
    late.write_all(request("GET", "/api/v1/namespaces/default", "").as_bytes()).await.unwrap();
    read_until(&mut late, "\"Namespace\"").await;
    drop(crowd);
}

/// One HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A request as literal header fields.
fn get(stream: u32, path: &str, credentials: Option<&str>) -> Vec<u8> {
    head(0x5, stream, "GET", path, credentials)
}

fn head(flags: u8, stream: u32, method: &str, path: &str, credentials: Option<&str>) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "https"), (":path", path), (":authority", "x")];
    let fields = fields.into_iter().chain(credentials.map(|it| ("authorization", it)));
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    frame(1, flags, stream, &block)
}

/// The beginning of a connection by which the server may send so many bytes on each stream.
fn hello(window: u32) -> Vec<u8> {
    let setting = [&4_u16.to_be_bytes()[..], &window.to_be_bytes()].concat();
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &setting)].concat()
}

/// Asks over HTTP/2 on so many streams, and lets the server send so many bytes on each of them.
async fn ask_within(
    window: u32,
    world: &World,
    streams: u32,
    credentials: Option<&str>,
) -> tokio_rustls::client::TlsStream<TcpStream> {
    ask_for("/version", window, world, streams, credentials).await
}

async fn ask_for(
    path: &str,
    window: u32,
    world: &World,
    streams: u32,
    credentials: Option<&str>,
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut stream = connect(world, &["h2"]).await;
    let mut all = hello(window);
    for number in 0..streams {
        all.extend(get(2 * number + 1, path, credentials));
    }
    stream.write_all(&all).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

#[tokio::test]
async fn streams_that_may_not_be_sent_on_are_given_up() {
    let limits =
        ConnectionLimits { write_timeout: Duration::from_millis(400), ..Default::default() };
    let world = World::start_with(limits).await;
    // What has a window of one byte is all given to be sent, and is not sent.
    for window in [0, 1] {
        let mut kept = ask_within(window, &world, 3, ADMIN).await;
        tokio::select! {
            () = until_connections(&world, 0) => {}
            () = answer_pings(&mut kept) => unreachable!("it never ends"),
        }
    }
}

/// Is there, as far as one can tell by asking.
async fn answer_pings(stream: &mut tokio_rustls::client::TlsStream<TcpStream>) {
    const PING: u8 = 6;
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await.unwrap();
        if (head[3], head[4]) == (PING, 0) {
            stream.write_all(&frame(PING, 1, 0, &payload)).await.unwrap();
            stream.flush().await.unwrap();
        }
    }
    std::future::pending::<()>().await;
}

/// What was sent is not waited for: a connection that has nothing to do stays.
#[tokio::test]
async fn whoever_has_taken_its_answers_may_stay() {
    let write_timeout = Duration::from_secs(1);
    let world = World::start_with(ConnectionLimits { write_timeout, ..Default::default() }).await;
    let body = json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(MIB)}});
    world.post(MAPS, &body).await.is(201);
    let large = format!("{MAPS}/large");
    let mut old = connect(&world, &["http/1.1"]).await;
    let mut new = ask_for("/version", 65_535, &world, 1, ADMIN).await;
    for number in 1..3 {
        old.write_all(request("GET", &large, "").as_bytes()).await.unwrap();
        let mut answer = read_until(&mut old, "\r\n\r\n").await;
        // More than that is in the value alone.
        while answer.len() <= MIB || !answer.ends_with('}') {
            let mut part = vec![0; MIB];
            let count = old.read(&mut part).await.unwrap();
            assert!(count > 0, "cut off");
            answer += std::str::from_utf8(&part[..count]).unwrap();
        }
        until_end(&mut new).await;
        tokio::time::sleep(2 * write_timeout).await;
        new.write_all(&get(2 * number + 1, "/version", ADMIN)).await.unwrap();
    }
    until_end(&mut new).await;
}

/// Reads frames up to the end of a stream.
async fn until_end(stream: &mut tokio_rustls::client::TlsStream<TcpStream>) {
    let mut head = [0; 9];
    while head[3] != 0 || head[4] & 1 == 0 {
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await.unwrap();
    }
}

#[tokio::test]
async fn one_caller_with_many_streams_leaves_room_for_others() {
    for window in [0, 1] {
        let world = World::start().await;
        let _kept = ask_within(window, &world, 1000, ADMIN).await;
        until_refused(&world).await;
        world.get("/api/v1/namespaces/default").await.is(200);
    }
}

async fn until_refused(world: &World) {
    let deadline = Instant::now() + TIMEOUT;
    while !world.get("/metrics").await.text().contains("code=\"429\"") {
        assert!(Instant::now() < deadline, "as much as one likes at once");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A binding by which the tenants may do everything.
fn tenants_rule() -> serde_json::Value {
    json!({"metadata": {"name": "tenants"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "cluster-admin"},
        "subjects": TENANTS.map(|name| json!({"kind": "User", "name": name,
            "apiGroup": "rbac.authorization.k8s.io"}))})
}

#[tokio::test]
async fn large_answers_that_nobody_takes_have_a_limit() {
    let world = World::start().await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    world.post(bindings, &tenants_rule()).await.is(201);
    let body = json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(MIB - 9)}});
    world.post(MAPS, &body).await.is(201);
    // More than all of what one may have, in fewer requests than one may make.
    let path = format!("{MAPS}/large?pretty=1");
    let tenant = Some("Bearer tenant-0");
    let _kept = ask_for(&path, 1, &world, 100, tenant).await;
    until_refused(&world).await;
    // A write is refused before it is done, or not at all.
    let answer = world.merge(&format!("{MAPS}/large"), &json!({"data": {"b": "y"}})).await;
    answer.is(200);
}

/// Whoever is refused is counted nowhere, so nothing of it may stay.
#[tokio::test]
async fn streams_of_the_refused_are_not_read_on() {
    const STREAMS: u32 = 200;
    let world = World::start().await;
    let mut stream = connect(&world, &["h2"]).await;
    let mut all = hello(65_535);
    for number in 0..STREAMS {
        // Their bodies never come.
        all.extend(head(0x4, 2 * number + 1, "POST", MAPS, Some("Bearer nobody")));
    }
    stream.write_all(&all).await.unwrap();
    stream.flush().await.unwrap();
    let mut answered = 0;
    while answered < STREAMS {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await.unwrap();
        answered += u32::from(head[3] == 1);
        let waiting = world.tasks.list().iter().filter(|task| task.name == "write").count();
        assert_eq!(waiting, 0, "after {answered} answers");
    }
}

/// On one thread: what is made anew of an object is made elsewhere.
#[tokio::test]
async fn a_large_object_for_people_holds_nobody_up() {
    let world = World::start().await;
    let data: serde_json::Map<String, serde_json::Value> =
        (0..10_000).map(|line| (format!("k{line}"), "x".repeat(90).into())).collect();
    world.post(MAPS, &json!({"metadata": {"name": "large"}, "data": data})).await.is(201);
    let path = format!("{MAPS}/large?pretty=1");
    let mut long = std::pin::pin!(world.get(&path));
    let mut served = 0;
    loop {
        tokio::select! {
            biased;
            answer = &mut long => {
                answer.is(200);
                break;
            }
            other = world.get("/version") => {
                other.is(200);
                served += 1;
                tokio::task::yield_now().await;
            }
        }
    }
    assert!(served > 5, "only {served} others were served meanwhile");
}

/// On one thread, and taken as fast as it is made: nothing but the list itself lets others have a turn.
#[tokio::test]
async fn long_lists_hold_nobody_up_in_whatever_form() {
    let world = World::start().await;
    for number in 0..40 {
        let data: serde_json::Map<String, serde_json::Value> =
            (0..100).map(|line| (format!("k{line}"), "x".repeat(1000).into())).collect();
        let body = json!({"metadata": {"name": format!("m{number:02}")}, "data": data});
        world.post(MAPS, &body).await.is(201);
    }
    let plain = world.get(MAPS).await.is(200);
    for (query, accept) in [
        ("", "application/json"),
        ("?pretty=true", "application/json"),
        ("", "application/yaml"),
        ("?includeObject=Object", TABLE),
    ] {
        let path = format!("{MAPS}{query}");
        let mut long = std::pin::pin!(world.get_as(&path, accept));
        let mut served = 0;
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut long => break answer,
                other = world.get("/version") => {
                    other.is(200);
                    served += 1;
                    tokio::task::yield_now().await;
                }
            }
        };
        assert_eq!(answer.code, 200);
        assert!(served > 20, "{served} others were served during a list as {accept} {query}");
        match accept {
            "application/json" => assert_eq!(answer.json()["items"], plain["items"]),
            "application/yaml" => {
                let text = answer.text();
                assert!(
                    text.starts_with("kind: ConfigMapList\napiVersion: v1\n"),
                    "{}",
                    &text[..99]
                );
                assert_eq!(text.matches("\n- ").count(), 40);
            }
            _ => assert_eq!(answer.json()["rows"].as_array().map(Vec::len), Some(40)),
        }
    }
}

#[tokio::test]
async fn what_a_namespace_holds_has_a_limit_and_says_so() {
    let quota = Quota { namespace: Size { objects: 12, bytes: 1 << 20 }, ..Quota::default() };
    let world = World::start_with(ServerLimits { stored: quota, ..Default::default() }).await;
    let refused = loop {
        let made = world.post(MAPS, &json!({"metadata": {"generateName": "m-"}})).await;
        if made.code != 201 {
            break made;
        }
    };
    let text = refused.fails(403, "Forbidden");
    assert!(text.contains("exceeded quota: a namespace may hold 12 objects"), "{text}");
    // Others, and those whom all rely on, have room.
    world.post("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).await.is(201);
    let elsewhere = MAPS.replace("default", "other");
    world.post(&elsewhere, &json!({"metadata": {"name": "a"}})).await.is(201);
    let system = MAPS.replace("default", "kube-system");
    for _ in 0..20 {
        world.post(&system, &json!({"metadata": {"generateName": "m-"}})).await.is(201);
    }
    let list = world.get(MAPS).await.is(200);
    let name = list["items"][0]["metadata"]["name"].as_str().unwrap();
    let large = json!({"data": {"a": "x".repeat(1 << 20)}});
    let text = world.merge(&format!("{MAPS}/{name}"), &large).await.fails(403, "Forbidden");
    assert!(text.contains("1048576 bytes"), "{text}");
    world.delete(&format!("{MAPS}/{name}")).await.is(200);
    world.post(MAPS, &json!({"metadata": {"name": "late"}})).await.is(201);
}
