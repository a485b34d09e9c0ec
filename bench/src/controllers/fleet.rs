//! Nodes in this process, with processes that only pretend to run.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use kube::Client;
use reconcile::{Context, Metrics};
use tasks::Tasks;
use tokio::sync::oneshot;

use super::processes::Pretended;

/// The nodes of a measurement; they go with it.
#[derive(Debug)]
pub(super) struct Fleet {
    tasks: Tasks,
    pub(super) names: Vec<String>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.tasks.begin_stop();
    }
}

impl Fleet {
    /// Each has an address of its own, and so all the ports there.
    pub(super) fn start(kubeconfig: &kube::Config, count: u8, dir: &Path) -> Result<Self> {
        let tasks = Tasks::new();
        let mut names = Vec::new();
        for number in 1..=count {
            let name = format!("node-{number}");
            let data = dir.join(&name);
            std::fs::create_dir_all(&data)?;
            let client = Client::try_from(kubeconfig.clone())?;
            let mut registry = telemetry::Registry::new("bench");
            let metrics = Metrics::new(&mut registry, &[]);
            let options = volumes::node::Options {
                name: name.clone(),
                machine: volumes::node::machine(&data)?,
                disk: data.join("disk"),
                programs: data.join("programs"),
            };
            let host =
                Arc::new(Pretended::at(IpAddr::V4(Ipv4Addr::new(127, 0, 9, number)), &tasks));
            let context = Context::new("node", client, &tasks, metrics);
            let (refused, _) = oneshot::channel();
            tasks.spawn(&name, volumes::node::run(context, options, host, refused));
            names.push(name);
        }
        Ok(Self { tasks, names })
    }
}
