//! Which files make up a log, and in which order.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use super::Manifest;
use super::{AofFault, Flaw};

/// Suffix of the name of a manifest.
pub(super) const MANIFEST_SUFFIX: &str = ".manifest";

/// The files of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// In order.
    pub files: Vec<PathBuf>,
}

impl Source {
    /// Returns the log in the working directory of a server with these names in its configuration,
    /// if there is any.
    ///
    /// # Errors
    /// [`AofFault`] if a manifest is invalid.
    pub fn find(
        working_directory: &Path,
        directory_name: &Path,
        file_name: &Path,
    ) -> Result<Option<Self>, AofFault> {
        let directory = working_directory.join(directory_name);
        let mut manifest_name = file_name.as_os_str().to_owned();
        manifest_name.push(MANIFEST_SUFFIX);
        let single = working_directory.join(file_name);
        match Self::of_manifest(&directory.join(manifest_name)) {
            Ok(mut source) => {
                // The server was stopped before it had moved the single file to the directory.
                if let [only] = &mut *source.files
                    && only.file_name() == Some(file_name.as_os_str())
                    && !only.exists()
                    && single.exists()
                {
                    *only = single;
                }
                Ok(Some(source))
            }
            Err(fault) if fault.is_absence() => Ok(single.is_file().then(|| Self {
                files: vec![single],
            })),
            Err(fault) => Err(fault),
        }
    }

    /// Whether a path leads to append-only files, judged by its name or its first byte. A single
    /// file that begins with records is recognized only by its name.
    #[must_use]
    pub fn is_log(path: &Path) -> bool {
        let name = path.to_string_lossy();
        let is_named = name.ends_with(MANIFEST_SUFFIX) || name.ends_with(".aof");
        let has_requests = || {
            let mut first = [0];
            let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
            read.is_ok() && matches!(first, [b'*' | b'#'])
        };
        path.is_dir() || is_named || has_requests()
    }

    /// Returns the log at a path: a directory with one manifest, a manifest, or a single file.
    ///
    /// # Errors
    /// [`AofFault`] if it is none of these.
    pub fn at(path: &Path) -> Result<Self, AofFault> {
        if path.is_dir() {
            return Self::of_manifest(&manifest_in(path)?);
        }
        let name = path.to_string_lossy();
        if name.ends_with(MANIFEST_SUFFIX) {
            return Self::of_manifest(path);
        }
        let files = vec![path.to_owned()];
        Ok(Self { files })
    }

    fn of_manifest(path: &Path) -> Result<Self, AofFault> {
        let fault = |flaw| AofFault {
            file: path.to_owned(),
            flaw,
        };
        let text = fs::read(path).map_err(|error| fault(Flaw::Io(error)))?;
        let manifest = Manifest::parse(&text).map_err(|flaw| fault(Flaw::Manifest(flaw)))?;
        let directory = path.parent().unwrap_or_else(|| Path::new(""));
        let names = manifest.files().map(|file| directory.join(&file.name));
        Ok(Self {
            files: names.collect(),
        })
    }

    /// Returns the number of bytes to read.
    ///
    /// # Errors
    /// [`AofFault`] for the first missing file.
    pub fn bytes(&self) -> Result<u64, AofFault> {
        let size = |file: &PathBuf| {
            let found = fs::metadata(file).map(|found| found.len());
            found.map_err(|error| AofFault {
                file: file.clone(),
                flaw: Flaw::Io(error),
            })
        };
        self.files.iter().map(size).sum()
    }
}

impl AofFault {
    fn is_absence(&self) -> bool {
        let is_absence = |error: &io::Error| {
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        };
        matches!(&self.flaw, Flaw::Io(error) if is_absence(error))
    }
}

/// Returns the only manifest in a directory.
fn manifest_in(directory: &Path) -> Result<PathBuf, AofFault> {
    let fault = |flaw| AofFault {
        file: directory.to_owned(),
        flaw,
    };
    let mut found = None;
    for entry in fs::read_dir(directory).map_err(|error| fault(Flaw::Io(error)))? {
        let path = entry.map_err(|error| fault(Flaw::Io(error)))?.path();
        if path.to_string_lossy().ends_with(MANIFEST_SUFFIX) && found.replace(path).is_some() {
            return Err(fault(Flaw::NoManifest));
        }
    }
    found.ok_or_else(|| fault(Flaw::NoManifest))
}
