//! What an engine has refused to do: asked again after a pause that grows, and no more often, however often it
//! is looked at.

use std::collections::BTreeMap;
use std::time::Duration;

use reconcile::Backoff;
use tokio::time::Instant;

use super::decide::Act;

const PAUSES: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };

/// How often each was refused, and when it is asked again.
#[derive(Debug, Default)]
pub(super) struct Refused(BTreeMap<String, (u32, Instant)>);

/// The words that it has in a log.
fn name(act: &Act) -> String {
    format!("{act:?}")
}

impl Refused {
    /// What nobody wants any more is forgotten.
    pub(super) fn keep(&mut self, wanted: &[Act]) {
        let wanted: Vec<String> = wanted.iter().map(name).collect();
        self.0.retain(|known, _| wanted.contains(known));
    }

    pub(super) fn may(&self, act: &Act, now: Instant) -> bool {
        self.0.get(&name(act)).is_none_or(|(_, until)| *until <= now)
    }

    pub(super) fn done(&mut self, act: &Act, is_well: bool, now: Instant) {
        let name = name(act);
        if is_well {
            self.0.remove(&name);
            return;
        }
        let times = self.0.get(&name).map_or(0, |it| it.0).saturating_add(1);
        self.0.insert(name, (times, now + PAUSES.after(times)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_asked_again_ever_later_and_at_once_when_it_is_wanted_anew() {
        let (mut refused, begin) = (Refused::default(), Instant::now());
        let remove = Act::Remove { address: "tcp://h:1".to_owned() };
        let (mut asked, mut at) = (0, begin);
        while at < begin + Duration::from_mins(10) {
            refused.keep(std::slice::from_ref(&remove));
            if refused.may(&remove, at) {
                asked += 1;
                refused.done(&remove, false, at);
            }
            at += Duration::from_millis(400);
        }
        assert!((10..=20).contains(&asked), "asked {asked} times in ten minutes");
        assert!(refused.may(&Act::StartFrontend, at), "others are asked as ever");
        refused.keep(&[Act::StartFrontend]);
        assert!(refused.may(&remove, at));
        refused.done(&remove, false, at);
        refused.done(&remove, true, at);
        assert!(refused.may(&remove, at));
    }
}
