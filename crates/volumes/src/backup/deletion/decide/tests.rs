//! The machine of a deletion: a table of what is done when, and a walk through everything that can
//! happen to it.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::*;

fn now() -> Timestamp {
    "2025-03-01T10:00:00Z".parse().unwrap()
}

fn status(failures: i32, retry_in_seconds: Option<i64>) -> BackupDeletion {
    let retry = |seconds| Time::new(now() + jiff::SignedDuration::from_secs(seconds));
    BackupDeletion {
        attempt: Some("old".into()),
        failures: Some(failures),
        retry_at: retry_in_seconds.map(retry),
        ..BackupDeletion::default()
    }
}

/// A complete backup whose deletion was just asked for.
fn asked() -> Seen {
    Seen {
        now: now(),
        state: State::Other,
        status: BackupDeletion::default(),
        record: Record::None,
        keeps_data: false,
        was_never_stored: false,
        held_by: None,
        moved: None,
        retry_now: false,
        next_attempt: "new".into(),
        what: "the backup URL".into(),
        backoff: Backoff::DEFAULT,
    }
}

fn deleting() -> Seen {
    Seen { state: State::Deleting, status: status(0, None), ..asked() }
}

fn running(attempt: &str) -> Record {
    Record::Running { attempt: attempt.into(), percent: 40, waits_for: None }
}

fn failed(attempt: &str) -> Record {
    Record::Failed { attempt: attempt.into(), why: "Operation not permitted".into() }
}

fn shown(seen: &Seen) -> Shown {
    decide(seen).show.unwrap()
}

#[test]
fn a_deletion_starts_at_once_and_is_shown_before_it_runs() {
    let verdict = decide(&asked());
    assert_eq!(verdict.act, Act::Start);
    let shown = verdict.show.unwrap();
    assert_eq!(shown.state, State::Deleting);
    assert_eq!(shown.deletion.attempt.as_deref(), Some("new"));
    assert_eq!(shown.deletion.started_at, Some(Time::new(now())));
    assert_eq!((shown.info, shown.error), (None, None));
}

#[test]
fn it_starts_only_when_the_state_is_not_deleting() {
    for record in [Record::None, running("old"), failed("old"), Record::Done] {
        let seen = Seen { record, ..deleting() };
        assert_ne!(decide(&seen).act, Act::Start, "{seen:?}");
    }
}

#[test]
fn a_deletion_without_a_record_is_an_error_that_says_so() {
    let verdict = decide(&deleting());
    let shown = verdict.show.unwrap();
    assert_eq!((verdict.act, shown.state), (Act::Forget, State::Error));
    assert_eq!(shown.error.as_deref(), Some(NO_RECORD));
    assert_eq!(verdict.look_after, Some(Duration::from_secs(10)));
}

#[test]
fn a_failure_is_told_once_with_its_reason_and_the_next_attempt() {
    let shown = shown(&Seen { record: failed("old"), ..deleting() });
    assert_eq!(shown.state, State::Error);
    assert_eq!(
        shown.error.as_deref(),
        Some("Failed to delete the backup URL in the backupstore, err Operation not permitted")
    );
    assert_eq!(shown.deletion.failures, Some(1));
    assert!(shown.deletion.retry_at.unwrap().timestamp() >= now() + Duration::from_secs(10));
}

#[test]
fn pauses_double_from_ten_seconds_to_a_minute() {
    let pauses: Vec<u64> = (1..7).map(|it| Backoff::DEFAULT.after(it).as_secs()).collect();
    assert_eq!(pauses, [10, 20, 40, 60, 60, 60]);
    assert_eq!(Backoff::DEFAULT.after(i32::MAX).as_secs(), 60);
    let waits = Seen { state: State::Error, status: status(2, Some(13)), ..asked() };
    let verdict = decide(&waits);
    assert_eq!((verdict.act, verdict.show), (Act::Nothing, None));
    assert_eq!(verdict.look_after, Some(Duration::from_secs(13)));
    let due = Seen { status: status(2, Some(0)), ..waits };
    assert_eq!(decide(&due).act, Act::Start);
    assert_eq!(shown(&due).deletion.failures, Some(2));
}

#[test]
fn who_does_not_want_to_wait_does_not() {
    let waits = Seen { state: State::Error, status: status(2, Some(13)), ..asked() };
    assert_eq!(decide(&Seen { retry_now: true, ..waits.clone() }).act, Act::Start);
    let held = Seen { held_by: Some("volume v restores from it".into()), retry_now: true, ..waits };
    assert_eq!(decide(&held).act, Act::Nothing);
}

#[test]
fn what_is_being_restored_from_is_kept_and_says_for_whom() {
    let seen = Seen { held_by: Some("volume copy-1 is restoring from it".into()), ..asked() };
    let verdict = decide(&seen);
    let shown = verdict.show.unwrap();
    assert_eq!((verdict.act, shown.state), (Act::Nothing, State::Other));
    assert!(shown.info.unwrap().contains("copy-1"));
    assert!(verdict.look_after.is_some());
}

#[test]
fn a_task_that_runs_is_shown_whatever_was_shown_before() {
    for state in [State::Other, State::Error, State::Deleting] {
        let verdict = decide(&Seen { state, record: running("run"), ..deleting() });
        let shown = verdict.show.unwrap();
        assert_eq!((verdict.act, shown.state), (Act::Nothing, State::Deleting));
        assert_eq!(shown.deletion.progress, Some(40));
        assert_eq!(shown.deletion.attempt.as_deref(), Some("run"));
    }
}

#[test]
fn an_object_goes_when_the_task_is_done_or_the_user_keeps_the_data_or_there_is_none() {
    for seen in [
        Seen { record: Record::Done, ..deleting() },
        Seen { keeps_data: true, ..asked() },
        Seen { keeps_data: true, record: running("old"), ..deleting() },
        Seen { was_never_stored: true, ..asked() },
    ] {
        assert_eq!(decide(&seen).act, Act::Release, "{seen:?}");
    }
    for seen in [asked(), deleting(), Seen { record: failed("old"), ..deleting() }] {
        assert_ne!(decide(&seen).act, Act::Release, "{seen:?}");
    }
}

/// What lies in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stored {
    Whole,
    /// The record is gone, blocks are left.
    Blocks,
    Nothing,
}

/// The object, the process and the store, as small as they can be and still go wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each can be so or so, whatever the others are")]
struct World {
    is_gone: bool,
    state: u8,
    attempt: Option<u8>,
    failures: i32,
    waits: bool,
    task: Task,
    stored: Stored,
    held: bool,
    keeps_data: bool,
    retry_now: bool,
    /// Its target leads to another store by now.
    moved: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Task {
    None,
    Running(u8),
    Failed(u8),
    Done,
}

const STATES: [State; 3] = [State::Other, State::Deleting, State::Error];

impl World {
    fn start() -> Self {
        Self {
            is_gone: false,
            state: 0,
            attempt: None,
            failures: 0,
            waits: false,
            task: Task::None,
            stored: Stored::Whole,
            held: false,
            keeps_data: false,
            retry_now: false,
            moved: false,
        }
    }

    fn seen(&self) -> Seen {
        let record = match self.task {
            Task::None => Record::None,
            Task::Running(attempt) => running(&attempt.to_string()),
            Task::Failed(attempt) => failed(&attempt.to_string()),
            Task::Done => Record::Done,
        };
        Seen {
            state: STATES[usize::from(self.state)],
            status: BackupDeletion {
                attempt: self.attempt.map(|it| it.to_string()),
                ..status(self.failures, self.waits.then_some(30))
            },
            record,
            keeps_data: self.keeps_data,
            held_by: self.held.then(|| "a volume restores from it".to_owned()),
            retry_now: self.retry_now,
            moved: self.moved.then(|| "it lies elsewhere".to_owned()),
            next_attempt: self.attempt.map_or(0, |it| (it + 1) % 3).to_string(),
            ..asked()
        }
    }

    /// A pass, up to the write of the status, and with the rest of it.
    fn passes(&self) -> Vec<Self> {
        let verdict = decide(&self.seen());
        let mut shown = self.clone();
        if let Some(show) = &verdict.show {
            let at = STATES.iter().position(|it| *it == show.state).unwrap();
            shown.state = u8::try_from(at).unwrap();
            shown.attempt = show.deletion.attempt.as_ref().map(|it| it.parse().unwrap());
            shown.failures = show.deletion.failures.unwrap_or(0).min(4);
            shown.waits = show.deletion.retry_at.is_some();
        }
        let mut whole = shown.clone();
        match verdict.act {
            Act::Nothing => {}
            Act::Start => {
                assert!(!matches!(self.task, Task::Running(_)), "two tasks: {self:?}");
                assert_ne!(STATES[usize::from(self.state)], State::Deleting, "{self:?}");
                whole.task = Task::Running(shown.attempt.unwrap());
                whole.retry_now = false;
            }
            Act::Forget => whole.task = Task::None,
            Act::Refuse => {
                whole.task = Task::None;
                whole.retry_now = false;
            }
            Act::Release => {
                assert!(
                    self.stored == Stored::Nothing || self.keeps_data,
                    "the object goes and its data stays: {self:?}"
                );
                whole.is_gone = true;
            }
        }
        // The process may die, or not hear the answer, between the write and what follows it.
        vec![shown, whole]
    }

    /// What the rest of the world may do.
    fn moves(&self) -> Vec<Self> {
        let mut moves = Vec::new();
        if let Task::Running(attempt) = self.task {
            let stored = self.stored.max(Stored::Blocks);
            moves.push(Self { stored, ..self.clone() });
            moves.push(Self { task: Task::Failed(attempt), ..self.clone() });
            moves.push(Self { task: Task::Done, stored: Stored::Nothing, ..self.clone() });
        }
        // kill -9: the memory goes, the store and the object stay.
        moves.push(Self { task: Task::None, ..self.clone() });
        moves.push(Self { waits: false, ..self.clone() });
        moves.push(Self { held: !self.held, ..self.clone() });
        moves.push(Self { keeps_data: true, ..self.clone() });
        moves.push(Self { retry_now: true, ..self.clone() });
        moves.push(Self { moved: !self.moved, ..self.clone() });
        moves
    }
}

fn reachable() -> HashMap<World, Vec<World>> {
    let mut found = HashMap::new();
    let mut next = VecDeque::from([World::start()]);
    while let Some(world) = next.pop_front() {
        if found.contains_key(&world) {
            continue;
        }
        let after: Vec<World> = if world.is_gone {
            Vec::new()
        } else {
            world.passes().into_iter().chain(world.moves()).collect()
        };
        next.extend(after.iter().cloned());
        found.insert(world, after);
    }
    found
}

/// The asserts of [`World::passes`] hold in every state that can be reached.
#[test]
fn no_deletion_lies_and_none_runs_twice() {
    let found = reachable();
    assert!(found.len() > 500, "only {} states were looked at", found.len());
}

#[test]
fn every_state_has_a_way_out() {
    let found = reachable();
    let mut leads_out: BTreeSet<&World> = found.keys().filter(|world| world.is_gone).collect();
    loop {
        let more: Vec<&World> = found
            .iter()
            .filter(|(world, after)| {
                !leads_out.contains(world) && after.iter().any(|it| leads_out.contains(it))
            })
            .map(|(world, _)| world)
            .collect();
        if more.is_empty() {
            break;
        }
        leads_out.extend(more);
    }
    let stuck = found.keys().find(|world| !leads_out.contains(world));
    assert_eq!(stuck, None);
}

/// Where the store answers and nobody holds it, it ends without help, from wherever it is.
#[test]
fn a_store_that_obeys_is_cleared_from_every_state() {
    for mut world in reachable().into_keys() {
        world.held = false;
        world.moved = false;
        for _ in 0..12 {
            if world.is_gone {
                break;
            }
            if let Task::Running(_) = world.task {
                world = World { task: Task::Done, stored: Stored::Nothing, ..world };
            }
            world.waits = false;
            world = world.passes().pop().unwrap();
        }
        assert!(world.is_gone, "{world:?}");
    }
}

/// Else every pass would be followed at once by the next, for ever.
#[test]
fn what_nobody_touches_comes_to_rest() {
    for mut world in reachable().into_keys() {
        let begin = world.clone();
        let mut acts = Vec::new();
        for _ in 0..6 {
            acts.push(decide(&world.seen()).act);
            world = world.passes().pop().unwrap();
        }
        let last = acts.last().unwrap();
        assert!(matches!(last, Act::Nothing | Act::Release), "{begin:?}: {acts:?}");
    }
}

#[test]
fn transitions_are_those_of_the_dialect() {
    for (world, _) in reachable() {
        for after in world.passes() {
            let (from, to) = (STATES[usize::from(world.state)], STATES[usize::from(after.state)]);
            let legal = match from {
                State::Other => to != State::Error,
                State::Deleting | State::Error => to != State::Other,
            };
            // An end that was never shown as a beginning: the status was taken back by another.
            let is_odd = matches!((from, world.task), (State::Other, Task::Failed(_)))
                || (from == State::Other && world.moved);
            assert!(legal || is_odd, "{world:?} -> {after:?}");
        }
    }
}

#[test]
fn a_clock_that_was_set_back_makes_nobody_wait_longer() {
    let waits = Seen { state: State::Error, status: status(1, Some(50)), ..asked() };
    assert_eq!(decide(&waits).act, Act::Nothing);
    let back = Seen { status: status(1, Some(86_400)), ..waits };
    assert_eq!(decide(&back).act, Act::Start);
}

#[test]
fn what_lies_in_another_store_than_the_target_has_now_is_not_said_to_be_deleted() {
    let moved = Some("it lies at s3://old, the target is at s3://new".to_owned());
    let seen = Seen { moved, ..asked() };
    let verdict = decide(&seen);
    let shown = verdict.show.unwrap();
    assert_eq!((verdict.act, shown.state), (Act::Refuse, State::Error));
    assert!(shown.error.unwrap().contains("it lies at s3://old"));
    let later = Seen { state: State::Error, status: status(1, Some(30)), ..seen.clone() };
    assert_eq!(decide(&later).act, Act::Nothing);
    let kept = Seen { keeps_data: true, ..seen };
    assert_eq!(decide(&kept).act, Act::Release);
}

#[test]
fn the_drawing_of_a_deletion_has_every_edge_and_no_other() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/state-machines.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, part) = page.split_once("## A backup that is deleted").unwrap();
    let (drawing, _) = part.split_once("\n## ").unwrap();
    let edge = |line: &str| {
        let (from, to) = line.trim().split_once(" --> ")?;
        let to = to.split(':').next().unwrap_or(to);
        Some((from.to_owned(), to.to_owned()))
    };
    let drawn: BTreeSet<(String, String)> = drawing.lines().filter_map(edge).collect();
    let word = |state: State| match state {
        State::Deleting => "Deleting",
        State::Error => "Error",
        State::Other => "Completed",
    };
    let flags = [false, true];
    let mut edges = BTreeSet::new();
    for state in [State::Deleting, State::Error, State::Other] {
        for record in [Record::None, running("old"), failed("old"), failed("new"), Record::Done] {
            for (keeps_data, was_never_stored, held, moved) in flags.into_iter().flat_map(|a| {
                flags.into_iter().flat_map(move |b| {
                    flags.into_iter().flat_map(move |c| flags.map(move |d| (a, b, c, d)))
                })
            }) {
                let seen = Seen {
                    state,
                    record: record.clone(),
                    keeps_data,
                    was_never_stored,
                    held_by: held.then(|| "a restore".to_owned()),
                    moved: moved.then(|| "elsewhere".to_owned()),
                    status: status(1, None),
                    ..asked()
                };
                let verdict = decide(&seen);
                let to = match (verdict.act, &verdict.show) {
                    (Act::Release, _) => "gone",
                    (_, Some(shown)) => word(shown.state),
                    (_, None) => word(state),
                };
                if to != word(state) {
                    edges.insert((word(state).to_owned(), to.to_owned()));
                }
            }
        }
    }
    assert_eq!(drawn, edges);
}
