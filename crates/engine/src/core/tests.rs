//! The core driven by hand: small tables for each rule.

mod failures;
mod flushes;
mod holds;
mod rebuild;
mod records;
mod requests;
mod time;

use std::collections::VecDeque;

use wire::frame::{Answer, Outcome, Request};

use super::*;

const ALL: Features =
    Features(Features::FLUSH.0 | Features::ZERO.0 | Features::STATUS.0 | Features::ORDERED.0);
const SIZE: u64 = 64 << 20;

/// A core with replicas that answer when the test says so.
struct Rig {
    core: Core,
    now: Now,
    ids: Vec<ReplicaId>,
    /// Sent and not yet answered, oldest first.
    sent: VecDeque<(ReplicaId, Request)>,
    completed: Vec<(u64, Result<Done, Fault>)>,
    failed: Vec<(ReplicaId, String)>,
    held: Vec<HoldId>,
    next_token: u64,
}

impl Rig {
    fn new(replicas: &[(Features, Mode)]) -> Self {
        let settings = Settings {
            replica_timeout: Now::from_secs(8),
            ping_interval: Now::from_secs(2),
            write_through: false,
        };
        let mut core = Core::new(settings);
        core.resize(SIZE);
        let ids = replicas.iter().map(|(features, mode)| core.add(Now::ZERO, *features, *mode));
        let ids = ids.collect();
        Self {
            core,
            now: Now::ZERO,
            ids,
            sent: VecDeque::new(),
            completed: vec![],
            failed: vec![],
            held: vec![],
            next_token: 0,
        }
    }

    /// So many replicas that can be read and know everything.
    fn healthy(count: usize) -> Self {
        Self::new(&vec![(ALL, Mode::Rw); count])
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut Core, Now, &mut Vec<Effect>) -> R) -> R {
        let mut out = vec![];
        let result = act(&mut self.core, self.now, &mut out);
        for effect in out {
            match effect {
                Effect::Send { replica, request } => self.sent.push_back((replica, request)),
                Effect::Complete { token, result } => self.completed.push((token.0, result)),
                Effect::Failed { replica, reason } => self.failed.push((replica, reason)),
                Effect::Held(id) => self.held.push(id),
            }
        }
        result
    }

    fn submit(&mut self, command: Command) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.with(|core, now, out| core.submit(now, Token(token), command, out));
        token
    }

    fn write(&mut self, offset: u64, data: &'static [u8]) -> u64 {
        let data = Bytes::from_static(data);
        self.submit(Command::Write { offset, data, durable: false })
    }

    fn read(&mut self, offset: u64, len: u32) -> u64 {
        self.submit(Command::Read { offset, len })
    }

    fn hold(&mut self, hold: Hold) -> HoldId {
        self.with(|core, now, out| core.hold(now, hold, out))
    }

    fn release(&mut self, id: HoldId) {
        self.with(|core, now, out| core.release(now, id, out));
    }

    /// The number of the replica in the order they were added.
    fn number(&self, id: ReplicaId) -> usize {
        self.ids.iter().position(|it| *it == id).unwrap()
    }

    /// What waits for an answer: replica and frame, marks and pings told by their names.
    fn waiting(&self) -> Vec<String> {
        let tell = |(id, request): &(ReplicaId, Request)| {
            let number = self.number(*id);
            match request {
                Request::Read { offset, size, .. } => format!("{number} read {offset} {size}"),
                Request::Write { data, .. } if data.is_empty() => format!("{number} mark"),
                Request::Write { offset, data, .. } => {
                    format!("{number} write {offset} {}", data.len())
                }
                Request::Unmap { offset, size, .. } => format!("{number} unmap {offset} {size}"),
                Request::Discard { offset, size, .. } => {
                    format!("{number} discard {offset} {size}")
                }
                Request::Ping { .. } => format!("{number} ping"),
                Request::Flush { .. } => format!("{number} flush"),
                Request::Zero { offset, size, .. } => format!("{number} zero {offset} {size}"),
                Request::Status { offset, size, .. } => format!("{number} status {offset} {size}"),
                Request::Hello { .. } => format!("{number} hello"),
                Request::Record { data, .. } => {
                    format!("{number} record {}", String::from_utf8_lossy(data))
                }
                Request::Close => format!("{number} close"),
            }
        };
        let mut told: Vec<String> = self.sent.iter().map(tell).collect();
        told.sort();
        told
    }

    /// Answers the oldest frame of replica `number`.
    fn answer(&mut self, number: usize, outcome: Outcome) {
        let id = self.ids[number];
        let index = self.sent.iter().position(|(to, _)| *to == id).expect("owes nothing");
        let (_, request) = self.sent.remove(index).unwrap();
        self.answer_to(id, &request, outcome);
    }

    fn answer_to(&mut self, id: ReplicaId, request: &Request, outcome: Outcome) {
        let answer = Answer { sequence: sequence(request), offset: 0, outcome };
        self.with(|core, now, out| core.reply(now, id, answer, out));
    }

    /// Answers a discard with a number for its layers.
    fn discarded(&mut self, number: usize, count: u32, layout: i64) {
        let id = self.ids[number];
        let index = self.sent.iter().position(|(to, _)| *to == id).expect("owes nothing");
        let (_, request) = self.sent.remove(index).unwrap();
        let outcome = Outcome::Count(count);
        let answer = Answer { sequence: sequence(&request), offset: layout, outcome };
        self.with(|core, now, out| core.reply(now, id, answer, out));
    }

    fn ok(&mut self, number: usize) {
        let id = self.ids[number];
        let request = &self.sent.iter().find(|(to, _)| *to == id).expect("owes nothing").1;
        let outcome = good(request);
        self.answer(number, outcome);
    }

    fn error(&mut self, number: usize, text: &str) {
        self.answer(number, Outcome::Error(text.to_owned()));
    }

    /// Answers everything well until nothing is owed.
    fn settle(&mut self) {
        while let Some((id, request)) = self.sent.pop_front() {
            let outcome = good(&request);
            self.answer_to(id, &request, outcome);
        }
    }

    fn lose(&mut self, number: usize) {
        let id = self.ids[number];
        self.sent.retain(|(to, _)| *to != id);
        self.with(|core, now, out| core.lost(now, id, "connection reset", out));
    }

    fn tick(&mut self, seconds: u64) {
        self.now += Now::from_secs(seconds);
        self.with(Core::tick);
    }

    fn modes(&self) -> Vec<Mode> {
        self.core.members().iter().map(|member| member.mode).collect()
    }

    fn result(&self, token: u64) -> Option<&Result<Done, Fault>> {
        let mut of_token = self.completed.iter().filter(|(it, _)| *it == token);
        let result = of_token.next().map(|(_, result)| result);
        assert!(of_token.next().is_none(), "{token} completed twice");
        result
    }

    #[track_caller]
    fn assert_count(&self, token: u64, count: u32) {
        assert_eq!(self.result(token), Some(&Ok(Done::Count(count))));
    }

    #[track_caller]
    fn assert_open(&self, token: u64) {
        assert_eq!(self.result(token), None);
    }
}

fn sequence(request: &Request) -> u32 {
    match request {
        Request::Read { sequence, .. }
        | Request::Write { sequence, .. }
        | Request::Unmap { sequence, .. }
        | Request::Discard { sequence, .. }
        | Request::Ping { sequence }
        | Request::Flush { sequence }
        | Request::Zero { sequence, .. }
        | Request::Hello { sequence, .. }
        | Request::Record { sequence, .. }
        | Request::Status { sequence, .. } => *sequence,
        Request::Close => 0,
    }
}

/// The answer of a replica that holds sevens and no holes.
fn good(request: &Request) -> Outcome {
    match request {
        Request::Read { size, .. } => Outcome::Data(Bytes::from(vec![7; *size as usize])),
        Request::Write { data, .. } => Outcome::Count(u32::try_from(data.len()).unwrap()),
        Request::Unmap { size, .. }
        | Request::Discard { size, .. }
        | Request::Zero { size, .. } => Outcome::Count(*size),
        Request::Ping { .. }
        | Request::Flush { .. }
        | Request::Hello { .. }
        | Request::Record { .. }
        | Request::Close => Outcome::Count(0),
        Request::Status { size, .. } => {
            Outcome::Data(frame::encode_runs(&[frame::Run { len: *size, hole: false }]))
        }
    }
}
