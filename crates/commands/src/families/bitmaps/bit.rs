//! One bit.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Effect, Encoding, EventClass, Record};

use super::{BITS_PER_BYTE, bit_offset, index};
use crate::families::strings::shared::check_string;

pub(super) const SETBIT: CommandSpec = CommandSpec {
    name: "SETBIT",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(
        1,
        KeyAccess::RW
            .with(KeyAccess::ACCESS)
            .with(KeyAccess::UPDATE),
    )],
    group: Group::Bitmap,
    since: "2.2.0",
    summary: "Sets or clears one bit of a string and gives what it was.",
    syntax: "key offset value:integer",
    handler: setbit,
    ..CommandSpec::BLANK
};

pub(super) const GETBIT: CommandSpec = CommandSpec {
    name: "GETBIT",
    arity: Arity::Exactly(3),
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS))],
    group: Group::Bitmap,
    since: "2.2.0",
    summary: "Gives one bit of a string, 0 behind its end.",
    syntax: "key offset",
    handler: getbit,
    ..CommandSpec::BLANK
};

fn setbit(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (offset_text, bit_text) = (args.bytes()?, args.bytes()?);
    let bit = Bit::at(bit_offset(offset_text, None, &context.shared.settings)?);
    let on = match bit_text {
        b"0" => false,
        b"1" => true,
        _ => {
            return Err(CommandError::fixed(
                "ERR bit is not an integer or out of range",
            ));
        }
    };
    let before = context.store.modify(&key, |entry| {
        let record = entry.record();
        check_string(record.as_ref())?;
        let byte = record.as_ref().and_then(|record| bit.byte_of(record));
        let stays = byte.is_some_and(|byte| bit.is_on(byte) == on)
            && record.is_some_and(|record| record.encoding() == Encoding::Raw);
        let changes = byte.is_none_or(|byte| bit.is_on(byte) != on);
        let byte = byte.unwrap_or(0);
        if !stays {
            entry.write_at(bit.byte, &[bit.put(byte, on)])?;
            let state = |effect: &mut Effect<'_>| {
                effect.command(&[b"SETBIT", key.bytes(), offset_text, bit_text]);
            };
            // The value is bytes from now on, which only OBJECT shows.
            entry.effect_if_noticed(changes, state);
        }
        if changes {
            entry.event(EventClass::STRING, "setbit");
        }
        Ok::<_, CommandError>(bit.is_on(byte))
    })?;
    reply.integer(before.into());
    Ok(())
}

fn getbit(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let bit = Bit::at(bit_offset(args.bytes()?, None, &context.shared.settings)?);
    let on = context.store.read(&key, |record| {
        check_string(record)?;
        let byte = record.and_then(|record| bit.byte_of(record));
        Ok::<_, CommandError>(byte.is_some_and(|byte| bit.is_on(byte)))
    })?;
    reply.integer(on.into());
    Ok(())
}

/// The position of a bit.
#[derive(Clone, Copy)]
struct Bit {
    byte: usize,
    mask: u8,
}

impl Bit {
    fn at(offset: u64) -> Self {
        Self {
            byte: index(offset / BITS_PER_BYTE),
            mask: 0x80 >> (offset % BITS_PER_BYTE),
        }
    }

    /// Returns the byte of a string that contains this bit, or `None` beyond its end.
    fn byte_of(self, record: &Record<'_>) -> Option<u8> {
        let mut byte = [0];
        (self.byte < record.len()).then(|| {
            record.copy_to(self.byte, &mut byte);
            byte[0]
        })
    }

    fn is_on(self, byte: u8) -> bool {
        byte & self.mask != 0
    }

    fn put(self, byte: u8, on: bool) -> u8 {
        if on {
            byte | self.mask
        } else {
            byte & !self.mask
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn bits_are_set_cleared_and_read() {
        let mut server = TestServer::new();
        assert_eq!(server.integer("SETBIT k 7 1"), 0);
        assert_eq!(server.integer("SETBIT k 7 1"), 1);
        assert_eq!(server.integer("SETBIT k 17 0"), 0);
        assert_eq!(server.integer("GETBIT k 7"), 1);
        assert_eq!(server.integer("GETBIT k 6"), 0);
        assert_eq!(server.integer("GETBIT k 1000"), 0);
        assert_eq!(server.text("GET k"), "\u{1}\0\0");
        assert_eq!(server.effects(), ["SETBIT k 7 1", "SETBIT k 17 0"]);
        server.assert_effects_replay();
    }

    #[test]
    fn a_number_becomes_bytes_even_when_its_bit_stays() {
        let mut server = TestServer::new();
        server.run("SET k 5");
        assert_eq!(server.integer("SETBIT k 0 0"), 0);
        assert_eq!(server.effects(), ["SET k 5", "SETBIT k 0 0"]);
        server.run("SET k 5");
        server.run("BITFIELD k SET u8 0 53 OVERFLOW FAIL INCRBY u8 0 255");
        assert_eq!(server.effects(), ["SET k 5", "BITFIELD k SET u8 0 53"]);
        // That does not count as a change.
        assert_eq!(server.another_handle().statistics().changes, 2);
        server.assert_effects_replay();
    }

    #[test]
    fn positions_and_values_are_checked() {
        let mut server = TestServer::new();
        let offset = "ERR bit offset is not an integer or out of range";
        for text in ["-1", "x", "#1", "4294967296", "99999999999999999999"] {
            assert_eq!(server.error(&format!("SETBIT k {text} 1")), offset);
            assert_eq!(server.error(&format!("GETBIT k {text}")), offset);
        }
        let value = "ERR bit is not an integer or out of range";
        assert_eq!(server.error("SETBIT k 0 2"), value);
        assert_eq!(server.error("SETBIT k 4294967295 x"), value);
    }
}
