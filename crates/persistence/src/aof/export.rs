//! Writes the store as an append-only directory, from which a Redis 7 server can start.
//!
//! It consists of a base only: a server puts later writes into files of its own.

use std::io::{Error, ErrorKind};
use std::path::Path;

use durability::disk::Disk;

use super::source::MANIFEST_SUFFIX;
use super::{Manifest, ManifestFile};
use crate::environment::Environment;
use crate::export::{ExportError, ExportOptions, Exported, export_rdb};

/// Default version of the base: that of Redis 7.0, the first with such directories.
const VERSION: u16 = 10;

/// Number of the base.
const SEQUENCE: u64 = 1;

/// Writes all databases of `env`, as they are now, into `directory`. The directory is created if
/// needed, and must not contain a log yet. The base has the requested version, or by default the
/// first one from 10 on that loses nothing. The names of its files begin with `file_name`
/// (`appendfilename`). The content is whole once the manifest exists, which is written last.
///
/// # Errors
/// See [`ExportError`].
pub fn export_aof(
    env: &Environment,
    disk: &dyn Disk,
    directory: &Path,
    file_name: &Path,
    options: ExportOptions,
) -> Result<Exported, ExportError> {
    let prefix = file_name.to_string_lossy();
    let manifest_name = format!("{prefix}{MANIFEST_SUFFIX}");
    disk.create_directory(directory)?;
    if disk
        .list(directory)?
        .iter()
        .any(|name| name.ends_with(MANIFEST_SUFFIX))
    {
        let text = "there is an append-only log already";
        return Err(Error::new(ErrorKind::AlreadyExists, text).into());
    }
    let base = ManifestFile {
        name: format!("{prefix}.{SEQUENCE}.base.rdb"),
        sequence: SEQUENCE,
    };
    let exported = export_base(env, disk, &directory.join(&base.name), options)?;
    let manifest = Manifest {
        base: Some(base),
        ..Manifest::default()
    };
    let draft = directory.join(format!("temp-{manifest_name}"));
    let file = disk.create(&draft)?;
    file.write_at(manifest.to_string().as_bytes(), 0)?;
    file.sync()?;
    disk.rename(&draft, &directory.join(manifest_name))?;
    disk.sync_directory(directory)?;
    Ok(exported)
}

fn export_base(
    env: &Environment,
    disk: &dyn Disk,
    path: &Path,
    options: ExportOptions,
) -> Result<Exported, ExportError> {
    let of = |version| ExportOptions {
        version: Some(version),
        ..options
    };
    match export_rdb(env, disk, path, of(options.version.unwrap_or(VERSION))) {
        Err(ExportError::Version { needed, .. }) if options.version.is_none() => {
            export_rdb(env, disk, path, of(needed))
        }
        other => other,
    }
}
