//! What a volume may hold: every write that was sent, acknowledged and flushed, by block of 512
//! bytes.
//!
//! Two changes of one block are never under way at once, so the history of a block is a line: what
//! is found must be some point of it, and not one before the last that an acknowledged flush
//! covers.

/// The unit of the history.
pub(crate) const BLOCK: usize = 512;

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Zero,
    /// The block's own number and this stamp, over and over.
    Stamp(u64),
    /// After a trim: whatever an older layer holds there.
    Any,
}

#[derive(Debug, Clone, Copy)]
struct Version {
    /// Position in the history of the whole volume.
    order: u64,
    content: Content,
}

#[derive(Debug, Clone)]
struct Block {
    /// The first is the oldest that may be found.
    versions: Vec<Version>,
    /// Order of the last acknowledged one.
    acknowledged: u64,
    in_flight: bool,
}

/// How strictly a found block is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    /// Nothing before the last acknowledged change.
    Acknowledged,
    /// Nothing before the last change covered by an acknowledged flush.
    Flushed,
}

/// Changes that a flush covers if it is acknowledged: blocks and the order they had reached.
#[derive(Debug)]
pub(crate) struct Covered(Vec<(usize, u64)>);

#[derive(Debug)]
pub(crate) struct Model {
    blocks: Vec<Block>,
    /// Blocks with more than one version.
    dirty: std::collections::BTreeSet<usize>,
    order: u64,
}

impl Model {
    /// A new volume: zeroes everywhere.
    pub(crate) fn new(blocks: usize) -> Self {
        let first = Version { order: 0, content: Content::Zero };
        let block = Block { versions: vec![first], acknowledged: 0, in_flight: false };
        Self { blocks: vec![block; blocks], dirty: std::collections::BTreeSet::new(), order: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn is_idle(&self, range: std::ops::Range<usize>) -> bool {
        self.blocks[range].iter().all(|block| !block.in_flight)
    }

    /// A change is about to be sent; its bytes.
    pub(crate) fn begin(&mut self, range: std::ops::Range<usize>, kind: Kind) -> Vec<u8> {
        self.order += 1;
        let content = match kind {
            Kind::Write => Content::Stamp(self.order),
            Kind::Zero => Content::Zero,
            Kind::Trim => Content::Any,
        };
        let mut bytes = Vec::with_capacity(range.len() * BLOCK);
        for index in range {
            let block = &mut self.blocks[index];
            assert!(!block.in_flight);
            block.in_flight = true;
            block.versions.push(Version { order: self.order, content });
            self.dirty.insert(index);
            if kind == Kind::Write {
                bytes.extend(expected(index, self.order));
            }
        }
        bytes
    }

    /// The change was answered. Without success it may have happened or not.
    pub(crate) fn end(&mut self, range: std::ops::Range<usize>, acknowledged: bool) {
        for block in &mut self.blocks[range] {
            block.in_flight = false;
            if let (true, Some(last)) = (acknowledged, block.versions.last()) {
                block.acknowledged = last.order;
            }
        }
    }

    /// Keeps changes away from a range until [`Model::release`]; false if one is under way there.
    pub(crate) fn hold(&mut self, range: std::ops::Range<usize>) -> bool {
        let idle = self.is_idle(range.clone());
        if idle {
            self.blocks[range].iter_mut().for_each(|block| block.in_flight = true);
        }
        idle
    }

    pub(crate) fn release(&mut self, range: std::ops::Range<usize>) {
        self.blocks[range].iter_mut().for_each(|block| block.in_flight = false);
    }

    /// Nothing is under way any more, whatever became of it.
    pub(crate) fn cut(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.in_flight = false);
    }

    /// What a flush sent now will cover.
    pub(crate) fn before_flush(&self) -> Covered {
        Covered(self.dirty.iter().map(|index| (*index, self.blocks[*index].acknowledged)).collect())
    }

    pub(crate) fn flushed(&mut self, covered: &Covered) {
        for (index, order) in &covered.0 {
            let block = &mut self.blocks[*index];
            block.versions.retain(|version| version.order >= *order);
            if block.versions.len() == 1 {
                self.dirty.remove(index);
            }
        }
    }

    /// A change that was on disk before it was answered.
    pub(crate) fn durable(&mut self, range: std::ops::Range<usize>) {
        let reached = range.map(|index| (index, self.blocks[index].acknowledged)).collect();
        self.flushed(&Covered(reached));
    }

    /// Complaints about bytes found from block `first` on.
    pub(crate) fn judge(&self, first: usize, bytes: &[u8], since: Since) -> Vec<String> {
        let blocks = bytes.chunks(BLOCK).enumerate();
        blocks
            .filter_map(|(offset, found)| self.judge_block(first + offset, found, since))
            .collect()
    }

    fn judge_block(&self, index: usize, found: &[u8], since: Since) -> Option<String> {
        let block = &self.blocks[index];
        let content = parse(index, found);
        let from = match since {
            Since::Acknowledged => block.acknowledged,
            Since::Flushed => 0,
        };
        let mut possible = block.versions.iter().filter(|version| version.order >= from);
        let fits = |version: &Version| {
            content.is_some_and(|content| {
                version.content == Content::Any || version.content == content
            })
        };
        if possible.any(fits) {
            return None;
        }
        let versions: Vec<_> = block.versions.iter().map(|it| (it.order, it.content)).collect();
        Some(format!(
            "block {index} holds {content:?} ({:02x?}…), acknowledged {}, possible ({since:?}): {versions:?}",
            &found[..16],
            block.acknowledged
        ))
    }

    /// From here on the volume holds what was found, on disk.
    pub(crate) fn settle(&mut self, bytes: &[u8]) {
        for index in std::mem::take(&mut self.dirty) {
            let found = &bytes[index * BLOCK..(index + 1) * BLOCK];
            // What makes no sense was complained about; go on as if it were undefined.
            let content = parse(index, found).unwrap_or(Content::Any);
            let order = self.blocks[index].versions.last().map_or(0, |last| last.order);
            let only = Version { order, content };
            self.blocks[index] =
                Block { versions: vec![only], acknowledged: order, in_flight: false };
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    Zero,
    Trim,
}

fn expected(index: usize, order: u64) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    for pair in bytes.chunks_mut(16) {
        pair[..8].copy_from_slice(&(index as u64).to_le_bytes());
        pair[8..].copy_from_slice(&order.to_le_bytes());
    }
    bytes
}

/// What a block holds; none if it is torn or another block's.
fn parse(index: usize, found: &[u8]) -> Option<Content> {
    if found == [0; BLOCK] {
        return Some(Content::Zero);
    }
    let order = u64::from_le_bytes(found[8..16].try_into().unwrap());
    (found == expected(index, order)).then_some(Content::Stamp(order))
}

#[test]
fn the_model_knows_what_may_be_lost() {
    let mut model = Model::new(4);
    let one = model.begin(1..3, Kind::Write);
    model.end(1..3, true);
    let covered = model.before_flush();
    let two = model.begin(1..3, Kind::Write);
    model.end(1..3, true);
    let zero = [0; 2 * BLOCK];
    // Acknowledged and not flushed: an older state may be found if every copy was cut off.
    assert!(model.judge(1, &zero, Since::Flushed).is_empty());
    assert_eq!(model.judge(1, &zero, Since::Acknowledged).len(), 2);
    assert_eq!(model.judge(1, &one, Since::Acknowledged).len(), 2);
    model.flushed(&covered);
    assert_eq!(model.judge(1, &zero, Since::Flushed).len(), 2);
    assert!(model.judge(1, &one, Since::Flushed).is_empty());
    assert!(model.judge(1, &two, Since::Acknowledged).is_empty());
    // Another block's bytes, and torn ones, are never right.
    assert_eq!(model.judge(2, &two[..BLOCK], Since::Flushed).len(), 1);
    let torn = [&one[..BLOCK / 2], &two[BLOCK / 2..BLOCK]].concat();
    assert_eq!(model.judge(1, &torn, Since::Flushed).len(), 1);
    let mut whole = vec![0; 4 * BLOCK];
    whole[BLOCK..3 * BLOCK].copy_from_slice(&one);
    model.settle(&whole);
    assert_eq!(model.judge(1, &two, Since::Flushed).len(), 2);
    model.begin(1..2, Kind::Trim);
    model.cut();
    assert!(model.is_idle(0..4));
    assert!(model.judge(1, &one, Since::Acknowledged).is_empty());
}
