//! Internals of sketches.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, KeyAccess, KeySpec};
use protocol::Reply;
use store::Entry;
use structures::hyper_log_log::{Form, merge as raise_all, sparse};

use super::count::make_dense;
use super::{ROW, corrupted, look, no_registers, put};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "PFDEBUG",
        arity: Arity::Exactly(3),
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::ADMIN),
        keys: &[KeySpec::one(2, KeyAccess::RW.with(KeyAccess::ACCESS))],
        summary: "Shows how a sketch is kept, or makes it dense.",
        complexity: "N/A",
        syntax: "subcommand key",
        handler: pfdebug,
        ..ROW
    },
    CommandSpec {
        name: "PFSELFTEST",
        arity: Arity::Exactly(1),
        flags: Flags::ADMIN,
        summary: "Checks that counts are as good as they should be.",
        complexity: "N/A",
        handler: pfselftest,
        ..ROW
    },
];

fn pfdebug(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let word = args.bytes()?;
    let key = context.key(args.bytes()?);
    context.store.modify(&key, |entry| {
        let record = entry.record();
        let record = record.ok_or(CommandError::fixed("ERR The specified key does not exist"))?;
        let (form, _) = look(&record)?;
        let mut sketch = record.to_vec();
        match word.to_ascii_uppercase().as_slice() {
            b"GETREG" => {
                let mut registers = no_registers();
                raise_all(&mut registers, form, &sketch).map_err(corrupted)?;
                if form == Form::Sparse {
                    to_dense(entry, &mut sketch)?;
                }
                reply.array(registers.len());
                for register in &*registers {
                    reply.integer(i64::from(*register));
                }
            }
            b"DECODE" if form == Form::Dense => {
                return Err(CommandError::fixed("ERR HLL encoding is not sparse"));
            }
            b"DECODE" => reply.bulk_str(&sparse::describe(&sketch)),
            b"ENCODING" => reply.simple(match form {
                Form::Dense => "dense",
                Form::Sparse => "sparse",
            }),
            b"TODENSE" => {
                if form == Form::Sparse {
                    to_dense(entry, &mut sketch)?;
                }
                reply.integer(i64::from(form == Form::Sparse));
            }
            _ => {
                let mut text = b"ERR Unknown PFDEBUG subcommand '".to_vec();
                text.extend_from_slice(word);
                text.push(b'\'');
                return Err(CommandError::Bytes(text));
            }
        }
        Ok(())
    })
}

fn to_dense(entry: &mut Entry<'_>, sketch: &mut Vec<u8>) -> CommandResult {
    make_dense(sketch)?;
    put(entry, sketch)
}

/// Counts growing sets of elements, and compares the estimates with the true counts.
fn pfselftest(
    _context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    use structures::hyper_log_log::{count, register_of};
    let mut registers = no_registers();
    let mut next_check = 1;
    for element in 1..=100_000_u64 {
        let (index, value) = register_of(&element.to_le_bytes());
        registers[index] = value.max(registers[index]);
        if element == next_check {
            // Six standard errors of 0.81 %, and one element for small counts.
            let error = count(&registers).abs_diff(element);
            if error * 1_000 > element * 49 + 1_000 {
                let text = format!("ERR TESTFAILED {element} elements, off by {error}");
                return Err(CommandError::Text(text.into()));
            }
            next_check *= 10;
        }
    }
    reply.ok();
    Ok(())
}
