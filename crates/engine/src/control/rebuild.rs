//! The controller's part of a rebuild: says which files the new replica needs, and lets it be read
//! from once it has them all.

use std::collections::{BTreeSet, VecDeque};

use rpc::ptypes;
use wire::membership::Filling;

use crate::core::{Mode, ReplicaId};
use crate::machine::rebuild::{self as machine, Compared, Verified, VerifyEvent, VerifyStep};

use super::engine::{Busy, CALL_LIMIT, Engine, Replica};
use super::link::CallError;
use super::probe;
use super::replicas::ReplicaError;

/// Why a rebuild does not begin or end. Texts are those callers match.
#[derive(Debug, thiserror::Error)]
pub(super) enum RebuildError {
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    #[error("replica {address} is in mode {mode}, only one in mode WO is rebuilt")]
    NotWo { address: String, mode: &'static str },
    #[error("cannot find any healthy replica")]
    NoSource,
    #[error("replica {0} was removed and added again meanwhile")]
    Another(String),
    #[error("replica {0} is still being rebuilt")]
    Rebuilding(String),
    #[error(
        "replica {0} was not filled since it was added: copy or restore the volume to it first"
    )]
    NotFilled(String),
    #[error("replica {address}: {detail}")]
    Standing { address: String, detail: String },
    #[error("replica {0}'s disk number is not equal to that of RW replica {1}")]
    DiskNumber(String, String),
    #[error("replica {0}'s chain not equal to RW replica {1}'s chain")]
    Chain(String, String),
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error("replica {address}: {source}")]
    Call { address: String, source: CallError },
}

/// The snapshots of a replica: its disks without the head and the backing file.
fn snapshots(replica: &ptypes::Replica) -> BTreeSet<&str> {
    let names = replica.disks.keys().map(String::as_str);
    names.filter(|name| *name != replica.head && *name != replica.backing_file).collect()
}

/// The name of the metadata beside the image `disk`.
fn meta_of(disk: &str) -> String {
    format!("{disk}.meta")
}

/// The files a rebuild copies, each snapshot and its metadata, under the names they have.
fn files(source: &ptypes::Replica) -> Vec<ptypes::SyncFileInfo> {
    let file = |name: String, actual_size| ptypes::SyncFileInfo {
        from_file_name: name.clone(),
        to_file_name: name,
        actual_size,
    };
    let size = |name: &str| source.disks.get(name).and_then(|disk| disk.size.parse().ok());
    snapshots(source)
        .into_iter()
        .flat_map(|name| [file(name.to_owned(), size(name).unwrap_or(0)), file(meta_of(name), 0)])
        .collect()
}

/// Which of those is meant that are at an address one after the other: what was copied to one that was
/// removed is not all that the next one there needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joined {
    As(Option<ReplicaId>),
    /// The one that is there: callers of the dialect know addresses only.
    Whenever,
}

/// Whether a replica that turns out to be whole goes on saying that it is being rebuilt. Callers of the
/// dialect end that themselves, and some replicas refuse to end it twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marks {
    Stay,
    Go,
}

/// What verifying comes to for a replica in `mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verify {
    /// It is read from already.
    Done,
    Compare,
    /// It is all there is of the volume: a restored volume of which only this copy is left.
    Alone,
    Refuse,
    NoSource,
}

fn decide_verify(mode: Mode, others: &[Mode]) -> Verify {
    match mode {
        Mode::Rw => Verify::Done,
        Mode::Err => Verify::Refuse,
        Mode::Wo if others.contains(&Mode::Rw) => Verify::Compare,
        Mode::Wo if others.iter().all(|other| *other == Mode::Err) => Verify::Alone,
        Mode::Wo => Verify::NoSource,
    }
}

fn compare(
    new: (&str, &ptypes::Replica),
    source: (&str, &ptypes::Replica),
) -> Result<(), RebuildError> {
    let (has, wants) = (snapshots(new.1), snapshots(source.1));
    let names = || (new.0.to_owned(), source.0.to_owned());
    if has.len() != wants.len() {
        let (new, source) = names();
        return Err(RebuildError::DiskNumber(new, source));
    }
    if has != wants {
        let (new, source) = names();
        return Err(RebuildError::Chain(new, source));
    }
    Ok(())
}

/// Equal names say nothing of what is in the files: a replica that keeps a standing also knows
/// whether all of them came here since it joined.
fn check_filled(address: &str, seen: &ptypes::Replica) -> Result<(), RebuildError> {
    let bad = |detail: String| RebuildError::Standing { address: address.to_owned(), detail };
    match probe::standing(seen).map_err(|error| bad(error.to_string()))? {
        Some(standing) if standing.filling == Filling::Wanted => {
            Err(RebuildError::NotFilled(address.to_owned()))
        }
        Some(_) | None => Ok(()),
    }
}

impl Engine {
    /// Makes the WO replica at `address` ready to be filled, and says with what.
    pub(super) async fn prepare_rebuild(
        &self,
        address: &str,
        joined: Joined,
    ) -> Result<(Replica, Vec<ptypes::SyncFileInfo>), RebuildError> {
        let _order = self.order.lock().await;
        let new = self.find_joined(address, joined)?;
        if new.mode != Mode::Wo {
            let mode = super::replicas::show_mode(new.mode).as_str_name();
            return Err(RebuildError::NotWo { address: address.to_owned(), mode });
        }
        // Peers try for minutes to reach one that does not answer; a dead one is known to be.
        let died = self.any_failed(new.member.as_slice());
        tokio::select! {
            prepared = self.prepare(&new) => Ok((new.clone(), prepared?)),
            () = died => {
                Err(RebuildError::NotWo { address: address.to_owned(), mode: "ERR" })
            }
        }
    }

    /// Takes away what the others do not have, and says what they have.
    async fn prepare(&self, new: &Replica) -> Result<Vec<ptypes::SyncFileInfo>, RebuildError> {
        let address = &new.address;
        let call = |source| RebuildError::Call { address: address.clone(), source };
        let before = new.link.get(CALL_LIMIT).await.map_err(call)?;
        let (source, wanted) = self.source().await?;
        if !before.revision_counter_disabled {
            new.link.set_counter(CALL_LIMIT, 0).await.map_err(call)?;
        }
        let wanted_disks = snapshots(&wanted);
        for extra in snapshots(&before).difference(&wanted_disks) {
            new.link.remove_disk(CALL_LIMIT, (*extra).to_owned()).await.map_err(call)?;
        }
        self.copy_head_meta(&source, &wanted.head, new, &before.head).await?;
        Ok(files(&wanted))
    }

    /// A replica that can be read and answers, with what it says of itself.
    async fn source(&self) -> Result<(Replica, ptypes::Replica), RebuildError> {
        for replica in self.readable() {
            match replica.link.get(self.hold_limit()).await {
                Ok(seen) => return Ok((replica, seen)),
                Err(error) => {
                    let address = &replica.address;
                    tracing::warn!(replica = address, %error, "replica {address} is no source");
                }
            }
        }
        Err(RebuildError::NoSource)
    }

    /// Gives the new head the parent the source's head has.
    async fn copy_head_meta(
        &self,
        source: &Replica,
        from: &str,
        new: &Replica,
        to: &str,
    ) -> Result<(), RebuildError> {
        let http_timeout = self.options.file_sync_http_client_timeout;
        let copied = source
            .link
            .copy_file(CALL_LIMIT, meta_of(from), &new.link, meta_of(to), http_timeout)
            .await;
        let address = source.address.clone();
        copied.map_err(|source| RebuildError::Call { address, source })
    }

    /// Lets the rebuilt or restored replica at `address` be read from, if it has what the others
    /// have. If it has not, it is failed.
    pub(super) async fn verify_rebuild(&self, address: &str) -> Result<Replica, RebuildError> {
        self.verify(address, Joined::Whenever, Marks::Stay).await
    }

    /// The same for one that this engine fills: nobody comes afterwards to say that it is rebuilt.
    pub(super) async fn verify_and_unmark(&self, new: &Replica) -> Result<Replica, RebuildError> {
        self.verify(&new.address, Joined::As(new.member), Marks::Go).await
    }

    fn find_joined(&self, address: &str, joined: Joined) -> Result<Replica, RebuildError> {
        let found = self.find(address).ok_or_else(|| self.not_found(address))?;
        match joined {
            Joined::As(member) if member != found.member => {
                Err(RebuildError::Another(address.to_owned()))
            }
            Joined::As(_) | Joined::Whenever => Ok(found),
        }
    }

    async fn verify(
        &self,
        address: &str,
        joined: Joined,
        marks: Marks,
    ) -> Result<Replica, RebuildError> {
        let _order = self.order.lock().await;
        let new = self.find_joined(address, joined)?;
        let others = self.replicas();
        let others = others.iter().filter(|replica| replica.address != address);
        let modes: Vec<Mode> = others.map(|replica| replica.mode).collect();
        match decide_verify(new.mode, &modes) {
            Verify::Done => {
                if marks == Marks::Go {
                    self.unmark_verified(&new).await;
                }
                return Ok(new);
            }
            Verify::Refuse => {
                return Err(RebuildError::NotWo { address: address.to_owned(), mode: "ERR" });
            }
            Verify::NoSource => return Err(RebuildError::NoSource),
            Verify::Alone => self.verify_alone(&new).await?,
            Verify::Compare => self.verify_against_source(&new, marks).await?,
        }
        Ok(self.find(address).ok_or_else(|| self.not_found(address))?)
    }

    /// A record that names it; until then it is not known to be complete.
    async fn record_whole(&self, address: &str) {
        if let Err(error) = self.record().await {
            tracing::warn!(%error, "replicas cannot be told of {address}: {error}");
        }
        tracing::info!(replica = address, "replica {address} can be read from");
    }

    async fn verify_alone(&self, new: &Replica) -> Result<(), RebuildError> {
        let address = &new.address;
        let call = |source| RebuildError::Call { address: address.clone(), source };
        let seen = new.link.get(CALL_LIMIT).await.map_err(call)?;
        if seen.rebuilding {
            return Err(RebuildError::Rebuilding(address.clone()));
        }
        check_filled(address, &seen)?;
        self.make_readable(new).await;
        self.record_whole(address).await;
        Ok(())
    }

    async fn verify_against_source(&self, new: &Replica, marks: Marks) -> Result<(), RebuildError> {
        let address = &new.address;
        let (mut machine, first) = machine::Verify::begin(marks == Marks::Go);
        let mut steps = VecDeque::from([first]);
        let mut guard = None;
        let mut failure: Option<RebuildError> = None;
        while let Some(step) = steps.pop_front() {
            let event = match step {
                VerifyStep::Hold(kind) => match self.hold(kind).await {
                    Ok(held) => {
                        guard = Some(held);
                        VerifyEvent::Held
                    }
                    Err(busy) => {
                        failure = Some(busy.into());
                        VerifyEvent::Busy
                    }
                },
                VerifyStep::Compare => {
                    let compared = self.compare_with_source(new).await;
                    let event = VerifyEvent::Compared(judge(&compared));
                    failure = compared.err();
                    event
                }
                VerifyStep::Unmark => match self.unmark(new).await {
                    Ok(()) => VerifyEvent::Unmarked,
                    Err(error) => {
                        failure = Some(error);
                        VerifyEvent::NotUnmarked
                    }
                },
                VerifyStep::Fail => {
                    let why = failure.as_ref().map(ToString::to_string).unwrap_or_default();
                    self.fail(new, &format!("verify: {why}")).await;
                    continue;
                }
                VerifyStep::MakeReadable => {
                    self.make_readable(new).await;
                    continue;
                }
                VerifyStep::Release => {
                    drop(guard.take());
                    continue;
                }
                VerifyStep::Record => {
                    self.record_whole(address).await;
                    VerifyEvent::Recorded
                }
                VerifyStep::End(Verified::Whole) => return Ok(()),
                VerifyStep::End(Verified::Not) => break,
            };
            steps.extend(machine.on(event));
        }
        Err(failure.unwrap_or(RebuildError::NoSource))
    }

    /// Nothing changes meanwhile: it gets the count of changes that the others have.
    async fn compare_with_source(&self, new: &Replica) -> Result<(), RebuildError> {
        let address = &new.address;
        let call = |source| RebuildError::Call { address: address.clone(), source };
        let (source, wanted) = self.source().await?;
        let seen = new.link.get(self.hold_limit()).await.map_err(call)?;
        check_filled(address, &seen)?;
        compare((address, &seen), (&source.address, &wanted))?;
        if !seen.revision_counter_disabled {
            let counter = wanted.revision_counter;
            new.link.set_counter(self.hold_limit(), counter).await.map_err(call)?;
        }
        Ok(())
    }

    async fn unmark(&self, new: &Replica) -> Result<(), RebuildError> {
        let unmarked = new.link.set_rebuilding(self.hold_limit(), false).await;
        let address = new.address.clone();
        unmarked.map(drop).map_err(|source| RebuildError::Call { address, source })
    }

    /// Somebody else has had it verified meanwhile, and may not come to say that it is rebuilt.
    async fn unmark_verified(&self, new: &Replica) {
        let unmarked = match new.link.get(self.hold_limit()).await {
            Ok(seen) if seen.rebuilding => {
                self.unmark(new).await.map_err(|error| error.to_string())
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        // It is whole, whatever it says.
        if let Err(error) = unmarked {
            let address = &new.address;
            tracing::warn!(
                replica = address,
                error,
                "replica {address} stays marked as being rebuilt"
            );
        }
    }

    async fn make_readable(&self, replica: &Replica) {
        if let Some(member) = replica.member {
            self.volume.set_mode(member, Mode::Rw, "verified").await;
        }
    }
}

/// Whether the replica that was to be verified is to blame, and not the lack of one to compare
/// it with. One that is still being filled is left to that.
fn judge(compared: &Result<(), RebuildError>) -> Compared {
    match compared {
        Ok(()) => Compared::Alike,
        Err(RebuildError::DiskNumber(..) | RebuildError::Chain(..) | RebuildError::Call { .. }) => {
            Compared::Differs
        }
        Err(
            RebuildError::Replica(_)
            | RebuildError::NotWo { .. }
            | RebuildError::NoSource
            | RebuildError::Another(_)
            | RebuildError::Busy(_)
            | RebuildError::Standing { .. }
            | RebuildError::NotFilled(_)
            | RebuildError::Rebuilding(_),
        ) => Compared::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(head: &str, disks: &[(&str, &str)]) -> ptypes::Replica {
        let disk = |(name, size): &(&str, &str)| {
            let info = ptypes::DiskInfo { size: (*size).to_owned(), ..Default::default() };
            ((*name).to_owned(), info)
        };
        ptypes::Replica {
            head: head.into(),
            backing_file: "/b/base.img".into(),
            disks: disks.iter().map(disk).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn a_rebuild_copies_snapshots_and_their_metadata_and_nothing_else() {
        let source = replica("h1", &[("h1", "7"), ("/b/base.img", "9"), ("s", "4096")]);
        let listed: Vec<_> =
            files(&source).into_iter().map(|file| (file.to_file_name, file.actual_size)).collect();
        assert_eq!(listed, [("s".to_owned(), 4096), ("s.meta".to_owned(), 0)]);
    }

    #[test]
    fn heads_may_differ_and_snapshots_may_not() {
        let source = replica("h1", &[("h1", ""), ("a", ""), ("b", "")]);
        let text = |new: &ptypes::Replica| {
            compare(("N", new), ("S", &source)).map_err(|error| error.to_string())
        };
        assert_eq!(text(&replica("h2", &[("h2", ""), ("a", ""), ("b", "")])), Ok(()));
        assert_eq!(
            text(&replica("h2", &[("h2", ""), ("a", "")])),
            Err("replica N's disk number is not equal to that of RW replica S".into())
        );
        assert_eq!(
            text(&replica("h2", &[("h2", ""), ("a", ""), ("c", "")])),
            Err("replica N's chain not equal to RW replica S's chain".into())
        );
    }

    #[test]
    fn verifying_looks_at_the_mode_first_and_trusts_the_only_copy_left() {
        assert_eq!(decide_verify(Mode::Rw, &[]), Verify::Done);
        assert_eq!(decide_verify(Mode::Err, &[Mode::Rw]), Verify::Refuse);
        assert_eq!(decide_verify(Mode::Wo, &[Mode::Err, Mode::Rw]), Verify::Compare);
        assert_eq!(decide_verify(Mode::Wo, &[Mode::Err]), Verify::Alone);
        assert_eq!(decide_verify(Mode::Wo, &[]), Verify::Alone);
        assert_eq!(decide_verify(Mode::Wo, &[Mode::Wo]), Verify::NoSource);
    }
}
