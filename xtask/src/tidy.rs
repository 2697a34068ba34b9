//! Checks that no compiler makes: the shape of the source.
//!
//! Each check returns faults as lines `FILE:LINE: what is wrong`. The checks run as `cargo xtask
//! tidy` and as a test of this package.

mod circles;
mod dependencies;
mod heads;
mod links;
mod long_functions;
mod rooms;
mod site;
mod sources;
mod words;

use std::io;
use std::path::Path;

use sources::Source;

/// Maximum size of a file in the repository, in bytes.
const FILE_BYTES_MAX: usize = 1024 * 1024;

/// Returns all faults below `root`.
#[must_use]
pub fn faults(root: &Path) -> Vec<String> {
    let sources = match sources::read(root) {
        Ok(sources) => sources,
        Err(error) => return vec![format!("the files cannot be read: {error}")],
    };
    let mut faults = Vec::new();
    faults.extend(sources.iter().filter_map(too_large));
    faults.extend(dependencies::faults(root));
    faults.extend(rooms::faults(&sources));
    faults.extend(circles::faults(&sources));
    faults.extend(heads::faults(&sources));
    faults.extend(words::faults(&sources));
    faults.extend(links::faults(root, &sources));
    faults.extend(site::faults(&sources));
    faults.extend(long_functions::faults(root, &sources));
    faults
}

/// Returns the largest cycle of imports of each room, one line per room.
///
/// # Errors
/// If files cannot be read.
pub fn circles(root: &Path) -> io::Result<Vec<String>> {
    Ok(circles::summary(&sources::read(root)?))
}

/// Records the lengths of the functions that are too long now, so that they may not grow.
///
/// # Errors
/// If files cannot be read or written.
pub fn accept_long_functions(root: &Path) -> io::Result<()> {
    long_functions::accept(root, &sources::read(root)?)
}

fn too_large(source: &Source) -> Option<String> {
    let bytes = source.text.len();
    (bytes > FILE_BYTES_MAX)
        .then(|| format!("{}:1: {bytes} bytes; at most {FILE_BYTES_MAX}", source.path))
}
