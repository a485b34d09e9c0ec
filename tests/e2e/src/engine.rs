//! What the suites of the volume engine share: replicas and engines as real processes, the command
//! line as scripts use it, and clients of every protocol a volume is reached by.
//!
//! Never: knows engine or replica from inside. A volume is looked at through its NBD export, its
//! replicas' data ports, and the files in their directories.
//! Start reading at [`Volume`].

mod command;
mod disk;
mod frames;
mod layers;
mod nbd;
mod process;
mod replica;
mod tools;
mod volume;

pub use command::{Cli, Ran};
pub use disk::{SmallDisk, skip_unless_root, write_file};
pub use frames::Frames;
pub use layers::{Layers, sum};
pub use nbd::{Endpoint, Nbd, NbdError};
pub use process::{Engine, Program, signal};
pub use replica::{Replica, ReplicaSetup};
pub use testkit::process::Ports;
pub use tools::{run, tool};
pub use volume::{Frontend, Setup, Volume};

use std::time::Duration;

/// Long enough for a loaded machine; nothing waits for it in vain unless something is broken.
pub const TIMEOUT: Duration = Duration::from_mins(3);
/// Bytes a replica allocates at a time.
pub const SECTOR: u64 = 4096;
pub const MIB: u64 = 1 << 20;

/// Whether a gRPC server at this port of loopback says that it serves.
pub fn is_serving(port: u16) -> bool {
    use rpc::health_v1::HealthCheckRequest;
    use rpc::health_v1::health_client::HealthClient;
    let address = rpc::Address::new("127.0.0.1", port);
    let deadline = rpc::Deadline::After(Duration::from_secs(2));
    blocking(async move {
        let peer = rpc::connect(&address, rpc::Identity::default(), deadline);
        let mut client = HealthClient::new(peer.unwrap());
        let answer = client.check(HealthCheckRequest::default()).await;
        answer.is_ok_and(|answer| answer.get_ref().status == 1)
    })
}

/// Runs a future to its end from anywhere, also from inside another runtime.
pub fn blocking<T: Send>(future: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(future)
        });
        thread.join().unwrap()
    })
}
