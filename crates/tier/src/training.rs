//! Training of dictionaries, on an otherwise idle thread: it takes a second or two of processor
//! time.
//!
//! ```text
//!   samples ─┬─ the first seven eighths ──► a dictionary
//!            └─ the rest ──► how long it makes them, beside how long they are now ──► file ──► in use
//! ```

use std::sync::Arc;

use zstd::dict::from_continuous;

use crate::codecs::{Compression, InUse, Packer};
use crate::dictionaries::{damaged, in_use_of};
use crate::dictionary::{self, DICTIONARY_BYTES_MAX, Dictionary};
use crate::fault::TierFault;
use crate::samples::Collected;
use crate::tier::{Tier, lock};

/// Result of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trained {
    /// The dictionary that is in use from now on, if it is a new one.
    pub new: Option<u32>,
    /// Whether a dictionary is in use.
    pub has_dictionary: bool,
    /// Bytes of the test values.
    pub raw_bytes: u64,
    /// Their bytes without a dictionary.
    pub without_bytes: u64,
    /// Their bytes with the new dictionary, whether it is used or not.
    pub with_bytes: u64,
}

/// Decision about a trained dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    New,
    Before,
    None,
}

impl Tier {
    /// Whether there are enough samples, and there may be another dictionary.
    #[must_use]
    pub fn wants_training(&self) -> bool {
        self.codecs.compression().has_dictionaries()
            && lock(&self.codecs.samples).is_full()
            && lock(&self.codecs.table).has_room()
    }

    /// Trains a dictionary if [`Tier::wants_training`], and uses it if it pays, unless `goes_on`
    /// returns `false` after training. Takes long, and memory.
    ///
    /// # Errors
    /// Those of the system. Everything then continues as before.
    pub fn train(&self, goes_on: &dyn Fn() -> bool) -> Result<Option<Trained>, TierFault> {
        if !self.wants_training() {
            return Ok(None);
        }
        let taken = lock(&self.codecs.samples).take();
        let Some(collected) = taken else {
            return Ok(None);
        };
        let trained = self.train_with(&collected, goes_on);
        let has_new = matches!(&trained, Ok(Some(trained)) if trained.new.is_some());
        lock(&self.codecs.samples).trained(has_new);
        trained
    }

    fn train_with(
        &self,
        collected: &Collected,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<Trained>, TierFault> {
        let count = collected.lens.len() / 8 * 7;
        let learnt_bytes: usize = collected.lens[..count].iter().sum();
        let (learnt, tried) = collected.bodies.split_at(learnt_bytes);
        let (learnt_lens, tried_lens) = collected.lens.split_at(count);
        // zstd may find no dictionary, for example if all samples are copies of each other, or all
        // are noise.
        let content = from_continuous(learnt, learnt_lens, DICTIONARY_BYTES_MAX).ok();
        let compression = self.codecs.compression();
        if !goes_on() || !compression.has_dictionaries() {
            return Ok(None);
        }
        let tried = bodies(tried, tried_lens);
        let raw_bytes: u64 = tried_lens.iter().map(|len| *len as u64).sum();
        let measure = |in_use| length(&tried, compression, in_use);
        let before = lock(&self.codecs.table).in_use();
        let without_bytes = measure(None);
        let before_bytes = before.map(|before| measure(Some(before)));
        let number = lock(&self.codecs.table).next_number();
        let number = number.ok_or_else(|| damaged(u32::MAX, "there are no more numbers"))?;
        let file = |per_mille: u32| {
            let content = content.clone()?;
            dictionary::encode(number, per_mille, content)
        };
        // The dictionary that is measured has no expected compression in its file yet.
        let candidate = file(0).and_then(|file| {
            let dictionary = Dictionary::decode(&file).ok()?;
            in_use_of(&file, Arc::new(dictionary))
        });
        let with_bytes = candidate.map_or(u64::MAX, |candidate| measure(Some(candidate)));
        let verdict = decide(compression, without_bytes, before_bytes, with_bytes);
        if verdict == Verdict::New {
            let per_mille = with_bytes.saturating_mul(1_000) / raw_bytes.max(1);
            let file = file(u32::try_from(per_mille).unwrap_or(1_000));
            let file = file.ok_or_else(|| damaged(number, "it cannot be made"))?;
            self.put_in_use(number, &file)?;
        } else if verdict == Verdict::None {
            lock(&self.codecs.table).set_in_use(None);
        }
        Ok(Some(Trained {
            new: (verdict == Verdict::New).then_some(number),
            has_dictionary: verdict != Verdict::None,
            raw_bytes,
            without_bytes,
            with_bytes: with_bytes.min(raw_bytes),
        }))
    }
}

/// Splits concatenated bodies.
fn bodies<'b>(mut all: &'b [u8], lens: &[usize]) -> Vec<&'b [u8]> {
    let each = lens.iter().filter_map(|len| {
        let (body, rest) = all.split_at_checked(*len)?;
        all = rest;
        Some(body)
    });
    each.collect()
}

/// Returns the bytes of bodies compressed with a dictionary, or without.
fn length(bodies: &[&[u8]], compression: Compression, in_use: Option<Arc<InUse>>) -> u64 {
    let mut packer = Packer::new(compression, in_use);
    let each = bodies.iter().map(|body| packer.pack(body).0.len() as u64);
    each.sum()
}

/// Decides about a dictionary. It must make values a quarter shorter than LZ4 does, or a tenth
/// shorter than zstd does without one. A replacement must make them a tenth shorter than the one
/// before.
fn decide(
    compression: Compression,
    without_bytes: u64,
    before_bytes: Option<u64>,
    with_bytes: u64,
) -> Verdict {
    let most = match compression {
        Compression::Auto => without_bytes / 4 * 3,
        _ => without_bytes / 10 * 9,
    };
    match before_bytes {
        _ if without_bytes == 0 => Verdict::None,
        Some(before) if before <= most && with_bytes > before / 10 * 9 => Verdict::Before,
        _ if with_bytes <= most => Verdict::New,
        _ => Verdict::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_is_used_where_it_is_a_quarter_better_and_changed_for_a_tenth() {
        let auto = |before, with| decide(Compression::Auto, 1_000, before, with);
        assert_eq!(auto(None, 750), Verdict::New);
        assert_eq!(auto(None, 751), Verdict::None);
        assert_eq!(auto(None, u64::MAX), Verdict::None);
        assert_eq!(auto(Some(500), 460), Verdict::Before);
        assert_eq!(auto(Some(500), 450), Verdict::New);
        // The dictionary in use no longer pays.
        assert_eq!(auto(Some(800), 740), Verdict::New);
        assert_eq!(auto(Some(800), 760), Verdict::None);
        let zstd = |with| decide(Compression::Zstd, 1_000, None, with);
        assert_eq!((zstd(900), zstd(901)), (Verdict::New, Verdict::None));
        assert_eq!(decide(Compression::Auto, 0, None, 0), Verdict::None);
    }
}
