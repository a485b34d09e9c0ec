//! Takes the steps on a real volume, and looks whether it is as it must be.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use engine::core::Command;
use futures::future::{join, join_all};
use rpc::ptypes::DiskInfo;
use tokio::runtime::Runtime;

use crate::engines::{Cli, Controller, TIMEOUT};
use crate::node::Node;
use crate::oracle::{Oracle, difference, pattern};
use crate::plan::{COPIES, Change, Directory, Plan, SIZE, Span, Standing, Step, Write};

pub(crate) struct World {
    oracle: Oracle,
    nodes: Vec<Node>,
    controller: Option<Controller>,
    /// How many there were.
    purges: usize,
    /// Last: what the others run on.
    runtime: Runtime,
}

/// How closely to look after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// At the volume.
    Quick,
    /// At each replica and every snapshot of it, too.
    Deep,
}

impl World {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        let mut nodes: Vec<_> = (0..COPIES).map(|_| Node::new(plan.revision_counter)).collect();
        runtime.block_on(async {
            for node in &mut nodes {
                node.start(SIZE).await;
            }
        });
        let mut world =
            Self { oracle: Oracle::new(SIZE), nodes, controller: None, purges: 0, runtime };
        world.launch(plan, &(0..COPIES).collect::<Vec<_>>());
        world
    }

    /// `plan` is as it is afterwards.
    pub(crate) fn take(&mut self, plan: &Plan, step: Step) {
        let look = match step {
            Step::Change(change) => self.change(change),
            Step::Flush => self.flush(),
            Step::Read(span) => self.read(span),
            Step::Snapshot => self.snapshot(plan.newest()),
            Step::Revert(name) => self.revert(&name),
            Step::MarkRemoved(name) => self.mark_removed(&name),
            Step::Purge(meanwhile) => self.purge(plan, &meanwhile),
            Step::Expand => self.expand(plan.size),
            Step::Kill(copy, meanwhile) => self.kill(plan, copy, &meanwhile),
            Step::Remove(copy) => self.remove(copy),
            Step::Add { copy, directory, meanwhile } => self.add(plan, copy, directory, meanwhile),
            Step::AddInVain { copy, directory, meanwhile } => {
                self.add_in_vain(plan, copy, directory, meanwhile)
            }
            Step::Restart { stale } => self.restart(plan, stale),
            Step::Blackout { purging } => self.blackout(plan, purging),
            Step::Crash { torn } => self.crash(plan, torn),
        };
        self.check(plan, look);
    }

    fn controller(&self) -> &Controller {
        self.controller.as_ref().unwrap()
    }

    fn cli(&self) -> Cli {
        self.controller().cli()
    }

    fn submit(&self, command: Command) {
        self.runtime.block_on(self.controller().submit(command));
    }

    /// An engine with those replicas.
    fn launch(&mut self, plan: &Plan, copies: &[usize]) {
        let addresses = copies.iter().map(|copy| self.nodes[*copy].address()).collect();
        let starting = Controller::start(addresses, plan.size, plan.revision_counter);
        self.controller = Some(self.runtime.block_on(starting));
    }
}

/// The steps.
impl World {
    fn change(&mut self, change: Change) -> Look {
        match change {
            Change::Write(write) => self.write(&write),
            Change::Zero(span) => self.zero(span),
            Change::Unmap(span) => self.unmap(span),
        }
    }

    fn write(&mut self, write: &Write) -> Look {
        let range = self.oracle.span(write);
        let bytes = pattern(&range, write.seed);
        self.runtime.block_on(self.controller().write(range.start, bytes, write.durable));
        self.oracle.write(write);
        Look::Quick
    }

    fn zero(&mut self, span: Span) -> Look {
        let range = span.within(self.oracle.volume.len() as u64);
        let (offset, len) = (range.start as u64, u32::try_from(range.len()).unwrap());
        self.submit(Command::Zero { offset, len, durable: false });
        self.oracle.zero(range);
        Look::Quick
    }

    /// What it reads afterwards is the volume's choice, but all replicas make the same.
    fn unmap(&mut self, span: Span) -> Look {
        let range = span.within(self.oracle.volume.len() as u64);
        let (offset, len) = (range.start as u64, u32::try_from(range.len()).unwrap());
        self.submit(Command::Unmap { offset, len });
        let all = 0..self.oracle.volume.len();
        let found = self.runtime.block_on(self.controller().read(all));
        self.oracle.unmapped(&range, &found);
        Look::Deep
    }

    fn flush(&self) -> Look {
        self.submit(Command::Flush);
        Look::Quick
    }

    fn read(&self, span: Span) -> Look {
        let range = span.within(self.oracle.volume.len() as u64);
        let found = self.runtime.block_on(self.controller().read(range.clone()));
        assert_eq!(difference(&found, &self.oracle.volume[range]), None);
        Look::Quick
    }

    fn snapshot(&mut self, name: String) -> Look {
        assert_eq!(self.cli().run(&format!("snapshots create {name}")).trim(), name);
        self.oracle.snapshot(name);
        Look::Quick
    }

    fn revert(&mut self, name: &str) -> Look {
        self.cli().run(&format!("snapshots revert {name}"));
        self.oracle.revert(name);
        Look::Deep
    }

    fn mark_removed(&mut self, name: &str) -> Look {
        self.cli().run(&format!("snapshots rm {name}"));
        self.oracle.snapshots.remove(name);
        Look::Quick
    }

    fn purge(&mut self, plan: &Plan, meanwhile: &[Write]) -> Look {
        // The two ways take turns.
        let fold = self.purges.is_multiple_of(2);
        self.purges += 1;
        self.cli().run(if fold { "snapshots purge --fold-head-parent" } else { "snapshots purge" });
        for write in meanwhile {
            self.write(write);
        }
        let ended = |out: &str| !out.contains("\"isPurging\": true");
        let status = self.cli().until("snapshots purge-status", ended);
        let mut errors = status.lines().filter(|line| line.contains("\"error\""));
        assert!(errors.all(|line| line.contains("\"\"")), "{status}");
        for copy in plan.standing(Standing::In) {
            let seen = self.runtime.block_on(self.nodes[copy].get());
            let is_left = |(name, disk): &(&String, &DiskInfo)| {
                let stays = !fold && **name == seen.parent;
                disk.removed && disk.children.len() < 2 && !stays
            };
            assert_eq!(seen.disks.iter().find(is_left), None, "replica {copy}");
        }
        Look::Deep
    }

    fn expand(&mut self, size: u64) -> Look {
        self.cli().run(&format!("expand --size {size}"));
        let ended = |out: &str| !out.contains("\"isExpanding\": true");
        let info = self.cli().until("info", ended);
        assert!(info.contains(&format!("\"size\": {size}")), "{info}");
        assert!(info.contains("\"lastExpansionError\": \"\""), "{info}");
        self.oracle.grow(size);
        Look::Deep
    }

    fn kill(&mut self, plan: &Plan, copy: usize, meanwhile: &[Write]) -> Look {
        let controller = self.controller.as_ref().unwrap();
        let mut writing = Vec::new();
        let mut apart: Vec<Range<usize>> = Vec::new();
        for write in meanwhile {
            let range = self.oracle.span(write);
            // Which of two that meet is last is nobody's business.
            if apart.iter().all(|other| other.end <= range.start || range.end <= other.start) {
                apart.push(range.clone());
                let bytes = pattern(&range, write.seed);
                writing.push(controller.write(range.start, bytes, write.durable));
                self.oracle.write(write);
            }
        }
        let left = plan.standing(Standing::In).len();
        self.runtime.block_on(join(join_all(writing), self.nodes[copy].kill()));
        self.runtime.block_on(controller.until_usable(left));
        Look::Quick
    }

    fn remove(&mut self, copy: usize) -> Look {
        self.cli().run(&format!("rm-replica {}", self.nodes[copy].address()));
        Look::Quick
    }

    fn add(
        &mut self,
        plan: &Plan,
        copy: usize,
        directory: Directory,
        meanwhile: Vec<Change>,
    ) -> Look {
        let line = self.newcomer(plan, copy, directory);
        self.oracle.freeze();
        let cli = self.cli();
        std::thread::scope(|scope| {
            let adding = scope.spawn(move || cli.run(&line));
            for change in meanwhile {
                self.change(change);
                self.oracle.freeze();
            }
            adding.join().unwrap();
        });
        Look::Deep
    }

    fn add_in_vain(
        &mut self,
        plan: &Plan,
        copy: usize,
        directory: Directory,
        meanwhile: Vec<Change>,
    ) -> Look {
        let line = self.newcomer(plan, copy, directory);
        self.oracle.freeze();
        let cli = self.cli();
        std::thread::scope(|scope| {
            let adding = scope.spawn(move || cli.attempt(&line));
            for change in meanwhile {
                self.change(change);
                self.oracle.freeze();
            }
            self.runtime.block_on(self.nodes[copy].kill());
            // It may have been done by then.
            let _ = adding.join().unwrap();
        });
        self.remove(copy);
        Look::Deep
    }

    /// Starts a replica in such a directory; the line that adds it.
    fn newcomer(&mut self, plan: &Plan, copy: usize, directory: Directory) -> String {
        let size = match directory {
            Directory::Old | Directory::FreshAndSmall => SIZE,
            Directory::Fresh => plan.size,
        };
        let node = &mut self.nodes[copy];
        self.runtime.block_on(async {
            node.kill().await;
            if directory != Directory::Old {
                node.clear();
            }
            node.start(size).await;
        });
        let (size, address) = (plan.size, node.address());
        format!("add-replica --size {size} --current-size {size} {address}")
    }

    fn restart(&mut self, plan: &Plan, stale: bool) -> Look {
        let controller = self.controller.take().unwrap();
        self.runtime.block_on(controller.shut_down());
        for copy in plan.standing(Standing::In) {
            let seen = self.runtime.block_on(self.nodes[copy].get());
            assert_eq!((seen.state.as_str(), seen.dirty), ("closed", false));
        }
        let mut with = plan.standing(Standing::In);
        if stale {
            let failed = plan.standing(Standing::Failed);
            for copy in &failed {
                let node = &mut self.nodes[*copy];
                if !node.is_running() {
                    self.runtime.block_on(node.start(SIZE));
                }
            }
            // The engine must tell them by more than their order.
            with = failed.into_iter().chain(with).collect();
        }
        self.launch(plan, &with);
        Look::Deep
    }

    fn crash(&mut self, plan: &Plan, torn: Option<(usize, Write)>) -> Look {
        let with = plan.standing(Standing::In);
        let controller = self.controller.take().unwrap();
        self.runtime.block_on(controller.die());
        if let Some((copy, write)) = &torn {
            let range = self.oracle.span(write);
            let bytes = Bytes::from(pattern(&range, write.seed));
            self.runtime.block_on(self.nodes[*copy].write(range.start, bytes));
        }
        for copy in &with {
            self.runtime.block_on(abandoned(&self.nodes[*copy]));
        }
        self.launch(plan, &with);
        if let Some((_, write)) = torn {
            let found = self.runtime.block_on(self.controller().read(0..self.oracle.volume.len()));
            self.oracle.torn(&write, &found);
            // The replicas may differ until they were made equal, and a snapshot waits for that;
            // what is read must not change on the way there.
            self.check_volume(COPIES);
            // A name of its own each time: the one before may have stayed as the parent of the head.
            let name = format!("equal-{}", self.purges);
            self.cli().run(&format!("snapshots create {name}"));
            self.cli().run(&format!("snapshots rm {name}"));
            self.purge(plan, &[]);
        }
        Look::Deep
    }
}

impl World {
    /// Everything dies at once and comes back.
    fn blackout(&mut self, plan: &Plan, purging: bool) -> Look {
        if purging {
            self.cli().run("snapshots purge");
        }
        let with = plan.standing(Standing::In);
        let controller = self.controller.take().unwrap();
        self.runtime.block_on(controller.die());
        self.runtime.block_on(join_all(self.nodes.iter_mut().map(Node::kill)));
        for copy in &with {
            self.runtime.block_on(self.nodes[*copy].start(SIZE));
        }
        self.launch(plan, &with);
        Look::Deep
    }
}

/// Waits until no engine is connected any more; nobody closed it.
async fn abandoned(node: &Node) {
    let gone = async {
        loop {
            let seen = node.get().await;
            assert_ne!(seen.state, "closed");
            if seen.holdfast_engines == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let gone = tokio::time::timeout(TIMEOUT, gone).await;
    gone.expect("waited in vain for the engine to be gone");
}

/// What must be.
impl World {
    fn check(&self, plan: &Plan, look: Look) {
        self.check_modes(plan);
        self.check_volume(plan.standing(Standing::In).len());
        if look == Look::Deep {
            for copy in plan.standing(Standing::In) {
                let found = self.runtime.block_on(self.nodes[copy].read(self.oracle.volume.len()));
                let differs = difference(&found, &self.oracle.volume);
                assert_eq!(differs, None, "replica {copy}, (sector, byte)");
                self.check_snapshots(copy);
            }
        }
    }

    fn check_modes(&self, plan: &Plan) {
        let listed = self.cli().run("ls-replica");
        for (copy, node) in self.nodes.iter().enumerate() {
            let address = node.address();
            let mut lines = listed.lines().map(|line| line.split_whitespace());
            let mode = lines.find_map(|mut words| {
                (words.next() == Some(&address)).then(|| words.next().unwrap())
            });
            let wanted = match plan.copies[copy] {
                Standing::In => Some("RW"),
                Standing::Failed => Some("ERR"),
                Standing::Out => None,
            };
            assert_eq!(mode, wanted, "mode of replica {copy} in\n{listed}");
        }
    }

    /// So many reads, as each may be of another replica.
    fn check_volume(&self, times: usize) {
        for _ in 0..times {
            let all = 0..self.oracle.volume.len();
            let found = self.runtime.block_on(self.controller().read(all));
            let differs = difference(&found, &self.oracle.volume);
            assert_eq!(differs, None, "volume, (sector, byte)");
        }
    }

    fn check_snapshots(&self, copy: usize) {
        for (name, wanted) in &self.oracle.snapshots {
            let found = self.nodes[copy].snapshot(name);
            let mut wanted = wanted.clone();
            wanted.resize(self.oracle.volume.len(), 0);
            let differs = difference(&found, &wanted);
            assert_eq!(differs, None, "snapshot {name} of replica {copy}, (sector, byte)");
        }
    }

    /// The last look, and once more after all was closed and opened again.
    pub(crate) fn end(mut self, plan: &Plan) {
        self.check(plan, Look::Deep);
        let with = plan.standing(Standing::In);
        let controller = self.controller.take().unwrap();
        self.runtime.block_on(controller.shut_down());
        for node in &mut self.nodes {
            self.runtime.block_on(node.kill());
        }
        for copy in &with {
            self.check_snapshots(*copy);
            self.runtime.block_on(self.nodes[*copy].start(SIZE));
        }
        self.launch(plan, &with);
        for copy in with {
            let found = self.runtime.block_on(self.nodes[copy].read(self.oracle.volume.len()));
            let differs = difference(&found, &self.oracle.volume);
            assert_eq!(differs, None, "replica {copy} after all, (sector, byte)");
        }
        let controller = self.controller.take().unwrap();
        self.runtime.block_on(controller.shut_down());
    }
}
