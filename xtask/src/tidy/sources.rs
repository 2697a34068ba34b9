//! The files of the repository: those that git tracks, or would track after `git add`.

use std::io;
use std::path::Path;
use std::process::Command;

/// A file.
pub(super) struct Source {
    /// Its path below the root.
    pub(super) path: String,
    /// Its text. Invalid bytes are replaced.
    pub(super) text: String,
}

impl Source {
    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns lines with their numbers.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }
}

/// Reads all files.
pub(super) fn read(root: &Path) -> io::Result<Vec<Source>> {
    let listing = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()?;
    if !listing.status.success() {
        return Err(io::Error::other("git does not list the files"));
    }
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    let mut sources = Vec::new();
    for path in listing.split_terminator('\0') {
        match std::fs::read(root.join(path)) {
            Ok(bytes) => sources.push(Source {
                path: path.to_owned(),
                text: String::from_utf8_lossy(&bytes).into_owned(),
            }),
            // Deleted, but git still lists it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sources)
}
