//! Flow control: how much of the server one caller may have at once.
//!
//! Four things are shared out: requests under way (until their answer has been taken), watches, the
//! bytes of bodies that are being received or worked on, and those of answers that nobody has taken
//! yet. Whoever wants more than is left is refused at once with 429 and asked to come again: waiting
//! would cost what is short.
//! [`decide`] is the policy; the rest counts.

mod decide;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::auth::User;
use crate::auth::user::{MASTERS, NODES, SERVICE_ACCOUNTS, split_service_account};
use crate::failure::Failure;

use decide::Used;
pub(crate) use decide::{Level, Share};

/// What can run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thing {
    Requests,
    Watches,
    BodyBytes,
    /// Of answers that are in memory as a whole; long lists are made while they are sent.
    AnswerBytes,
}

impl Thing {
    const fn share(self) -> Share {
        match self {
            Self::Requests => Share { total: 1024, one_caller: 512, strangers: 128, kept: 256 },
            Self::Watches => Share { total: 8192, one_caller: 4096, strangers: 256, kept: 1024 },
            Self::BodyBytes => {
                Share { total: 96 << 20, one_caller: 32 << 20, strangers: 6 << 20, kept: 24 << 20 }
            }
            Self::AnswerBytes => {
                Share { total: 192 << 20, one_caller: 64 << 20, strangers: 8 << 20, kept: 48 << 20 }
            }
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Watches => "watches",
            Self::BodyBytes => "bytes in request bodies",
            Self::AnswerBytes => "bytes in answers that were not taken yet",
        }
    }
}

/// Namespaces whose accounts are controllers and nodes: a cluster's own, and those of volumes.
/// No tenant has rights there.
pub(crate) const SERVICE_NAMESPACES: [&str; 2] = ["kube-system", "longhorn-system"];

/// Who is behind a request, whomever they act for.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Under which it is counted. Whoever may make accounts in a namespace has as many as it likes,
    /// so all of a namespace are one caller.
    pub name: Arc<str>,
    pub level: Level,
}

impl Caller {
    /// Somebody in this process, who is here to keep things running.
    pub(crate) fn inside(user: &User) -> Self {
        Self { name: user.name.as_str().into(), level: Level::System }
    }

    pub(crate) fn of(user: &User) -> Self {
        let level = if user.is_anonymous() {
            Level::Stranger
        } else if user.in_group(MASTERS) {
            Level::System
        } else if is_service(user) {
            Level::Service
        } else {
            Level::Known
        };
        let name = match (level, split_service_account(&user.name)) {
            (Level::Known, Some((namespace, _))) => {
                format!("{SERVICE_ACCOUNTS}:{namespace}").into()
            }
            _ => user.name.as_str().into(),
        };
        Self { name, level }
    }
}

/// Is this a node or a controller? Names that begin so are given out by administrators only.
fn is_service(user: &User) -> bool {
    if let Some((namespace, _)) = split_service_account(&user.name) {
        return SERVICE_NAMESPACES.contains(&namespace);
    }
    let own = ["system:", "holdfast:"].iter().any(|it| user.name.starts_with(it));
    own || user.in_group(NODES)
}

/// The counts of one thing.
#[derive(Debug, Default)]
struct Count {
    all: usize,
    strangers: usize,
    callers: HashMap<Arc<str>, usize>,
}

/// What is taken of everything.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    requests: Mutex<Count>,
    watches: Mutex<Count>,
    body_bytes: Mutex<Count>,
    answer_bytes: Mutex<Count>,
}

/// A share that was taken; given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    flow: Arc<Flow>,
    thing: Thing,
    caller: Caller,
    amount: usize,
}

impl Flow {
    pub(crate) fn take(
        self: &Arc<Self>,
        thing: Thing,
        caller: &Caller,
        amount: usize,
    ) -> Result<Permit, Failure> {
        let flow = Arc::clone(self);
        let mut permit = Permit { flow, thing, caller: caller.clone(), amount: 0 };
        permit.grow(amount)?;
        Ok(permit)
    }

    /// Counts what is there already, whatever is left: who has it must not have done its work in vain.
    pub(crate) fn hold(self: &Arc<Self>, thing: Thing, caller: &Caller, amount: usize) -> Permit {
        let flow = Arc::clone(self);
        let mut permit = Permit { flow, thing, caller: caller.clone(), amount: 0 };
        permit.becomes(amount);
        permit
    }

    fn count(&self, thing: Thing) -> std::sync::MutexGuard<'_, Count> {
        let count = match thing {
            Thing::Requests => &self.requests,
            Thing::Watches => &self.watches,
            Thing::BodyBytes => &self.body_bytes,
            Thing::AnswerBytes => &self.answer_bytes,
        };
        count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// Takes more of the same.
    pub(crate) fn grow(&mut self, amount: usize) -> Result<(), Failure> {
        let mut count = self.flow.count(self.thing);
        let own = count.callers.get(&self.caller.name).copied().unwrap_or_default();
        let used = Used { all: count.all, strangers: count.strangers, caller: own };
        if !decide::fits(&self.thing.share(), self.caller.level, used, amount) {
            let text = format!("too many {} at once, please try again later", self.thing.name());
            return Err(Failure::too_many_requests(text, 1));
        }
        count.add(&self.caller, amount);
        self.amount += amount;
        Ok(())
    }

    /// It is known now how much it is.
    pub(crate) fn becomes(&mut self, amount: usize) {
        let mut count = self.flow.count(self.thing);
        count.subtract(&self.caller, self.amount);
        count.add(&self.caller, amount);
        self.amount = amount;
    }
}

impl Count {
    fn add(&mut self, caller: &Caller, amount: usize) {
        if amount == 0 {
            return;
        }
        self.all += amount;
        if caller.level == Level::Stranger {
            self.strangers += amount;
        }
        *self.callers.entry(Arc::clone(&caller.name)).or_default() += amount;
    }

    fn subtract(&mut self, caller: &Caller, amount: usize) {
        self.all = self.all.saturating_sub(amount);
        if caller.level == Level::Stranger {
            self.strangers = self.strangers.saturating_sub(amount);
        }
        if let Some(own) = self.callers.get_mut(&caller.name) {
            *own = own.saturating_sub(amount);
            if *own == 0 {
                self.callers.remove(&caller.name);
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.flow.count(self.thing).subtract(&self.caller, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_comes_back_and_leaves_nothing_behind() {
        let flow = Arc::new(Flow::default());
        let caller = Caller { name: "ada".into(), level: Level::Known };
        let most = Thing::Requests.share().one_caller;
        let mut held: Vec<Permit> =
            (0..most).map(|_| flow.take(Thing::Requests, &caller, 1).unwrap()).collect();
        let rejection = flow.take(Thing::Requests, &caller, 1).unwrap_err();
        assert_eq!(rejection.code(), 429);
        let other = Caller { name: "bob".into(), level: Level::Known };
        drop(flow.take(Thing::Requests, &other, 1).unwrap());
        held.pop();
        flow.take(Thing::Requests, &caller, 1).unwrap();
        drop(held);
        let count = flow.count(Thing::Requests);
        assert_eq!((count.all, count.callers.len()), (0, 0));
    }

    #[test]
    fn what_is_there_counts_although_there_is_no_room_for_it() {
        let flow = Arc::new(Flow::default());
        let caller = Caller { name: "ada".into(), level: Level::Known };
        let most = Thing::AnswerBytes.share().one_caller;
        let mut answer = flow.take(Thing::AnswerBytes, &caller, 1).unwrap();
        answer.becomes(most - 1);
        let other = flow.hold(Thing::AnswerBytes, &caller, 2);
        assert!(flow.take(Thing::AnswerBytes, &caller, 0).is_err());
        answer.becomes(0);
        assert!(flow.take(Thing::AnswerBytes, &caller, most - 2).is_ok());
        drop((answer, other));
        let count = flow.count(Thing::AnswerBytes);
        assert_eq!((count.all, count.callers.len()), (0, 0));
    }

    #[test]
    fn accounts_are_counted_by_namespace_and_what_others_rely_on_by_itself() {
        let of = |user: &User| {
            let caller = Caller::of(user);
            (caller.name.to_string(), caller.level)
        };
        let one = |name: &str, level| (name.to_owned(), level);
        let tenant = one("system:serviceaccounts:t1", Level::Known);
        for name in ["a", "b"] {
            assert_eq!(of(&User::service_account("t1", name, "")), tenant);
        }
        let controller = "system:serviceaccount:kube-system:job-controller";
        let account = User::service_account("kube-system", "job-controller", "");
        assert_eq!(of(&account), one(controller, Level::Service));
        let known = |name: &str, groups: &[&str]| {
            User::authenticated(name, "", groups.iter().map(|&it| it.to_owned()))
        };
        for (name, groups, level) in [
            ("ada", &[][..], Level::Known),
            ("worker", &[NODES][..], Level::Service),
            ("system:kube-controller-manager", &[][..], Level::Service),
            ("holdfast:node", &[][..], Level::Service),
            ("root", &[MASTERS][..], Level::System),
        ] {
            assert_eq!(of(&known(name, groups)), one(name, level));
        }
        assert_eq!(Caller::of(&User::anonymous()).level, Level::Stranger);
    }
}
