//! A run of a script: which keys are locked for it, and where it runs.
//!
//! | Where | Locked | Beyond that |
//! |---|---|---|
//! | in EXEC | what EXEC locked | locked as it is needed |
//! | a worker | declared keys | begun anew with it, up to some times; then all |
//! | aside | declared keys, for long | the same, then locked as it is needed |

use protocol::{Reply, Request};
use scripting::ScriptError;
use store::{DatabaseId, Key};

use super::caller::{Caller, Halt, Leave, Names};
use super::history::History;
use super::machine::{self, Compiled};
use super::running::RunKind;
use super::values;
use crate::context::Context;
use crate::error::{CommandError, CommandResult};

/// Number of times that a script restarts because of undeclared keys. After that it gets the whole
/// store.
const RESTARTS_MAX: usize = 6;

/// A call of a script or function.
pub struct Call<'r> {
    /// Whether it is a script or a function.
    pub kind: RunKind,
    /// The name of a function.
    pub name: &'r [u8],
    /// The code to run.
    pub code: Code<'r>,
    /// The keys passed to it.
    pub keys: Vec<&'r [u8]>,
    /// The other arguments passed to it.
    pub args: Vec<&'r [u8]>,
    /// The request that calls it.
    pub request: Request<'r>,
    /// Whether it must not change data.
    pub is_read_only: bool,
    /// Whether it may write though memory is full.
    pub allows_oom: bool,
    /// Whether it may use keys of several hash slots in cluster mode.
    pub crosses_slots: bool,
    /// What is known about earlier runs.
    pub history: &'r History,
}

/// The code of a call.
pub enum Code<'r> {
    /// A script.
    Script(&'r Compiled),
    /// A function of a library.
    Function(&'r scripting::Function),
}

/// What is locked for a run.
enum Hold {
    /// What is already locked.
    Given,
    /// These keys.
    Keys,
    /// The whole store.
    All,
}

/// Runs a script, and writes its reply.
pub fn run(
    context: &mut Context<'_>,
    call: &Call<'_>,
    is_full: bool,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let before = (context.session.database, context.session.holds_pushes);
    context.session.holds_pushes = true;
    context.session.in_script = true;
    let result = run_until_done(context, call, is_full, reply);
    context.session.in_script = false;
    (context.session.database, context.session.holds_pushes) = before;
    result
}

fn run_until_done(
    context: &mut Context<'_>,
    call: &Call<'_>,
    is_full: bool,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let database = context.session.database;
    let is_inside = context.store.holds_keys() || context.store.is_alone();
    let is_aside = context.pace.is_aside;
    let may_defer = context.pace.defers && context.session.tracking.is_none();
    let history = call.history;
    if may_defer && history.was_slow() {
        return Err(CommandError::Aside);
    }
    let mut found = Names::new();
    let mut hold = match is_inside {
        true => Hold::Given,
        false if history.strays() && !is_aside => Hold::All,
        false => Hold::Keys,
    };
    let mut restarts = 0;
    loop {
        let leave = Leave {
            may_restart: !is_inside,
            may_defer,
            may_write: is_aside || history.is_trusted(),
        };
        let keys = keys_of(context, (database, &call.keys), &found);
        if !is_aside && is_held_for_long(context, &hold, &keys) {
            return Err(CommandError::Held);
        }
        let attempt = |context: &mut Context<'_>| attempt(context, call, leave, is_full);
        let ((halt, error), result) = match hold {
            Hold::Given => attempt(context),
            Hold::Keys if is_aside => context.locked_long(&keys, attempt),
            Hold::Keys => context.locked(&keys, attempt),
            Hold::All => context.exclusive(attempt),
        };
        context.session.database = database;
        match halt {
            None => return conclude(result, &error, reply),
            Some(Halt::Aside) => return Err(CommandError::Aside),
            Some(Halt::LockAll) => hold = Hold::All,
            Some(Halt::Lock(more)) => {
                drop(keys);
                found.extend(more);
                restarts += 1;
                if restarts >= RESTARTS_MAX && !is_aside {
                    history.note_stray();
                    hold = Hold::All;
                }
            }
        }
    }
}

/// Whether another thread holds what is to be locked for long. If a worker waited for it, all of
/// the worker's clients would wait.
fn is_held_for_long(context: &mut Context<'_>, hold: &Hold, keys: &[Key<'_>]) -> bool {
    context.store.may_be_busy()
        && match hold {
            Hold::Given => false,
            Hold::Keys => context
                .store
                .try_locked(keys, store::Hold::Short, |_| ())
                .is_err(),
            Hold::All => true,
        }
}

/// Returns the declared keys, and the undeclared keys found so far.
fn keys_of<'n>(
    context: &Context<'_>,
    (database, declared): (DatabaseId, &[&'n [u8]]),
    found: &'n Names,
) -> Vec<Key<'n>> {
    let store = &context.store;
    let declared = declared.iter().map(|name| store.key(database, name));
    let found = found.iter();
    let found = found.map(|(database, name)| store.key(*database, name));
    declared.chain(found).collect()
}

/// Makes one run with what it needs locked.
fn attempt(
    context: &mut Context<'_>,
    call: &Call<'_>,
    leave: Leave,
    is_full: bool,
) -> (
    (Option<Halt>, Vec<u8>),
    Result<scripting::Value, ScriptError>,
) {
    let mut caller = Caller::new(context, call, leave, is_full);
    let result = machine::with(|machine| match call.code {
        Code::Script(script) => machine.run(&script.program, &call.keys, &call.args, &mut caller),
        Code::Function(function) => {
            machine.call_function(function, &call.keys, &call.args, &mut caller)
        }
    });
    let ended = caller.end();
    machine::tell_memory(&context.shared.scripts);
    (ended, result)
}

/// Writes a script's result. `inner` is the last error of one of its commands: an error that begins
/// with the same text is taken for it.
fn conclude(
    result: Result<scripting::Value, ScriptError>,
    inner: &[u8],
    reply: &mut Reply<'_>,
) -> CommandResult {
    let text = match result {
        Ok(scripting::Value::Error(text)) => text,
        Ok(value) => {
            values::write(&value, reply);
            return Ok(());
        }
        Err(error) => error.text().to_vec(),
    };
    if !inner.is_empty() && text.starts_with(inner) {
        return Err(CommandError::HandedOn(text));
    }
    Err(CommandError::Bytes(text))
}
