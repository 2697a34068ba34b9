//! Requests that ran are charged with their time, and reported to observers.

use base::clock::Moment;
use protocol::{Batch, Request};

use super::lap::Lap;
use super::ledger::Ledger;
use crate::arrival::LongArgument;
use crate::client_record::ClientRecord;
use crate::command_index::CommandIndex;
use crate::context::Context;
use crate::key_places as places;
use crate::observer::{Measured, Shown};
use crate::spec::{CommandSpec, Flags, Group};
use crate::table::Table;
use crate::waiting::Waiting;

/// A request that ran by itself.
pub(super) struct Ran<'a> {
    /// The table that contains its row.
    pub(super) table: &'static Table,
    pub(super) command: (CommandIndex, &'static CommandSpec),
    pub(super) request: Request<'a>,
    /// Its separately received argument.
    pub(super) long: Option<&'a LongArgument>,
    /// Includes the separately received argument.
    pub(super) request_bytes: usize,
    pub(super) reply_bytes: usize,
}

impl Lap {
    /// Ends the sample here, with `output` bytes of replies written, and reports unusual requests.
    #[inline]
    pub(super) fn close(
        &mut self,
        ledger: &Ledger<'_>,
        now: Moment,
        output: usize,
        of: &Traffic<'_>,
    ) {
        if self.is_empty() {
            return;
        }
        let output_bytes = output.saturating_sub(self.since_output);
        let span_ns = self.end(ledger, now.ns);
        let observer = ledger.observer;
        let bytes = of.input.len().max(output_bytes) as u64;
        if span_ns >= observer.alarm_ns() || bytes >= observer.alarm_bytes() {
            self.tell(ledger, span_ns, output_bytes, now.unix_ms, of);
        }
        if let Some(at) = ledger.counters.drawn(self.requests) {
            self.look_at(ledger, at, now.unix_ms, of);
        }
        self.restart(now.ns, output);
    }

    /// Reports which requests made the sample long or large: the longest request is charged with
    /// the time, each request with its own bytes. The last request is charged with a long reply
    /// because a long reply ends a batch.
    #[cold]
    #[inline(never)]
    fn tell(
        &self,
        ledger: &Ledger<'_>,
        span_ns: u64,
        output_bytes: usize,
        now_unix_ms: u64,
        of: &Traffic<'_>,
    ) {
        let requests = of.batch.iter(of.input).skip(self.first);
        let requests: Vec<Request<'_>> = requests.take(self.requests).collect();
        let longest = (0..requests.len()).max_by_key(|at| requests[*at].wire_bytes());
        for (at, request) in requests.iter().enumerate() {
            let Some(found) = of.table.find(request.name()) else {
                continue;
            };
            let is_last = at + 1 == requests.len();
            let measured = Measured {
                ns: if longest == Some(at) { span_ns } else { 0 },
                request_bytes: request.wire_bytes(),
                reply_bytes: if is_last { output_bytes } else { 0 },
                is_fast: found.spec.flags.has(Flags::FAST),
                is_unlogged: false,
                now_unix_ms,
            };
            let shown = || Shown::new(of.table, *request, None, of.client);
            ledger.observer.notice(&measured, shown);
        }
    }

    /// Records the key of one of the requests that ran.
    #[cold]
    #[inline(never)]
    fn look_at(&self, ledger: &Ledger<'_>, at: usize, now_unix_ms: u64, of: &Traffic<'_>) {
        let request = of.batch.iter(of.input).nth(self.first + at);
        let Some((request, found)) =
            request.and_then(|request| Some((request, of.table.find(request.name())?)))
        else {
            return;
        };
        // The key's position is known for every plain command: nothing is allocated here.
        let key = request.arg(usize::from(found.keys.first));
        ledger.note_key(key, of.client, now_unix_ms);
    }

    /// Charges one request with the time since `started_ns`, with `output` bytes of replies written
    /// now.
    pub(super) fn charge(
        &mut self,
        ledger: &Ledger<'_>,
        started_ns: u64,
        output: usize,
        ran: &Ran<'_>,
        client: &ClientRecord,
    ) -> Moment {
        let now = ledger.clock.moment();
        ledger.enter(now, started_ns, ran, client);
        if ledger.counters.drawn(1).is_some() {
            let places = places::of(ran.table, ran.command.1, &ran.request).unwrap_or_default();
            let first = places.first().and_then(|(at, _)| ran.request.arg(*at));
            ledger.note_key(first, client, now.unix_ms);
        }
        self.restart(now.ns, output);
        now
    }

    /// Charges a command with its total time, for the statistics only. Its parts are in the ledger
    /// already.
    pub(super) fn charge_all(
        &mut self,
        ledger: &Ledger<'_>,
        index: CommandIndex,
        started_ns: u64,
        output: usize,
    ) -> Moment {
        let now = ledger.clock.moment();
        let ns = now.ns.saturating_sub(started_ns);
        let in_detail = ledger.observer.tracks_latency();
        ledger.counters.count_time(index, 1, ns, in_detail);
        self.restart(now.ns, output);
        now
    }
}

/// A batch, with its client.
pub(super) struct Traffic<'a> {
    pub(super) batch: &'a Batch,
    /// The input that the batch was decoded from.
    pub(super) input: &'a [u8],
    pub(super) table: &'static Table,
    pub(super) client: &'a ClientRecord,
}

impl Ledger<'_> {
    /// Records that a request ran from `started_ns` until now.
    pub(super) fn enter(&self, now: Moment, started_ns: u64, ran: &Ran<'_>, client: &ClientRecord) {
        let observer = self.observer;
        let mut ns = now.ns.wrapping_sub(started_ns);
        if ns >= observer.alarm_ns() {
            ns = self.believable(ns);
        }
        let (index, spec) = ran.command;
        self.counters
            .count_time(index, 1, ns, observer.tracks_latency());
        let bytes = ran.request_bytes.max(ran.reply_bytes) as u64;
        if ns >= observer.alarm_ns() || bytes >= observer.alarm_bytes() {
            let measured = Measured {
                ns,
                request_bytes: ran.request_bytes,
                reply_bytes: ran.reply_bytes,
                is_fast: spec.flags.has(Flags::FAST),
                is_unlogged: spec.flags.has(Flags::SKIP_SLOWLOG),
                now_unix_ms: now.unix_ms,
            };
            observer.notice(&measured, || {
                Shown::new(ran.table, ran.request, ran.long, client)
            });
        }
    }

    /// Records that a script called a command that ran from `started_ns` until now: its time, and a
    /// report if it took long. Its bytes are the script's own.
    #[inline]
    pub(crate) fn enter_called(
        &self,
        started_ns: u64,
        (index, spec): (CommandIndex, &CommandSpec),
    ) -> (u64, Option<Measured>) {
        let (observer, now) = (self.observer, self.clock.moment());
        let mut ns = now.ns.wrapping_sub(started_ns);
        let may_be_slow = ns >= observer.alarm_ns();
        if may_be_slow {
            ns = self.believable(ns);
        }
        self.enter_like(ns, index);
        let measured = (may_be_slow && ns >= observer.alarm_ns()).then(|| Measured {
            ns,
            request_bytes: 0,
            reply_bytes: 0,
            is_fast: spec.flags.has(Flags::FAST),
            is_unlogged: spec.flags.has(Flags::SKIP_SLOWLOG),
            now_unix_ms: now.unix_ms,
        });
        (ns, measured)
    }

    /// Records that a request that has waited ran from `started` until now. The wait itself does
    /// not count. Returns the run time in nanoseconds.
    pub(super) fn enter_served(
        &self,
        started: Moment,
        waiting: &Waiting,
        table: &'static Table,
        reply_bytes: usize,
    ) -> u64 {
        let request = waiting.request.request();
        let Some(spec) = table.spec(waiting.command) else {
            return 0;
        };
        let ran = Ran {
            table,
            command: (waiting.command, spec),
            request,
            long: None,
            request_bytes: request.wire_bytes(),
            reply_bytes,
        };
        let now = self.clock.moment();
        self.enter(now, started.ns, &ran, &waiting.client);
        now.ns.saturating_sub(started.ns)
    }

    /// Shows a request that ran to monitors, unless it is an operator's command.
    #[inline]
    pub(super) fn show(
        &self,
        context: &mut Context<'_>,
        spec: &CommandSpec,
        request: Request<'_>,
        long: Option<&LongArgument>,
    ) {
        let monitors = &self.observer.monitors;
        // A script is shown before the commands it ran, and not by this rule.
        let is_script = spec.group == Group::Scripting;
        let is_hidden =
            spec.flags.has(Flags::ADMIN) || (spec.flags.has(Flags::SKIP_MONITOR) && !is_script);
        if !monitors.is_empty() && !is_hidden {
            monitors.show(context, spec, request, long);
        }
        if self.observer.audit.is_on() {
            let name = full_name(context.table, spec, request);
            self.observer
                .audit
                .note(context, spec, &name, request, "ok");
        }
    }
}

/// Returns the full name of the row that ran, such as `config|get`.
#[cold]
fn full_name(table: &Table, spec: &CommandSpec, request: Request<'_>) -> String {
    let own = spec.name.to_lowercase();
    let container = table.find(request.name()).map(|found| found.spec);
    match container {
        Some(container) if !container.subcommands.is_empty() && container.name != spec.name => {
            format!("{}|{own}", container.name.to_lowercase())
        }
        _ => own,
    }
}
