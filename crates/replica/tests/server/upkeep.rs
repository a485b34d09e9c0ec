//! What our own sync agent asks: where the head holds data, and the merge of the head's parent.

use rpc::upkeep::{HeadExtentsRequest, MergeHeadParentRequest};
use wire::frame::Outcome;

use crate::control::get;
use crate::disks::{removed, snapshot};
use crate::running::{Running, data};

async fn extents(running: &Running) -> Vec<(u64, u64)> {
    let mut stream =
        running.upkeep().head_extents(HeadExtentsRequest::default()).await.unwrap().into_inner();
    let mut found: Vec<(u64, u64)> = Vec::new();
    while let Some(batch) = stream.message().await.unwrap() {
        found.extend(batch.extents.iter().map(|extent| (extent.offset, extent.len)));
    }
    found
}

#[tokio::test]
async fn the_extents_of_the_head_are_its_own_data_only() {
    let running = Running::with(|options| options.size_bytes = Some(1 << 30)).await;
    assert!(
        running
            .upkeep()
            .head_extents(HeadExtentsRequest::default())
            .await
            .unwrap()
            .into_inner()
            .message()
            .await
            .is_err()
    );
    running.open().await;
    let mut port = running.local();
    port.flush().await;
    port.write(0, &[1; 8192]).await;
    running.client().replica_snapshot(snapshot("a")).await.unwrap();
    assert_eq!(extents(&running).await, []);
    port.write(4096, &[2; 8192]).await;
    port.write(700 << 20, &[2; 4096]).await;
    assert_eq!(extents(&running).await, [(4096, 8192), (700 << 20, 4096)]);
    // Beyond one message.
    port.scatter((0..9000).map(|index| (512 << 20) + index * 8192)).await;
    assert_eq!(extents(&running).await.len(), 9002);
}

#[tokio::test]
async fn the_removed_parent_of_the_head_is_merged_while_the_volume_is_in_use() {
    let running = Running::with(|options| options.size_bytes = Some(64 << 20)).await;
    running.open().await;
    let (mut client, mut port) = (running.client(), running.local());
    port.flush().await;
    port.write(0, &[9; 4096]).await;
    client.replica_snapshot(snapshot("kept")).await.unwrap();
    for mib in 0..48 {
        assert_eq!(port.write(mib << 20, &[1; 1 << 20]).await, Outcome::Count(1 << 20));
    }
    client.replica_snapshot(snapshot("old")).await.unwrap();
    port.write(1 << 20, &[2; 1 << 20]).await;
    // Not removed: nothing happens.
    let merge = || MergeHeadParentRequest {};
    let mut idle = running.upkeep().merge_head_parent(merge()).await.unwrap().into_inner();
    assert_eq!(idle.message().await.unwrap(), None);
    client.disk_mark_as_removed(removed("old")).await.unwrap();
    let mut stream = running.upkeep().merge_head_parent(merge()).await.unwrap().into_inner();
    let mut last = (0, 0);
    let mut written = 0;
    while let Some(progress) = stream.message().await.unwrap() {
        assert!(progress.done <= progress.total);
        last = last.max((progress.done, progress.total));
        // I/O goes on between the steps.
        let offset = (written % 48) << 20;
        assert_eq!(port.write(offset, &[3; 4096]).await, Outcome::Count(4096));
        written += 1;
    }
    assert!(written > 10 && last.0 > 32 << 20, "{written} {last:?}");
    let state = get(&mut client).await;
    assert_eq!(state.chain, [state.head.clone(), "volume-snap-kept.img".to_owned()]);
    assert!(!running.options.dir.join("volume-snap-old.img").exists());
    let check = async |port: &mut crate::running::Data<_>| {
        for mib in 0..48i64 {
            let value = if mib == 1 { 2 } else { 1 };
            let first = if mib < written { 3 } else { value };
            assert_eq!(port.read(mib << 20, 4096).await, data(&[first; 4096]), "{mib}");
            assert_eq!(port.read((mib << 20) + 4096, 4096).await, data(&[value; 4096]), "{mib}");
        }
    };
    check(&mut port).await;
    let running = running.restart().await;
    running.open().await;
    check(&mut running.local()).await;
}
