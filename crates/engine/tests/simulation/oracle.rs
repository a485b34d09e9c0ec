//! Knows every request and how it ended, and so which bytes a volume may hold.
//!
//! The volume is watched in cells of 512 bytes. Every write has a value of its own. A value may be
//! seen unless a later write that is known to be kept has replaced it: "later" means begun after
//! the other had ended, "kept" means acknowledged and not possibly lost with the power since.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use engine::core::{Command, Done, Fault, Token};

pub(crate) const CELL: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    /// Not acknowledged, or lost with the power, perhaps.
    Maybe,
    Acknowledged,
    /// On disk.
    Safe,
}

#[derive(Debug, Clone)]
struct Write {
    value: u64,
    begin: u64,
    /// `u64::MAX` while it is under way.
    end: u64,
    kept: Kept,
    token: u64,
}

#[derive(Debug)]
struct Cell {
    writes: Vec<Write>,
    /// Since when a write failed here: copies may differ until the next one, or until mended.
    undefined: Option<u64>,
    /// What a read found when nothing was under way here, and when.
    seen: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Open {
    engine: usize,
    command: Command,
    begin: u64,
}

#[derive(Debug)]
pub(crate) struct Oracle {
    clock: u64,
    cells: Vec<Cell>,
    open: BTreeMap<u64, Open>,
    next_token: u64,
    next_value: u64,
    write_through: bool,
    power_lost: bool,
    started: u64,
    /// A write that finds no space leaves all copies alike.
    pub(crate) even: bool,
    /// The engine that started last.
    pub(crate) newest: usize,
    /// What each snapshot holds; `None` where copies may differ.
    snapshots: BTreeMap<String, Vec<Option<u64>>>,
    /// When each was taken.
    taken: BTreeMap<String, u64>,
    /// What each backup holds.
    backups: BTreeMap<String, u64>,
    pub(crate) violation: Option<String>,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
}

pub(crate) fn cells_of(command: &Command) -> Range<usize> {
    let (offset, len) = match command {
        Command::Write { offset, data, .. } => (*offset, data.len() as u64),
        Command::Read { offset, len }
        | Command::Zero { offset, len, .. }
        | Command::Unmap { offset, len }
        | Command::Status { offset, len }
        | Command::Mend { offset, len } => (*offset, u64::from(*len)),
        Command::Flush | Command::Record => (0, 0),
    };
    let cell = |at: u64| usize::try_from(at).unwrap() / CELL;
    cell(offset)..cell(offset + len)
}

/// The value that a cell's bytes spell; `None` if they are not all of one write.
pub(crate) fn value_of(cell: &[u8]) -> Option<u64> {
    let first: [u8; 8] = cell[..8].try_into().unwrap();
    // Shifted by one value against itself: equal only if all values are.
    (cell[8..] == cell[..cell.len() - 8]).then(|| u64::from_le_bytes(first))
}

pub(crate) fn bytes_of(value: u64, cells: usize) -> Vec<u8> {
    value.to_le_bytes().repeat(cells * CELL / 8)
}

impl Oracle {
    pub(crate) fn new(cells: usize, write_through: bool) -> Self {
        let origin = || Write { value: 0, begin: 0, end: 0, kept: Kept::Safe, token: u64::MAX };
        let cell = || Cell { writes: vec![origin()], undefined: None, seen: None };
        Self {
            clock: 1,
            cells: std::iter::repeat_with(cell).take(cells).collect(),
            open: BTreeMap::new(),
            next_token: 0,
            next_value: 1,
            write_through,
            power_lost: false,
            started: 0,
            even: false,
            newest: 0,
            snapshots: BTreeMap::new(),
            taken: BTreeMap::new(),
            backups: BTreeMap::new(),
            violation: None,
            completed: 0,
            failed: 0,
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub(crate) fn complain(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(crate) fn fresh_value(&mut self) -> u64 {
        self.next_value += 1;
        self.next_value
    }

    pub(crate) fn open(&self, engine: usize) -> usize {
        self.open.values().filter(|open| open.engine == engine).count()
    }

    pub(crate) fn submit(&mut self, engine: usize, command: &Command) -> Token {
        let (token, begin) = (self.next_token, self.tick());
        self.next_token += 1;
        let value = match command {
            Command::Write { data, .. } => value_of(&data[..CELL]),
            Command::Zero { .. } | Command::Unmap { .. } => Some(0),
            Command::Read { .. }
            | Command::Status { .. }
            | Command::Flush
            | Command::Record
            | Command::Mend { .. } => None,
        };
        if let Some(value) = value {
            let write = Write { value, begin, end: u64::MAX, kept: Kept::Maybe, token };
            for cell in &mut self.cells[cells_of(command)] {
                cell.writes.push(write.clone());
            }
        }
        self.open.insert(token, Open { engine, command: command.clone(), begin });
        Token(token)
    }

    pub(crate) fn complete(&mut self, token: Token, result: &Result<Done, Fault>) {
        let now = self.tick();
        let Some(Open { engine, command, begin }) = self.open.remove(&token.0) else {
            return self.complain(format!("request {} completed again, or never made", token.0));
        };
        self.completed += 1;
        self.failed += u64::from(result.is_err());
        match (&command, result) {
            // What one reads that does not know yet that it was replaced is old, perhaps.
            (Command::Read { .. }, Ok(Done::Data(_))) if engine != self.newest => {}
            (Command::Read { .. }, Ok(Done::Data(data))) => {
                self.check_read(&command, begin, data);
            }
            (Command::Write { durable, .. } | Command::Zero { durable, .. }, Ok(_)) => {
                let safe = *durable || self.write_through;
                let kept = if safe { Kept::Safe } else { Kept::Acknowledged };
                self.end_writes(&command, token.0, now, kept);
            }
            (Command::Unmap { .. }, Ok(_)) => self.end_writes(&command, token.0, now, Kept::Maybe),
            // Copies that say how far they got are made even again.
            (Command::Write { .. }, Err(Fault::NoSpace)) if self.even => {
                self.end_writes(&command, token.0, now, Kept::Maybe);
            }
            (Command::Write { .. } | Command::Zero { .. } | Command::Unmap { .. }, Err(_)) => {
                self.end_writes(&command, token.0, now, Kept::Maybe);
                for cell in &mut self.cells[cells_of(&command)] {
                    cell.undefined = Some(now);
                }
            }
            (Command::Flush, Ok(_)) => self.flushed(begin),
            (Command::Status { .. }, Ok(Done::Runs(runs))) if !runs.is_empty() => {}
            (Command::Mend { .. } | Command::Record, Ok(Done::Count(_))) => {}
            (_, Err(_)) => {}
            (_, Ok(done)) => self.complain(format!("{command:?} completed with {done:?}")),
        }
    }

    fn end_writes(&mut self, command: &Command, token: u64, now: u64, kept: Kept) {
        for cell in &mut self.cells[cells_of(command)] {
            for write in cell.writes.iter_mut().filter(|write| write.token == token) {
                (write.end, write.kept) = (now, kept);
                // One that failed while this was under way may have come after it.
                let begin = write.begin;
                cell.undefined =
                    cell.undefined.filter(|since| kept == Kept::Maybe || *since > begin);
            }
        }
    }

    /// Everything acknowledged before `begin` is on disk.
    pub(crate) fn flushed(&mut self, begin: u64) {
        for write in self.cells.iter_mut().flat_map(|cell| &mut cell.writes) {
            if write.kept == Kept::Acknowledged && write.end < begin {
                write.kept = Kept::Safe;
            }
        }
    }

    /// To be handed to [`Self::flushed`] later.
    pub(crate) fn moment(&mut self) -> u64 {
        self.tick()
    }

    pub(crate) fn lose_power(&mut self) {
        self.power_lost = true;
    }

    /// The engine is gone, and with it the requests under way.
    pub(crate) fn engine_gone(&mut self, engine: usize) {
        let now = self.tick();
        self.replica_gone();
        self.open.retain(|_, open| open.engine != engine);
        let open = &self.open;
        for cell in &mut self.cells {
            for write in &mut cell.writes {
                if write.end == u64::MAX && !open.contains_key(&write.token) {
                    write.end = now;
                    cell.undefined = Some(now);
                }
            }
        }
    }

    /// Reads may go to another copy from now on.
    pub(crate) fn replica_gone(&mut self) {
        for cell in &mut self.cells {
            cell.seen = None;
        }
    }

    /// The engine is back. What was not flushed may be gone if the power was.
    pub(crate) fn engine_back(&mut self, engine: usize) {
        self.newest = engine;
        self.started = self.tick();
        if std::mem::take(&mut self.power_lost) {
            for write in self.cells.iter_mut().flat_map(|cell| &mut cell.writes) {
                if write.kept == Kept::Acknowledged {
                    write.kept = Kept::Maybe;
                }
            }
        }
    }

    fn check_read(&mut self, command: &Command, begin: u64, data: &[u8]) {
        for (cell, bytes) in cells_of(command).zip(data.chunks(CELL)) {
            match self.judge(cell, bytes, begin) {
                Err(why) => return self.complain(format!("a read begun at {begin}: {why}")),
                Ok(value) => self.compare_reads(cell, value, begin),
            }
        }
    }

    /// Two reads with no write between them find the same, even where copies may differ.
    fn compare_reads(&mut self, index: usize, value: u64, begin: u64) {
        let (now, started) = (self.clock, self.started);
        let cell = &mut self.cells[index];
        if cell.undefined.is_some_and(|since| since > started) {
            return;
        }
        let writes = &cell.writes;
        if let Some((seen, at)) = cell.seen
            && at < begin
            && seen != value
            && !writes.iter().any(|write| write.value == value && write.end > at)
        {
            let what = format!(
                "cell {index} held {seen} at {at}, then {value} at {begin}: {cell:?} started {started}"
            );
            return self.complain(what);
        }
        if writes.iter().all(|write| write.end < begin) {
            cell.seen = Some((value, now));
        }
    }

    /// Whether a read begun at `begin` may find these bytes.
    fn judge(&self, cell: usize, bytes: &[u8], begin: u64) -> Result<u64, String> {
        let writes = &self.cells[cell].writes;
        let Some(value) = value_of(bytes) else {
            return Err(format!("cell {cell} holds a mixture"));
        };
        let replaced = |write: &Write| {
            writes.iter().any(|other| {
                other.kept >= Kept::Acknowledged && other.end < begin && write.end < other.begin
            })
        };
        if writes.iter().any(|write| write.value == value && !replaced(write)) {
            return Ok(value);
        }
        Err(format!("cell {cell} holds {value}, which it may not; writes: {writes:?}"))
    }

    /// The copies that may be read are these, and no change is under way. They must be alike and
    /// legal. With `settled`, this is what the volume holds from now on.
    pub(crate) fn check_copies(&mut self, copies: &[(&str, &[u8])], settled: bool) {
        let now = self.tick();
        let Some(((first_name, first), others)) = copies.split_first() else { return };
        for (name, other) in others {
            let differs = |cell: &usize| {
                let range = cell * CELL..(cell + 1) * CELL;
                self.cells[*cell].undefined.is_none()
                    && first.get(range.clone()) != other.get(range)
            };
            if let Some(cell) = (0..self.cells.len()).find(differs) {
                let what = |copy: &[u8]| value_of(&copy[cell * CELL..][..CELL]);
                let (one, two) = (what(first), what(other));
                return self.complain(format!(
                    "{first_name} and {name} differ in cell {cell}: {one:?} and {two:?}"
                ));
            }
        }
        let reading = self.open.values().any(|open| matches!(open.command, Command::Read { .. }));
        for (cell, bytes) in first.chunks(CELL).enumerate() {
            match self.judge(cell, bytes, now) {
                Err(why) => return self.complain(format!("{first_name}: {why}")),
                Ok(value) if settled && !reading && self.cells[cell].undefined.is_none() => {
                    self.cells[cell].seen = None;
                    let writes = &mut self.cells[cell].writes;
                    writes.retain(|write| write.end == u64::MAX);
                    // What is still under way is of an engine that was replaced, and came before.
                    let end = if writes.is_empty() { 0 } else { now };
                    let (kept, token) = (Kept::Safe, u64::MAX);
                    writes.push(Write { value, begin: 0, end, kept, token });
                }
                Ok(_) => {}
            }
        }
    }

    /// All copies were made alike above `base`, whatever failed there before `begin`. What had failed
    /// before that snapshot was taken is in it, and stays.
    pub(crate) fn mended(&mut self, begin: u64, base: Option<&str>) {
        let taken = base.and_then(|name| self.taken.get(name)).copied().unwrap_or(0);
        for cell in &mut self.cells {
            cell.undefined = cell.undefined.filter(|since| *since > begin || *since < taken);
        }
    }

    pub(crate) fn take_snapshot(&mut self, name: &str, copy: &[u8]) {
        let now = self.tick();
        self.taken.insert(name.to_owned(), now);
        let cells = copy.chunks(CELL).zip(&self.cells);
        let values =
            cells.map(|(bytes, cell)| value_of(bytes).filter(|_| cell.undefined.is_none()));
        let values = values.collect();
        self.snapshots.insert(name.to_owned(), values);
    }

    /// What the cells of a snapshot hold; none if that is not known of all of them.
    fn snapshot(&self, name: &str) -> Option<Vec<u64>> {
        let values: Option<Vec<u64>> = self.snapshots.get(name)?.iter().copied().collect();
        let mut values = values?;
        values.resize(self.cells.len(), 0);
        Some(values)
    }

    pub(crate) fn knows(&self, name: &str) -> bool {
        self.snapshot(name).is_some()
    }

    /// There is a backup of this name, of some other volume.
    pub(crate) fn make_backup(&mut self, name: &str) {
        if !self.backups.contains_key(name) {
            let value = self.fresh_value();
            self.backups.insert(name.to_owned(), value);
        }
    }

    pub(crate) fn backup(&self, name: &str, size: usize) -> Bytes {
        bytes_of(self.backups[name], size / CELL).into()
    }

    /// Clients see the volume for the first time: it holds this backup, or nothing.
    pub(crate) fn show(&mut self, backup: Option<&str>, size: usize) {
        let value = backup.map_or(0, |name| self.backups[name]);
        for (at, cell) in self.cells.iter_mut().enumerate() {
            let value = if at < size / CELL { value } else { 0 };
            let kept = Kept::Safe;
            cell.writes = vec![Write { value, begin: 0, end: 0, kept, token: u64::MAX }];
            (cell.undefined, cell.seen) = (None, None);
        }
    }

    /// An engine takes the volume back to a snapshot: as if all of it were written anew.
    pub(crate) fn begin_revert(&mut self, engine: usize, name: &str) -> Token {
        let (token, begin) = (self.next_token, self.tick());
        self.next_token += 1;
        let values = self.snapshot(name).unwrap_or_default();
        for (cell, value) in self.cells.iter_mut().zip(values) {
            cell.writes.push(Write { value, begin, end: u64::MAX, kept: Kept::Maybe, token });
        }
        self.open.insert(token, Open { engine, command: Command::Record, begin });
        Token(token)
    }

    pub(crate) fn end_revert(&mut self, token: Token, is_done: bool) {
        let now = self.tick();
        self.open.remove(&token.0);
        let kept = if is_done { Kept::Safe } else { Kept::Maybe };
        for cell in &mut self.cells {
            for write in cell.writes.iter_mut().filter(|write| write.token == token.0) {
                (write.end, write.kept) = (now, kept);
            }
            if is_done {
                cell.undefined = None;
            }
        }
    }

    pub(crate) fn check_snapshot(&mut self, replica: &str, name: &str, copy: &[u8]) {
        let Some(values) = self.snapshots.get(name) else { return };
        let wrong = copy
            .chunks(CELL)
            .zip(values)
            .position(|(bytes, value)| value.is_some_and(|value| value_of(bytes) != Some(value)));
        if let Some(cell) = wrong {
            self.complain(format!("snapshot {name} of {replica} has changed in cell {cell}"));
        }
    }
}
