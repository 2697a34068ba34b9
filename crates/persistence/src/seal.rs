//! The seal on disk: what a copy of a shard promised to a control group, and whether it has
//! everything that it ever acknowledged.
//!
//! ```text
//!   <dir>/iolite-data/SEAL
//!   iolite-seal 2
//!   shard 3             of which shard the log is; - before there is one
//!   term 7              nothing of lower terms is taken any more
//!   boot 4b0f…          the machine's start since which all that was acknowledged is there
//!   certain yes         no: something that was acknowledged may be gone
//!   sum 0c3f12aa55a0e1d7    CRC-64 of the lines above
//! ```
//!
//! The file is [written whole](durability::whole_file), so that a start finds this one or the
//! previous one.

use std::io;

use base::crc::crc64;
use durability::whole_file;

use crate::recovery::Place;

const NAME: &str = "SEAL";
const HEAD: &str = "iolite-seal 2";
/// Head of the previous version, which had no shard: it implied that of a group that is no cluster.
const HEAD_BEFORE: &str = "iolite-seal 1";
const SHARD_BEFORE: u32 = 0;
/// Maximum length of the file.
const BYTES_MAX: u64 = 1 << 10;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealRecord {
    /// Shard of the log, or `None` before there is one.
    pub shard: Option<u32>,
    /// Term below which nothing is accepted.
    pub term: u64,
    /// The boot of the machine during which it was written, as the system identifies it.
    pub boot: String,
    /// Whether everything that was ever acknowledged is there.
    pub is_certain: bool,
}

impl SealRecord {
    /// Reads the seal, or returns `None` if nothing was ever promised.
    ///
    /// # Errors
    /// Those of the system, and [`io::ErrorKind::InvalidData`] if the file differs from what was
    /// written: code that continued without it would break a promise.
    pub fn read(place: &Place) -> io::Result<Option<Self>> {
        let path = place.directory.join(NAME);
        let Some(bytes) = whole_file::read(&*place.disk, &path, BYTES_MAX)? else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&bytes).ok();
        let record = text.and_then(Self::decode);
        record.map(Some).ok_or_else(|| {
            let reason = format!("{}: not what was written", path.display());
            io::Error::new(io::ErrorKind::InvalidData, reason)
        })
    }

    /// Writes the seal; it is durable on return.
    ///
    /// # Errors
    /// Those of the system: then the old or the new seal may be found.
    pub fn write(&self, place: &Place) -> io::Result<()> {
        let bytes = self.encode().into_bytes();
        whole_file::replace(&*place.disk, &place.directory, NAME, &bytes).map(drop)
    }

    fn encode(&self) -> String {
        let certain = if self.is_certain { "yes" } else { "no" };
        let shard = self
            .shard
            .map_or_else(|| "-".to_owned(), |shard| shard.to_string());
        let lines = format!(
            "{HEAD}\nshard {shard}\nterm {}\nboot {}\ncertain {certain}\n",
            self.term, self.boot
        );
        let sum = crc64(0, lines.as_bytes());
        format!("{lines}sum {sum:016x}\n")
    }

    fn decode(text: &str) -> Option<Self> {
        let sum_at = text.rfind("sum ")?;
        let (lines, sum) = text.split_at(sum_at);
        let sum = sum.strip_prefix("sum ")?.strip_suffix('\n')?;
        if u64::from_str_radix(sum, 16).ok()? != crc64(0, lines.as_bytes()) {
            return None;
        }
        let mut lines = lines.lines();
        let shard = match lines.next()? {
            HEAD_BEFORE => Some(SHARD_BEFORE),
            HEAD => match lines.next()?.strip_prefix("shard ")? {
                "-" => None,
                shard => Some(shard.parse().ok()?),
            },
            _ => return None,
        };
        Some(Self {
            shard,
            term: lines.next()?.strip_prefix("term ")?.parse().ok()?,
            boot: lines.next()?.strip_prefix("boot ")?.to_owned(),
            is_certain: match lines.next()?.strip_prefix("certain ")? {
                "yes" => true,
                "no" => false,
                _ => return None,
            },
        })
    }
}

/// Returns the system's id of the machine's present boot; empty if there is none.
#[must_use]
pub fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map_or_else(|_| String::new(), |id| id.trim().to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use durability::disk::Disk as _;
    use durability::simulated::SimulatedDisk;

    use super::*;

    fn place(disk: &SimulatedDisk) -> Place {
        Place {
            disk: Arc::new(disk.clone()),
            directory: PathBuf::from("data"),
            log_directory: PathBuf::from("data/log"),
        }
    }

    fn record(term: u64, is_certain: bool) -> SealRecord {
        SealRecord {
            shard: (term > 3).then_some(7),
            term,
            boot: "4b0f".to_owned(),
            is_certain,
        }
    }

    #[test]
    fn what_was_written_outlives_a_power_cut() {
        let mut disk = SimulatedDisk::new(1);
        disk.create_directory(Path::new("data")).unwrap();
        disk.settle();
        assert_eq!(SealRecord::read(&place(&disk)).unwrap(), None);
        for (seed, one) in [(1, record(3, true)), (2, record(9, false))] {
            one.write(&place(&disk)).unwrap();
            disk = disk.crash(seed);
            assert_eq!(SealRecord::read(&place(&disk)).unwrap(), Some(one));
        }
    }

    #[test]
    fn a_changed_one_is_no_seal() {
        let text = record(12, true).encode();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let found = std::str::from_utf8(&bytes)
                .ok()
                .and_then(SealRecord::decode);
            assert_ne!(found, Some(record(13, true)), "{at}");
            assert!(found.is_none() || found == Some(record(12, true)), "{at}");
        }
        assert_eq!(SealRecord::decode(&text), Some(record(12, true)));
        let lines = "iolite-seal 1\nterm 12\nboot 4b0f\ncertain yes\n";
        let before = format!("{lines}sum {:016x}\n", crc64(0, lines.as_bytes()));
        let of_before = SealRecord {
            shard: Some(0),
            ..record(12, true)
        };
        assert_eq!(SealRecord::decode(&before), Some(of_before));
        assert_eq!(SealRecord::decode(""), None);
    }
}
