//! The files of checkpoints in their directory: their names, replacing the manifest, and removing
//! old ones.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::fault::{CheckpointFault, Flaw};
use super::manifest::{Manifest, ManifestFlaw};
use super::reader::PartReader;
use crate::disk::Disk;
use crate::planted::{self, Bug};
use crate::whole_file;

/// Name of the manifest in force.
pub const MANIFEST_NAME: &str = "MANIFEST";

/// Name of a manifest that is being written.
const MANIFEST_NEW_NAME: &str = "MANIFEST.new";

/// Prefix of the names of checkpoint directories.
const DIRECTORY_PREFIX: &str = "checkpoint-";

/// Maximum length of a manifest in bytes: all segments that a tier can have, the dictionaries of
/// each, and, during a full sync, the libraries of functions.
pub const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// Returns the name of a part.
#[must_use]
pub fn part_name(part: u32) -> String {
    format!("{part:04}.part")
}

/// Returns an unused name in `directory` for a checkpoint of this generation.
///
/// # Errors
/// Those of the system.
pub fn free_directory(disk: &dyn Disk, directory: &Path, generation: u64) -> io::Result<String> {
    let names = disk.list(directory)?;
    let name = |attempt: u64| format!("{DIRECTORY_PREFIX}{generation}-{attempt}");
    let free = (1..).map(name).find(|name| !names.contains(name));
    free.ok_or_else(|| io::ErrorKind::AlreadyExists.into())
}

/// Returns the manifest in `directory`, or `None` if there is none.
///
/// # Errors
/// As [`read_manifest_at`].
pub fn read_manifest(
    disk: &dyn Disk,
    directory: &Path,
) -> Result<Option<Manifest>, CheckpointFault> {
    read_manifest_at(disk, &directory.join(MANIFEST_NAME))
}

/// Returns the manifest in the file at `path`, or `None` if there is none.
///
/// # Errors
/// If the system reports an error, or the manifest differs from what was written.
pub fn read_manifest_at(disk: &dyn Disk, path: &Path) -> Result<Option<Manifest>, CheckpointFault> {
    let bytes = whole_file::read(disk, path, MANIFEST_BYTES_MAX);
    let Some(bytes) = bytes.map_err(CheckpointFault::system(path))? else {
        return Ok(None);
    };
    let decoded = Manifest::decode(&bytes);
    decoded.map(Some).map_err(|flaw| CheckpointFault::Manifest {
        path: path.to_owned(),
        flaw,
    })
}

/// Encodes a manifest that [`read_manifest_at`] will accept.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if it is longer than the maximum. The text names both lengths.
pub fn encode_manifest(manifest: &Manifest) -> io::Result<Vec<u8>> {
    let bytes = manifest.encode().into_bytes();
    if bytes.len() as u64 > MANIFEST_BYTES_MAX {
        let len = bytes.len();
        let text = format!(
            "the manifest of the checkpoint has {len} bytes, and {MANIFEST_BYTES_MAX} are the maximum"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(bytes)
}

/// Puts a manifest in force, in one step; it is durable on return. The files that it names must be
/// durable already, including the names of the parts and of their directory.
///
/// # Errors
/// Those of the system. Either manifest may be found afterwards, so no file of either may be
/// removed.
pub fn replace_manifest(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> io::Result<()> {
    let bytes = encode_manifest(manifest)?;
    let new = directory.join(MANIFEST_NEW_NAME);
    whole_file::remove(disk, &new)?;
    let file = disk.create(&new)?;
    file.write_at(&bytes, 0)?;
    if !planted::is_on(Bug::ManifestUnsynced) {
        file.sync()?;
    }
    drop(file);
    disk.rename(&new, &directory.join(MANIFEST_NAME))?;
    if planted::is_on(Bug::ManifestNameUnsynced) {
        return Ok(());
    }
    disk.sync_directory(directory)
}

/// Reads and checks every file that a manifest names.
///
/// # Errors
/// If something is missing, or differs from what was written.
pub fn verify(
    disk: &dyn Disk,
    directory: &Path,
    manifest: &Manifest,
) -> Result<(), CheckpointFault> {
    let mut databases: BTreeMap<u16, u64> = BTreeMap::new();
    for number in 0..manifest.parts.len() {
        for (database, records) in open_part(disk, directory, manifest, number)?.count()? {
            *databases.entry(database).or_default() += records;
        }
    }
    if databases == manifest.databases {
        return Ok(());
    }
    Err(CheckpointFault::Manifest {
        path: directory.join(MANIFEST_NAME),
        flaw: ManifestFlaw::Counts,
    })
}

/// Opens part number `part` of a manifest; its content is checked against the entry.
///
/// # Errors
/// If the system reports an error, or the file is at once seen to be another one.
pub fn open_part(
    disk: &dyn Disk,
    directory: &Path,
    manifest: &Manifest,
    number: usize,
) -> Result<PartReader, CheckpointFault> {
    let path = directory.join(&manifest.directory);
    let Some(entry) = manifest.parts.get(number) else {
        return Err(CheckpointFault::system(&path)(
            io::ErrorKind::NotFound.into(),
        ));
    };
    let reader = PartReader::open(disk, &path.join(&entry.name))?.expect(entry)?;
    let head = reader.head();
    let found = (head.generation, head.lineage, u64::from(head.part));
    if found == (manifest.generation, manifest.lineage, number as u64) {
        Ok(reader)
    } else {
        Err(reader.damaged(0, Flaw::Foreign))
    }
}

/// Removes what `manifest` has replaced: all other checkpoints, and the remains of attempts. Call
/// it only if that manifest is in force, and its files were verified.
///
/// # Errors
/// Those of the system; the next call removes the rest.
pub fn remove_replaced(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> io::Result<()> {
    remove_replaced_but(disk, directory, manifest, &|_| false)
}

/// Like [`remove_replaced`], except for the directories for which `keeps` is true.
///
/// # Errors
/// Those of the system; the next call removes the rest.
pub fn remove_replaced_but(
    disk: &dyn Disk,
    directory: &Path,
    manifest: &Manifest,
    keeps: &dyn Fn(&str) -> bool,
) -> io::Result<()> {
    for name in disk.list(directory)? {
        if name.starts_with(DIRECTORY_PREFIX) && name != manifest.directory && !keeps(&name) {
            remove_checkpoint(disk, &directory.join(name))?;
        }
    }
    Ok(())
}

/// Removes a checkpoint directory that no manifest names.
///
/// # Errors
/// Those of the system.
pub fn remove_checkpoint(disk: &dyn Disk, directory: &Path) -> io::Result<()> {
    for name in disk.list(directory)? {
        disk.retire(&directory.join(name))?;
    }
    disk.remove_directory(directory)
}
