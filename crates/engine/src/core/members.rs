//! The replica set: who is in it, what each is good for, whose turn it is to be read.

use rpc::Features;

use super::mask::{Mask, PLACES, bit, next_place, places};
use super::{Fault, Member, Mode, Now, ReplicaId};

#[derive(Debug)]
struct Replica {
    member: Member,
    name: String,
    /// Frames that are not answered, pings apart.
    in_flight: u32,
    /// When it last answered one, or got one after having none.
    heard: Now,
    pinged: Now,
    ping_out: bool,
}

#[derive(Debug, Default)]
pub(super) struct Members {
    places: Vec<Option<Replica>>,
    next_id: u32,
    rw: Mask,
    wo: Mask,
    flush: Mask,
    zero: Mask,
    status: Mask,
    discard: Mask,
    membership: Mask,
    partial: Mask,
    reader: Option<ReplicaId>,
    /// Who is read from next.
    turn: usize,
    /// Nobody joins any more.
    closed: bool,
}

impl Members {
    pub(super) fn add(&mut self, now: Now, features: Features, mode: Mode) -> ReplicaId {
        let id = ReplicaId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        let place = self.places.iter().position(Option::is_none).unwrap_or(self.places.len());
        let (mode, reason) = match mode {
            Mode::Err => (Mode::Err, Some("added as ERR".to_owned())),
            Mode::Rw | Mode::Wo if self.closed => {
                (Mode::Err, Some("another engine has this volume".to_owned()))
            }
            Mode::Rw | Mode::Wo if place >= PLACES => {
                (Mode::Err, Some(format!("a volume has at most {PLACES} replicas")))
            }
            Mode::Rw | Mode::Wo => (mode, None),
        };
        let member = Member { id, mode, features, reason };
        let replica = Replica {
            member,
            name: String::new(),
            in_flight: 0,
            heard: now,
            pinged: now,
            ping_out: false,
        };
        match self.places.get_mut(place) {
            Some(empty) => *empty = Some(replica),
            None => self.places.push(Some(replica)),
        }
        self.classify();
        id
    }

    pub(super) fn set_name(&mut self, id: ReplicaId, name: String) {
        let place = self.place(id);
        if let Some(Some(replica)) = place.and_then(|place| self.places.get_mut(place)) {
            replica.name = name;
        }
    }

    /// Those that can be read by their names, and the reader's.
    pub(super) fn names(&self) -> (Vec<String>, Option<String>) {
        let name = |place: usize| Some(self.places.get(place)?.as_ref()?.name.clone());
        let all = places(self.rw).filter_map(name).collect();
        (all, self.reader_place().and_then(name))
    }

    /// Nobody joins any more; those that are live, to be failed.
    pub(super) fn cut_off(&mut self) -> Vec<usize> {
        self.closed = true;
        places(self.live()).collect()
    }

    /// Takes it out of the table; its place is free from now on.
    pub(super) fn remove(&mut self, place: usize) {
        if let Some(replica) = self.places.get_mut(place).and_then(Option::take) {
            self.replace_reader(replica.member.id);
        }
        self.classify();
    }

    /// False if it is `Err` already.
    pub(super) fn fail(&mut self, place: usize, reason: &str) -> Option<ReplicaId> {
        let live = bit(place) & self.live() != 0;
        let replica = self.places.get_mut(place)?.as_mut().filter(|_| live)?;
        replica.member.mode = Mode::Err;
        replica.member.reason = Some(reason.to_owned());
        let id = replica.member.id;
        self.classify();
        self.replace_reader(id);
        Some(id)
    }

    /// Between `Rw` and `Wo`.
    pub(super) fn set_mode(&mut self, place: usize, mode: Mode) {
        if bit(place) & self.live() != 0
            && let Some(Some(replica)) = self.places.get_mut(place)
        {
            replica.member.mode = mode;
        }
        self.classify();
    }

    pub(super) fn set_reader(&mut self, reader: Option<ReplicaId>) {
        self.reader = reader;
    }

    /// Copies that may differ are read from one alone: if that fails, from one other alone.
    fn replace_reader(&mut self, gone: ReplicaId) {
        if self.reader == Some(gone) {
            self.reader = places(self.rw).find_map(|place| self.id(place)).or(self.reader);
        }
    }

    fn classify(&mut self) {
        (self.rw, self.wo, self.flush, self.zero, self.status) = (0, 0, 0, 0, 0);
        (self.discard, self.membership, self.partial) = (0, 0, 0);
        for (place, replica) in self.places.iter().enumerate() {
            let Some(replica) = replica else { continue };
            let (bit, features) = (bit(place), replica.member.features);
            match replica.member.mode {
                Mode::Rw => self.rw |= bit,
                Mode::Wo => self.wo |= bit,
                Mode::Err => continue,
            }
            let with = |wanted| if features.has(wanted) { bit } else { 0 };
            self.flush |= with(Features::FLUSH);
            // One that is being filled does not have the layers below its head yet: it would take what is
            // to be zeroed for zeros already, and show what lies below once that has come.
            if replica.member.mode == Mode::Rw {
                self.zero |= with(Features::ZERO);
            }
            self.status |= with(Features::STATUS);
            self.discard |= with(Features::DISCARD);
            self.membership |= with(Features::MEMBERSHIP);
            self.partial |= with(Features::PARTIAL);
        }
    }

    pub(super) fn rw(&self) -> Mask {
        self.rw
    }

    pub(super) fn wo(&self) -> Mask {
        self.wo
    }

    pub(super) fn live(&self) -> Mask {
        self.rw | self.wo
    }

    pub(super) fn with_flush(&self) -> Mask {
        self.flush
    }

    pub(super) fn with_zero(&self) -> Mask {
        self.zero
    }

    pub(super) fn with_discard(&self) -> Mask {
        self.discard
    }

    pub(super) fn with_partial(&self) -> Mask {
        self.partial
    }

    pub(super) fn with_membership(&self) -> Mask {
        self.membership
    }

    pub(super) fn with_status(&self) -> Mask {
        self.status
    }

    pub(super) fn place(&self, id: ReplicaId) -> Option<usize> {
        self.places.iter().position(|it| it.as_ref().is_some_and(|it| it.member.id == id))
    }

    /// Its place unless it is `Err` or gone.
    pub(super) fn live_place(&self, id: ReplicaId) -> Option<usize> {
        self.place(id).filter(|place| bit(*place) & self.live() != 0)
    }

    fn id(&self, place: usize) -> Option<ReplicaId> {
        Some(self.places.get(place)?.as_ref()?.member.id)
    }

    /// The one of `candidates` to read from: the reader, or else in turn.
    pub(super) fn pick(&mut self, candidates: Mask) -> Option<usize> {
        if let Some(place) = self.reader_place() {
            return Some(place).filter(|place| bit(*place) & candidates != 0);
        }
        let place = next_place(candidates, self.turn)?;
        self.turn = (place + 1) % PLACES;
        Some(place)
    }

    /// Where a mend takes its bytes from.
    pub(super) fn source(&self) -> Option<usize> {
        self.reader_place().or_else(|| places(self.rw).next())
    }

    fn reader_place(&self) -> Option<usize> {
        self.place(self.reader?).filter(|place| bit(*place) & self.rw != 0)
    }

    /// Notes a frame that goes to the replica.
    pub(super) fn sent(&mut self, place: usize, now: Now) -> Option<(ReplicaId, Features)> {
        let replica = self.places.get_mut(place)?.as_mut()?;
        if replica.in_flight == 0 {
            replica.heard = now;
        }
        replica.in_flight = replica.in_flight.saturating_add(1);
        let features = match replica.member.mode {
            Mode::Wo => replica.member.features.without(Features::ZERO),
            Mode::Rw | Mode::Err => replica.member.features,
        };
        Some((replica.member.id, features))
    }

    pub(super) fn answered(&mut self, place: usize, now: Now) {
        if let Some(Some(replica)) = self.places.get_mut(place) {
            replica.in_flight = replica.in_flight.saturating_sub(1);
            replica.heard = now;
        }
    }

    /// Notes a ping if one is due.
    pub(super) fn ping(&mut self, place: usize, now: Now, interval: Now) -> Option<ReplicaId> {
        let replica = self.places.get_mut(place)?.as_mut()?;
        if replica.ping_out || now.saturating_sub(replica.pinged) < interval {
            return None;
        }
        (replica.ping_out, replica.pinged) = (true, now);
        Some(replica.member.id)
    }

    pub(super) fn ponged(&mut self, place: usize) {
        if let Some(Some(replica)) = self.places.get_mut(place) {
            replica.ping_out = false;
        }
    }

    /// Those that owe an answer and gave none for `limit`, the longest silent first.
    pub(super) fn silent(&self, now: Now, limit: Now) -> Vec<usize> {
        let mut silent: Vec<(Now, usize)> = places(self.live())
            .filter_map(|place| {
                let replica = self.places.get(place)?.as_ref()?;
                let overdue = replica.in_flight > 0 && now.saturating_sub(replica.heard) >= limit;
                overdue.then_some((replica.heard, place))
            })
            .collect();
        silent.sort_unstable();
        silent.into_iter().map(|(_, place)| place).collect()
    }

    pub(super) fn list(&self) -> Vec<Member> {
        let mut list: Vec<Member> =
            self.places.iter().flatten().map(|it| it.member.clone()).collect();
        list.sort_unstable_by_key(|member| member.id);
        list
    }

    /// Why nobody can serve.
    pub(super) fn nobody_left(&self) -> Fault {
        let told: Vec<String> = self.list().iter().map(tell).collect();
        let told = if told.is_empty() { "there is none".to_owned() } else { told.join(", ") };
        Fault::Io(format!("no replica can serve the volume: {told}"))
    }
}

fn tell(member: &Member) -> String {
    let mode = match member.mode {
        Mode::Rw => "RW",
        Mode::Wo => "WO",
        Mode::Err => "ERR",
    };
    let reason = member.reason.as_deref().unwrap_or_default();
    let sep = if reason.is_empty() { "" } else { ": " };
    format!("replica {} is {mode}{sep}{reason}", member.id.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> (Members, [ReplicaId; 3]) {
        let mut members = Members::default();
        let ids = [0; 3].map(|_| members.add(Now::ZERO, Features::NONE, Mode::Rw));
        (members, ids)
    }

    #[test]
    fn reads_take_turns_and_stick_to_the_reader() {
        let (mut members, ids) = three();
        let turns: Vec<_> = (0..4).filter_map(|_| members.pick(members.rw())).collect();
        assert_eq!(turns, [0, 1, 2, 0]);
        members.set_reader(Some(ids[2]));
        assert_eq!(members.pick(members.rw()), Some(2));
        assert_eq!(members.pick(0b011), None, "another might hold something else");
        members.fail(2, "gone");
        assert_eq!(members.pick(members.rw()), Some(0), "one other alone");
        assert_eq!(members.pick(members.rw()), Some(0));
        members.set_reader(None);
        let turns: Vec<_> = (0..3).filter_map(|_| members.pick(members.rw())).collect();
        assert_eq!(turns, [1, 0, 1]);
    }

    #[test]
    fn places_are_used_again_and_ids_are_not() {
        let (mut members, ids) = three();
        members.remove(1);
        let new = members.add(Now::ZERO, Features::ZERO, Mode::Wo);
        assert!(!ids.contains(&new));
        assert_eq!(members.place(new), Some(1));
        assert_eq!((members.rw(), members.wo(), members.with_zero()), (0b101, 0b010, 0));
        assert_eq!(members.place(ids[1]), None);
    }

    #[test]
    fn err_is_for_good() {
        let (mut members, ids) = three();
        assert_eq!(members.fail(0, "first"), Some(ids[0]));
        assert_eq!(members.fail(0, "second"), None);
        members.set_mode(0, Mode::Rw);
        assert_eq!(members.rw(), 0b110);
        assert_eq!(members.list()[0].reason.as_deref(), Some("first"));
        assert_eq!(members.live_place(ids[0]), None);
    }

    #[test]
    fn there_is_a_limit() {
        let mut members = Members::default();
        for _ in 0..=PLACES {
            members.add(Now::ZERO, Features::NONE, Mode::Rw);
        }
        assert_eq!(members.rw(), u64::MAX);
        assert_eq!(members.list().last().map(|it| it.mode), Some(Mode::Err));
    }

    #[test]
    fn silence_counts_from_the_last_answer_or_the_first_frame() {
        let (mut members, _) = three();
        let at = Now::from_secs;
        members.sent(0, at(10));
        members.sent(1, at(5));
        members.sent(1, at(8));
        assert_eq!(members.silent(at(13), at(8)), [1]);
        members.answered(1, at(13));
        assert_eq!(members.silent(at(18), at(8)), [0]);
        assert_eq!(members.silent(at(21), at(8)), [0, 1]);
        members.answered(1, at(21));
        members.answered(0, at(21));
        assert!(members.silent(at(99), at(8)).is_empty(), "nothing is owed");
    }

    #[test]
    fn a_fault_tells_what_became_of_each() {
        let (mut members, _) = three();
        members.fail(0, "r/w timeout");
        members.set_mode(1, Mode::Wo);
        members.remove(2);
        let text = members.nobody_left().to_string();
        assert!(text.contains("replica 0 is ERR: r/w timeout"), "{text}");
        assert!(text.contains("replica 1 is WO"), "{text}");
    }
}
