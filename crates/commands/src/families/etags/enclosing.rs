//! Commands that enclose another one, as in Garnet: it runs if the etag of its key satisfies a
//! comparison, and the etag follows its reply.
//!
//! ```text
//!   EXECWITHETAG        command …     always
//!   EXECIFMATCH    etag command …     if the etag is that one
//!   EXECIFNOTMATCH etag command …     if it is another
//!   EXECIFGREATER  etag command …     if the given one is higher
//! ```
//!
//! The enclosed command must be about values, and its arguments must name exactly one key. This key
//! is locked from the comparison to the reply. If the key is absent, there is no comparison: the
//! command runs.
//!
//! The result of a write has an etag: the previous one plus 1, the given one plus 1 (EXECIFMATCH),
//! or the given one (EXECIFGREATER). If the write changed nothing, or only a deadline, the etag
//! stays.
//!
//! The rows are flagged as writes, whatever they enclose: what they will do is known only when they
//! run.

use engine::args::Args;
use engine::context::Context;
use engine::engine::{check, row_of};
use engine::error::{CommandError, CommandResult};
use engine::key_places as places;
use engine::spec::{
    Arity, Begin, CommandSpec, Find, Flags, Group, KeyAccess, KeySpec, OnCondition,
};
use engine::table::Table;
use engine::transaction::keys_reached;
use protocol::{Reply, Request};
use store::{ETAG_MAX, Key};

use super::{etag_argument, note, raised, write_etag};
use crate::families::strings::shared::write_string;

const NOT_ENCLOSED: CommandError = CommandError::fixed(
    "ERR only commands about the value of one key can be executed with an etag",
);

const ENCLOSED: KeySpec = KeySpec {
    begin: Begin::Unknown,
    find: Find::Unknown,
    access: KeyAccess::RW
        .with(KeyAccess::ACCESS)
        .with(KeyAccess::UPDATE),
    notes: "The key of the command that is enclosed",
};

const ENCLOSER: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE
        .with(Flags::DENYOOM)
        .with(Flags::NOSCRIPT)
        .with(Flags::MOVABLE_KEYS),
    keys: &[ENCLOSED],
    keys_of: Some(|table, request| keys_of(table, request, 2)),
    group: Group::Generic,
    since: "2.1.4",
    complexity: "That of the command.",
    syntax: "etag:integer command [arg [arg ...]]",
    ..CommandSpec::BLANK
};

/// The rows.
pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "EXECWITHETAG",
        arity: Arity::AtLeast(3),
        keys_of: Some(|table, request| keys_of(table, request, 1)),
        summary: "Executes a command and gives its reply and the etag (a command of Garnet).",
        syntax: "command [arg [arg ...]]",
        handler: |context, args, reply| execute(context, args, reply, None),
        ..ENCLOSER
    },
    CommandSpec {
        name: "EXECIFMATCH",
        summary: "Executes a command if the etag of its key is the given one (a command of Garnet).",
        handler: |context, args, reply| execute(context, args, reply, Some(Comparison::Matches)),
        ..ENCLOSER
    },
    CommandSpec {
        name: "EXECIFNOTMATCH",
        summary: "Executes a command if the etag of its key is not the given one (a command of \
                  Garnet).",
        handler: |context, args, reply| execute(context, args, reply, Some(Comparison::Differs)),
        ..ENCLOSER
    },
    CommandSpec {
        name: "EXECIFGREATER",
        summary: "Executes a command if the given etag is higher than that of its key (a command of \
                  Garnet).",
        handler: |context, args, reply| execute(context, args, reply, Some(Comparison::IsGreater)),
        ..ENCLOSER
    },
];

/// The comparison of the client's etag with that of the key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Matches,
    Differs,
    IsGreater,
}

/// A comparison with its etag; `None` is always true.
type Condition = Option<(Comparison, u64)>;

/// The enclosed command.
struct Enclosed<'a> {
    spec: &'static CommandSpec,
    request: Request<'a>,
    /// Index of its first argument.
    first: usize,
    key: Key<'a>,
}

/// Returns the keys of a request whose enclosed command begins at argument `at`.
fn keys_of(table: &Table, request: &Request<'_>, at: usize) -> Vec<(usize, KeyAccess)> {
    let Some(enclosed) = request.behind(at) else {
        return Vec::new();
    };
    let found = match row_of(table, enclosed) {
        Ok((_, spec, _)) if !encloses(spec) => places::of(table, spec, &enclosed),
        _ => None,
    };
    let found = found.unwrap_or_default().into_iter();
    found.map(|(place, access)| (place + at, access)).collect()
}

/// Whether a command belongs to this family, whose commands cannot be enclosed.
fn encloses(spec: &CommandSpec) -> bool {
    let mut rows = super::COMMANDS.iter().copied().flatten();
    rows.any(|row| row.name == spec.name)
}

impl<'a> Enclosed<'a> {
    /// Returns the command that begins at argument `at`, if the client may run it enclosed.
    fn of(context: &Context<'_>, request: Request<'a>, at: usize) -> Result<Self, CommandError> {
        let request = request.behind(at).ok_or(CommandError::Syntax)?;
        let (index, spec, first) = row_of(context.table, request)?;
        check(context.table, (index, spec), request, context.session)?;
        let row = (spec.flags, spec.in_transaction);
        context.shared.refusals.pass(row, context.session)?;
        let is_about_values = spec.group.is_data()
            && spec.group != Group::Scripting
            && !spec.keys.is_empty()
            && !encloses(spec);
        let database = context.session.database;
        let keys = keys_reached(context.table, context.store, database, spec, &request);
        match keys.as_deref() {
            Some([key]) if is_about_values => Ok(Self {
                spec,
                request,
                first,
                key: *key,
            }),
            _ => Err(NOT_ENCLOSED),
        }
    }

    /// Whether it changes values, not only deadlines.
    fn writes(&self) -> bool {
        let is_about_deadlines = self.spec.on_condition == OnCondition::ChangesDeadline;
        self.spec.flags.has(Flags::WRITE) && !is_about_deadlines
    }

    fn deletes(&self) -> bool {
        self.spec.on_condition == OnCondition::Deletes
    }

    /// Runs the command and writes its reply.
    fn run(&self, context: &mut Context<'_>, reply: &mut Reply<'_>) -> CommandResult {
        let mark = reply.mark();
        let may_block = std::mem::replace(&mut context.may_block, false);
        context.track_reads(self.spec, self.request);
        let mut args = Args::new(self.request, self.first);
        let result = (self.spec.handler)(context, &mut args, reply);
        context.may_block = may_block;
        if self.spec.on_condition == OnCondition::Stores && reply.since(mark) == b"+OK\r\n" {
            reply.rollback(mark);
            reply.null();
        }
        result
    }

    /// Writes the reply that replaces that of a command which does not run.
    fn write_skipped(&self, context: &mut Context<'_>, reply: &mut Reply<'_>) {
        if self.deletes() {
            reply.integer(0);
        } else if self.spec.on_condition == OnCondition::Stores {
            let mark = reply.mark();
            context.store.read(&self.key, |record| {
                reply.rollback(mark);
                write_string(record.filter(|record| record.is_string()), reply);
            });
        } else {
            reply.null();
        }
    }
}

fn execute(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    comparison: Option<Comparison>,
) -> CommandResult {
    let condition = match comparison {
        Some(comparison) => Some((comparison, etag_argument(args)?)),
        None => None,
    };
    let at = if condition.is_some() { 2 } else { 1 };
    let enclosed = Enclosed::of(context, args.request(), at)?;
    context.locked(&[enclosed.key], |context| {
        execute_locked(context, &enclosed, condition, reply)
    })
}

fn execute_locked(
    context: &mut Context<'_>,
    enclosed: &Enclosed<'_>,
    condition: Condition,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = &enclosed.key;
    let before = context
        .store
        .inspect(key, |record| record.map(|record| record.etag()));
    reply.array(2);
    if let Some(etag) = before.filter(|etag| !holds(condition, *etag)) {
        enclosed.write_skipped(context, reply);
        write_etag(reply, etag);
        return Ok(());
    }
    let before = before.unwrap_or(0);
    let etag = match (enclosed.writes(), condition) {
        (false, _) => before,
        (true, Some((Comparison::Matches, etag))) => raised(etag)?,
        (true, Some((Comparison::IsGreater, etag))) => etag,
        (true, _) => raised(before)?,
    };
    let stated = context.store.stated_count();
    enclosed.run(context, reply)?;
    let is_changed = context.store.stated_count() != stated;
    let is_there = match enclosed.writes() && is_changed {
        true => context.store.modify(key, |entry| note(entry, etag))?,
        false => context.store.inspect(key, |record| record.is_some()),
    };
    let after = match (is_there, is_changed) {
        (true, true) => etag,
        (true, false) => before,
        (false, _) if enclosed.deletes() => before,
        (false, _) => 0,
    };
    write_etag(reply, after.min(ETAG_MAX));
    Ok(())
}

fn holds(condition: Condition, etag: u64) -> bool {
    match condition {
        None => true,
        Some((Comparison::Matches, sent)) => sent == etag,
        Some((Comparison::Differs, sent)) => sent != etag,
        Some((Comparison::IsGreater, sent)) => sent > etag,
    }
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn values_of_any_kind_have_etags_that_are_replayed() {
        let mut server = TestServer::new();
        for line in [
            "EXECWITHETAG HSET h f 1 g 2",
            "HSETEX h PX 100000 FIELDS 2 f 2 g 3",
            "EXECIFMATCH 2 HSET h f 3",
            "EXECIFMATCH 3 HINCRBY h f 1",
            "HDEL h g",
            "HDEL h none",
            "EXECWITHETAG ZADD z 1 a 2 b",
            "ZADD z 1 a",
            "EXECIFGREATER 9 ZINCRBY z 1 a",
            "ZPOPMIN z",
            "EXECWITHETAG RPUSH l a b c",
            "EXECWITHETAG LREM l 0 none",
            "LMOVE l l LEFT RIGHT",
            "LMOVE l m LEFT RIGHT",
            "EXECWITHETAG EXPIRE l 100",
            "EXECWITHETAG SADD s 1 2 3",
            "SPOP s 1",
            "EXECWITHETAG XADD x MAXLEN 1 1-1 f v",
            "XADD x MAXLEN 1 1-2 f v",
            "EXECWITHETAG SET k v PX 1000",
            "EXECIFNOTMATCH 1 APPEND k w",
            "EXECIFNOTMATCH 7 APPEND k w",
            "EXECIFMATCH 0 SETETAG k 1",
            "SETETAG k 0",
            "SETETAG z 100",
            "EXECIFGREATER 101 SORT z ALPHA",
            "EXECIFGREATER 3 DEL k",
        ] {
            server.run(line);
            server.assert_effects_replay();
        }
        assert_eq!(server.integer("GETETAG h"), 5);
        assert_eq!(server.integer("GETETAG z"), 100);
        assert_eq!(server.integer("GETETAG l"), 3);
        assert_eq!(server.integer("GETETAG none"), 0);
    }

    #[test]
    fn a_transaction_encloses_as_well() {
        let mut server = TestServer::new();
        for line in [
            "MULTI",
            "EXECWITHETAG INCR n",
            "EXECIFMATCH 1 INCR n",
            "EXECIFMATCH 1 INCR n",
            "EXEC",
        ] {
            server.run(line);
        }
        assert_eq!(server.text("GET n"), "2");
        assert_eq!(server.integer("GETETAG n"), 2);
        server.assert_effects_replay();
    }
}
