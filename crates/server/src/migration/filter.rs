//! Selects the effects of the log that concern the hash slots of a move.

use base::hash_slot::{self, HASH_SLOTS};
use cluster::entry::SlotRange;
use durability::log::{Frame, Parts};
use engine::spec::Flags;
use engine::{Table, key_places};
use protocol::Batch;

use super::wire;

/// Reason that makes a copy useless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// A whole database was emptied.
    Flushed,
    /// An effect has keys of several slots.
    Crossing,
    /// A command of the log is not known.
    Unknown,
}

impl Obstacle {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Flushed => "a database was emptied meanwhile",
            Self::Crossing => "a command took keys of several slots",
            Self::Unknown => "the log has a command that is not known",
        }
    }
}

/// The slots of a move.
pub(super) struct Slots(Box<[bool]>);

impl Slots {
    pub(super) fn new(ranges: &[SlotRange]) -> Self {
        let mut has = vec![false; HASH_SLOTS];
        for (first, last) in ranges {
            has[usize::from(*first)..=usize::from(*last)].fill(true);
        }
        Self(has.into())
    }

    /// Whether a key belongs to one of them.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        let slot = usize::from(hash_slot::of(key));
        self.0.get(slot).is_some_and(|has| *has)
    }
}

/// Finds the keys of effects.
pub(super) struct KeyFinder {
    table: &'static Table,
    bytes: Vec<u8>,
    batch: Batch,
}

impl KeyFinder {
    pub(super) fn new(table: &'static Table) -> Self {
        Self {
            table: table.original(),
            bytes: Vec::new(),
            batch: Batch::new(),
        }
    }

    /// Calls `visit` for each key of an effect. Does nothing for an effect without keys.
    ///
    /// # Errors
    /// The effect concerns all keys, or its keys are not known.
    pub(super) fn each_key(
        &mut self,
        parts: Parts<'_>,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<(), Obstacle> {
        let count = parts.len();
        let name = parts.clone().next().unwrap_or_default();
        let found = self.table.find(name).ok_or(Obstacle::Unknown)?;
        if let Some(places) = found.fixed_keys(count) {
            let mut all = parts.enumerate();
            for place in places {
                let key = all.by_ref().find(|(at, _)| *at == place);
                visit(key.ok_or(Obstacle::Unknown)?.1);
            }
            return Ok(());
        }
        let spec = found.spec;
        if spec.flags.has(Flags::HAS_STORE_ALONE) {
            return Err(Obstacle::Flushed);
        }
        if spec.keys.is_empty() && spec.keys_of.is_none() {
            return Ok(());
        }
        self.bytes.clear();
        self.batch.clear();
        let batch = &mut self.batch;
        parts.copy_to(&mut self.bytes, |start, len| batch.add_argument(start, len));
        batch.end_added(count, &self.bytes);
        let request = batch.iter(&self.bytes).next().ok_or(Obstacle::Unknown)?;
        let places = key_places::of(self.table, spec, &request).unwrap_or_default();
        for (at, _) in places {
            visit(request.arg(at).ok_or(Obstacle::Unknown)?);
        }
        Ok(())
    }
}

/// See the module documentation.
pub(super) struct Filter {
    finder: KeyFinder,
    slots: Slots,
    /// Generation of the cut: the copy contains the effects of lower generations.
    generation: u64,
}

impl Filter {
    pub(super) fn new(table: &'static Table, slots: Slots, generation: u64) -> Self {
        Self {
            finder: KeyFinder::new(table),
            slots,
            generation,
        }
    }

    /// Appends the effects of a frame that concern the slots. Returns their number.
    ///
    /// # Errors
    /// The copy has become useless.
    pub(super) fn frame(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<u64, Obstacle> {
        let start = out.len();
        if frame.is_group() {
            wire::put_group(out, true);
        }
        let mut count = 0;
        for effect in frame.effects() {
            if effect.generation < self.generation || !self.is_inside(effect.parts)? {
                continue;
            }
            wire::put_command(out, effect.database, effect.parts);
            count += 1;
        }
        if count == 0 {
            out.truncate(start);
        } else if frame.is_group() {
            wire::put_group(out, false);
        }
        Ok(count)
    }

    /// Whether the keys of an effect belong to the slots.
    fn is_inside(&mut self, parts: Parts<'_>) -> Result<bool, Obstacle> {
        let (slots, mut inside, mut is_crossing) = (&self.slots, None, false);
        self.finder.each_key(parts, |key| {
            let has = slots.has(key);
            is_crossing |= *inside.get_or_insert(has) != has;
        })?;
        match is_crossing {
            true => Err(Obstacle::Crossing),
            false => Ok(inside.unwrap_or(false)),
        }
    }
}
