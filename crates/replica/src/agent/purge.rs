//! Removing snapshots nobody wants any more. Owns what goes next ([`next`], pure) and the long
//! copying; every change of the chain is a verb of the replica.
//!
//! Nothing of the progress is kept: each step looks at the replica as it is, so a purge that was
//! cut short anywhere is simply run again, and one that is overtaken by a snapshot or a revert goes
//! on with what it finds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt as _;
use rpc::ptypes::{
    DiskMarkAsRemovedRequest, DiskPrepareRemoveRequest, DiskRemoveRequest, DiskReplaceRequest,
    PrepareRemoveAction, Replica,
};
use rpc::upkeep::MergeHeadParentRequest;
use rpc::{Deadline, Features, HeadParent};

use super::Agent;
use super::error::{Asking, JobError};
use super::own::OwnReplica;
use super::status::{Claim, Kind};
use crate::disk::{
    Coalesce, DiskName, Progress, Prune, PurgeDisk, PurgeStep as Step, next_purge_step,
};

/// Copied before the agent looks whether it is to end.
const STEP_BYTES: u64 = 32 * 1024 * 1024;

/// Begins a purge, or says why not.
pub(crate) async fn start(
    agent: &Arc<Agent>,
    head_parent: HeadParent,
    engine: Option<wire::membership::Claim>,
) -> Result<(), JobError> {
    agent.check_claim(engine.as_ref()).await?;
    let claim = agent.statuses.begin(Kind::Purge, &agent.replica, |_| {})?;
    let purge = Purge { agent: Arc::clone(agent), claim, head_parent, done: 0, total: 0 };
    match purge.replica().await {
        Ok(found) if found.rebuilding => {
            let rejection = Err(JobError::PurgeWhileRebuilding(agent.replica.to_string()));
            purge.claim.finish(&rejection);
            return rejection;
        }
        Ok(_) => {}
        Err(error) => {
            let failed = Err(error);
            purge.claim.finish(&failed);
            return failed;
        }
    }
    agent.tasks.spawn("purge snapshots", purge.run());
    Ok(())
}

struct Purge {
    agent: Arc<Agent>,
    claim: Claim,
    /// What was asked for.
    head_parent: HeadParent,
    /// Disks dealt with, of so many.
    done: usize,
    total: usize,
}

impl Purge {
    async fn run(mut self) {
        let outcome = self.work().await;
        if let Err(error) = &outcome {
            tracing::warn!(error = error.text(), "the snapshots were not purged");
        }
        self.claim.finish(&outcome);
    }

    async fn work(&mut self) -> Result<(), JobError> {
        self.mark_system().await?;
        let mut settled = BTreeSet::new();
        loop {
            let replica = self.replica().await?;
            self.total = self.total.max(self.done + removed(&replica));
            let can_fold = Features(replica.holdfast_features).has(Features::UPKEEP);
            let head_parent = if can_fold { self.head_parent } else { HeadParent::Keep };
            let Some(step) = next(&replica, head_parent, &settled) else { return Ok(()) };
            match &step {
                Step::Dispose(disk) => self.dispose(disk).await?,
                Step::FoldHeadParent(_) => self.merge_head_parent().await?,
            }
            // Whether it went or had to stay: it had its turn.
            settled.insert(step.into_disk());
            self.done += 1;
            self.progress(0);
        }
    }

    async fn mark_system(&self) -> Result<(), JobError> {
        let replica = self.replica().await?;
        for name in system(&replica) {
            let request = DiskMarkAsRemovedRequest { name: name.clone() };
            self.client()?
                .disk_mark_as_removed(request)
                .await
                .asking(format!("mark {name} as removed"), &self.agent.replica)?;
        }
        Ok(())
    }

    /// Does what the replica says it takes to be rid of a disk.
    async fn dispose(&self, disk: &str) -> Result<(), JobError> {
        let request = DiskPrepareRemoveRequest { name: disk.to_owned() };
        let prepared = self
            .client()?
            .disk_prepare_remove(request)
            .await
            .asking(format!("prepare the removal of {disk}"), &self.agent.replica)?;
        for action in prepared.operations {
            self.act(action).await?;
        }
        Ok(())
    }

    async fn act(&self, action: PrepareRemoveAction) -> Result<(), JobError> {
        let PrepareRemoveAction { action, source, target } = action;
        let peer = &self.agent.replica;
        match action.as_str() {
            "remove" => {
                let doing = format!("remove {source}");
                let request = DiskRemoveRequest { name: source, force: false };
                self.client()?.disk_remove(request).await.asking(doing, peer).map(drop)
            }
            "coalesce" => self.coalesce(&source, &target).await,
            "replace" => {
                let doing = format!("replace {target} by {source}");
                let request = DiskReplaceRequest { target, source };
                self.client()?.disk_replace(request).await.asking(doing, peer).map(drop)
            }
            "prune" => self.prune(&source, &target).await,
            _ => Err(JobError::UnknownAction(action)),
        }
    }

    /// Copies what the child holds into its removed parent, in steps.
    async fn coalesce(&self, source: &str, target: &str) -> Result<(), JobError> {
        let (dir, tasks) = (self.agent.dir.clone(), &self.agent.tasks);
        let (parent, child) = (DiskName::parse(source)?, DiskName::parse(target)?);
        let begin = move || Coalesce::new(&dir, &parent, &child);
        let mut work = tasks.blocking("begin to coalesce", begin).await??;
        loop {
            let step = move || work.step(STEP_BYTES).map(|progress| (progress, work));
            let (progress, rest) = tasks.blocking("coalesce", step).await??;
            match progress {
                Progress::Done => return Ok(()),
                Progress::Working(percent) => self.progress(percent),
            }
            work = rest;
        }
    }

    /// Frees in the parent of the head what the head hides.
    async fn prune(&self, source: &str, target: &str) -> Result<(), JobError> {
        let (dir, tasks) = (self.agent.dir.clone(), &self.agent.tasks);
        let (parent, head) = (DiskName::parse(source)?, DiskName::parse(target)?);
        let begin = move || Prune::new(&dir, &parent, &head);
        let mut work = tasks.blocking("begin to prune", begin).await??;
        loop {
            let step = move || work.step().map(|progress| (progress, work));
            let (progress, rest) = tasks.blocking("prune", step).await??;
            match progress {
                Progress::Done => return Ok(()),
                Progress::Working(percent) => self.progress(percent),
            }
            work = rest;
        }
    }

    /// The replica does it, since only it may touch the head.
    async fn merge_head_parent(&self) -> Result<(), JobError> {
        let peer = &self.agent.replica;
        let doing = "merge the parent of the head";
        let mut own = self.agent.own_upkeep(Deadline::Long)?;
        let begun = own.merge_head_parent(MergeHeadParentRequest {}).await;
        let mut steps = begun.asking(doing, peer)?;
        while let Some(step) = steps.next().await {
            let step = step.map(tonic::Response::new).asking(doing, peer)?;
            let percent = u128::from(step.done) * 100 / u128::from(step.total.max(1));
            self.progress(u8::try_from(percent).unwrap_or(100));
        }
        Ok(())
    }

    async fn replica(&self) -> Result<Replica, JobError> {
        let answer = self.client()?.replica_get(()).await.asking("ask", &self.agent.replica)?;
        answer.replica.ok_or(JobError::NoReplica)
    }

    fn client(&self) -> Result<OwnReplica, JobError> {
        self.agent.own_replica(Deadline::Usual)
    }

    /// With so many percent of the present disk.
    fn progress(&self, percent: u8) {
        let done = self.done.saturating_mul(100).saturating_add(usize::from(percent));
        let all = done.checked_div(self.total.max(1)).unwrap_or(0);
        self.claim.progress(u8::try_from(all).unwrap_or(99));
    }
}

/// Snapshots that no user made and that are not removed yet.
fn system(replica: &Replica) -> Vec<String> {
    let is_snapshot = |name: &str| name != replica.head && name != replica.backing_file;
    let mut names: Vec<_> = replica
        .disks
        .iter()
        .filter(|(name, disk)| is_snapshot(name) && !disk.user_created && !disk.removed)
        .map(|(name, _)| name.clone())
        .collect();
    names.sort();
    names
}

fn removed(replica: &Replica) -> usize {
    replica.disks.iter().filter(|(name, disk)| disk.removed && **name != replica.head).count()
}

fn next(replica: &Replica, head_parent: HeadParent, settled: &BTreeSet<String>) -> Option<Step> {
    let disk = |info: &rpc::ptypes::DiskInfo| PurgeDisk {
        parent: info.parent.clone(),
        removed: info.removed,
    };
    let disks: BTreeMap<String, PurgeDisk> =
        replica.disks.iter().map(|(name, info)| (name.clone(), disk(info))).collect();
    next_purge_step(&disks, &replica.head, head_parent, settled)
}

#[cfg(test)]
mod tests {
    use rpc::ptypes::DiskInfo;

    use super::*;

    /// `(name, parent)`; a name that ends in `-` is removed.
    fn replica(disks: &[(&str, &str)]) -> Replica {
        let bare = |name: &str| name.trim_end_matches('-').to_owned();
        let disk = |(name, parent): &(&str, &str)| {
            let info = DiskInfo {
                name: bare(name),
                parent: bare(parent),
                removed: name.ends_with('-'),
                user_created: true,
                ..DiskInfo::default()
            };
            (bare(name), info)
        };
        Replica {
            head: "head".to_owned(),
            backing_file: "/backing".to_owned(),
            disks: disks.iter().map(disk).collect(),
            ..Replica::default()
        }
    }

    /// All steps, with a replica that does what it is told.
    fn steps(mut replica: Replica, head_parent: HeadParent) -> (Vec<Step>, Vec<String>) {
        let mut taken = Vec::new();
        let mut settled = BTreeSet::new();
        while let Some(step) = next(&replica, head_parent, &settled) {
            taken.push(step.clone());
            assert!(taken.len() < 20);
            let pruned = head_parent == HeadParent::Keep;
            let disk = step.into_disk();
            let children: Vec<_> = replica
                .disks
                .iter()
                .filter(|(_, info)| info.parent == disk)
                .map(|(name, _)| name.clone())
                .collect();
            if !(pruned && children == ["head"]) {
                let gone = replica.disks.remove(&disk).unwrap();
                for child in children {
                    replica.disks.get_mut(&child).unwrap().parent.clone_from(&gone.parent);
                }
            }
            settled.insert(disk);
        }
        let mut left: Vec<_> = replica.disks.into_keys().collect();
        left.sort();
        (taken, left)
    }

    fn dispose(name: &str) -> Step {
        Step::Dispose(name.to_owned())
    }

    fn merge(name: &str) -> Step {
        Step::FoldHeadParent(name.to_owned())
    }

    #[test]
    fn removed_disks_go_root_first_and_the_parent_of_the_head_last() {
        let chain = [("head", "d-"), ("d-", "c"), ("c", "b-"), ("b-", "a-"), ("a-", "")];
        let (taken, left) = steps(replica(&chain), HeadParent::Fold);
        assert_eq!(taken, [dispose("a"), dispose("b"), merge("d")]);
        assert_eq!(left, ["c", "head"]);
        let (taken, left) = steps(replica(&chain), HeadParent::Keep);
        assert_eq!(taken, [dispose("a"), dispose("b"), dispose("d")]);
        assert_eq!(left, ["c", "d", "head"], "what cannot be merged stays");
    }

    #[test]
    fn what_an_unmap_can_reach_is_left_to_the_replica() {
        let chain = [("head", "c-"), ("c-", "b-"), ("b-", "a-"), ("a-", "")];
        let (taken, left) = steps(replica(&chain), HeadParent::Fold);
        assert_eq!(taken, [merge("c"), merge("b"), merge("a")]);
        assert_eq!(left, ["head"]);
        let (taken, left) = steps(replica(&chain), HeadParent::Keep);
        assert_eq!(taken, [dispose("a"), dispose("b"), dispose("c")]);
        assert_eq!(left, ["c", "head"]);
    }

    #[test]
    fn branches_hold_what_they_share_and_removed_leaves_go() {
        let tree = [("head", "b"), ("b", "a-"), ("a-", ""), ("side", "a-"), ("leaf-", "side")];
        let (taken, left) = steps(replica(&tree), HeadParent::Fold);
        assert_eq!(taken, [dispose("leaf")]);
        assert_eq!(left, ["a", "b", "head", "side"]);
        let fork = [("head", "a-"), ("side", "a-"), ("a-", "")];
        let (taken, _) = steps(replica(&fork), HeadParent::Fold);
        assert_eq!(taken, [], "the parent of the head is not the head's alone");
        let freed = [("head", "a-"), ("side-", "a-"), ("a-", "")];
        let (taken, left) = steps(replica(&freed), HeadParent::Fold);
        assert_eq!((taken, left), (vec![dispose("side"), merge("a")], vec!["head".to_owned()]));
    }

    #[test]
    fn snapshots_no_user_made_are_marked_but_not_the_head_or_the_backing_file() {
        let mut found =
            replica(&[("head", "a"), ("a", "b"), ("b", "c-"), ("c-", ""), ("/backing", "")]);
        for info in found.disks.values_mut() {
            info.user_created = info.name == "a";
        }
        assert_eq!(system(&found), ["b"]);
    }

    #[test]
    fn a_circle_ends() {
        let circle = replica(&[("head", "a-"), ("a-", "b-"), ("b-", "a-")]);
        let _ = next(&circle, HeadParent::Fold, &BTreeSet::new());
    }
}
