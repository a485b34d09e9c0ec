//! What an operator does after a failure, with the command line alone: start what is dead, start
//! an engine over what was healthy, rebuild the rest.

use std::process::Command;
use std::time::Duration;

use e2e::engine::{Engine, Setup, TIMEOUT, Volume, signal};
use rustix::process::Signal;
use testkit::process::poll_until;

use crate::plan::{Kind, Plan};

/// A volume, and what its operator knows of it.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) volume: Volume,
    /// Replicas that nobody saw fail.
    pub(crate) healthy: Vec<bool>,
    pub(crate) rebuilds: u64,
}

impl Operator {
    pub(crate) fn new(setup: Setup) -> Self {
        let healthy = vec![true; setup.replicas];
        Self { volume: Volume::start(setup), healthy, rebuilds: 0 }
    }

    fn counters(&self) -> bool {
        self.volume.setup.revision_counter
    }

    /// Kills as planned. What is said to die at one moment does: the engine is stopped before
    /// anything else, so that it cannot go on with what is left in between.
    pub(crate) fn kill(&mut self, plan: &Plan) {
        if plan.kills_engine() {
            signal(&self.volume.engine().process, Signal::STOP);
        }
        for index in &plan.victims {
            self.volume.replicas[*index].kill();
        }
        match plan.kind {
            Kind::Engine | Kind::EngineAndReplicas | Kind::Everything => self.volume.kill_engine(),
            Kind::Replicas => plan.victims.iter().for_each(|index| self.healthy[*index] = false),
            // Nobody knows who was last; the counters do.
            Kind::AllReplicas => {}
        }
    }

    /// Takes a replica away from a running volume, and starts its process anew.
    pub(crate) fn take_away(&mut self, index: usize) {
        let address = self.volume.replicas[index].address();
        self.volume.cli().run(&["rm-replica", &address]);
        self.healthy[index] = false;
        self.volume.replicas[index].restart();
    }

    /// Begins to rebuild a replica; whoever kills it, or the engine, ends the command too.
    pub(crate) fn begin_rebuild(&self, index: usize) -> Background {
        let size = self.volume.setup.size_bytes.to_string();
        let address = self.volume.replicas[index].address();
        self.background(&["add-replica", &address, "--size", &size, "--current-size", &size])
    }

    pub(crate) fn background(&self, arguments: &[&str]) -> Background {
        let cli = self.volume.cli();
        let arguments: Vec<String> = arguments.iter().map(|&it| it.to_owned()).collect();
        Background(Some(std::thread::spawn(move || {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            cli.call(&arguments).code == Some(0)
        })))
    }

    /// Until every replica is RW again.
    pub(crate) fn recover(&mut self) {
        if self.volume.engine.is_some() && !self.volume.modes().iter().any(|mode| mode == "RW") {
            self.volume.kill_engine();
        }
        if self.volume.engine.is_none() {
            self.start_over();
        }
        for index in 0..self.volume.replicas.len() {
            if self.volume.mode(index).as_deref() != Some("RW") {
                self.volume.rebuild(index);
                self.rebuilds += 1;
            }
            self.healthy[index] = true;
        }
    }

    /// New processes for all replicas, and an engine over those that may be used. With counters
    /// the engine finds out itself which those are.
    fn start_over(&mut self) {
        for replica in &mut self.volume.replicas {
            replica.restart();
        }
        let usable = self.healthy.iter().map(|healthy| *healthy || self.counters());
        let addresses: Vec<String> = (self.volume.replicas.iter().zip(usable))
            .filter(|(_, usable)| *usable)
            .map(|(replica, _)| replica.address())
            .collect();
        let arguments = self.volume.engine_arguments_for(&addresses);
        let engine = Engine::start(self.volume.scratch(), &self.volume.name, &arguments);
        self.volume.engine = Some(engine);
    }

    /// Whether a snapshot is being merged away anywhere.
    pub(crate) fn wait_for_purge(&self) {
        let done = poll_until(TIMEOUT, || {
            let status = self.volume.cli().json(&["snapshot", "purge-status"]);
            let all = status.as_object()?;
            let errors = all.values().filter_map(|one| one["error"].as_str());
            assert!(errors.clone().all(str::is_empty), "purge: {status}");
            all.values().all(|one| one["isPurging"] != true).then_some(())
        });
        assert!(done.is_some(), "the purge does not end");
    }

    /// Keeps the directory of outputs small.
    pub(crate) fn forget_output(&self) {
        let scratch = self.volume.scratch();
        // Of processes that have long ended; those that run keep their open files.
        let _ = Command::new("find")
            .arg(scratch)
            .args(["-maxdepth", "1", "-name", "*.std*", "-mmin", "+10", "-delete"])
            .output();
    }
}

/// A command under way; waited for when dropped.
#[derive(Debug)]
pub(crate) struct Background(Option<std::thread::JoinHandle<bool>>);

impl Background {
    /// Whether it succeeded.
    pub(crate) fn wait(mut self) -> bool {
        self.0.take().is_some_and(|thread| thread.join().unwrap())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // What became of it was of no interest.
            let _ = thread.join();
        }
    }
}

/// The length of a pause is part of the experiment.
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
