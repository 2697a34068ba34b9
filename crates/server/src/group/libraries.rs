//! Libraries of functions of a control group: one document of the control log has all of them, in
//! the format of FUNCTION DUMP (`cluster-sync functions`).
//!
//! ```text
//!   FUNCTION LOAD DELETE FLUSH RESTORE, anywhere ─► all libraries as they are to be ─► document, at the version it was made from
//!   control state has changed ─► libraries of this node ─► where it is the primary, stated to the log of the data
//! ```
//!
//! There is one document because a function name must be in one library only, and RESTORE is all or
//! nothing. Libraries from the log of the data, from a full sync or from a file do not count
//! (`engine`'s `Libraries`), because they may be older. The primary still writes the libraries to
//! that log, for replicas outside the group and for a node that leaves.

use std::sync::Arc;

#[cfg(feature = "cluster")]
use cluster::Entry;
use cluster::state::DocumentKind;
use cluster::{ControlLog, ControlState};
use engine::CommandError;
use engine::scripts::{self, LoadedLibrary};

use super::documents::{Made, Subject, propose, wait_for};
#[cfg(feature = "cluster")]
use super::unique;
use crate::node::Node;
use crate::replication::role::Role;

/// Name of the one document of this kind.
const NAME: &[u8] = b"";

/// Whether this node takes the group's libraries.
pub(crate) fn is_wanted(node: &Node) -> bool {
    node.core.config.current().group.shares.libraries
}

/// Whether the group has a document of libraries, even an empty one.
pub(crate) fn are_complete(state: &ControlState) -> bool {
    state
        .documents
        .contains_key(&(DocumentKind::Library, NAME.to_vec()))
}

/// Installs the group's libraries on this node, if they have changed.
pub(crate) fn take(node: &Node, state: &ControlState) {
    if !is_wanted(node) {
        return;
    }
    let document = state.documents.get(&(DocumentKind::Library, NAME.to_vec()));
    let Some(document) = document else { return };
    let mut taken = node.control.documents.lock();
    if !taken.libraries.is_news(state.index, document.version) {
        return;
    }
    let libraries = loaded(node, &document.body);
    node.core.shared.scripts.libraries.take_of_group(libraries);
    drop(taken);
    state_to_log(node);
}

/// Returns the libraries of a document. One that this node cannot load is left out: a newer node
/// may support more.
fn loaded(node: &Node, body: &[u8]) -> scripts::State {
    let limits = node.core.shared.settings.value_limits();
    let mut libraries = scripts::State::default();
    let sources = rdb::functions::read(body, &limits).unwrap_or_else(|_| {
        let line = "The libraries of the control group cannot be read here";
        node.core.log.warning(format_args!("{line}"));
        Vec::new()
    });
    for source in sources {
        let added = scripts::load_library(&source).map(Arc::new);
        let added = added
            .map_err(|error| String::from_utf8_lossy(&error.text()).into_owned())
            .and_then(|one: Arc<LoadedLibrary>| {
                let added = libraries.add(&one, true);
                added.map_err(|_| "a function of it is in another library".to_owned())
            });
        if let Err(reason) = added {
            node.core.log.warning(format_args!(
                "A library of the control group cannot be had here: {reason}"
            ));
        }
    }
    libraries
}

/// On a primary: writes the present libraries to its log. Does not wait.
pub(crate) fn state_to_log(node: &Node) {
    let is_primary = node.replication.role() == Role::Primary;
    let version = node.control.documents.lock().libraries.version;
    if !is_primary || version == 0 {
        return;
    }
    // The request looks up the libraries when it runs; this payload counts only if the group was
    // left meanwhile.
    let payload = all_of(node);
    let mut request = format!(
        "*4\r\n$8\r\nFUNCTION\r\n$7\r\nRESTORE\r\n${}\r\n",
        payload.len()
    )
    .into_bytes();
    request.extend(payload);
    request.extend(b"\r\n$5\r\nFLUSH\r\n");
    node.run_own(request);
}

fn all_of(node: &Node) -> Vec<u8> {
    let state = node.core.shared.scripts.libraries.now();
    let mut payload = Vec::new();
    rdb::functions::write(state.libraries().map(|one| &*one.source), &mut payload);
    payload
}

/// Changes the libraries on all nodes, and waits until that applies here. Returns whether anything
/// has changed.
pub(super) fn change(
    node: &Node,
    log: &dyn ControlLog,
    made: Made<'_>,
) -> Result<bool, CommandError> {
    wait_for(node, log, "it has no libraries yet", are_complete)?;
    let subject = Subject {
        kind: DocumentKind::Library,
        name: NAME,
        limit: "ERR the libraries of a control group have at most 1 MiB together",
        take,
        version: &|| node.control.documents.lock().libraries.version,
    };
    propose(node, log, &subject, made)
}

/// Writes this node's libraries as the group's first ones. Waits, so it runs on a thread of its
/// own.
#[cfg(feature = "cluster")]
pub(crate) fn write_first(node: &Node, log: &dyn ControlLog) {
    let entry = Entry::Document {
        kind: DocumentKind::Library,
        name: NAME.to_vec(),
        expected_version: 0,
        body: Some(all_of(node)),
    };
    let outcome = match entry.is_within_limits() {
        // If the group has libraries already, those count.
        true => log.propose(&unique::proposal(entry)).map(drop),
        false => {
            let line =
                "The libraries of this node have more than 1 MiB: the control group has none";
            return node.core.log.warning(format_args!("{line}"));
        }
    };
    if let Err(reason) = outcome {
        node.core.log.warning(format_args!(
            "The libraries of this node were not written to the control log: {reason}"
        ));
    }
}

/// Names of the libraries that this node has by itself.
#[cfg(feature = "cluster")]
pub(crate) fn names(node: &Node) -> Vec<String> {
    let state = node.core.shared.scripts.libraries.now();
    let names = state
        .libraries()
        .map(|one| String::from_utf8_lossy(&one.name).into_owned());
    names.collect()
}
