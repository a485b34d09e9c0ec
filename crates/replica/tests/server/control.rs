//! Every method of the control service, and the texts callers match on.

use rpc::ptypes;
use wire::frame::Outcome;

use crate::running::{NOW, Running, SIZE, data};

#[tokio::test]
async fn a_volume_is_made_opened_written_and_closed() {
    let running = Running::new().await;
    let mut client = running.client();
    let state = client.replica_get(()).await.unwrap().into_inner().replica.unwrap();
    assert_eq!((state.state.as_str(), state.size), ("closed", SIZE.to_string()));
    running.open().await;
    let mut port = running.tcp().await;
    let mut local = running.local().await;
    assert_eq!(port.ping().await, Outcome::Count(0));
    assert_eq!(port.write(4096, &[7; 4096]).await, Outcome::Count(4096));
    assert_eq!(local.read(4096, 4096).await, data(&[7; 4096]));
    assert_eq!(local.flush().await, Outcome::Count(0));
    let state = client.replica_get(()).await.unwrap().into_inner().replica.unwrap();
    assert_eq!((state.state.as_str(), state.revision_counter), ("dirty", 1));
    assert_eq!((state.holdfast_features, state.holdfast_engines), (63, 2));
    let closed = client.replica_close(()).await.unwrap().into_inner().replica.unwrap();
    assert_eq!((closed.state.as_str(), closed.dirty), ("closed", false));
    assert!(matches!(port.ping().await, Outcome::Error(_)));
    let _ = (NOW, ptypes::ReplicaOpenRequest::default());
}
