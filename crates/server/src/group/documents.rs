//! Users of a control group: they are documents of its control log, which every node applies
//! (`cluster-sync`).
//!
//! ```text
//!   ACL SETUSER, anywhere ─► the user as it is here, with the rules ─► document, at the version it was made from
//!                                    ▲                                      │ another one came first: again
//!   control state has changed ───────┴── users of this node ◄───────────────┘ committed and applied: OK
//! ```
//!
//! A group begins with the users of its founder. The default user is written last: until it is
//! there, no node applies any user.
//!
//! Invariant: a document is made from the version that it names. So no change is lost, wherever
//! changes are made.

use std::collections::BTreeMap;
use std::time::Duration;

use access::{Change, DEFAULT, Rules, parse_file};
use cluster::state::{DocumentKind, Versioned};
use cluster::{Applied, ControlLog, ControlState, Entry};
use engine::{ClientCondition, ClientFilter, CommandError, SharedChange, SharedPart};
use protocol::Reply;

use super::{libraries, unique};
use crate::link::Message;
use crate::node::Node;
use crate::port::kill_clients;

/// Maximum number of attempts when concurrent changes make a proposal stale.
const ATTEMPTS: usize = 20;
/// Number of checks for the first documents of a group that has just begun, ...
const LOOKS: u32 = 100;
/// ... and pause between them.
const LOOK: Duration = Duration::from_millis(20);

/// An ID that no client has.
const NOBODY: u64 = 0;

/// Outcome of a change.
type Outcome = Result<(), CommandError>;
/// Returns a document's new content, or `None` to remove the document.
pub(super) type Made<'a> = &'a mut dyn FnMut() -> Result<Option<Vec<u8>>, CommandError>;

/// Applies the group's users to this node, if they have changed.
pub(crate) fn take(node: &Node, state: &ControlState) {
    if !is_wanted(node) || !are_complete(state) {
        return;
    }
    let mut taken = node.control.documents.lock();
    // Threads may come here in another order than they read the state.
    if state.index <= taken.index {
        return;
    }
    taken.index = state.index;
    let users = users_of(state).map(|(name, document)| (name.clone(), document.version));
    let users: BTreeMap<Vec<u8>, u64> = users.collect();
    if taken.users == users {
        return;
    }
    let is_first = taken.users.is_empty() || node.replication.awaits_group();
    taken.users = users;
    let changes = replace(node, state);
    end_clients(node, &changes, is_first);
}

/// Changes users or libraries on all nodes, and waits until that applies here. Changes wait for each
/// other.
pub(crate) fn change(
    node: &Node,
    change: &SharedChange,
    reply: &mut Reply<'_>,
) -> Result<(), CommandError> {
    let _one = node.work.waiting.documents();
    let shared = &node.core.shared;
    let log = node.control.log_for_client()?;
    let mut changed_count = 0;
    for (part, made) in &change.parts {
        let made: Made<'_> = &mut || made(shared);
        let has_changed = match part {
            SharedPart::User(name) => change_user(node, &*log, name, made)?,
            SharedPart::Libraries => libraries::change(node, &*log, made)?,
        };
        changed_count += usize::from(has_changed);
    }
    (change.when_done)(shared, changed_count, reply);
    Ok(())
}

fn change_user(
    node: &Node,
    log: &dyn ControlLog,
    name: &[u8],
    made: Made<'_>,
) -> Result<bool, CommandError> {
    wait_for(node, log, "it has no users yet", are_complete)?;
    let subject = Subject {
        kind: DocumentKind::User,
        name,
        limit: "ERR a user of a control group has a name of at most 255 bytes and rules of at most 1 MiB",
        take,
        version: &|| node.control.documents.version_of_user(name),
    };
    propose(node, log, &subject, made)
}

/// A document to change.
pub(super) struct Subject<'s> {
    pub(super) kind: DocumentKind,
    pub(super) name: &'s [u8],
    /// The error if it is too long.
    pub(super) limit: &'static str,
    /// Applies the documents of this kind from a control state.
    pub(super) take: fn(&Node, &ControlState),
    /// The version that this node has applied.
    pub(super) version: &'s dyn Fn() -> u64,
}

/// Changes a document to what `made` returns, and waits until this node has applied it. Returns
/// whether anything has changed.
pub(super) fn propose(
    node: &Node,
    log: &dyn ControlLog,
    subject: &Subject<'_>,
    made: Made<'_>,
) -> Result<bool, CommandError> {
    for _ in 0..ATTEMPTS {
        let state = log.watch();
        (subject.take)(node, &state);
        // Read before `made` reads its input: a change in between is then detected by the version.
        let expected_version = (subject.version)();
        let body = made()?;
        let known = state
            .documents
            .get(&(subject.kind, subject.name.to_vec()))
            .filter(|known| known.version == expected_version);
        let is_same = known.is_some_and(|known| Some(&known.body) == body.as_ref());
        if is_same || body.is_none() && expected_version == 0 {
            return Ok(false);
        }
        let entry = Entry::Document {
            kind: subject.kind,
            name: subject.name.to_vec(),
            expected_version,
            body,
        };
        if !entry.is_within_limits() {
            return Err(CommandError::fixed(subject.limit));
        }
        match log.propose(&unique::proposal(entry)) {
            Ok(Applied::Stale) => {}
            Ok(_) => {
                (subject.take)(node, &log.watch());
                return Ok(true);
            }
            Err(reason) => return Err(refused(&reason.to_string())),
        }
    }
    Err(refused("others change the same all the time"))
}

/// Waits for the first documents of a group, which are written a moment after it begins.
pub(super) fn wait_for(
    node: &Node,
    log: &dyn ControlLog,
    missing: &str,
    is_there: fn(&ControlState) -> bool,
) -> Outcome {
    for _ in 0..LOOKS {
        if is_there(&log.watch()) {
            return Ok(());
        }
        if node.is_stopping() {
            break;
        }
        std::thread::sleep(LOOK);
    }
    Err(refused(missing))
}

pub(super) fn refused(reason: &str) -> CommandError {
    CommandError::Text(format!("ERR The control group did not take the change: {reason}").into())
}

/// Whether this node takes the group's users.
pub(crate) fn is_wanted(node: &Node) -> bool {
    node.core.config.current().group.shares.users
}

/// Whether the group has users: its first ones are all written.
pub(crate) fn are_complete(state: &ControlState) -> bool {
    state
        .documents
        .contains_key(&(DocumentKind::User, DEFAULT.to_vec()))
}

fn users_of(state: &ControlState) -> impl Iterator<Item = (&Vec<u8>, &Versioned)> {
    let documents = state.documents.iter();
    documents
        .filter(|((kind, _), _)| *kind == DocumentKind::User)
        .map(|((_, name), document)| (name, document))
}

/// Writes this node's users as the group's first ones. Waits, so it runs on a thread of its own.
#[cfg(feature = "cluster")]
pub(crate) fn write_first(node: &Node) {
    let Some(log) = node.control.log() else {
        return;
    };
    let mut users = node.core.shared.access.users.all();
    users.sort_by_key(|user| user.name() == DEFAULT);
    for user in users {
        let entry = Entry::Document {
            kind: DocumentKind::User,
            name: user.name().to_vec(),
            expected_version: 0,
            body: Some(user.line()),
        };
        let name = String::from_utf8_lossy(user.name());
        if !entry.is_within_limits() {
            let line = format!("User '{name}' is too long for the control group, and left out");
            node.core.log.warning(format_args!("{line}"));
            continue;
        }
        // If the group has it already, the group's counts.
        if let Err(reason) = log.propose(&unique::proposal(entry)) {
            let line = format!("User '{name}' was not written to the control log: {reason}");
            node.core.log.warning(format_args!("{line}"));
            return;
        }
    }
}

/// Replaces all users by those of the state. Returns the changes of the former users.
fn replace(node: &Node, state: &ControlState) -> Vec<Change> {
    let users = &node.core.shared.access.users;
    let catalog = node.core.env.table.catalog();
    let (mut known, mut default) = (Vec::new(), Rules::unrestricted());
    for (name, document) in users_of(state) {
        match parse_file(&document.body, catalog, users.defaults()) {
            Ok(parsed) => {
                for (name, rules) in parsed {
                    match name == DEFAULT {
                        true => default = rules,
                        false => known.push((name, rules)),
                    }
                }
            }
            // A newer node may know commands that this one does not. A user whose rules cannot be
            // parsed gets no rights.
            Err(errors) => {
                let name = String::from_utf8_lossy(name);
                let reason = errors
                    .into_iter()
                    .next()
                    .map(|(_, error)| error.to_string());
                let reason = reason.unwrap_or_default();
                node.core.log.warning(format_args!(
                    "User '{name}' of the control group cannot be had here: {reason}"
                ));
                if name.as_bytes() == DEFAULT {
                    default = Rules::new(users.defaults());
                }
            }
        }
    }
    users.replace(known, default)
}

/// Closes connections of removed users, and of subscribers that lost rights to their channels.
fn end_clients(node: &Node, changes: &[Change], is_first: bool) {
    let users = &node.core.shared.access.users;
    for change in changes {
        let name = String::from_utf8_lossy(change.user.name()).into_owned();
        let is_kept = users.has(&change.user);
        // Before this node had the group's users, its clients logged in with other passwords, or
        // without one.
        let is_another = is_first && change.before.as_ref() != Some(&change.user.rules());
        if is_kept && !is_another {
            if change.loses_channels() {
                let user = change.user.name().into();
                node.broadcast(&Message::RulesChanged { user });
            }
            continue;
        }
        if is_first && !is_kept {
            node.core.log.warning(format_args!(
                "User '{name}' is gone: the control group does not have it"
            ));
        }
        let filter = ClientFilter::of(ClientCondition::User(name));
        kill_clients(node, NOBODY, &filter);
    }
}
