//! Our own files: those that a manifest names, single parts, and the log behind a checkpoint.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use durability::checkpoint::{MANIFEST_NAME, Manifest, PartReader, read_manifest, verify};
use durability::disk::{Disk as _, SystemDisk};
use durability::log::{Reader, Tail, has_file_of, ring_end};

use super::Damage;
use crate::directory;

mod values;

/// First bytes of a part, and of a segment of the log.
const PART_MAGIC: &[u8] = b"IOLPART\n";
const SEGMENT_MAGIC: &[u8] = b"IOLITLOG";

/// The findings, as text.
pub(super) type Words = String;

/// The files that a path stands for, if they are ours.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Native {
    /// The directory of a manifest, with everything that belongs to it.
    Data(PathBuf),
    /// A single part.
    Part(PathBuf),
    /// The directory of a log: a segment makes sense only beside the others.
    Log(PathBuf),
    /// The directory of a tier, whose segments are checked with the data that names them.
    Tier(PathBuf),
}

impl Native {
    pub(super) fn at(path: &Path) -> Option<Self> {
        let below = path.join(directory::NAME);
        for place in [path, &below] {
            if place.join(MANIFEST_NAME).is_file() {
                return Some(Self::Data(place.to_owned()));
            }
        }
        if path.is_dir() && values::holds_segments(path) {
            return Some(Self::Tier(path.to_owned()));
        }
        if path.is_dir() {
            return holds_segments(path).then(|| Self::Log(path.to_owned()));
        }
        let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
        let parent = parent.unwrap_or_else(|| Path::new("."));
        if path.file_name() == Some(OsStr::new(MANIFEST_NAME)) && path.is_file() {
            return Some(Self::Data(parent.to_owned()));
        }
        let mut start = [0; 8];
        File::open(path).ok()?.read_exact(&mut start).ok()?;
        match &start[..] {
            PART_MAGIC => Some(Self::Part(path.to_owned())),
            SEGMENT_MAGIC => Some(Self::Log(parent.to_owned())),
            _ => None,
        }
    }

    /// Returns the path that was checked.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Data(path) | Self::Part(path) | Self::Log(path) | Self::Tier(path) => path,
        }
    }

    /// Reads all of it; `others` are the other given paths.
    pub(super) fn check(&self, others: &[PathBuf], words: &mut Words) -> Result<(), Damage> {
        match self {
            Self::Data(path) => data(path, others, words),
            Self::Tier(_) => {
                tell(
                    words,
                    format_args!("segments of a tier: read with the data"),
                );
                Ok(())
            }
            Self::Part(path) => {
                let counts = PartReader::open(&SystemDisk, path).and_then(|mut part| part.count());
                tell_counts(&counts.map_err(native)?, words);
                Ok(())
            }
            Self::Log(path) => log(path, first_sequence(path), words),
        }
    }
}

fn native(fault: impl std::fmt::Display) -> Damage {
    Damage::Native(fault.to_string())
}

fn data(path: &Path, others: &[PathBuf], words: &mut Words) -> Result<(), Damage> {
    let manifest = read_manifest(&SystemDisk, path).map_err(native)?;
    let manifest = manifest.unwrap_or_default();
    let Manifest {
        generation,
        created_unix_ms,
        ..
    } = manifest;
    tell(
        words,
        format_args!(
            "checkpoint of generation {generation}, made at {created_unix_ms} (Unix time, ms), {} \
             parts, {} bytes",
            manifest.parts.len(),
            manifest.bytes()
        ),
    );
    tell_counts(&manifest.databases, words);
    verify(&SystemDisk, path, &manifest).map_err(native)?;
    if !manifest.segments.is_empty() {
        let read = values::check(path, others, &manifest).map_err(Damage::Native)?;
        tell(words, format_args!("{read} values in the tier"));
    }
    let Some(from) = manifest.log_sequence else {
        return Ok(());
    };
    let path = path.join(directory::LOG_NAME);
    if has_file_of(&SystemDisk, &path, from).map_err(native)? {
        return log(&path, from, words);
    }
    let path = path.display();
    Err(native(format!(
        "{path}: the log is missing, which is needed from sequence {from} on"
    )))
}

/// Reads the frames from a sequence on.
fn log(path: &Path, from: u64, words: &mut Words) -> Result<(), Damage> {
    let reader = Reader::open(Arc::new(SystemDisk), path, from);
    let mut reader = reader.map_err(native)?;
    let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
    let mut controls: BTreeMap<&str, u64> = BTreeMap::new();
    let mut frames = 0_u64;
    let mut last_unix_ms = 0;
    let outcome = loop {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                frames += 1;
                last_unix_ms = frame.unix_ms;
                if let Some(control) = frame.control() {
                    *controls.entry(control.name()).or_default() += 1;
                }
                for effect in frame.effects() {
                    *counts.entry(effect.database).or_default() += 1;
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(native(error)),
        }
    };
    tell(
        words,
        format_args!("log from sequence {from}: {frames} frames"),
    );
    if frames > 0 {
        tell(
            words,
            format_args!("last written at {last_unix_ms} (Unix time, ms)"),
        );
    }
    for (database, count) in &counts {
        tell(
            words,
            format_args!("database {database}: {count} commands in the log"),
        );
    }
    for (name, count) in &controls {
        tell(
            words,
            format_args!("{count} control frames in the log: {name}"),
        );
    }
    if let Some(Tail { end, shape, .. }) = reader.tail() {
        tell(
            words,
            format_args!("the log ends at sequence {end} ({shape:?})"),
        );
        let ring_end = ring_end(&SystemDisk, path).map_err(native)?;
        if ring_end > *end {
            tell(
                words,
                format_args!(
                    "the ring goes on up to sequence {ring_end}, of which the next start takes what it needs"
                ),
            );
        }
    }
    outcome
}

/// Returns where the oldest segment begins, by its name.
fn first_sequence(path: &Path) -> u64 {
    let names = SystemDisk.list(path).unwrap_or_default();
    let sequences = names.iter().filter_map(|name| sequence_of(name));
    sequences.min().unwrap_or(0)
}

fn holds_segments(path: &Path) -> bool {
    let names = SystemDisk.list(path).unwrap_or_default();
    names.iter().any(|name| sequence_of(name).is_some())
}

/// Returns the sequence in a segment's name: sixteen hexadecimal digits.
fn sequence_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?.get(..16)?;
    u64::from_str_radix(digits, 16).ok()
}

fn tell_counts(databases: &BTreeMap<u16, u64>, words: &mut Words) {
    for (database, records) in databases {
        tell(words, format_args!("database {database}: {records} keys"));
    }
}

fn tell(words: &mut Words, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _always = writeln!(words, "  {line}");
}
