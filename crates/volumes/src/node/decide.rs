//! What a node does about one engine or replica, and what it says of it. Pure.
//!
//! The node writes only the part of the status that is about the process. Whether a copy is good is
//! never concluded here: a process that ended by itself is `error`, and what that means for the volume
//! is for others to say.

use api::condition;
use api::longhorn::{InstanceSpec, InstanceState, InstanceStatus};
use api::scalar::Time;

use crate::instances::{Instance, Kind, State, Successor};

/// What is known of one engine or replica.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// The node that asks.
    pub(crate) me: &'a str,
    /// Its instance manager, and where its processes listen.
    pub(crate) manager: &'a str,
    pub(crate) ip: &'a str,
    pub(crate) kind: Kind,
    pub(crate) spec: &'a InstanceSpec,
    pub(crate) status: &'a InstanceStatus,
    pub(crate) deleting: bool,
    /// It is told with which copies another engine is to go on.
    pub(crate) upgrades: bool,
    pub(crate) process: Option<&'a Instance>,
}

/// What to do with the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Nothing,
    Start,
    /// Another image takes over from the one that runs.
    Replace,
    Stop,
    /// It is over, and this was said of it.
    Forget,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) act: Act,
    pub(crate) status: InstanceStatus,
    /// Nothing of it is left on this node.
    pub(crate) gone: bool,
}

/// The condition of an engine or replica that says whether its process could be started.
pub(crate) const CREATION: &str = "InstanceCreation";
/// What it says of a process that does not start.
pub(super) const FAILED_STARTING: &str = "FailedStarting";
/// What it says of a copy that was whole and holds nothing any more.
pub(super) const DATA_GONE: &str = "DataGone";

/// The condition of an engine that was to be replaced while it runs, and was not.
pub(crate) const UPGRADE: &str = "EngineUpgrade";

/// Why another image could not take over; kept for as long as it is asked for.
pub(crate) fn say_upgrade(status: &mut InstanceStatus, next: Option<&Successor>, now: Time) {
    let list = status.conditions.get_or_insert_default();
    match next.and_then(|next| Some((&next.image, next.error.as_deref()?))) {
        Some((image, why)) => {
            let text = format!("{image} did not take over: {why}");
            let verdict = condition::Verdict::new(UPGRADE, false, "FailedUpgrade", text);
            condition::set(list, &verdict, now);
        }
        None => {
            condition::remove(list, UPGRADE);
        }
    }
    if list.is_empty() {
        status.conditions = None;
    }
}

/// Why another image could not take over from an engine that runs.
pub(crate) fn failed_upgrade(status: &InstanceStatus) -> Option<&str> {
    let found = condition::get(status.conditions.as_deref().unwrap_or_default(), UPGRADE)?;
    found.message.as_deref().filter(|_| found.status == condition::Status::False)
}

/// Why the process did not start, or does not run any more; kept until it runs.
pub(crate) fn say_creation(status: &mut InstanceStatus, why: Option<(&str, &str)>, now: Time) {
    let list = status.conditions.get_or_insert_default();
    match why {
        Some((reason, why)) => {
            condition::set(list, &condition::Verdict::new(CREATION, false, reason, why), now);
        }
        None if status.current_state == Some(InstanceState::Running) => {
            condition::remove(list, CREATION);
        }
        None => {}
    }
    if list.is_empty() {
        status.conditions = None;
    }
}

/// Why the process of an engine or replica could not be started when that was last tried.
pub(crate) fn failed_creation(status: &InstanceStatus) -> Option<&str> {
    let found = condition::get(status.conditions.as_deref().unwrap_or_default(), CREATION)?;
    found.message.as_deref().filter(|_| found.status == condition::Status::False)
}

/// Its node looked, and found nothing where a whole copy was.
pub(crate) fn has_lost_data(status: &InstanceStatus) -> bool {
    let found = condition::get(status.conditions.as_deref().unwrap_or_default(), CREATION);
    found.is_some_and(|it| {
        it.status == condition::Status::False && it.reason.as_deref() == Some(DATA_GONE)
    })
}

/// Nothing, if it is another node's business.
pub(crate) fn decide(seen: &Seen<'_>) -> Option<Verdict> {
    let Seen { me, spec, status, process, deleting, .. } = *seen;
    let mine = spec.node_id.as_deref() == Some(me);
    let owner = status.owner_id.as_deref().unwrap_or_default();
    match process {
        // Another node has it by now, and says how it is there.
        Some(process) if !mine && owner != me && !owner.is_empty() && !is_idle(status) => {
            Some(elsewhere(seen, process))
        }
        Some(process) => {
            let wanted = mine && !deleting && wants(spec);
            Some(if wanted { wanted_here(seen, process) } else { unwanted(seen, process) })
        }
        None if mine && (owner == me || owner.is_empty() || is_idle(status)) => {
            Some(absent(seen, !deleting && wants(spec)))
        }
        // It was here once: whoever has it next waits for this to be said.
        None if owner == me && !mine => {
            Some(Verdict { act: Act::Nothing, status: stopped(seen), gone: true })
        }
        None => None,
    }
}

fn wants(spec: &InstanceSpec) -> bool {
    spec.desire_state == Some(InstanceState::Running)
}

/// Nobody says that a process of it runs anywhere.
fn is_idle(status: &InstanceStatus) -> bool {
    match status.current_state.as_ref().unwrap_or(&InstanceState::Unset) {
        InstanceState::Stopped | InstanceState::Unset | InstanceState::Terminated => true,
        InstanceState::Running
        | InstanceState::Suspended
        | InstanceState::Error
        | InstanceState::Starting
        | InstanceState::Stopping
        | InstanceState::Unknown
        | InstanceState::Other(_) => false,
    }
}

fn wanted_here(seen: &Seen<'_>, process: &Instance) -> Verdict {
    let stay = |status| Verdict { act: Act::Nothing, status, gone: false };
    match process.state {
        State::Starting => stay(with(seen, process, &InstanceState::Starting)),
        State::Running => {
            let status = with(seen, process, &InstanceState::Running);
            Verdict { act: replaced(seen, process), status, gone: false }
        }
        State::Stopping => stay(with(seen, process, &InstanceState::Stopping)),
        State::Failed => stay(failed(seen)),
        // Ended because this node was asked to end, or while it was away.
        State::Stopped | State::Lost => match seen.kind {
            // Its clients were cut off, and its replicas may be elsewhere by now: who wants it has to
            // open it anew.
            Kind::Engine => stay(failed(seen)),
            // Its data lies where it lay. If an engine went on without it, that engine knows. Said
            // before it is started again: who waits for its end must see it.
            Kind::Replica => Verdict { act: Act::Forget, status: stopped(seen), gone: false },
        },
    }
}

/// What becomes of one that runs and is to be of another image. Of a copy there is one object for each
/// image, and nothing is replaced.
fn replaced(seen: &Seen<'_>, process: &Instance) -> Act {
    let wanted = seen.spec.image.as_deref().unwrap_or_default();
    let differs = !wanted.is_empty() && wanted != process.image;
    match &process.next {
        None if seen.kind == Kind::Engine && seen.upgrades && differs => Act::Replace,
        Some(next) if next.error.is_some() && !differs => Act::Forget,
        Some(_) | None => Act::Nothing,
    }
}

fn unwanted(seen: &Seen<'_>, process: &Instance) -> Verdict {
    match process.state {
        State::Starting | State::Running => Verdict {
            act: Act::Stop,
            status: with(seen, process, &InstanceState::Stopping),
            gone: false,
        },
        State::Stopping => Verdict {
            act: Act::Nothing,
            status: with(seen, process, &InstanceState::Stopping),
            gone: false,
        },
        State::Stopped | State::Failed | State::Lost => {
            Verdict { act: Act::Forget, status: stopped(seen), gone: true }
        }
    }
}

/// What is left here of one that runs elsewhere ends, and nothing is said of it.
fn elsewhere(seen: &Seen<'_>, process: &Instance) -> Verdict {
    let act = match process.state {
        State::Starting | State::Running => Act::Stop,
        State::Stopping => Act::Nothing,
        State::Stopped | State::Failed | State::Lost => Act::Forget,
    };
    Verdict { act, status: seen.status.clone(), gone: false }
}

/// No process is known, here.
fn absent(seen: &Seen<'_>, wanted: bool) -> Verdict {
    if !wanted {
        return Verdict { act: Act::Nothing, status: stopped(seen), gone: true };
    }
    let state = seen.status.current_state.as_ref().unwrap_or(&InstanceState::Unset);
    let ran = seen.status.started == Some(true);
    match (seen.kind, state) {
        (_, InstanceState::Error) => {
            Verdict { act: Act::Nothing, status: failed(seen), gone: false }
        }
        (Kind::Engine, InstanceState::Running | InstanceState::Unknown) if ran => {
            Verdict { act: Act::Nothing, status: failed(seen), gone: false }
        }
        (Kind::Engine | Kind::Replica, _) => {
            Verdict { act: Act::Start, status: stopped(seen), gone: false }
        }
    }
}

/// What is the node's to say, over what others said.
fn own(seen: &Seen<'_>, state: InstanceState) -> InstanceStatus {
    let mut status = seen.status.clone();
    status.owner_id = Some(seen.me.to_owned());
    status.current_state = Some(state);
    status.log_fetched = Some(seen.spec.log_requested == Some(true));
    status
}

fn with(seen: &Seen<'_>, process: &Instance, state: &InstanceState) -> InstanceStatus {
    let asked = seen.spec.salvage_requested == Some(true);
    let done = process.salvage || seen.status.salvage_executed == Some(true);
    let mut status = own(seen, state.clone());
    status.instance_manager_name = Some(seen.manager.to_owned());
    status.current_image = Some(process.image.clone());
    status.starting = Some(*state == InstanceState::Starting);
    if *state == InstanceState::Running {
        status.started = Some(true);
        status.ip = Some(seen.ip.to_owned());
        status.storage_ip = Some(seen.ip.to_owned());
        status.port = Some(i32::from(process.ports.0));
        status.salvage_executed = Some(asked && done);
    }
    status
}

/// Nothing answers there any more, and nothing will until it was asked to stop.
fn failed(seen: &Seen<'_>) -> InstanceStatus {
    let mut status = own(seen, InstanceState::Error);
    status.starting = Some(false);
    clear(&mut status);
    status
}

fn stopped(seen: &Seen<'_>) -> InstanceStatus {
    let mut status = own(seen, InstanceState::Stopped);
    status.starting = Some(false);
    status.started = Some(false);
    status.salvage_executed = Some(false);
    status.instance_manager_name = Some(String::new());
    status.current_image = Some(String::new());
    clear(&mut status);
    status
}

fn clear(status: &mut InstanceStatus) {
    status.ip = Some(String::new());
    status.storage_ip = Some(String::new());
    status.port = Some(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instances::Key;

    const STATES: [State; 6] = [
        State::Starting,
        State::Running,
        State::Stopping,
        State::Stopped,
        State::Failed,
        State::Lost,
    ];

    fn spec(node: &str, desire: InstanceState) -> InstanceSpec {
        InstanceSpec {
            node_id: Some(node.into()),
            desire_state: Some(desire),
            ..InstanceSpec::default()
        }
    }

    fn status(owner: &str, state: InstanceState, started: bool) -> InstanceStatus {
        InstanceStatus {
            owner_id: Some(owner.into()),
            current_state: Some(state),
            started: Some(started),
            ..InstanceStatus::default()
        }
    }

    fn process(kind: Kind, state: State) -> Instance {
        Instance {
            key: Key { kind, name: "x".into() },
            volume: "v".into(),
            image: "img".into(),
            state,
            ports: (10_000, 10_001),
            pid: Some(7),
            run: "run".into(),
            salvage: false,
            error: None,
            exit_code: None,
            next: None,
        }
    }

    /// An engine that is to be of another image is replaced once, by its node, when it is told with
    /// which copies to go on.
    #[test]
    fn an_engine_is_replaced_when_it_is_told_of_other_copies() {
        let mut wanted = spec("n1", InstanceState::Running);
        wanted.image = Some("next".into());
        let known = status("n1", InstanceState::Running, true);
        let mut running = process(Kind::Engine, State::Running);
        let act = |kind, upgrades, wanted: &InstanceSpec, running: &Instance| {
            let seen = Seen {
                me: "n1",
                manager: "im",
                ip: "127.0.0.1",
                kind,
                spec: wanted,
                status: &known,
                deleting: false,
                upgrades,
                process: Some(running),
            };
            let verdict = decide(&seen).unwrap();
            // It is what it was until the next one has taken over.
            assert_eq!(verdict.status.current_image.as_deref(), Some("img"));
            verdict.act
        };
        assert_eq!(act(Kind::Engine, true, &wanted, &running), Act::Replace);
        assert_eq!(act(Kind::Engine, false, &wanted, &running), Act::Nothing);
        assert_eq!(act(Kind::Replica, true, &wanted, &running), Act::Nothing);
        running.next = Some(Successor { image: "next".into(), error: None });
        assert_eq!(act(Kind::Engine, true, &wanted, &running), Act::Nothing);
        running.next = Some(Successor { image: "next".into(), error: Some("exit 1".into()) });
        assert_eq!(act(Kind::Engine, true, &wanted, &running), Act::Nothing);
        // It is taken back: what is left of the try is dropped.
        wanted.image = Some("img".into());
        assert_eq!(act(Kind::Engine, false, &wanted, &running), Act::Forget);
    }

    fn look(
        kind: Kind,
        spec: &InstanceSpec,
        status: &InstanceStatus,
        process: Option<&Instance>,
        deleting: bool,
    ) -> Option<Verdict> {
        let seen = Seen {
            me: "n1",
            manager: "im",
            ip: "127.0.0.1",
            kind,
            spec,
            status,
            deleting,
            upgrades: false,
            process,
        };
        decide(&seen)
    }

    /// (kind, process, act, state said)
    #[test]
    fn why_a_process_did_not_start_is_said_until_it_runs() {
        let now = Time::new(jiff::Timestamp::UNIX_EPOCH);
        let mut failed = status("n1", InstanceState::Error, false);
        say_creation(&mut failed, Some((FAILED_STARTING, "invalid volume name")), now);
        assert_eq!(failed_creation(&failed), Some("invalid volume name"));
        failed.current_state = Some(InstanceState::Stopped);
        say_creation(&mut failed, None, now);
        assert_eq!(failed_creation(&failed), Some("invalid volume name"));
        failed.current_state = Some(InstanceState::Running);
        say_creation(&mut failed, None, now);
        assert_eq!(failed.conditions, None);
    }

    #[test]
    fn what_runs_here_and_is_wanted() {
        use InstanceState as S;
        for (kind, state, act, said) in [
            (Kind::Engine, State::Starting, Act::Nothing, S::Starting),
            (Kind::Engine, State::Running, Act::Nothing, S::Running),
            (Kind::Engine, State::Stopping, Act::Nothing, S::Stopping),
            (Kind::Engine, State::Stopped, Act::Nothing, S::Error),
            (Kind::Engine, State::Failed, Act::Nothing, S::Error),
            (Kind::Engine, State::Lost, Act::Nothing, S::Error),
            (Kind::Replica, State::Running, Act::Nothing, S::Running),
            (Kind::Replica, State::Failed, Act::Nothing, S::Error),
            (Kind::Replica, State::Stopped, Act::Forget, S::Stopped),
            (Kind::Replica, State::Lost, Act::Forget, S::Stopped),
        ] {
            let process = process(kind, state);
            let before = status("n1", S::Running, true);
            let verdict =
                look(kind, &spec("n1", S::Running), &before, Some(&process), false).unwrap();
            assert_eq!(
                (verdict.act, verdict.status.current_state),
                (act, Some(said)),
                "{kind:?} {state:?}"
            );
            assert!(!verdict.gone);
        }
    }

    #[test]
    fn a_running_process_says_where_it_listens() {
        let process = process(Kind::Replica, State::Running);
        let before = InstanceStatus::default();
        let wanted = spec("n1", InstanceState::Running);
        let said = look(Kind::Replica, &wanted, &before, Some(&process), false).unwrap().status;
        assert_eq!(said.port, Some(10_000));
        assert_eq!(said.ip.as_deref(), Some("127.0.0.1"));
        assert_eq!(said.storage_ip, said.ip);
        assert_eq!((said.started, said.starting), (Some(true), Some(false)));
        assert_eq!(said.current_image.as_deref(), Some("img"));
        assert_eq!(said.instance_manager_name.as_deref(), Some("im"));
        // And it is not there any more once it stopped.
        let unwanted = spec("n1", InstanceState::Stopped);
        let gone = look(Kind::Replica, &unwanted, &said, None, false).unwrap().status;
        assert_eq!((gone.port, gone.ip.as_deref(), gone.started), (Some(0), Some(""), Some(false)));
    }

    #[test]
    fn what_is_not_wanted_is_stopped_whatever_it_is() {
        for kind in [Kind::Engine, Kind::Replica] {
            for state in STATES {
                for (node, desire, deleting) in [
                    ("n1", InstanceState::Stopped, false),
                    ("n2", InstanceState::Running, false),
                    ("", InstanceState::Stopped, false),
                    ("n1", InstanceState::Running, true),
                ] {
                    let process = process(kind, state);
                    let before = status("n1", InstanceState::Running, true);
                    let verdict =
                        look(kind, &spec(node, desire), &before, Some(&process), deleting).unwrap();
                    assert_eq!(verdict.gone, state.is_over());
                    let acts = match state {
                        State::Starting | State::Running => Act::Stop,
                        State::Stopping => Act::Nothing,
                        State::Stopped | State::Failed | State::Lost => Act::Forget,
                    };
                    assert_eq!(verdict.act, acts);
                }
            }
        }
    }

    #[test]
    fn an_engine_that_vanished_is_an_error_and_a_replica_starts_again() {
        let wanted = spec("n1", InstanceState::Running);
        let ran = status("n1", InstanceState::Running, true);
        let engine = look(Kind::Engine, &wanted, &ran, None, false).unwrap();
        assert_eq!(engine.status.current_state, Some(InstanceState::Error));
        assert_eq!(engine.act, Act::Nothing);
        let replica = look(Kind::Replica, &wanted, &ran, None, false).unwrap();
        assert_eq!(replica.act, Act::Start);
        // An error stays until it was asked to stop.
        for kind in [Kind::Engine, Kind::Replica] {
            let error = status("n1", InstanceState::Error, true);
            let verdict = look(kind, &wanted, &error, None, false).unwrap();
            assert_eq!(verdict.act, Act::Nothing);
            let asked = spec("n1", InstanceState::Stopped);
            let calm = look(kind, &asked, &verdict.status, None, false).unwrap();
            assert_eq!(calm.status.current_state, Some(InstanceState::Stopped));
            assert_eq!(look(kind, &wanted, &calm.status, None, false).unwrap().act, Act::Start);
        }
    }

    #[test]
    fn another_nodes_process_is_waited_for() {
        let wanted = spec("n1", InstanceState::Running);
        for state in [InstanceState::Running, InstanceState::Stopping, InstanceState::Unknown] {
            let theirs = status("n2", state, true);
            assert_eq!(look(Kind::Engine, &wanted, &theirs, None, false), None);
        }
        let idle = status("n2", InstanceState::Stopped, false);
        assert_eq!(look(Kind::Engine, &wanted, &idle, None, false).unwrap().act, Act::Start);
        let elsewhere = spec("n2", InstanceState::Running);
        let nobody = InstanceStatus::default();
        assert_eq!(look(Kind::Engine, &elsewhere, &nobody, None, false), None);
        // It was here, and is gone: said once, so that the other may begin.
        let mine = status("n1", InstanceState::Running, true);
        let verdict = look(Kind::Engine, &elsewhere, &mine, None, false).unwrap();
        assert_eq!(verdict.status.current_state, Some(InstanceState::Stopped));
    }

    /// However it is seen, doing what is decided leads to a state that is decided on no more, and
    /// what is not wanted ends.
    #[test]
    fn every_state_leads_to_rest() {
        use InstanceState as S;
        let states =
            [S::Running, S::Stopped, S::Error, S::Starting, S::Stopping, S::Unknown, S::Unset];
        for kind in [Kind::Engine, Kind::Replica] {
            for desire in [S::Running, S::Stopped] {
                for node in ["n1", "n2", ""] {
                    for before in &states {
                        for begun in STATES.map(Some).into_iter().chain([None]) {
                            let spec = spec(node, desire.clone());
                            let mut said = status("n1", before.clone(), true);
                            let mut lives = begun.map(|state| process(kind, state));
                            let mut rested = false;
                            for _ in 0..8 {
                                let verdict = look(kind, &spec, &said, lives.as_ref(), false);
                                let Some(verdict) = verdict else {
                                    rested = true;
                                    break;
                                };
                                let before = (said.clone(), lives.clone());
                                said = verdict.status;
                                lives = match verdict.act {
                                    Act::Start | Act::Replace => {
                                        Some(process(kind, State::Running))
                                    }
                                    Act::Stop => Some(process(kind, State::Stopped)),
                                    Act::Forget => None,
                                    Act::Nothing => lives.map(|it| match it.state {
                                        State::Starting => process(kind, State::Running),
                                        State::Stopping => process(kind, State::Stopped),
                                        State::Running
                                        | State::Stopped
                                        | State::Failed
                                        | State::Lost => it,
                                    }),
                                };
                                if before == (said.clone(), lives.clone()) {
                                    rested = true;
                                    break;
                                }
                            }
                            assert!(rested, "{kind:?} {desire} on {node:?}, {before}, {begun:?}");
                            if desire == S::Stopped || node != "n1" {
                                assert_eq!(lives, None);
                                assert_eq!(said.current_state, Some(S::Stopped));
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_node_that_comes_back_says_nothing_of_what_runs_elsewhere_by_now() {
        let spec = spec("n2", InstanceState::Running);
        let status = status("n2", InstanceState::Running, true);
        for (state, act) in [
            (State::Running, Act::Stop),
            (State::Stopping, Act::Nothing),
            (State::Stopped, Act::Forget),
            (State::Failed, Act::Forget),
        ] {
            let process = process(Kind::Engine, state);
            for deleting in [false, true] {
                let verdict = look(Kind::Engine, &spec, &status, Some(&process), deleting);
                assert_eq!(
                    verdict,
                    Some(Verdict { act, status: status.clone(), gone: false }),
                    "{state:?}"
                );
            }
        }
    }
}
