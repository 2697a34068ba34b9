//! Checkpoints alone: at every moment there is a whole one, which is the newest finished one.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use base::random::Prng;
use durability::checkpoint::{
    Lineage, Manifest, PartHead, PartWriter, RecordHead, free_directory, open_part, part_name,
    read_manifest, remove_replaced, replace_manifest, verify,
};
use durability::disk::Disk;
use durability::planted::{self, Bug};
use durability::simulated::SimulatedDisk;

use crate::ledger::{State, body};

pub(crate) const LINEAGE: Lineage = Lineage([7; 20]);

/// Writes a checkpoint of a state in some parts and puts it in force.
pub(crate) fn write(
    disk: &dyn Disk,
    directory: &Path,
    state: &State,
    generation: u64,
    log_sequence: u64,
) -> io::Result<Manifest> {
    let parts = Parts::begin(disk, directory, generation, log_sequence)?;
    let manifest = parts.write(disk, directory, state)?;
    replace_manifest(disk, directory, &manifest)?;
    Ok(manifest)
}

/// A checkpoint that is being written.
pub(crate) struct Parts {
    manifest: Manifest,
}

impl Parts {
    pub(crate) fn begin(
        disk: &dyn Disk,
        directory: &Path,
        generation: u64,
        log_sequence: u64,
    ) -> io::Result<Self> {
        let name = free_directory(disk, directory, generation)?;
        disk.create_directory(&directory.join(&name))?;
        let manifest = Manifest {
            lineage: LINEAGE,
            generation,
            log_sequence: Some(log_sequence),
            created_unix_ms: generation,
            directory: name,
            ..Manifest::default()
        };
        Ok(Self { manifest })
    }

    /// Writes the parts and makes them and their names durable; returns the manifest that names
    /// them.
    pub(crate) fn write(
        mut self,
        disk: &dyn Disk,
        directory: &Path,
        state: &State,
    ) -> io::Result<Manifest> {
        const PARTS: u32 = 2;
        let place = directory.join(&self.manifest.directory);
        for part in 0..PARTS {
            let head = PartHead {
                value_version: 1,
                part,
                generation: self.manifest.generation,
                created_unix_ms: self.manifest.created_unix_ms,
                lineage: LINEAGE,
            };
            let name = part_name(part);
            let mut writer = PartWriter::create(disk, &place.join(&name), head)?;
            for (key, value) in state
                .iter()
                .filter(|(key, _)| u32::from(**key) % PARTS == part)
            {
                let body = body(*value);
                let head = RecordHead {
                    etag: *value,
                    ..RecordHead::default()
                };
                writer.record(&head, &[*key], body.len() as u64, [&body[..]])?;
            }
            let (entry, databases) = writer.finish(&name)?;
            self.manifest.parts.push(entry);
            for (database, records) in databases {
                *self.manifest.databases.entry(database).or_default() += records;
            }
        }
        disk.sync_directory(&place)?;
        disk.sync_directory(directory)?;
        Ok(self.manifest)
    }
}

/// Returns the checkpoint in force and its content, after checking all of it.
pub(crate) fn read(disk: &dyn Disk, directory: &Path) -> io::Result<Option<(Manifest, State)>> {
    let Some(manifest) = read_manifest(disk, directory).map_err(io::Error::other)? else {
        return Ok(None);
    };
    let mut state = BTreeMap::new();
    for number in 0..manifest.parts.len() {
        let part = open_part(disk, directory, &manifest, number);
        let mut part = part.map_err(io::Error::other)?;
        while let Some(block) = part.next_block().map_err(io::Error::other)? {
            for record in block.records() {
                let value = record.head.etag;
                assert_eq!(record.body, body(value), "the value of another one");
                assert_eq!(state.insert(record.key[0], value), None, "there twice");
            }
        }
    }
    assert_eq!(state.len() as u64, manifest.records());
    Ok(Some((manifest, state)))
}

/// Returns the state in the checkpoint of a generation.
fn state_of(generation: u64) -> State {
    let mut random = Prng::seeded(generation);
    let keys = 0..random.below(24);
    let record = |key: u64| (u8::try_from(key).unwrap(), generation * 100 + key);
    keys.map(record).collect()
}

/// Finds the newest finished checkpoint and writes others until the power is cut. Returns the last
/// generation that was certainly in force.
fn live(disk: &SimulatedDisk, in_force: u64) -> u64 {
    let directory = Path::new("data/iolite");
    let attempt = |in_force: &mut u64| -> io::Result<()> {
        let found = read(disk, directory)?;
        let mut generation = found
            .as_ref()
            .map_or(0, |(manifest, _)| manifest.generation);
        // A checkpoint that was being put in force when the power was cut may be in force.
        assert!(
            (*in_force..=*in_force + 1).contains(&generation),
            "{generation} was found, {in_force} was in force"
        );
        *in_force = generation;
        if let Some((manifest, state)) = found {
            assert_eq!(state, state_of(generation), "a mixture");
            remove_replaced(disk, directory, &manifest)?;
        }
        loop {
            generation += 1;
            let state = state_of(generation);
            let manifest = write(disk, directory, &state, generation, generation)?;
            *in_force = generation;
            verify(disk, directory, &manifest).map_err(io::Error::other)?;
            remove_replaced(disk, directory, &manifest)?;
        }
    };
    let mut in_force = in_force;
    let error = attempt(&mut in_force).unwrap_err();
    assert!(disk.is_off(), "{error}");
    in_force
}

/// Returns a device with an empty data directory, whose name is durable.
pub(crate) fn device(seed: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new(seed);
    disk.create_directory(Path::new("data/iolite")).unwrap();
    disk.settle();
    disk
}

fn power_cuts(seeds: Range<u64>) {
    for seed in seeds {
        let mut random = Prng::seeded(seed);
        let (mut disk, mut in_force) = (device(seed), 0);
        for _ in 0..6 {
            disk.cut_power_at(random.below(80));
            in_force = live(&disk, in_force);
            disk = disk.crash(random.next_u64());
        }
    }
}

#[test]
fn a_power_cut_leaves_the_newest_finished_checkpoint() {
    power_cuts(0..200);
}

#[test]
#[should_panic(expected = "MANIFEST")]
fn a_manifest_that_is_not_synced_is_noticed() {
    planted::plant(Some(Bug::ManifestUnsynced));
    power_cuts(0..200);
}

#[test]
#[should_panic(expected = "was in force")]
fn a_manifest_whose_name_is_not_synced_is_noticed() {
    planted::plant(Some(Bug::ManifestNameUnsynced));
    power_cuts(0..200);
}
