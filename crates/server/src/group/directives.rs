//! Directives under a control group: one document of its control log has those that were set for all of its nodes
//! (`cluster-sync config`). Which may be is a table of the configuration.
//!
//! ```text
//!   CONFIG SET of a shared directive, anywhere ─► all that were set so, with this one ─► document ─► CONFIG SET on each node
//! ```
//!
//! What was never set so is each node's own. A node that starts has what its file says, and what the group says over that,
//! before it serves anybody.

use cluster::ControlState;
use cluster::bytes::{Malformed, Reader, Writer};
use cluster::state::DocumentKind;
use engine::CommandError;
use std::collections::BTreeMap;

use super::documents::{Subject, propose};
use crate::config::{Change, Divided, OwnedPair};
use crate::node::Node;
use crate::port::as_reply;

/// The one document of its kind.
const NAME: &[u8] = b"";

/// Names and values.
type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Whether this node has the directives of its group.
pub(crate) fn is_wanted(node: &Node) -> bool {
    node.core.config.current().group.shares.directives
}

fn encode(pairs: &Pairs) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.count(pairs.len());
    for (name, value) in pairs {
        writer.string(name).string(value);
    }
    writer.0
}

fn decode(bytes: &[u8]) -> Result<Pairs, Malformed> {
    let mut reader = Reader(bytes);
    let count = reader.count()?;
    let pair = |_| Ok((reader.string()?.to_vec(), reader.string()?.to_vec()));
    let pairs = (0..count).map(pair).collect::<Result<Pairs, _>>()?;
    reader.end()?;
    Ok(pairs)
}

fn pairs_of(state: &ControlState) -> (u64, Pairs) {
    let document = state.documents.get(&(DocumentKind::Config, NAME.to_vec()));
    document.map_or_else(Default::default, |document| {
        (document.version, decode(&document.body).unwrap_or_default())
    })
}

/// Has this node have the directives of the group, where they changed.
pub(crate) fn take(node: &Node, state: &ControlState) {
    if !is_wanted(node) {
        return;
    }
    let (version, pairs) = pairs_of(state);
    let mut taken = node.control.documents.lock();
    if !taken.directives.is_news(state.index, version) {
        return;
    }
    taken.directives.fault = None;
    for (name, value) in &pairs {
        if let Err(reason) = set(node, name, value) {
            let name = String::from_utf8_lossy(name);
            node.core.log.warning(format_args!(
                "Directive '{name}' of the control group cannot be had here: {reason}"
            ));
            taken.directives.fault = Some(reason);
        }
    }
}

/// Sets one, where it is another here.
fn set(node: &Node, name: &[u8], value: &[u8]) -> Result<(), String> {
    let config = &node.core.config;
    // It keeps no data.
    if name == b"durability" && config.current().group.is_witness {
        return Ok(());
    }
    let mut changed = false;
    let mut apply = |change: &Change<'_>| {
        changed = true;
        node.apply(change)
    };
    let set = config.set(&[(name, value)], true, &mut apply);
    set.map_err(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())?;
    if changed {
        let (name, value) = (
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(value),
        );
        node.core.log.notice(format_args!(
            "Directive '{name}' is '{value}' from here on: the control group's"
        ));
    }
    Ok(())
}

/// Sets what is shared on all nodes, then what is this node's own: all or nothing. All has been checked. Own ones that cannot be had
/// all the same, as a port that is taken, have what is shared set back.
pub(crate) fn change_with_own(
    node: &Node,
    divided: &Divided,
    is_local: bool,
) -> Result<(), CommandError> {
    let config = &node.core.config;
    let before = config.present(divided.shared.iter().map(|(name, _)| &name[..]));
    change(node, &divided.shared)?;
    let own = divided.own.iter();
    let own: Vec<(&[u8], &[u8])> = own.map(|(name, value)| (&name[..], &value[..])).collect();
    let mut apply = |change: &Change<'_>| node.apply(change);
    let Err(refused) = config.set(&own, is_local, &mut apply) else {
        return Ok(());
    };
    if let Err(reason) = set_back(node, &divided.shared, &before) {
        let reason = String::from_utf8_lossy(&reason.text()).into_owned();
        node.core.log.warning(format_args!(
            "Directives of the control group stay as they were set by a CONFIG SET that was refused: {reason}"
        ));
    }
    Err(as_reply(refused))
}

/// Has those that are still what they were set to be what they were before.
fn set_back(node: &Node, new: &[OwnedPair], before: &[OwnedPair]) -> Result<(), CommandError> {
    order(node, &|pairs| {
        for ((name, new), (_, old)) in new.iter().zip(before) {
            if pairs.get(name) == Some(new) {
                pairs.insert(name.clone(), old.clone());
            }
        }
    })
}

/// Sets directives on all nodes; waits until they are so here.
fn change(node: &Node, new: &[OwnedPair]) -> Result<(), CommandError> {
    order(node, &|pairs| pairs.extend(new.iter().cloned()))
}

/// Orders what `edit` makes of those that are set on all nodes.
fn order(node: &Node, edit: &dyn Fn(&mut Pairs)) -> Result<(), CommandError> {
    let log = node.control.log_for_client()?;
    let subject = Subject {
        kind: DocumentKind::Config,
        name: NAME,
        limit: "ERR the directives of a control group have at most 1 MiB together",
        take,
        version: &|| node.control.documents.lock().directives.version,
    };
    let mut made = || {
        let (_, mut pairs) = pairs_of(&log.watch());
        edit(&mut pairs);
        Ok(Some(encode(&pairs)))
    };
    propose(node, &*log, &subject, &mut made)?;
    let fault = node.control.documents.lock().directives.fault.clone();
    fault.map_or(Ok(()), |reason| Err(CommandError::Text(reason.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_come_back_as_they_were_written() {
        let pairs: Pairs = [("a", "1"), ("timeout", ""), ("z", "x y")]
            .map(|(name, value)| (name.into(), value.into()))
            .into();
        let bytes = encode(&pairs);
        assert_eq!(decode(&bytes), Ok(pairs));
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{end}");
        }
    }
}
