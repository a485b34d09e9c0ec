//! Takes the volume back to one of its snapshots.

use replica::DiskName;
use rpc::ptypes;

use crate::core::{Hold, Mode};
use crate::machine::together::{Done, Order, Undone};

use super::each::{each, judge};
use super::engine::{Engine, Replica, created_now};

/// Why the volume was not taken back. Texts are those callers match.
#[derive(Debug, thiserror::Error)]
pub(super) enum RevertError {
    #[error("volume frontend enabled, aborting snapshot revert")]
    FrontendUp,
    #[error("not valid state to revert, rebuilding in process or all replica are in ERR state")]
    BadModes,
    #[error("cannot do revert since the target snapshot {0} is not found")]
    NotFound(String),
    #[error("cannot revert to removed snapshot {0}")]
    Removed(String),
    #[error("{0}")]
    Busy(String),
    #[error("cannot ask replica {address} for its snapshots: {detail}")]
    Silent { address: String, detail: String },
    #[error("failed to revert to snapshot {name}: {detail}")]
    Replicas { name: String, detail: String },
}

fn check_modes(modes: impl IntoIterator<Item = Mode>) -> Result<(), RevertError> {
    let (mut readable, mut rebuilding) = (false, false);
    for mode in modes {
        match mode {
            Mode::Rw => readable = true,
            Mode::Wo => rebuilding = true,
            Mode::Err => {}
        }
    }
    if readable && !rebuilding { Ok(()) } else { Err(RevertError::BadModes) }
}

/// Every replica must have the snapshot: they are to be equal afterwards.
fn check_target(name: &str, disk: &DiskName, seen: &[ptypes::Replica]) -> Result<(), RevertError> {
    for replica in seen {
        match replica.disks.get(disk.as_str()) {
            None => return Err(RevertError::NotFound(name.to_owned())),
            Some(found) if found.removed => return Err(RevertError::Removed(name.to_owned())),
            Some(_) => {}
        }
    }
    Ok(())
}

impl Engine {
    pub(super) async fn revert(&self, name: &str) -> Result<(), RevertError> {
        let _order = self.order.lock().await;
        if self.frontend_is_up() {
            return Err(RevertError::FrontendUp);
        }
        check_modes(self.replicas().iter().map(|replica| replica.mode))?;
        let missing = |_| RevertError::NotFound(name.to_owned());
        let disk = DiskName::of_snapshot(name).map_err(missing)?;
        let replicas = self.readable();
        check_target(name, &disk, &self.ask_each(&replicas).await?)?;
        let (limit, created) = (self.hold_limit(), created_now());
        let order = Order { hold: Hold::All, filling_too: false, size: None };
        let what = format!("revert to {name}");
        let reverted = self.together(
            &what,
            order,
            |link| {
                let (disk, created) = (disk.as_str().to_owned(), created.clone());
                async move { link.revert(limit, disk, created).await }
            },
            judge,
        );
        match reverted.await {
            Ok(Done { left: _ }) => {
                tracing::info!(snapshot = name, "reverted to snapshot {name}");
                Ok(())
            }
            Err(Undone::Busy(why)) => Err(RevertError::Busy(why)),
            Err(Undone::Replicas(detail) | Undone::Size(detail) | Undone::Record(detail)) => {
                Err(RevertError::Replicas { name: name.to_owned(), detail })
            }
        }
    }

    async fn ask_each(&self, replicas: &[Replica]) -> Result<Vec<ptypes::Replica>, RevertError> {
        let limit = self.hold_limit();
        let answers = each(replicas, |link| async move { link.get(limit).await }).await;
        let silent = |replica: &Replica, error: super::link::CallError| RevertError::Silent {
            address: replica.address.clone(),
            detail: error.to_string(),
        };
        let told = |(replica, answer): (&Replica, Result<_, _>)| {
            answer.map_err(|error| silent(replica, error))
        };
        replicas.iter().zip(answers).map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(removed: bool) -> ptypes::Replica {
        let disk = ptypes::DiskInfo { removed, ..Default::default() };
        let disks = [("volume-snap-a.img".to_owned(), disk)].into();
        ptypes::Replica { disks, ..Default::default() }
    }

    #[test]
    fn only_a_set_that_can_be_read_and_is_whole_is_reverted() {
        assert!(check_modes([Mode::Rw, Mode::Err]).is_ok());
        assert!(check_modes([Mode::Rw, Mode::Wo]).is_err());
        assert!(check_modes([Mode::Err]).is_err());
        assert!(check_modes([]).is_err());
    }

    #[test]
    fn the_target_must_be_everywhere_and_not_removed() {
        let disk = DiskName::of_snapshot("a").unwrap();
        let text = |seen: &[ptypes::Replica]| {
            check_target("a", &disk, seen).map_err(|error| error.to_string())
        };
        assert_eq!(text(&[holder(false)]), Ok(()));
        assert_eq!(
            text(&[holder(false), ptypes::Replica::default()]),
            Err("cannot do revert since the target snapshot a is not found".into())
        );
        assert_eq!(text(&[holder(true)]), Err("cannot revert to removed snapshot a".into()));
    }
}
