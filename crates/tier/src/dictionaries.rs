//! The dictionaries of a tier: which exist, which one is in use, and when a file is removed.
//!
//! Everything that may need a dictionary has a share in it: a segment with entries that need it, a
//! batch that is about to be written. A dictionary in which only the table has a share is removed.
//! So whatever pins a segment (a hold, a checkpoint in force) also keeps its dictionaries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use base::sync::atomic::AtomicU64;
use durability::whole_file;

use crate::codecs::InUse;
use crate::dictionary::{
    self, Dictionary, DictionaryName, FILE_BYTES_MAX, dictionary_name, is_half, number_of,
};
use crate::fault::TierFault;
use crate::tier::{Tier, lock};

/// Maximum number of dictionaries at once. If there are so many, no new one is trained.
pub(crate) const DICTIONARIES_MAX: usize = 16;

/// The table of dictionaries. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Table {
    all: BTreeMap<u32, Arc<Dictionary>>,
    in_use: Option<Arc<InUse>>,
    last_number: u32,
    /// Files of an earlier process that were not requested yet.
    leftovers: BTreeSet<u32>,
    /// Remains of files that were not completely written.
    halves: Vec<String>,
}

impl Table {
    /// Creates a table for a directory with files of these names.
    pub(crate) fn new(names: &[String]) -> Self {
        let leftovers: BTreeSet<u32> = names.iter().filter_map(|name| number_of(name)).collect();
        Self {
            last_number: leftovers.last().copied().unwrap_or(0),
            leftovers,
            halves: names.iter().filter(|name| is_half(name)).cloned().collect(),
            ..Self::default()
        }
    }

    /// Returns the dictionary with which values are written.
    pub(crate) fn in_use(&self) -> Option<Arc<InUse>> {
        self.in_use.clone()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.all.len() < DICTIONARIES_MAX
    }

    /// Uses another dictionary from now on, or none.
    pub(crate) fn set_in_use(&mut self, in_use: Option<Arc<InUse>>) {
        if let Some(one) = &in_use {
            let shared = Arc::clone(&one.dictionary);
            self.all.insert(shared.name.number, shared);
        }
        self.in_use = in_use;
    }

    /// Returns a number that no file has, or had during the life of this process.
    pub(crate) fn next_number(&mut self) -> Option<u32> {
        self.last_number = self.last_number.checked_add(1)?;
        Some(self.last_number)
    }

    /// Returns the number of dictionaries, the bytes of their files, and of their memory.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let all = || self.all.values();
        let to_write = self.in_use.as_ref().map_or(0, |one| one.to_write.sizeof());
        (
            self.all.len() as u64,
            all().map(|one| one.name.bytes).sum(),
            all().map(|one| one.memory_bytes()).sum::<u64>() + to_write as u64,
        )
    }

    /// Removes and returns those that are not needed.
    fn take_unneeded(&mut self) -> Vec<u32> {
        let is_in_use = |number: u32| {
            let in_use = self.in_use.as_ref();
            in_use.is_some_and(|one| one.dictionary.name.number == number)
        };
        // Only this table gives out shares in a dictionary that has no other owner.
        let unneeded = self
            .all
            .iter()
            .filter(|(number, shared)| !is_in_use(**number) && Arc::strong_count(shared) == 1);
        let numbers: Vec<u32> = unneeded.map(|(number, _)| *number).collect();
        for number in &numbers {
            self.all.remove(number);
        }
        numbers
    }
}

impl Tier {
    pub(crate) fn dictionary_path(&self, number: u32) -> PathBuf {
        self.directory.join(dictionary_name(number))
    }

    /// Adopts the dictionaries of segments that are about to be adopted, and continues to write
    /// with the newest. The returned shares keep them from being removed meanwhile.
    pub(crate) fn adopt_dictionaries(
        &self,
        names: &[DictionaryName],
    ) -> Result<BTreeMap<u32, Arc<Dictionary>>, TierFault> {
        let mut adopted = BTreeMap::new();
        for name in names {
            let there = lock(&self.codecs.table).all.get(&name.number).cloned();
            let shared = match there {
                Some(there) if there.name == *name => there,
                Some(_) => return Err(damaged(name.number, "it is another dictionary")),
                None => self.adopt_dictionary(*name)?,
            };
            adopted.insert(name.number, shared);
        }
        Ok(adopted)
    }

    fn adopt_dictionary(&self, name: DictionaryName) -> Result<Arc<Dictionary>, TierFault> {
        let (file, dictionary) = self.read_dictionary(name)?;
        let shared = Arc::new(dictionary);
        let in_use = in_use_of(&file, Arc::clone(&shared))
            .ok_or_else(|| damaged(name.number, "zstd does not take it"))?;
        let mut table = lock(&self.codecs.table);
        table.leftovers.remove(&name.number);
        let newest = table.all.last_key_value().map_or(0, |(number, _)| *number);
        if newest < name.number {
            table.set_in_use(Some(in_use));
        } else {
            table.all.insert(name.number, Arc::clone(&shared));
        }
        drop(table);
        lock(&self.codecs.samples).watch();
        Ok(shared)
    }

    /// Reads a dictionary that a checkpoint names, with its file.
    fn read_dictionary(&self, name: DictionaryName) -> Result<(Vec<u8>, Dictionary), TierFault> {
        let path = self.dictionary_path(name.number);
        let read = whole_file::read(&*self.disk, &path, FILE_BYTES_MAX);
        let file = read.map_err(|cause| TierFault::System { path, cause })?;
        let file = file.ok_or_else(|| damaged(name.number, "it is not there"))?;
        let dictionary = Dictionary::decode(&file).map_err(|what| damaged(name.number, what))?;
        if dictionary.name != name {
            return Err(damaged(name.number, "it is another dictionary"));
        }
        Ok((file, dictionary))
    }

    /// Makes the dictionary of a file durable and puts it in use.
    pub(crate) fn put_in_use(&self, number: u32, file: &[u8]) -> Result<(), TierFault> {
        let dictionary = Dictionary::decode(file).map_err(|what| damaged(number, what))?;
        let in_use = in_use_of(file, Arc::new(dictionary))
            .ok_or_else(|| damaged(number, "zstd does not take it"))?;
        let written =
            whole_file::replace(&*self.disk, &self.directory, &dictionary_name(number), file);
        if let Err(cause) = written {
            let path = self.dictionary_path(number);
            // The state of the file is unknown; the number is not reused.
            let _left = whole_file::remove(&*self.disk, &path);
            return Err(TierFault::System { path, cause });
        }
        lock(&self.codecs.table).set_in_use(Some(in_use));
        Ok(())
    }

    /// Removes the files of dictionaries that are not needed. Returns their number.
    pub(crate) fn remove_unneeded_dictionaries(&self) -> usize {
        let numbers = lock(&self.codecs.table).take_unneeded();
        let paths = numbers.iter().map(|number| self.dictionary_path(*number));
        self.discard(paths.collect());
        numbers.len()
    }

    /// Removes dictionaries of an earlier process that were not requested. Returns the number of
    /// files.
    pub(crate) fn remove_left_dictionaries(&self) -> Result<usize, TierFault> {
        let (leftovers, halves) = {
            let mut table = lock(&self.codecs.table);
            let leftovers = std::mem::take(&mut table.leftovers);
            (leftovers, std::mem::take(&mut table.halves))
        };
        let whole = leftovers.into_iter().map(dictionary_name);
        let mut count = 0;
        for name in whole.chain(halves) {
            let path = self.directory.join(name);
            let removed = whole_file::remove(&*self.disk, &path);
            removed.map_err(|cause| TierFault::System { path, cause })?;
            count += 1;
        }
        Ok(count)
    }

    /// Reads the files of all dictionaries again. Returns the faults of those that have changed.
    #[must_use]
    pub fn scrub_dictionaries(&self) -> Vec<TierFault> {
        let names: Vec<_> = {
            let table = lock(&self.codecs.table);
            table.all.values().map(|one| one.name).collect()
        };
        let is_there =
            |name: &DictionaryName| lock(&self.codecs.table).all.contains_key(&name.number);
        let faults = names.into_iter().filter_map(|name| {
            let fault = self.read_dictionary(name).err()?;
            // A dictionary that was removed meanwhile is no fault.
            is_there(&name).then_some(fault)
        });
        faults.collect()
    }
}

/// Prepares the dictionary of this file for writing values with it.
pub(crate) fn in_use_of(file: &[u8], dictionary: Arc<Dictionary>) -> Option<Arc<InUse>> {
    Some(Arc::new(InUse {
        dictionary,
        to_write: dictionary::to_write(file)?,
        recent_raw_bytes: AtomicU64::new(0),
        recent_bytes: AtomicU64::new(0),
    }))
}

pub(crate) fn damaged(number: u32, what: &'static str) -> TierFault {
    TierFault::Dictionary { number, what }
}

#[cfg(test)]
mod tests;
