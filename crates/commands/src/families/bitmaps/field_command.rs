//! BITFIELD and BITFIELD_RO.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::settings::Settings;
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::{Reply, Request};
use store::{Effect, Encoding, Entry, EventClass, Key, Record};

use super::bit_offset;
use super::field::{Field, Overflow};
use crate::families::strings::shared::check_string;

pub(super) const BITFIELD: CommandSpec = CommandSpec {
    name: "BITFIELD",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec {
        notes: "This command allows both access and modification of the key",
        ..KeySpec::one(
            1,
            KeyAccess::RW
                .with(KeyAccess::ACCESS)
                .with(KeyAccess::UPDATE)
                .with(KeyAccess::VARIABLE_FLAGS),
        )
    }],
    access_of: Some(access_of_bitfield),
    group: Group::Bitmap,
    since: "3.2.0",
    summary: "Reads, writes and adds to numbers of any width anywhere in a string.",
    complexity: "O(1) for each subcommand specified",
    syntax: "key [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] \
             <SET encoding offset value:integer | INCRBY encoding offset increment>] ...",
    handler: bitfield,
    ..CommandSpec::BLANK
};

pub(super) const BITFIELD_RO: CommandSpec = CommandSpec {
    name: "BITFIELD_RO",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS))],
    group: Group::Bitmap,
    since: "6.0.0",
    summary: "Reads numbers of any width anywhere in a string.",
    complexity: "O(1) for each subcommand specified",
    syntax: "key [GET encoding offset [GET encoding offset ...]]",
    handler: bitfield_ro,
    ..CommandSpec::BLANK
};

/// BITFIELD only reads if all its operations are GET. An unknown operation, or one without its
/// operands, counts as a write.
fn access_of_bitfield(request: &Request<'_>) -> KeyAccess {
    let mut args = Args::new(*request, 2);
    while let Some(word) = args.option_word() {
        let operands = match word.as_bytes() {
            b"GET" => 2,
            b"OVERFLOW" => 1,
            _ => usize::MAX,
        };
        if args.by_ref().take(operands).count() < operands {
            return KeyAccess::RW
                .with(KeyAccess::ACCESS)
                .with(KeyAccess::UPDATE);
        }
    }
    KeyAccess::RO.with(KeyAccess::ACCESS)
}

/// One operation on one field.
struct Operation {
    field: Field,
    action: Action,
    /// Whether it wrote, even if the field kept its value.
    is_done: bool,
    /// The new value of the field, if it changed.
    written: Option<i64>,
}

#[derive(Clone, Copy)]
enum Action {
    Get,
    Set(i64, Overflow),
    Add(i64, Overflow),
}

impl Operation {
    fn writes(&self) -> bool {
        !matches!(self.action, Action::Get)
    }

    /// Executes the operation and writes its reply.
    fn run(&mut self, entry: &mut Entry<'_>, reply: &mut Reply<'_>) -> CommandResult {
        let before = self.field.load(entry.record().as_ref());
        let (exact, overflow) = match self.action {
            Action::Get => {
                reply.integer(before);
                return Ok(());
            }
            Action::Set(number, overflow) => (self.field.operand(number), overflow),
            Action::Add(number, overflow) => (i128::from(before) + i128::from(number), overflow),
        };
        let Some(after) = self.field.fit(exact, overflow) else {
            reply.null();
            return Ok(());
        };
        self.is_done = true;
        if after != before {
            self.field.save(entry, after)?;
            self.written = Some(after);
        }
        let answers_before = matches!(self.action, Action::Set(..));
        reply.integer(if answers_before { before } else { after });
        Ok(())
    }
}

fn bitfield(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let mut operations = parse(args, &context.shared.settings)?;
    if operations.iter().any(Operation::writes) {
        write_fields(context, &key, &mut operations, reply)
    } else {
        read_fields(context, &key, &operations, reply)
    }
}

fn bitfield_ro(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let operations = parse(args, &context.shared.settings)?;
    if operations.iter().any(Operation::writes) {
        return Err(CommandError::fixed(
            "ERR BITFIELD_RO only supports the GET subcommand",
        ));
    }
    read_fields(context, &key, &operations, reply)
}

fn parse(args: &mut Args<'_>, settings: &Settings) -> Result<Vec<Operation>, CommandError> {
    let mut operations = Vec::new();
    let mut overflow = Overflow::default();
    while let Some(word) = args.option_word() {
        let needed = match word.as_bytes() {
            b"GET" => 2,
            b"SET" | b"INCRBY" => 3,
            b"OVERFLOW" => 1,
            _ => return Err(CommandError::Syntax),
        };
        if args.remaining() < needed {
            return Err(CommandError::Syntax);
        }
        if needed == 1 {
            overflow = parse_overflow(args)?;
            continue;
        }
        let field = parse_field(args, settings)?;
        let action = match word.as_bytes() {
            b"GET" => Action::Get,
            b"SET" => Action::Set(args.integer()?, overflow),
            _ => Action::Add(args.integer()?, overflow),
        };
        operations.push(Operation {
            field,
            action,
            is_done: false,
            written: None,
        });
    }
    Ok(operations)
}

fn parse_overflow(args: &mut Args<'_>) -> Result<Overflow, CommandError> {
    match args.option_word().as_ref().map(|word| word.as_bytes()) {
        Some(b"WRAP") => Ok(Overflow::Wrap),
        Some(b"SAT") => Ok(Overflow::Saturate),
        Some(b"FAIL") => Ok(Overflow::Fail),
        _ => Err(CommandError::fixed("ERR Invalid OVERFLOW type specified")),
    }
}

fn parse_field(args: &mut Args<'_>, settings: &Settings) -> Result<Field, CommandError> {
    let field = Field::parse_type(args.bytes()?).ok_or(CommandError::fixed(
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported \
         but i64 is.",
    ))?;
    Ok(Field {
        offset: bit_offset(args.bytes()?, Some(field.bits), settings)?,
        ..field
    })
}

fn read_fields(
    context: &mut Context<'_>,
    key: &Key<'_>,
    operations: &[Operation],
    reply: &mut Reply<'_>,
) -> CommandResult {
    let mark = reply.mark();
    context.store.read(key, |record| {
        reply.rollback(mark);
        check_string(record)?;
        reply.array(operations.len());
        for operation in operations {
            reply.integer(operation.field.load(record));
        }
        Ok(())
    })
}

fn write_fields(
    context: &mut Context<'_>,
    key: &Key<'_>,
    operations: &mut [Operation],
    reply: &mut Reply<'_>,
) -> CommandResult {
    context.store.modify(key, |entry| {
        check_string(entry.record().as_ref())?;
        reply.array(operations.len());
        let len = entry.record().map_or(0, |record| record.len());
        let last_byte = make_room(entry, operations)?;
        let has_grown = last_byte.is_some_and(|(byte, _)| byte.end_bytes() > len);
        let result = operations
            .iter_mut()
            .try_for_each(|operation| operation.run(entry, reply));
        // Growth for fields that then did not fit is not a change, as in Redis.
        let changes = operations
            .iter()
            .any(|one| one.written.is_some() || (has_grown && one.is_done));
        state_fields(entry, last_byte, operations, changes);
        if changes {
            entry.event(EventClass::STRING, "setbit");
        }
        result
    })
}

/// Extends the string for all fields that are to be written, and converts a number to bytes, as
/// Redis does even if no field changes in the end. Returns the last byte and its value if that
/// changed anything.
fn make_room(
    entry: &mut Entry<'_>,
    operations: &[Operation],
) -> Result<Option<(Field, i64)>, CommandError> {
    let writers = operations.iter().filter(|operation| operation.writes());
    let end_bytes = writers.map(|operation| operation.field.end_bytes()).max();
    let last_byte = Field::byte(end_bytes.unwrap_or(1) - 1);
    let has_room = |record: &Record<'_>| {
        record.len() >= last_byte.end_bytes() && record.encoding() == Encoding::Raw
    };
    let record = entry.record();
    if record.as_ref().is_some_and(has_room) {
        return Ok(None);
    }
    let held = last_byte.load(record.as_ref());
    last_byte.save(entry, held)?;
    Ok(Some((last_byte, held)))
}

/// States the changes of the string: its last byte if it grew, and every field that changed.
fn state_fields(
    entry: &mut Entry<'_>,
    last_byte: Option<(Field, i64)>,
    operations: &[Operation],
    is_noticed: bool,
) {
    let written = operations
        .iter()
        .filter_map(|operation| Some((operation.field, operation.written?)));
    let mut changes = last_byte.into_iter().chain(written).peekable();
    if changes.peek().is_none() {
        return;
    }
    let key = entry.key();
    let state = |effect: &mut Effect<'_>| {
        let texts: Vec<[String; 3]> = changes
            .map(|(field, number)| {
                [
                    field.type_text(),
                    field.offset.to_string(),
                    number.to_string(),
                ]
            })
            .collect();
        let mut parts: Vec<&[u8]> = vec![b"BITFIELD", key.bytes()];
        for text in &texts {
            parts.push(b"SET");
            parts.extend(text.iter().map(String::as_bytes));
        }
        effect.command(&parts);
    };
    entry.effect_if_noticed(is_noticed, state);
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    fn numbers(server: &mut TestServer, line: &str) -> Vec<Option<i64>> {
        match server.run(line) {
            Value::Array(items) => items
                .into_iter()
                .map(|item| match item {
                    Value::Integer(number) => Some(number),
                    Value::Null => None,
                    other => panic!("{line}: {other:?}"),
                })
                .collect(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn fields_are_read_written_and_added_to() {
        let mut server = TestServer::new();
        let line = "BITFIELD k SET u8 #1 200 GET u8 8 INCRBY i5 100 1 GET u4 0 INCRBY u8 #1 100";
        assert_eq!(
            numbers(&mut server, line),
            [Some(0), Some(200), Some(1), Some(0), Some(44)]
        );
        assert_eq!(server.integer("STRLEN k"), 14);
        assert_eq!(numbers(&mut server, "BITFIELD_RO k GET u8 #1"), [Some(44)]);
        assert_eq!(
            server.effects(),
            ["BITFIELD k SET u8 104 0 SET u8 8 200 SET i5 100 1 SET u8 8 44"]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn overflow_applies_to_what_follows() {
        let mut server = TestServer::new();
        server.run("BITFIELD k SET u2 100 3");
        let line = "BITFIELD k INCRBY u2 100 1 OVERFLOW SAT INCRBY u2 100 9 OVERFLOW FAIL \
                    INCRBY u2 100 1 SET u2 100 4 OVERFLOW WRAP SET i64 200 -1";
        assert_eq!(
            numbers(&mut server, line),
            [Some(0), Some(3), None, None, Some(0)]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn a_failed_write_still_makes_room() {
        let mut server = TestServer::new();
        let line = "BITFIELD k OVERFLOW FAIL INCRBY u2 100 5";
        assert_eq!(numbers(&mut server, line), [None]);
        assert_eq!(server.integer("STRLEN k"), 13);
        assert_eq!(server.effects(), ["BITFIELD k SET u8 96 0"]);
        assert_eq!(numbers(&mut server, line), [None]);
        assert_eq!(server.effects(), [""; 0]);
        server.assert_effects_replay();
    }

    #[test]
    fn fields_may_cross_nine_bytes() {
        let mut server = TestServer::new();
        for offset in 0..16 {
            for number in [i64::MIN, -1, 0, 0x0123_4567_89ab_cdef, i64::MAX] {
                let line = format!("BITFIELD k SET i64 {offset} {number} GET i64 {offset}");
                assert_eq!(numbers(&mut server, &line)[1], Some(number), "{line}");
            }
        }
        server.assert_effects_replay();
    }

    #[test]
    fn reading_makes_nothing() {
        let mut server = TestServer::new();
        assert_eq!(numbers(&mut server, "BITFIELD k GET u8 100"), [Some(0)]);
        assert_eq!(numbers(&mut server, "BITFIELD k"), []);
        assert!(server.dump().is_empty());
    }

    #[test]
    fn arguments_are_checked() {
        let mut server = TestServer::new();
        let offset = "ERR bit offset is not an integer or out of range";
        assert_eq!(server.error("BITFIELD k GET u8 -1"), offset);
        assert_eq!(server.error("BITFIELD k GET u8 #536870912"), offset);
        assert_eq!(
            server.error("BITFIELD k GET u8 #9223372036854775807"),
            offset
        );
        assert!(
            server
                .error("BITFIELD k GET u64 0")
                .starts_with("ERR Invalid bitfield type.")
        );
        assert_eq!(server.error("BITFIELD k SET u8 0"), "ERR syntax error");
        assert_eq!(
            server.error("BITFIELD k OVERFLOW none"),
            "ERR Invalid OVERFLOW type specified"
        );
        assert_eq!(
            server.error("BITFIELD_RO k SET u8 0 x"),
            "ERR value is not an integer or out of range"
        );
        assert_eq!(
            server.error("BITFIELD_RO k SET u8 0 1"),
            "ERR BITFIELD_RO only supports the GET subcommand"
        );
    }
}
