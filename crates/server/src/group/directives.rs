//! Shared directives of a control group: one document of the control log has the directives that
//! were set for all of its nodes (`cluster-sync config`). A table of the configuration says which
//! directives can be shared.
//!
//! ```text
//!   CONFIG SET of a shared directive, anywhere ─► all that were set so, with this one ─► document ─► CONFIG SET on each node
//! ```
//!
//! A directive that was never set this way is each node's own. A starting node applies its file,
//! then the group's directives, before it serves any client.

use std::sync::atomic::Ordering;

use cluster::ControlState;
use cluster::directives::{
    NAME, NODE_TIMEOUT, Pairs, TIMEOUT_BEFORE, encode, keep_timeout_before, of_state,
};
use cluster::state::{DocumentKind, LEVEL_OF_NODE_TIMEOUTS};
use engine::CommandError;

use super::documents::{Subject, propose};
use crate::config::{ApplyError, Change, ConfigError, Divided, OwnedPair};
use crate::node::Node;
use crate::port::as_reply;

/// Whether this node takes the group's directives.
pub(crate) fn is_wanted(node: &Node) -> bool {
    node.core.config.current().group.shares.directives
}

/// Applies the group's directives, if they have changed.
pub(crate) fn take(node: &Node, state: &ControlState) {
    if !is_wanted(node) {
        return;
    }
    let (version, pairs) = of_state(state);
    let mut taken = node.control.documents.lock();
    if !taken.directives.is_news(state.index, version) {
        return;
    }
    taken.directives.fault = None;
    let are_set = |(name, _): &(&Vec<u8>, _)| *name != TIMEOUT_BEFORE.as_bytes();
    for (name, value) in pairs.iter().filter(are_set) {
        if let Err(reason) = set(node, name, value) {
            let name = String::from_utf8_lossy(name);
            node.core.log.warning(format_args!(
                "Directive '{name}' of the control group cannot be had here: {reason}"
            ));
            taken.directives.fault = Some(reason);
        }
    }
}

/// Sets a directive, if it has another value here.
fn set(node: &Node, name: &[u8], value: &[u8]) -> Result<(), String> {
    let config = &node.core.config;
    // A witness keeps no data.
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

/// Sets the shared directives on all nodes, then this node's own ones: all or nothing. All values
/// were checked before. If an own one still cannot be applied, such as a port that is taken, the
/// shared ones are restored.
pub(crate) fn change_with_own(
    node: &Node,
    divided: &Divided,
    is_local: bool,
) -> Result<(), CommandError> {
    let _one = node.work.waiting.documents();
    check_timeout(node, &divided.shared)?;
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

/// Refuses a node timeout that not all nodes can apply while they run, or for which elections take
/// too long.
fn check_timeout(node: &Node, shared: &[OwnedPair]) -> Result<(), CommandError> {
    let wanted = shared.iter();
    let mut wanted = wanted.filter(|(name, _)| name == NODE_TIMEOUT.as_bytes());
    let Some((_, wanted)) = wanted.next() else {
        return Ok(());
    };
    let level = node.control.log_for_client()?.watch().feature_level;
    if level < LEVEL_OF_NODE_TIMEOUTS {
        let reason = "a node of the group knows it at its start only";
        return Err(as_reply(ConfigError::refused(NODE_TIMEOUT, reason)));
    }
    let least_ms = node.control.node_timeout_ms_min.load(Ordering::Relaxed);
    let wanted_ms: Option<u64> = std::str::from_utf8(wanted)
        .ok()
        .and_then(|it| it.parse().ok());
    if wanted_ms.is_some_and(|wanted_ms| wanted_ms < least_ms) {
        let reason = format!(
            "elections of the control log go by what it was when this node was started: {least_ms} is the least while it runs"
        );
        return Err(as_reply(ConfigError::refused(NODE_TIMEOUT, &reason)));
    }
    Ok(())
}

/// Refuses a node timeout for this node alone in a group: a node that waits for a lease must know
/// how long it counts.
///
/// # Errors
/// That refusal.
pub(crate) fn check_own_timeout(node: &Node) -> Result<(), ApplyError> {
    if is_wanted(node) || node.control.log().is_none() {
        return Ok(());
    }
    Err(ApplyError {
        name: NODE_TIMEOUT,
        reason: "it is changed for all nodes of a group, and they do not share directives (cluster-sync)".to_owned(),
    })
}

/// Restores the former values of those directives that were not changed since.
fn set_back(node: &Node, new: &[OwnedPair], before: &[OwnedPair]) -> Result<(), CommandError> {
    order(node, &|pairs| {
        for ((name, new), (_, old)) in new.iter().zip(before) {
            if pairs.get(name) == Some(new) {
                pairs.insert(name.clone(), old.clone());
            }
        }
    })
}

/// Sets directives on all nodes, and waits until they apply here.
fn change(node: &Node, new: &[OwnedPair]) -> Result<(), CommandError> {
    order(node, &|pairs| pairs.extend(new.iter().cloned()))
}

/// Proposes the shared directives as changed by `edit`.
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
        let (_, known) = of_state(&log.watch());
        let mut pairs = known.clone();
        edit(&mut pairs);
        let own_ms = node.core.config.current().group.node_timeout_ms;
        keep_timeout_before(&known, &mut pairs, own_ms);
        Ok(Some(encode(&pairs)))
    };
    propose(node, &*log, &subject, &mut made)?;
    let fault = node.control.documents.lock().directives.fault.clone();
    fault.map_or(Ok(()), |reason| Err(CommandError::Text(reason.into())))
}
