//! Reads of strings.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Deprecation, Flags, Group, KeyAccess, KeySpec, Scatter};
use protocol::Reply;
use store::{Handle, Key, Record, Visitor};

use super::shared::{READ_KEY, check_string, clamp_range, is_reversed, write_part, write_string};

pub(super) const GET: CommandSpec = CommandSpec {
    name: "GET",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.with(Flags::FAST),
    keys: READ_KEY,
    group: Group::String,
    summary: "Gives the string kept at a key.",
    syntax: "key",
    handler: get,
    series: Some(|series| series.each_look(look)),
    ..CommandSpec::BLANK
};

pub(super) const MGET: CommandSpec = CommandSpec {
    name: "MGET",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::range(
        1,
        -1,
        1,
        KeyAccess::RO.with(KeyAccess::ACCESS),
    )],
    group: Group::String,
    summary: "Gives the strings kept at several keys, all as of one moment.",
    complexity: "O(N) where N is the number of keys to retrieve.",
    syntax: "key [key ...]",
    tips: &["request_policy:multi_shard"],
    scatter: Scatter::Values,
    handler: mget,
    ..CommandSpec::BLANK
};

pub(super) const STRLEN: CommandSpec = CommandSpec {
    name: "STRLEN",
    needs_values: false,
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(1, KeyAccess::RO)],
    group: Group::String,
    since: "2.2.0",
    summary: "Tells how many bytes the string at a key has.",
    syntax: "key",
    handler: strlen,
    ..CommandSpec::BLANK
};

pub(super) const GETRANGE: CommandSpec = CommandSpec {
    name: "GETRANGE",
    arity: Arity::Exactly(4),
    flags: Flags::READONLY,
    keys: READ_KEY,
    group: Group::String,
    since: "2.4.0",
    summary: "Gives a part of the string at a key.",
    complexity: "O(N) where N is the length of the returned string.",
    syntax: "key start end",
    handler: getrange,
    ..CommandSpec::BLANK
};

pub(super) const SUBSTR: CommandSpec = CommandSpec {
    name: "SUBSTR",
    since: "1.0.0",
    deprecated: Some(Deprecation {
        since: "2.0.0",
        replaced_by: "`GETRANGE`",
    }),
    summary: "Gives a part of the string at a key, under GETRANGE's first name.",
    ..GETRANGE
};

fn get(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    look(context.store, &key, reply)
}

/// Writes the string at a key, or null if there is none.
#[inline(always)]
fn look(store: &mut Handle, key: &Key<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let mark = reply.mark();
    if store.read_by(key, StringWriter { mark, reply }) {
        Ok(())
    } else {
        Err(CommandError::WrongType)
    }
}

/// Writes a string to a reply, or reports that the value is not a string.
struct StringWriter<'r, 'b> {
    mark: usize,
    reply: &'r mut Reply<'b>,
}

impl Visitor for StringWriter<'_, '_> {
    type Answer = bool;

    #[inline(always)]
    fn visit(&mut self, record: Option<&Record<'_>>) -> bool {
        let is_string = record.is_none_or(Record::is_string);
        if is_string {
            write_string(record, self.reply);
        }
        is_string
    }

    #[inline(always)]
    fn forget(&mut self) {
        self.reply.rollback(self.mark);
    }
}

fn mget(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let keys = context.keys(args);
    reply.array(keys.len());
    let start = reply.mark();
    let ahead = |store: &Handle, at| keys.look_ahead(store, at);
    context.store.read_together(&keys, ahead, |at, record| {
        if at == 0 {
            // This may be a repeated call.
            reply.rollback(start);
        }
        write_or_null(record, reply);
    });
    Ok(())
}

/// Writes the string of a record, or null if there is none, even if the value has another type.
#[inline(always)]
fn write_or_null(record: Option<&Record<'_>>, reply: &mut Reply<'_>) {
    let string = record.filter(|record| check_string(Some(record)).is_ok());
    write_string(string, reply);
}

fn strlen(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let len = context.store.read(&key, |record| {
        check_string(record)?;
        Ok::<_, CommandError>(record.map_or(0, |record| record.len()))
    })?;
    reply.integer(i64::try_from(len).unwrap_or(i64::MAX));
    Ok(())
}

fn getrange(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (start, end) = (args.integer()?, args.integer()?);
    let mark = reply.mark();
    context.store.read(&key, |record| {
        reply.rollback(mark);
        check_string(record)?;
        let part = record.filter(|_| !is_reversed(start, end));
        let part = part.and_then(|record| {
            let range = clamp_range(start, end, u64::try_from(record.len()).ok()?)?;
            let first = usize::try_from(range.start).ok()?;
            Some((record, first, usize::try_from(range.end).ok()? - first))
        });
        match part {
            None => reply.bulk(b""),
            Some((record, first, len)) => {
                write_part(record, first..first + len, reply);
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    #[test]
    fn get_gives_texts_numbers_and_null() {
        let mut server = TestServer::new();
        server.run("SET text hello");
        server.run("SET number -12");
        assert_eq!(server.run("GET text"), bulk("hello"));
        assert_eq!(server.run("GET number"), bulk("-12"));
        assert_eq!(server.run("GET none"), Value::Null);
        assert!(TestServer::resp3().run("GET none") == Value::Null);
    }

    #[test]
    fn mget_answers_in_order_with_repeated_and_absent_keys() {
        let mut server = TestServer::new();
        server.run("MSET a 1 b two");
        assert_eq!(
            server.run("MGET b none a b"),
            Value::Array(vec![bulk("two"), Value::Null, bulk("1"), bulk("two")])
        );
        assert_eq!(server.run("MGET a"), Value::Array(vec![bulk("1")]));
    }

    #[test]
    fn getrange_reads_parts_of_texts_and_numbers() {
        let mut server = TestServer::new();
        server.run("SET text 'Hello world'");
        server.run("SET number 12345");
        assert_eq!(server.text("GETRANGE text 0 4"), "Hello");
        assert_eq!(server.text("GETRANGE text -5 -1"), "world");
        assert_eq!(server.text("GETRANGE text 20 30"), "");
        assert_eq!(server.text("GETRANGE none 0 -1"), "");
        assert_eq!(server.text("SUBSTR number 1 -2"), "234");
        assert_eq!(
            server.error("GETRANGE none x 1"),
            "ERR value is not an integer or out of range"
        );
    }

    #[test]
    fn strlen_counts_bytes() {
        let mut server = TestServer::new();
        server.run("SET number -100");
        assert_eq!(server.integer("STRLEN number"), 4);
        assert_eq!(server.integer("STRLEN none"), 0);
    }
}
