//! `iolite cluster recover`: continues a group whose majority is lost for good with one of its
//! nodes, which is stopped meanwhile.
//!
//! Without `--yes` it only shows what may be lost. The former files are copied before anything is
//! changed.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use cluster::state::CopyKind;
use cluster::{ControlState, NodeId, Shard};
use consensus::Known;
use durability::disk::{Disk, SystemDisk};
use persistence::directory::DataDirectory;
use persistence::recovery::Place;

use super::{Told, quoted};
use crate::group::files::{Kept, directory_within};

/// Name of the copy of the former files.
const BEFORE: &str = "before-recovery";

/// Shows what a recovery of the node with this directory would lose. Does it if `is_confirmed`.
///
/// # Errors
/// Errors of the system, and a directory that another server uses or that belongs to no group.
pub(super) fn recover(dir: &Path, is_confirmed: bool, is_json: bool) -> io::Result<Told> {
    let no_group = || io::Error::other("the node of this directory is in no control group");
    let directory = directory_within(&Place::within(dir).directory);
    if !directory.is_dir() {
        return Err(no_group());
    }
    let _taken = DataDirectory::take(dir).map_err(io::Error::other)?;
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
    let kept = Kept::read(&*disk, &directory)?.ok_or_else(no_group)?;
    let raft_id = kept.raft_id.ok_or_else(no_group)?;
    let known = consensus::read_known(&disk, &directory)?;
    let (state, others) = alone(&known.state, kept.id)?;
    if is_confirmed {
        keep_before(&directory)?;
        consensus::begin_anew(&disk, &directory, raft_id, &known, state.clone())?;
        let kept = Kept {
            incarnation: state.incarnation,
            peers: Vec::new(),
            ..kept.clone()
        };
        kept.write(&*disk, &directory)?;
    }
    let told = Loss {
        own: kept.id,
        known: &known,
        incarnation: state.incarnation,
        others,
        is_done: is_confirmed,
    };
    let text = match is_json {
        true => told.json(),
        false => told.text(dir),
    };
    let code = u8::from(!is_confirmed);
    Ok(Told { text, code })
}

/// Returns the state of a group with this node alone, and the nodes that are no longer in it.
fn alone(known: &ControlState, own: NodeId) -> io::Result<(ControlState, Vec<(NodeId, String)>)> {
    let mut state = known.clone();
    let error = |what: &str| Err(io::Error::other(what.to_owned()));
    let Some(shard) = state.shard_of(own) else {
        return error("this node has no copy of the data: recover one that has");
    };
    if state.is_cluster() == Some(true) && state.shards.len() > 1 {
        return error(
            "this is a cluster of several shards, of which one node has no more than one",
        );
    }
    let kind = |shard: &Shard| shard.members.get(&own).copied();
    if state.shards.get(&shard).and_then(kind) == Some(CopyKind::LogOnly) {
        return error("this node keeps the log alone: recover one that has the data");
    }
    let mut others = Vec::new();
    state.nodes.retain(|id, node| {
        if *id != own {
            let address = format!("{}:{}", node.record.host, node.record.client_port);
            others.push((*id, address));
        }
        *id == own
    });
    state.incarnation += 1;
    if let Some(shard) = state.shards.get_mut(&shard) {
        shard.members.retain(|id, _| *id == own);
        shard.old_members = None;
        shard.primary = own;
    }
    Ok((state, others))
}

/// Copies the files of a directory next to it.
fn keep_before(directory: &Path) -> io::Result<()> {
    let mut number = 1;
    let before = loop {
        let before = directory.join(format!("{BEFORE}-{number}"));
        match fs::create_dir(&before) {
            Ok(()) => break before,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    };
    for file in fs::read_dir(directory)? {
        let file = file?;
        if file.file_type()?.is_file() {
            fs::copy(file.path(), before.join(file.file_name()))?;
        }
    }
    Ok(())
}

/// What a recovery loses, or may lose.
struct Loss<'k> {
    own: NodeId,
    known: &'k Known,
    incarnation: u64,
    others: Vec<(NodeId, String)>,
    is_done: bool,
}

impl Loss<'_> {
    fn text(&self, dir: &Path) -> String {
        let Self {
            own,
            known,
            incarnation,
            others,
            ..
        } = self;
        let shard = known.state.shard_of(*own);
        let shard = shard.and_then(|id| known.state.shards.get(&id));
        let writes = match shard {
            Some(shard) if shard.primary == *own => {
                "It was the primary when it last knew; what a later one took is not here."
                    .to_owned()
            }
            Some(shard) => format!(
                "It followed {} in term {} when it last knew; what that took and this node did not have is not here.",
                shard.primary, shard.term
            ),
            None => String::new(),
        };
        let mut text = format!(
            "node             {own}\ncontrol log      up to {}, of which others agreed to {} as far as is known here\nincarnation      {incarnation}\n\n\
             What may be lost:\n  Decisions after {} that the others made without this node.\n  Writes, acknowledged ones too: this node's log counts. {writes}\n\n\
             No more in the group, and refused until they begin with an empty directory:\n",
            known.last_index, known.committed_index, known.last_index
        );
        for (node, address) in others {
            text.push_str(&format!("  {node}  {address}\n"));
        }
        text.push_str(&match self.is_done {
            true => format!(
                "\nDone. What there was is kept in iolite-data/control/{BEFORE}-*. Start this node, then have others join it.\n"
            ),
            false => format!(
                "\nNothing was changed. To do it: iolite cluster recover --dir {} --yes\n",
                dir.display()
            ),
        });
        text
    }

    fn json(&self) -> String {
        let others: Vec<String> = self
            .others
            .iter()
            .map(|(node, address)| {
                format!(
                    "{{\"id\":{},\"addr\":{}}}",
                    quoted(&node.to_string()),
                    quoted(address)
                )
            })
            .collect();
        format!(
            "{{\"id\":{},\"last_index\":{},\"committed_index\":{},\"incarnation\":{},\"removed\":[{}],\"done\":{}}}\n",
            quoted(&self.own.to_string()),
            self.known.last_index,
            self.known.committed_index,
            self.incarnation,
            others.join(","),
            self.is_done
        )
    }
}
