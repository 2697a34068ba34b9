//! The bytes of one file: what readers see, what is durable, and the writes in between.

use base::random::Prng;

/// Sizes that a device writes in one piece; each crash chooses one.
const SECTORS_BYTES: [usize; 2] = [512, 4096];

#[derive(Default)]
pub(super) struct Content {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// In chronological order.
    pending: Vec<Change>,
}

enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

impl Change {
    /// Returns the length of a file after the change, from its length before.
    fn length(&self, before: usize) -> usize {
        match self {
            Self::Write { offset, bytes } => before.max(offset + bytes.len()),
            Self::Length(length) => *length,
        }
    }

    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => put(file, *offset, bytes),
            Self::Length(length) => file.resize(*length, 0),
        }
    }
}

impl Content {
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self {
            live: bytes.clone(),
            durable: bytes,
            pending: Vec::new(),
        }
    }

    pub(super) fn live(&self) -> &[u8] {
        &self.live
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.live.len() as u64
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: usize) -> usize {
        let there = self.live.get(offset..).unwrap_or_default();
        let count = there.len().min(buffer.len());
        buffer[..count].copy_from_slice(&there[..count]);
        count
    }

    pub(super) fn write(&mut self, offset: usize, bytes: Vec<u8>) {
        // An empty write does not lengthen a file.
        if !bytes.is_empty() {
            self.changes(Change::Write { offset, bytes });
        }
    }

    pub(super) fn resize(&mut self, len: usize) {
        if len != self.live.len() {
            self.changes(Change::Length(len));
        }
    }

    fn changes(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Pending changes arrived or did not, and are not tried again; readers see them nevertheless.
    pub(super) fn fail_sync(&mut self, random: &mut Prng, remains: &[Vec<u8>]) {
        self.durable = self.survivors(random, remains);
        self.pending.clear();
    }

    /// Returns the bytes after a power cut.
    pub(super) fn survivors(&self, random: &mut Prng, remains: &[Vec<u8>]) -> Vec<u8> {
        let sector_bytes = SECTORS_BYTES[random.index(SECTORS_BYTES.len())];
        let fates = Fates::chosen(random, self.pending.len());
        let lengths = self.lengths();
        let length_after = fates.length_after(random);
        let mut bytes = self.durable.clone();
        for (index, change) in self.pending.iter().enumerate() {
            match change {
                Change::Length(_) if index >= length_after => {}
                Change::Length(_) => change.apply(&mut bytes),
                Change::Write { offset, bytes: new } => {
                    let fate = fates.of(index, random);
                    arrive(&mut bytes, *offset, new, sector_bytes, fate, random);
                }
            }
        }
        let arrived = bytes.len();
        bytes.resize(lengths[length_after], 0);
        if let Some(fresh) = bytes.get_mut(arrived..) {
            show_remains(fresh, arrived, random, remains);
        }
        bytes
    }

    /// Returns the file's length: the durable one, and that after each change.
    fn lengths(&self) -> Vec<usize> {
        let mut length = self.durable.len();
        let mut lengths = vec![length];
        for change in &self.pending {
            length = change.length(length);
            lengths.push(length);
        }
        lengths
    }
}

/// The outcome of a write.
#[derive(Clone, Copy)]
enum Fate {
    Arrived,
    Lost,
    /// Some of its sectors arrived, in any order.
    Torn,
    /// Sectors arrived from the front up to some point.
    CutOff,
}

/// The outcomes of the changes of one file.
struct Fates {
    style: Style,
    changes: usize,
}

#[derive(Clone, Copy)]
enum Style {
    /// The writes before this one arrive, later ones do not; this one has any outcome.
    InOrder(usize),
    /// Each has its own outcome.
    Shuffled,
    /// All of them arrive.
    Kept,
    /// None of them arrives.
    Forgotten,
}

impl Fates {
    fn chosen(random: &mut Prng, changes: usize) -> Self {
        let style = match random.below(8) {
            0 => Style::Kept,
            1 => Style::Forgotten,
            2..=4 => Style::InOrder(random.index(changes + 1)),
            _ => Style::Shuffled,
        };
        Self { style, changes }
    }

    fn of(&self, index: usize, random: &mut Prng) -> Fate {
        match self.style {
            Style::Kept => Fate::Arrived,
            Style::Forgotten => Fate::Lost,
            Style::InOrder(border) if index < border => Fate::Arrived,
            Style::InOrder(border) if index > border => Fate::Lost,
            Style::InOrder(_) | Style::Shuffled => match random.below(4) {
                0 => Fate::Arrived,
                1 => Fate::Lost,
                2 => Fate::Torn,
                _ => Fate::CutOff,
            },
        }
    }

    /// Returns the number of changes after which the file's length is taken: the length is written
    /// at its own time, but often together with the last of the bytes.
    fn length_after(&self, random: &mut Prng) -> usize {
        match self.style {
            Style::Kept => self.changes,
            Style::Forgotten => 0,
            Style::InOrder(border) if random.below(4) < 3 => {
                self.changes.min(border + random.index(2))
            }
            Style::InOrder(_) | Style::Shuffled => random.index(self.changes + 1),
        }
    }
}

/// Applies the sectors of a write that arrive according to its fate.
fn arrive(
    file: &mut Vec<u8>,
    offset: usize,
    new: &[u8],
    sector_bytes: usize,
    fate: Fate,
    random: &mut Prng,
) {
    let sectors = sectors(offset, new.len(), sector_bytes);
    let cut = random.index(sectors.len().max(1));
    for (index, sector) in sectors.into_iter().enumerate() {
        let arrives = match fate {
            Fate::Arrived => true,
            Fate::Lost => false,
            Fate::Torn => random.below(2) == 0,
            Fate::CutOff => index < cut,
        };
        if arrives {
            put(file, offset + sector.start, &new[sector]);
        }
    }
}

/// Returns the parts of a write that lie in one sector each, as ranges of its bytes.
fn sectors(offset: usize, len: usize, sector_bytes: usize) -> Vec<std::ops::Range<usize>> {
    let mut sectors = Vec::new();
    let mut start = 0;
    while start < len {
        let room = sector_bytes - (offset + start) % sector_bytes;
        let end = len.min(start + room);
        sectors.push(start..end);
        start = end;
    }
    sectors
}

/// Fills a range that was never written with what the device shows there.
fn show_remains(fresh: &mut [u8], offset: usize, random: &mut Prng, remains: &[Vec<u8>]) {
    match random.below(4) {
        0 => random.fill(fresh),
        1 if !remains.is_empty() => {
            let old = &remains[random.index(remains.len())];
            let old = old.get(offset..).unwrap_or_default();
            let count = old.len().min(fresh.len());
            fresh[..count].copy_from_slice(&old[..count]);
        }
        _ => {}
    }
}

fn put(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset..end].copy_from_slice(bytes);
}
