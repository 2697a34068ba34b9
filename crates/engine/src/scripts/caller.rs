//! One command inside a script: whether it may run, whether its keys are locked, and its reply.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use access::Origin;
use base::hash_slot;
use protocol::{OwnedRequest, Reply, ReplyBuffer, Request, Resp};
use scripting::{Host, Level, Refused, Stop};
use store::{DatabaseId, Key};

use super::history::QUICK_NS_MAX;
use super::run::Call;
use super::running::{Killing, LongRun, RunKind};
use super::values;
use crate::args::Args;
use crate::command_index::CommandIndex;
use crate::context::{Context, Pace};
use crate::error::{CommandError, CommandResult};
use crate::hash_slots::{CROSS_SLOT_IN_SCRIPT, Elsewhere};
use crate::key_query::{add_keys, query_of};
use crate::observer::{Measured, Shown, shown};
use crate::permission::{self, Subject};
use crate::resolved::row_of;
use crate::spec::{CommandSpec, Flags};
use crate::transaction;

/// Run time after which a script is visible to other threads.
const LONG_NS: u64 = 5_000_000;

/// Maximum number of commands of a script that monitors see.
const SHOWN_MAX: usize = 10_000;

/// Keys by name, each with its database.
pub(super) type Names = Vec<(DatabaseId, Box<[u8]>)>;

/// Why a run stops so that another can begin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// It must lock these keys, too.
    Lock(Names),
    /// It must have the whole store.
    LockAll,
    /// It must be offloaded.
    Aside,
}

/// What a run may do on its thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leave {
    /// Whether it may be restarted.
    pub(super) may_restart: bool,
    /// Whether it may be offloaded.
    pub(super) may_defer: bool,
    /// Whether it may change data on this thread.
    pub(super) may_write: bool,
}

/// A command that is ready to run.
struct Command<'r> {
    index: CommandIndex,
    spec: &'static CommandSpec,
    first: usize,
    request: Request<'r>,
}

/// Buffers for requests and replies between a script and its commands, kept from run to run.
#[derive(Default)]
struct Spare {
    request: OwnedRequest,
    reply: ReplyBuffer,
    /// The last reply as one piece, if it had several.
    whole: Vec<u8>,
}

impl Spare {
    /// Maximum number of bytes that are kept for the next run.
    const KEPT_BYTES_MAX: usize = 64 << 10;

    fn take() -> Box<Self> {
        SPARE.take().unwrap_or_default()
    }

    fn give_back(mut self: Box<Self>) {
        self.reply.clear();
        self.whole = Vec::new();
        if self.request.held_bytes() + self.reply.held_bytes() <= Self::KEPT_BYTES_MAX {
            SPARE.set(Some(self));
        }
    }
}

thread_local! {
    static SPARE: Cell<Option<Box<Spare>>> = const { Cell::new(None) };
}

/// The server as one run of a script sees it.
pub(super) struct Caller<'h, 'c> {
    context: &'h mut Context<'c>,
    call: &'h Call<'h>,
    leave: Leave,
    /// Whether memory was full when the run began.
    is_full: bool,
    /// The protocol of the replies.
    resp: Resp,
    spare: Box<Spare>,
    started_ns: u64,
    /// In cluster mode, the hash slot of its keys so far.
    slot: Option<u16>,
    long: Option<Arc<LongRun>>,
    wrote: bool,
    halt: Option<Halt>,
    /// The last error of a command.
    error: Vec<u8>,
    /// Lines for monitors, kept until the run can no longer restart.
    shown: Vec<String>,
    /// Slow commands, kept until then.
    slow: Vec<(Measured, Shown)>,
    times: Times,
}

/// Run times of quick commands that a script calls repeatedly: two clock readings are a fifth of
/// such a call. Of [`Times::CALLS`] calls, the first is timed and stands for the others.
#[derive(Default)]
struct Times([Time; Times::COMMANDS]);

#[derive(Clone, Copy, Default)]
struct Time {
    command: CommandIndex,
    ns: u64,
    /// Number of further calls that it stands for.
    left: u8,
}

impl Times {
    /// Number of commands whose times are known at once.
    const COMMANDS: usize = 8;
    const CALLS: u8 = 16;

    /// Returns the time of another call, if the command is known and cannot take long by itself.
    #[inline]
    fn of(&mut self, (command, spec): (CommandIndex, &CommandSpec)) -> Option<u64> {
        let time = &mut self.0[usize::from(command) % Self::COMMANDS];
        let is_quick = spec.series.is_some() || spec.flags.has(Flags::FAST);
        if !is_quick || time.command != command {
            return None;
        }
        time.left = time.left.checked_sub(1)?;
        Some(time.ns)
    }

    #[inline]
    fn note(&mut self, command: CommandIndex, ns: u64) {
        self.0[usize::from(command) % Self::COMMANDS] = Time {
            command,
            ns,
            left: Self::CALLS - 1,
        };
    }
}

impl<'h, 'c> Caller<'h, 'c> {
    pub(super) fn new(
        context: &'h mut Context<'c>,
        call: &'h Call<'h>,
        leave: Leave,
        is_full: bool,
    ) -> Self {
        let started_ns = context.ledger.clock.monotonic_ns();
        Self {
            context,
            call,
            leave,
            is_full,
            resp: Resp::V2,
            spare: Spare::take(),
            started_ns,
            slot: None,
            long: None,
            wrote: false,
            halt: None,
            error: Vec::new(),
            shown: Vec::new(),
            slow: Vec::new(),
            times: Times::default(),
        }
    }

    /// Ends the run. Returns why it stopped early, if it did, and the last error of a command.
    pub(super) fn end(mut self) -> (Option<Halt>, Vec<u8>) {
        if let Some(long) = &self.long {
            self.context.shared.scripts.running.leave(long);
            self.context.shared.refusals.set_busy(None);
        }
        let ns = self.elapsed_ns();
        if self.halt.is_none() {
            self.call.history.note_run(ns);
            self.context.session.script_shown = std::mem::take(&mut self.shown).into_boxed_slice();
            self.tell_slow();
        }
        self.spare.give_back();
        (self.halt.take(), self.error)
    }

    fn elapsed_ns(&self) -> u64 {
        let now_ns = self.context.ledger.clock.monotonic_ns();
        now_ns.saturating_sub(self.started_ns)
    }

    /// Finds the command, and checks whether scripts may run it.
    fn admit<'r>(&mut self, request: Request<'r>) -> Result<Command<'r>, CommandError> {
        let Ok((index, spec, first)) = row_of(self.context.table, request) else {
            return Err(CommandError::fixed(
                "ERR Unknown Redis command called from script",
            ));
        };
        if !spec.arity.accepts(request.len()) {
            return Err(CommandError::fixed(
                "ERR Wrong number of args calling Redis command from script",
            ));
        }
        if spec.flags.has(Flags::NOSCRIPT) && !self.context.shared.scripts.runs_all() {
            return Err(CommandError::fixed(
                "ERR This Redis command is not allowed from script",
            ));
        }
        self.permit((index, spec), request)?;
        if is_effectful(spec) && self.call.is_read_only {
            return Err(CommandError::fixed(
                "ERR Write commands are not allowed from read-only scripts.",
            ));
        }
        let shared = self.context.shared;
        shared
            .refusals
            .pass((spec.flags, spec.in_transaction), self.context.session)?;
        let has_room = !self.is_full || self.wrote || self.call.allows_oom;
        if spec.flags.has(Flags::DENYOOM) && !has_room {
            return Err(CommandError::OutOfMemory);
        }
        // Last, as in Redis: a write on a replica gets READONLY, by which clients look for the
        // primary.
        if shared.hash_slots.is_on() {
            self.check_slots(spec, request)?;
        }
        Ok(Command {
            index,
            spec,
            first,
            request,
        })
    }

    /// Checks that this node serves the hash slots of a command's keys, and that they are in the
    /// script's slot.
    #[cold]
    fn check_slots(&mut self, spec: &CommandSpec, request: Request<'_>) -> CommandResult {
        let session = &*self.context.session;
        if session.is_of_primary {
            return Ok(());
        }
        let routes = self.context.shared.hash_slots.routes();
        let mut query = query_of(session, &routes);
        add_keys(&mut query, &routes, self.context.table, spec, request);
        query
            .judge(&routes)
            .map_err(|elsewhere| CommandError::fixed(elsewhere.text_in_script()))?;
        let declared = self.call.keys.first().map(|key| hash_slot::of(key));
        // Before it begins, a script waits for the slot of its declared keys. It can no longer wait
        // for another slot.
        if query.slot != declared && query.waits(&routes) {
            let text = Elsewhere::Down.text_in_script();
            return Err(CommandError::fixed(text));
        }
        let before = self.slot.or(declared);
        if query.slot.is_none() || self.call.crosses_slots || routes.crosses_slots {
            return Ok(());
        }
        if before.is_some() && before != query.slot {
            return Err(CommandError::fixed(CROSS_SLOT_IN_SCRIPT));
        }
        self.slot = query.slot;
        Ok(())
    }

    /// Checks whether the user who runs the script may run a command.
    fn permit(
        &mut self,
        (index, spec): (CommandIndex, &'static CommandSpec),
        request: Request<'_>,
    ) -> CommandResult {
        let permitted = self.context.permit((index, spec), request);
        let Err(CommandError::Denied(denied)) = permitted else {
            return permitted;
        };
        let denial = denied.denial;
        self.context.report(denial, index, request, Origin::Script);
        let subject = Subject {
            table: self.context.table,
            index,
            spec,
            request,
        };
        let user = self.context.session.permit.user().name().to_vec();
        let mut text = b"NOPERM ACL failure in script: ".to_vec();
        text.extend(permission::explain(denial, &user, &subject));
        Err(CommandError::Bytes(text))
    }

    /// Makes sure that the keys of a command are locked. Returns whether the run may continue.
    fn reach(&mut self, command: &Command<'_>) -> Result<bool, CommandError> {
        let context = &mut *self.context;
        let database = context.session.database;
        let (spec, request) = (command.spec, command.request);
        let only = transaction::only_key(context.store, database, spec, &request);
        if only.is_some_and(|key| context.store.holds(&key)) {
            return Ok(true);
        }
        let mut keys = Vec::new();
        let tells_all = transaction::add_keys(
            &mut keys,
            context.table,
            context.store,
            database,
            spec,
            &request,
        );
        let may_restart = self.leave.may_restart && !self.wrote;
        if !tells_all && !context.store.is_alone() {
            if may_restart {
                self.halt = Some(Halt::LockAll);
                return Ok(false);
            }
            self.call.history.note_stray();
            if spec.flags.has(Flags::WRITE) {
                return Err(CommandError::fixed(REACHES_ALL));
            }
        }
        keys.retain(|key| !context.store.holds(key));
        if keys.is_empty() {
            return Ok(true);
        }
        if may_restart {
            let name = |key: &Key<'_>| (key.database(), key.bytes().into());
            self.halt = Some(Halt::Lock(keys.iter().map(name).collect()));
            return Ok(false);
        }
        self.call.history.note_stray();
        let locked = context.store.lock_more(&keys);
        locked.map_err(|_| CommandError::fixed(UNDECLARED))?;
        Ok(true)
    }

    /// Records that a command is about to change data. Returns whether it may do so here.
    fn begin_to_write(&mut self) -> bool {
        if self.wrote {
            return true;
        }
        if !self.leave.may_write && self.leave.may_defer {
            self.halt = Some(Halt::Aside);
            return false;
        }
        self.wrote = true;
        if let Some(long) = &self.long {
            long.note_write();
        }
        true
    }

    /// Runs a command if it may run here, and leaves its reply in the buffer.
    fn run(&mut self, arguments: &[&[u8]]) -> CommandResult {
        let mut copy = std::mem::take(&mut self.spare.request);
        copy.set(arguments);
        let result = self.run_request(copy.request());
        self.spare.request = copy;
        result
    }

    fn run_request(&mut self, request: Request<'_>) -> CommandResult {
        match self.prepare(request) {
            Ok(Some(command)) => self.execute(&command),
            Ok(None) => Ok(()),
            Err(refusal) => {
                if let Ok((index, ..)) = row_of(self.context.table, request) {
                    self.context.ledger.counters.count_rejection(index);
                }
                Err(refusal)
            }
        }
    }

    /// Prepares everything that a command needs. Returns `None` if the run stops before it.
    fn prepare<'r>(&mut self, request: Request<'r>) -> Result<Option<Command<'r>>, CommandError> {
        let command = self.admit(request)?;
        let may_go_on =
            self.reach(&command)? && (!is_effectful(command.spec) || self.begin_to_write());
        Ok(may_go_on.then_some(command))
    }

    fn execute(&mut self, command: &Command<'_>) -> CommandResult {
        let context = &mut *self.context;
        let before = (context.pace, context.may_block);
        context.pace = Pace {
            defers: false,
            ..context.pace
        };
        context.may_block = false;
        context.plan.begin_unplanned();
        context.track_reads(command.spec, command.request);
        let mut args = Args::new(command.request, command.first);
        let mut reply = Reply::new(&mut self.spare.reply, self.resp);
        let row = (command.index, command.spec);
        let is_low = context.ledger.observer.looks_at_each();
        let known_ns = if is_low { None } else { self.times.of(row) };
        let started_ns = match known_ns {
            Some(_) => 0,
            None => context.ledger.clock.moment().ns,
        };
        let held = store::held_values();
        let result = match context.hold_values(command.spec, command.request) {
            Ok(()) => (command.spec.handler)(context, &mut args, &mut reply),
            Err(unreadable) => Err(unreadable),
        };
        let result = context.of_readable(result);
        store::release_held_values(held);
        let measured = match known_ns {
            Some(ns) => {
                context.ledger.enter_like(ns, command.index);
                None
            }
            None => {
                let (ns, measured) = context.ledger.enter_called(started_ns, row);
                self.times.note(command.index, ns);
                measured
            }
        };
        (context.pace, context.may_block) = before;
        let counters = context.ledger.counters;
        counters.count_calls(command.index, 1);
        // Only the thread that runs the script uses its client.
        let requests = &context.session.client.requests;
        requests.store(requests.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if result.is_err() {
            counters.count_failure(command.index);
        }
        self.show(command);
        if let Some(measured) = measured {
            self.note_slow(measured, command);
        }
        result
    }

    /// Keeps the log entry of a slow command until the run can no longer restart.
    #[cold]
    fn note_slow(&mut self, measured: Measured, command: &Command<'_>) {
        let client = &self.context.session.client;
        self.slow.push((
            measured,
            Shown::new(self.context.table, command.request, None, client),
        ));
        let may_run_again = self.leave.may_restart && !self.wrote;
        if !may_run_again || self.slow.len() >= SHOWN_MAX {
            self.tell_slow();
        }
    }

    fn tell_slow(&mut self) {
        for (measured, shown) in self.slow.drain(..) {
            let observer = &self.context.shared.observer;
            observer.notice(&measured, || shown.clone());
        }
    }

    /// Shows monitors a command that ran, once the run can no longer restart.
    fn show(&mut self, command: &Command<'_>) {
        let monitors = &self.context.shared.observer.monitors;
        let is_hidden = [Flags::ADMIN, Flags::SKIP_MONITOR]
            .iter()
            .any(|flag| command.spec.flags.has(*flag));
        if !monitors.is_empty() && !is_hidden && self.shown.len() < SHOWN_MAX {
            let line = shown::line_of_script(self.context, command.request);
            self.shown.push(line);
        }
    }

    /// Makes the run visible to other threads until it ends.
    fn enter_long(&mut self) -> Arc<LongRun> {
        let (call, started_ns) = (self.call, self.started_ns);
        let running = &self.context.shared.scripts.running;
        let long = self.long.get_or_insert_with(|| {
            let command = call.request.iter().map(<[u8]>::to_vec).collect();
            let long = LongRun::new(call.kind, call.name, command, started_ns);
            running.enter(&long);
            long
        });
        if self.wrote {
            long.note_write();
        }
        Arc::clone(long)
    }
}

impl Host for Caller<'_, '_> {
    fn call(&mut self, arguments: &[&[u8]]) -> scripting::Reply<'_> {
        self.spare.reply.clear();
        if let Err(error) = self.run(arguments) {
            self.spare.reply.clear();
            self.context.ledger.counters.count_reply(&error);
            self.error = error.text().into_owned();
            Reply::new(&mut self.spare.reply, self.resp).error_bytes(&self.error);
        }
        if self.halt.is_some() {
            return scripting::Reply::Stop(BEGINS_ANEW);
        }
        let Spare { reply, whole, .. } = &mut *self.spare;
        if reply.len_with_attachments() == reply.len() {
            return scripting::Reply::Encoded(reply.as_slice());
        }
        *whole = reply.to_vec();
        scripting::Reply::Encoded(whole)
    }

    fn log(&mut self, level: Level, text: &[u8]) {
        self.context.server.log_line(values::level(level), text);
    }

    fn acl_allows(&mut self, arguments: &[&[u8]]) -> Result<bool, Refused> {
        let owned = OwnedRequest::new(arguments);
        let request = owned.request();
        match row_of(self.context.table, request) {
            Ok((index, spec, _)) if spec.arity.accepts(request.len()) => {
                Ok(self.context.permit((index, spec), request).is_ok())
            }
            _ => Err(Refused {
                text: "ERR Invalid command passed to redis.acl_check_cmd()",
            }),
        }
    }

    fn set_resp(&mut self, version: u8) {
        self.resp = if version == 3 { Resp::V3 } else { Resp::V2 };
    }

    fn interrupted(&mut self) -> Option<Stop> {
        if self.halt.is_some() {
            return Some(BEGINS_ANEW);
        }
        let ns = self.elapsed_ns();
        if ns <= QUICK_NS_MAX {
            return None;
        }
        if self.leave.may_defer && !self.wrote {
            self.halt = Some(Halt::Aside);
            return Some(BEGINS_ANEW);
        }
        if ns <= LONG_NS {
            return None;
        }
        let long = self.enter_long();
        let running = &self.context.shared.scripts.running;
        if let Some(killing) = running.verdict(&long) {
            return Some(killed(self.call.kind, killing));
        }
        let threshold_ms = running.threshold_ms.load(Ordering::Relaxed);
        if threshold_ms > 0 && ns / 1_000_000 >= threshold_ms {
            let is_news = running.set_late(self.call.kind);
            if running.refuses_all.load(Ordering::Relaxed) {
                self.context.shared.refusals.set_busy(running.busy());
            }
            self.context.server.script_is_late(is_news);
        }
        None
    }
}

/// Never seen by a client: another run replaces this one.
const BEGINS_ANEW: Stop = Stop {
    text: "The script begins anew",
};

fn killed(kind: RunKind, killing: Killing) -> Stop {
    let text = match (killing, kind) {
        (Killing::Stopping, _) => "Script ended because the server stops",
        (Killing::Asked, RunKind::Script) => "Script killed by user with SCRIPT KILL.",
        (Killing::Asked, RunKind::Function) => "Script killed by user with FUNCTION KILL.",
    };
    Stop { text }
}

/// Whether a command does something that cannot be undone or repeated.
fn is_effectful(spec: &CommandSpec) -> bool {
    spec.flags.has(Flags::WRITE) || spec.flags.has(Flags::MAY_REPLICATE)
}

const REACHES_ALL: &str = "ERR This command needs all keys, and the script has changed some already. \
    It will be given all when it is run again.";
const UNDECLARED: &str = "ERR The script has not declared this key, and others hold it. Declare all \
    keys.";
