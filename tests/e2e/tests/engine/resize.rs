//! A volume grows while it is used.

use e2e::engine::{MIB, Setup, TIMEOUT, Volume};
use testkit::process::poll_until;

use crate::{pattern, put};

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_grows_under_an_nbd_client() {
    let mut volume = Volume::start(Setup::default());
    let nbd = volume.nbd().await;
    put(&nbd, 0, 64, 1).await;
    let cli = volume.cli();
    let smaller = (32 * MIB).to_string();
    cli.refused(&["expand", "--size", &smaller], "cannot be expanded to a smaller size");
    let size = 128 * MIB;
    cli.run(&["expand", "--size", &size.to_string()]);
    let grown = poll_until(TIMEOUT, || {
        let info = cli.json(&["info"]);
        assert_eq!(info["lastExpansionError"], "", "{info}");
        (info["size"] == size && info["isExpanding"] == false).then_some(())
    });
    assert!(grown.is_some(), "{}", cli.json(&["info"]));
    // Who is connected goes on; who connects now sees it all.
    put(&nbd, 64, 64, 2).await;
    let larger = volume.nbd().await;
    assert_eq!(larger.size_bytes(), size);
    put(&larger, 64 * 256, 1024, 3).await;
    assert_eq!(larger.read(64 * MIB, 4 << 20).await.unwrap(), pattern(1024, 3));
    volume.setup.size_bytes = size;
    volume.assert_equal();
    assert!(volume.replicas.iter().all(|replica| replica.layers().size_bytes() == size));
    // And it stays so.
    for replica in &mut volume.replicas {
        replica.setup.size_bytes = size;
    }
    volume.restart();
    let nbd = volume.nbd().await;
    assert_eq!(nbd.size_bytes(), size);
    assert_eq!(nbd.read(64 * 4096, 64 * 4096).await.unwrap(), pattern(64, 2));
}
