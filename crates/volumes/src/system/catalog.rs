//! System backups that the default target has and no object tells of, as of a cluster that is lost; and objects of
//! those that it has no more.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::longhorn::{BackupTarget, SystemBackup, SystemState};
use kube::ResourceExt as _;
use reconcile::{Failure, Key, Next, Reconciler};

use super::World;
use crate::backup::deletion;
use crate::work::Stand;
use crate::{FINALIZER, NAMESPACE, target};

/// On an object that was made for what lies in the store.
const FOUND: &str = "holdfast.io/found-in-store";
/// There is one list at a time.
const LISTING: &str = "default";
/// A store that does not answer is asked again.
const AGAIN: Duration = Duration::from_secs(15);

/// What a look at the store went by.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    /// Which look of its target this one followed.
    look: String,
    /// What was whole then, and so must be in the list.
    known: BTreeSet<String>,
}

pub(super) fn is_found(save: &SystemBackup) -> bool {
    save.annotations().contains_key(FOUND)
}

/// One pass over the default target.
#[derive(Debug)]
pub(super) struct Catalog(pub(super) Arc<World>);

impl Reconciler for Catalog {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.0;
        if *key.name != *target::DEFAULT {
            return Ok(Next::WAIT);
        }
        let Some(look) = world.targets.get(key).and_then(|it| look_of(&it)) else {
            return Ok(Next::WAIT);
        };
        let entry = world.listings.look(LISTING);
        let mark = entry.as_ref().map(|it| it.mark.clone());
        match (entry.map(|it| it.stand), mark) {
            (Some(Stand::Running), _) => Ok(Next::WAIT),
            (Some(Stand::Ended(Ok(listed))), Some(mark)) => {
                show(world, &mark, &listed).await?;
                world.listings.forget(LISTING);
                *world.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(mark.look);
                Ok(Next::after(Duration::from_millis(10)))
            }
            (Some(Stand::Ended(failed)), _) => {
                tracing::debug!(?failed, "system backups cannot be listed now");
                world.listings.forget(LISTING);
                Ok(Next::after(AGAIN))
            }
            (Some(Stand::Broken), _) => {
                world.listings.forget(LISTING);
                Ok(Next::after(AGAIN))
            }
            (None, _) => {
                let shown = world.shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if shown.as_ref() != Some(&look) {
                    start(world, key, look);
                }
                Ok(Next::WAIT)
            }
        }
    }
}

/// The last look at a target that can be used.
fn look_of(target: &BackupTarget) -> Option<String> {
    let status = target.status.as_ref().filter(|it| it.available == Some(true))?;
    let url = target.spec.backup_target_url.as_deref().filter(|it| !it.trim().is_empty())?;
    Some(format!("{url} {:?}", status.last_synced_at?))
}

fn start(world: &Arc<World>, key: &Key, look: String) {
    let whole = |it: &Arc<SystemBackup>| {
        it.status.as_ref().and_then(|it| it.state.as_ref()) == Some(&SystemState::Ready)
    };
    let known = world.saves.list().iter().filter(|it| whole(it)).map(|it| it.name_any()).collect();
    let (own, tell) = (Arc::clone(world), (Arc::clone(&world.cataloguing), key.clone()));
    world.listings.start(LISTING, Mark { look, known }, tell, async move {
        let door = own.open().await?;
        let listed = door.store.list_system_backups().await;
        Ok(listed.map_err(|error| target::text(&error))?.into_keys().collect())
    });
}

/// Names that need an object, and those whose object tells of nothing any more.
fn differences(
    mark: &Mark,
    listed: &BTreeSet<String>,
    have: &BTreeSet<String>,
) -> (Vec<String>, Vec<String>) {
    let missing = listed.difference(have).cloned().collect();
    let gone = have.iter().filter(|it| mark.known.contains(*it) && !listed.contains(*it));
    (missing, gone.cloned().collect())
}

/// An object that goes because the list lacks what it is for. A store that comes back while it goes keeps what it
/// has: nobody has asked for that to be removed.
fn leaving(save: &SystemBackup) -> SystemBackup {
    deletion::marked(save)
}

async fn show(world: &World, mark: &Mark, listed: &BTreeSet<String>) -> Result<(), Failure> {
    let have = world.saves.list().iter().map(|it| it.name_any()).collect();
    let (missing, gone) = differences(mark, listed, &have);
    for name in missing {
        let mut made = SystemBackup::default();
        made.metadata.name = Some(name.clone());
        made.metadata.namespace = Some(NAMESPACE.to_owned());
        made.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        made.annotations_mut().insert(FOUND.to_owned(), "true".to_owned());
        match world.saves.create(&made).await {
            Ok(_) | Err(Failure::Conflict { .. }) => {}
            Err(failure) if failure.rejection().is_some() => {
                tracing::warn!(system_backup = name, error = %telemetry::Chain(&failure),
                    "a system backup in the store cannot be shown");
            }
            Err(failure) => return Err(failure),
        }
    }
    for name in gone {
        let found = world.saves.get(&Key::new(NAMESPACE, &name));
        if let Some(found) = found.filter(|it| it.metadata.deletion_timestamp.is_none()) {
            let leaving = world.saves.update(&found, &leaving(&found)).await?;
            world.saves.delete_unchanged(&leaving).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_the_list_lacks_goes_without_what_is_stored() {
        let save = SystemBackup::default();
        assert!(!deletion::keeps_data(&save));
        assert!(deletion::keeps_data(&leaving(&save)));
    }

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn what_the_store_has_is_shown_and_what_it_has_no_more_is_not() {
        let mark = Mark { look: String::new(), known: names(&["whole", "lost"]) };
        let have = names(&["whole", "lost", "being-made"]);
        let (missing, gone) = differences(&mark, &names(&["whole", "of-others"]), &have);
        assert_eq!((missing, gone), (vec!["of-others".to_owned()], vec!["lost".to_owned()]));
    }

    #[test]
    fn a_store_is_listed_after_each_look_at_its_target() {
        let mut target = BackupTarget::default();
        assert_eq!(look_of(&target), None);
        target.spec.backup_target_url = Some("vfs:///d".to_owned());
        let status = target.status.get_or_insert_default();
        (status.available, status.last_synced_at) =
            (Some(true), Some(api::scalar::Time::new(jiff::Timestamp::UNIX_EPOCH)));
        let first = look_of(&target);
        assert!(first.is_some());
        let later = jiff::Timestamp::UNIX_EPOCH + Duration::from_secs(1);
        target.status.as_mut().unwrap().last_synced_at = Some(api::scalar::Time::new(later));
        assert_ne!(look_of(&target), first);
        target.status.as_mut().unwrap().available = Some(false);
        assert_eq!(look_of(&target), None);
    }
}
