//! Certificates in files and directories.

use std::fs;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::error::SetupError;

/// Maximum size of a certificate or key file.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Returns the content of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, SetupError> {
    let fault = |error| SetupError::File(path.to_path_buf(), error);
    let metadata = fs::metadata(path).map_err(fault)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(SetupError::content(path, "no file of certificates or keys"));
    }
    fs::read(path).map_err(fault)
}

/// Returns the certificates in a file, in their order. There is at least one.
pub(crate) fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let chain = certificates(path)?;
    if chain.is_empty() {
        return Err(SetupError::content(path, "no certificate"));
    }
    Ok(chain)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let text = read(path)?;
    CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| SetupError::content(path, format!("{error}")))
}

/// The authorities that may sign the certificates of peers: those in a file, and those in all files
/// of a directory.
pub(crate) struct Authorities {
    pub(crate) store: RootCertStore,
    /// The first authority of the file, whose expiry INFO shows.
    pub(crate) first: Option<CertificateDer<'static>>,
}

pub(crate) fn authorities(
    file: Option<&Path>,
    directory: Option<&Path>,
) -> Result<Authorities, SetupError> {
    let mut all = Authorities {
        store: RootCertStore::empty(),
        first: None,
    };
    if let Some(file) = file {
        let chain = chain(file)?;
        all.first = chain.first().cloned();
        for one in chain {
            let added = all.store.add(one);
            added.map_err(|error| SetupError::content(file, format!("{error}")))?;
        }
    }
    if let Some(directory) = directory {
        for path in entries(directory)? {
            // Such directories also hold revocation lists, links and other files.
            let found = certificates(&path).unwrap_or_default();
            let (_added, _ignored) = all.store.add_parsable_certificates(found);
        }
    }
    if all.store.is_empty() {
        let place = directory.or(file).unwrap_or_else(|| Path::new(""));
        return Err(SetupError::content(place, "no certificate of an authority"));
    }
    Ok(all)
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, SetupError> {
    let fault = |error| SetupError::File(directory.to_path_buf(), error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(fault)? {
        paths.push(entry.map_err(fault)?.path());
    }
    paths.sort();
    Ok(paths)
}
