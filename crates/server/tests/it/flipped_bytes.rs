//! Changes one byte anywhere in the stored files: the error is reported with the file and the
//! place, or the change has no effect. Data never differs silently.
//!
//! `FLIPS` sets more flips than in CI; [`soak`] writes a record:
//!
//! ```text
//! RECORD=target/flipped-bits.md cargo test --release -p server --test it \
//!     flipped_bytes::soak -- --ignored
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::clock::{Clock as _, ManualClock};
use base::random::Prng;
use durability::disk::Disk as _;
use durability::simulated::SimulatedDisk;

use crate::dump::{Record, dump};
use crate::ledger::{number_from, record};
use crate::simulation::{DIRECTORY, LOG_DIRECTORY, Life, Truth, place, recovered};

/// A device with a checkpoint, a log of several files after it, and the data that they hold.
struct Kept {
    disk: SimulatedDisk,
    clock: Arc<ManualClock>,
    state: Vec<Record>,
    /// The files that may be changed: manifest, parts and segments, with their kind and length.
    files: Vec<(PathBuf, &'static str, u64)>,
}

impl Kept {
    fn new(seed: u64) -> Self {
        let mut random = Prng::seeded(seed);
        let clock = Arc::new(ManualClock::at_unix_ms(1_700_000_000_000));
        let disk = SimulatedDisk::new(seed);
        disk.create_directory(Path::new(DIRECTORY)).unwrap();
        let mut truth = Truth::default();
        let mut life = Life::begin(&disk, &clock, &mut truth, &mut random).unwrap();
        for _ in 0..400 {
            life.request(&mut random);
        }
        life.checkpoint().unwrap();
        for _ in 0..200 {
            life.request(&mut random);
        }
        let state = life.end();
        let manifest = place(&disk).manifest().unwrap().unwrap();
        let mut paths = vec![(Path::new(DIRECTORY).join("MANIFEST"), "manifest")];
        for (directory, kind) in [
            (Path::new(DIRECTORY).join(manifest.directory), "checkpoint"),
            (PathBuf::from(LOG_DIRECTORY), "log"),
        ] {
            let names = disk.list(&directory).unwrap();
            let used = names
                .iter()
                .filter(|name| name.ends_with(".log") || name.ends_with(".part"));
            paths.extend(used.map(|name| (directory.join(name), kind)));
        }
        let length = |path: &Path| disk.open(path).unwrap().size().unwrap();
        let files = paths.into_iter();
        let files = files.map(|(path, kind)| (path.clone(), kind, length(&path)));
        Self {
            files: files.collect(),
            disk,
            clock,
            state,
        }
    }

    /// Flips one bit. Returns whether the change is reported, and asserts that a report names the
    /// place.
    fn flip(&self, random: &mut Prng) -> (&'static str, bool) {
        // All kinds are equally likely, and so are all bytes of a kind.
        let kinds = ["manifest", "checkpoint", "log"];
        let kind = kinds[random.index(kinds.len())];
        let of_kind = || self.files.iter().filter(|file| file.1 == kind);
        let mut offset = random.below(of_kind().map(|file| file.2).sum());
        let (path, ..) = of_kind()
            .find(|(.., length)| match offset.checked_sub(*length) {
                Some(rest) => {
                    offset = rest;
                    false
                }
                None => true,
            })
            .unwrap();
        let file = self.disk.open_for_writing(path).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, offset).unwrap();
        let flipped = [byte[0] ^ (1 << random.below(8))];
        file.write_at(&flipped, offset).unwrap();
        let found = place(&self.disk)
            .manifest()
            .map_err(|fault| fault.to_string())
            .and_then(|manifest| {
                let manifest = manifest.expect("a manifest does not go");
                recovered(&self.disk, &self.clock, &manifest).map_err(|error| error.to_string())
            });
        let is_told = match found {
            Ok((node, _)) => {
                let state = dump(&mut node.core.store.handle(), self.clock.now_unix_ms());
                assert!(
                    state == self.state,
                    "wrong, and not told: {} at {offset}",
                    path.display()
                );
                false
            }
            Err(told) => {
                let name = path.file_name().unwrap().to_str().unwrap();
                assert!(told.contains(name), "{name} at {offset}: {told}");
                if let Some((_, rest)) = told.split_once("offset ") {
                    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                    assert!(
                        digits.parse::<u64>().unwrap() <= offset,
                        "{name} at {offset}: {told}"
                    );
                }
                true
            }
        };
        file.write_at(&byte, offset).unwrap();
        (kind, is_told)
    }
}

/// Returns for each kind of file how many flips were reported, and how many had no effect.
fn flips(count: u64) -> BTreeMap<&'static str, [u64; 2]> {
    const DEVICES: u64 = 4;
    let mut figures = BTreeMap::new();
    for seed in 0..DEVICES {
        let kept = Kept::new(seed);
        let mut random = Prng::seeded(seed);
        for _ in 0..count / DEVICES {
            let (kind, is_told) = kept.flip(&mut random);
            let [told, harmless] = figures.entry(kind).or_insert([0, 0]);
            *(if is_told { told } else { harmless }) += 1;
        }
    }
    figures
}

#[test]
#[allow(clippy::print_stdout, reason = "figures for who reads the run")]
fn a_flipped_bit_is_told_or_has_no_effect() {
    let figures = flips(number_from("FLIPS", 600));
    println!("told, without effect: {figures:?}");
    let [manifest, checkpoint, log] = ["manifest", "checkpoint", "log"].map(|kind| figures[kind]);
    assert_eq!((manifest[1], checkpoint[1]), (0, 0), "{figures:?}");
    // The part of the log before the checkpoint is not read. Its size depends on the random
    // requests.
    assert!(log[0] > 0, "{figures:?}");
}

#[test]
#[ignore = "takes minutes; writes a record"]
fn soak() {
    let count = number_from("FLIPS", 10_000);
    let rows = flips(count).into_iter();
    let rows = rows.map(|(kind, [told, harmless])| {
        format!(
            "| {kind} | {} | {told} | {harmless} | 0 |\n",
            told + harmless
        )
    });
    record(&format!(
        "# Flipped bits

`RECORD=FILE FLIPS={count} cargo test --release -p server --test it flipped_bytes::soak -- --ignored`
wrote this. One bit at a random place of a manifest, a part of a checkpoint or a segment of the log is flipped, and a
server recovers from that: it either refuses, with the file and a place that is not behind the flipped one, or has
exactly the state that it should have. (Without effect is what the log still has from before the checkpoint, and the
statement of what is durable at its very end.)

| file | flips | refused | without effect | wrong answers |
|---|---|---|---|---|
{}",
        rows.collect::<String>()
    ));
}
