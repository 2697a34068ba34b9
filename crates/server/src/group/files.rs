//! The state that a node of a control group keeps of itself, besides Raft's journal.
//!
//! ```text
//!   <dir>/iolite-data/control/node     iolite-control 1
//!                                      id 40 digits          its name for good
//!                                      starts 7              how often it was started
//!                                      raft 12               its number in Raft; missing until it is in a group
//!                                      incarnation 1         of the group; missing where it was never recovered
//!                                      founder 40 digits     who began the group; missing where its questions do not name it
//!                                      host db2              where another node reached it; missing until one did
//!                                      peer 40 digits 3 17000 db1      where others were last
//!                                      sum 8 digits          CRC-32C of the lines above
//! ```
//!
//! The file is written as a whole, and is durable before any other node learns of its content. A
//! node that loses it joins as a new node.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use base::hex;
use cluster::bytes::{Malformed, Reader, Writer};
use cluster::control_log::RaftId;
use cluster::{NodeId, NodeRecord};
use durability::checksum::crc32c;
use durability::disk::Disk;
use durability::whole_file;

const HEAD: &str = "iolite-control 1";
const NAME: &str = "node";
/// Maximum length of the file: enough for all nodes.
const BYTES_MAX: u64 = 1 << 20;

/// Address of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its host.
    pub(crate) host: String,
    /// Its port for links.
    pub(crate) port: u16,
}

/// Maximum number of nodes in a message.
pub(super) const NODES_MAX: usize = 4_096;

impl Place {
    /// Writes the address into a message.
    pub(super) fn encode(&self, writer: &mut Writer) {
        writer.string(self.host.as_bytes()).u16(self.port);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            host: reader.text()?,
            port: reader.u16()?,
        })
    }
}

/// Returns a node's address from its record in the group.
pub(super) fn place_of(record: &NodeRecord) -> Place {
    Place {
        host: record.host.clone(),
        port: record.link_port,
    }
}

/// Another node, and its last known address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownPeer {
    pub(crate) node: NodeId,
    pub(crate) raft_id: RaftId,
    pub(crate) place: Place,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) id: NodeId,
    pub(crate) start_count: u64,
    pub(crate) raft_id: Option<RaftId>,
    /// Number of the group among those that forced recoveries made of one. Groups with different
    /// numbers refuse each other.
    pub(crate) incarnation: u64,
    /// The founder of the group; questions of another group's members are refused. `None` if not
    /// all members name it.
    pub(crate) founder: Option<NodeId>,
    pub(crate) host: Option<String>,
    pub(crate) peers: Vec<KnownPeer>,
}

/// The directory of the control group's files.
pub(crate) fn directory_within(data: &Path) -> PathBuf {
    data.join("control")
}

impl Kept {
    /// Reads the file of a directory, or returns `None` if there is none.
    ///
    /// # Errors
    /// Errors of the system, and a file that is not as it was written.
    pub(crate) fn read(disk: &dyn Disk, directory: &Path) -> io::Result<Option<Self>> {
        let path = directory.join(NAME);
        let bytes = match whole_file::read(disk, &path, BYTES_MAX) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            // If a file is in the way of the directory, the code that keeps data there reports it:
            // this node is in no group.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
            Err(error) => return Err(error),
        };
        let damaged = || {
            let path = path.display();
            let what = format!("{path} is damaged: this node can join the group anew, without it");
            io::Error::new(io::ErrorKind::InvalidData, what)
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| damaged())?;
        Self::decode(text).map(Some).ok_or_else(damaged)
    }

    /// Writes the file; it is durable when this returns.
    ///
    /// # Errors
    /// Errors of the system. The former file is then unchanged.
    pub(crate) fn write(&self, disk: &dyn Disk, directory: &Path) -> io::Result<()> {
        let bytes = self.encode().into_bytes();
        let written = whole_file::make_directory(disk, directory)
            .and_then(|()| whole_file::replace(disk, directory, NAME, &bytes));
        // The error names the path, so that its reader knows the disk.
        let named = |error: io::Error| {
            let path = directory.join(NAME);
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        written.map(drop).map_err(named)
    }

    fn encode(&self) -> String {
        let mut text = format!("{HEAD}\nid {}\nstarts {}\n", self.id, self.start_count);
        // Writing to a string does not fail.
        if let Some(raft_id) = self.raft_id {
            let _written = writeln!(text, "raft {raft_id}");
        }
        if self.incarnation > 0 {
            let _written = writeln!(text, "incarnation {}", self.incarnation);
        }
        if let Some(founder) = self.founder {
            let _written = writeln!(text, "founder {founder}");
        }
        if let Some(host) = &self.host {
            let _written = writeln!(text, "host {host}");
        }
        for KnownPeer {
            node,
            raft_id,
            place,
        } in &self.peers
        {
            let _written = writeln!(text, "peer {node} {raft_id} {} {}", place.port, place.host);
        }
        let sum = crc32c(text.as_bytes());
        let _written = writeln!(text, "sum {sum:08x}");
        text
    }

    fn decode(text: &str) -> Option<Self> {
        let (lines, sum) = text.strip_suffix('\n')?.rsplit_once("\nsum ")?;
        let summed = crc32c(&text.as_bytes()[..=lines.len()]);
        if u32::from_str_radix(sum, 16).ok()? != summed {
            return None;
        }
        let mut lines = lines.lines();
        if lines.next()? != HEAD {
            return None;
        }
        let mut kept = Self::default();
        for line in lines {
            let mut words = line.splitn(5, ' ');
            match words.next()? {
                "id" => kept.id = id_of(words.next()?)?,
                "starts" => kept.start_count = words.next()?.parse().ok()?,
                "host" => kept.host = Some(words.next()?.to_owned()),
                "incarnation" => kept.incarnation = words.next()?.parse().ok()?,
                "founder" => kept.founder = Some(id_of(words.next()?)?),
                "raft" => kept.raft_id = Some(words.next()?.parse().ok()?),
                "peer" => kept.peers.push(KnownPeer {
                    node: id_of(words.next()?)?,
                    raft_id: words.next()?.parse().ok()?,
                    place: Place {
                        port: words.next()?.parse().ok()?,
                        host: words.next()?.to_owned(),
                    },
                }),
                _ => return None,
            }
        }
        Some(kept)
    }
}

/// Parses a node's name from 40 digits.
pub(crate) fn id_of(text: &str) -> Option<NodeId> {
    hex::bytes(text).map(NodeId)
}

#[cfg(test)]
mod tests {
    use durability::simulated::{Fault, SimulatedDisk};

    use super::*;

    fn kept() -> Kept {
        Kept {
            id: NodeId([0xab; 20]),
            start_count: 7,
            raft_id: Some(12),
            incarnation: 2,
            founder: Some(NodeId([2; 20])),
            host: Some("db2".to_owned()),
            peers: vec![KnownPeer {
                node: NodeId([1; 20]),
                raft_id: 1,
                place: Place {
                    host: "db1.example".to_owned(),
                    port: 17_000,
                },
            }],
        }
    }

    #[test]
    fn a_node_finds_what_it_kept() {
        for kept in [kept(), Kept::default()] {
            assert_eq!(Kept::decode(&kept.encode()), Some(kept));
        }
    }

    #[test]
    fn what_cannot_be_kept_is_told_with_its_place() {
        let disk = SimulatedDisk::new(1);
        disk.fail(0..u64::MAX, Fault::Full);
        let error = kept().write(&disk, Path::new("/control")).unwrap_err();
        assert!(error.to_string().starts_with("/control/node: "), "{error}");
    }

    #[test]
    fn damage_is_noticed() {
        let text = kept().encode();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).expect("still text");
            assert_ne!(Kept::decode(&changed), Some(kept()), "{at}");
        }
        assert_eq!(Kept::decode(""), None);
        assert_eq!(Kept::decode(&text[..text.len() / 2]), None);
    }
}
