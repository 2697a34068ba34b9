//! Adding, counting and merging.

use engine::args::{Args, Rest};
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, KeyAccess, KeySpec};
use engine::thresholds::Threshold;
use protocol::Reply;
use store::{Deadline, Entry, EventClass, Key, Record};
use structures::hyper_log_log::sparse::{self, Change};
use structures::hyper_log_log::{
    CARD_BYTES, Form, HEADER_BYTES, Histogram, Registers, cached_count, count, dense, empty,
    merge as raise_all, out_of_date, read_window, register_of, window, write_window,
};

use super::{ROW, corrupted, look, merge, no_registers, put};
use engine::keys::KeyList;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "PFADD",
        arity: Arity::AtLeast(2),
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::INSERT))],
        summary: "Counts elements in a sketch; says whether the estimate may have changed.",
        complexity: "O(1) for every element.",
        syntax: "key [element [element ...]]",
        handler: pfadd,
        ..ROW
    },
    CommandSpec {
        name: "PFCOUNT",
        arity: Arity::AtLeast(2),
        flags: Flags::READONLY.with(Flags::MAY_REPLICATE),
        keys: &[KeySpec {
            notes: "RW because it may change the internal representation of the key, and propagate to replicas",
            ..KeySpec::range(1, -1, 1, KeyAccess::RW.with(KeyAccess::ACCESS))
        }],
        summary: "Estimates how many different elements one or several sketches have seen.",
        complexity: "O(1) for one key, whose count is kept; O(N) for N keys, with a large factor.",
        syntax: "key [key ...]",
        handler: pfcount,
        ..ROW
    },
    CommandSpec {
        name: "PFMERGE",
        arity: Arity::AtLeast(2),
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[
            KeySpec::one(
                1,
                KeyAccess::RW
                    .with(KeyAccess::ACCESS)
                    .with(KeyAccess::INSERT),
            ),
            KeySpec::range(2, -1, 1, KeyAccess::RO.with(KeyAccess::ACCESS)),
        ],
        summary: "Makes a sketch that has seen what it and several others have seen.",
        complexity: "O(N) for N sketches, with a large factor.",
        syntax: "destkey sourcekey:key [sourcekey:key ...]",
        handler: pfmerge,
        ..ROW
    },
];

fn sparse_bytes_max(context: &Context<'_>) -> usize {
    context
        .shared
        .settings
        .thresholds
        .count(Threshold::HllSparseMaxBytes)
}

fn pfadd(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let elements = args.rest();
    let bytes_max = sparse_bytes_max(context);
    let changed = context.store.modify(&key, |entry| {
        let is_new = !entry.is_present();
        let form = match entry.record() {
            Some(record) => look(&record)?.0,
            None => Form::Sparse,
        };
        let changed = match form {
            Form::Sparse => add_sparse(entry, elements, bytes_max)?,
            Form::Dense => add_dense(entry, elements)?,
        };
        if changed {
            entry.effect(|effect| {
                let mut parts: Vec<&[u8]> = vec![b"PFADD", key.bytes()];
                for element in elements {
                    parts.push(element);
                }
                effect.command(&parts);
            });
            entry.event(EventClass::STRING, "pfadd");
        }
        Ok::<_, CommandError>(changed || is_new)
    })?;
    reply.integer(i64::from(changed));
    Ok(())
}

/// Adds elements to a copy of the sketch, and stores it if that changed anything. Creates an empty
/// sketch for an absent key.
fn add_sparse(
    entry: &mut Entry<'_>,
    elements: Rest<'_>,
    bytes_max: usize,
) -> Result<bool, CommandError> {
    let (mut sketch, deadline, mut changed) = match entry.record() {
        Some(record) => (record.to_vec(), Deadline::Keep, false),
        None => (empty(), Deadline::Never, true),
    };
    for element in elements {
        let (index, value) = register_of(element);
        changed |= add(&mut sketch, index, value, bytes_max)?;
    }
    if changed {
        invalidate(&mut sketch);
        entry.set_raw(&sketch, deadline)?;
    }
    Ok(changed)
}

/// Raises one register of a sketch, which becomes dense if necessary.
fn add(
    sketch: &mut Vec<u8>,
    index: usize,
    value: u8,
    bytes_max: usize,
) -> Result<bool, CommandError> {
    let is_sparse = matches!(header_of(sketch), Some(header) if header[4] == 1);
    if is_sparse {
        match sparse::raise(sketch, index, value, bytes_max).map_err(corrupted)? {
            Change::None => return Ok(false),
            Change::Raised => return Ok(true),
            Change::NeedsDense => make_dense(sketch)?,
        }
    }
    let (bytes, shift) = window(index);
    let Some(bytes) = sketch.get_mut(bytes) else {
        return Ok(false);
    };
    let raises = read_window(bytes, shift) < value;
    if raises {
        write_window(bytes, shift, value);
    }
    Ok(raises)
}

pub(super) fn make_dense(sketch: &mut Vec<u8>) -> CommandResult {
    let mut registers = no_registers();
    raise_all(&mut registers, Form::Sparse, sketch).map_err(corrupted)?;
    if let Some(header) = header_of(sketch) {
        *sketch = dense(&registers, header);
    }
    Ok(())
}

fn header_of(sketch: &[u8]) -> Option<&[u8; HEADER_BYTES]> {
    sketch.first_chunk()
}

/// Marks the cached count as out of date.
fn invalidate(sketch: &mut [u8]) {
    if let Some((at, byte)) = header_of(sketch).map(out_of_date) {
        sketch[at] = byte;
    }
}

/// Adds elements to a dense sketch, in place.
fn add_dense(entry: &mut Entry<'_>, elements: Rest<'_>) -> Result<bool, CommandError> {
    let mut changed = false;
    for element in elements {
        let (index, value) = register_of(element);
        let (bytes, shift) = window(index);
        let mut room = [0; 2];
        let room = &mut room[..bytes.len()];
        let Some(record) = entry.record() else {
            break;
        };
        record.copy_to(bytes.start, room);
        if read_window(room, shift) < value {
            write_window(room, shift, value);
            entry.write_at(bytes.start, room)?;
            changed = true;
        }
    }
    if changed && let Some(record) = entry.record() {
        let (_, header) = look(&record)?;
        let (at, byte) = out_of_date(&header);
        entry.write_at(at, &[byte])?;
    }
    Ok(changed)
}

fn pfcount(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let keys: KeyList<'_> = args.map(|name| context.key(name)).collect();
    let total = match &*keys {
        [key] => count_one(context, key)?,
        keys => context.store.locked(keys, |store| {
            let mut registers = no_registers();
            for key in keys {
                store.read(key, |record| {
                    record
                        .map(|record| merge(record, &mut registers))
                        .transpose()
                })?;
            }
            Ok::<_, CommandError>(count(&registers))
        })?,
    };
    reply.integer(i64::try_from(total).unwrap_or(i64::MAX));
    Ok(())
}

/// Returns the count of one sketch, and caches it in the sketch.
fn count_one(context: &mut Context<'_>, key: &Key<'_>) -> Result<u64, CommandError> {
    let known = context.store.read(key, |record| {
        let header = record.map(look).transpose()?;
        Ok::<_, CommandError>(header.map_or(Some(0), |(_, header)| cached_count(&header)))
    })?;
    if let Some(known) = known {
        return Ok(known);
    }
    let is_replica = context.shared.refusals.is_read_only();
    if is_replica && !context.session.is_of_primary {
        // A replica caches only what its primary caches.
        return context.store.read(key, |record| {
            record.map_or(Ok(0), |record| estimate(record))
        });
    }
    context.store.modify(key, |entry| {
        let Some(record) = entry.record() else {
            return Ok(0);
        };
        let total = estimate(&record)?;
        let card = total.to_le_bytes();
        entry.write_at(CARD_BYTES.start, &card)?;
        entry.effect(|effect| effect.command(&[b"SETRANGE", key.bytes(), b"8", &card]));
        Ok(total)
    })
}

fn estimate(record: &Record<'_>) -> Result<u64, CommandError> {
    let (form, _) = look(record)?;
    if form == Form::Sparse {
        let histogram = Histogram::of_sparse(&record.to_vec()).map_err(corrupted)?;
        return Ok(histogram.estimate());
    }
    let mut registers = no_registers();
    merge(record, &mut registers)?;
    Ok(count(&registers))
}

fn pfmerge(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let keys: KeyList<'_> = args.map(|name| context.key(name)).collect();
    let Some(destination) = keys.first() else {
        return Err(CommandError::Syntax);
    };
    let bytes_max = sparse_bytes_max(context);
    context.store.locked(&keys, |store| {
        let mut registers = no_registers();
        let mut is_dense = false;
        for key in &*keys {
            let form = store.read(key, |record| {
                record
                    .map(|record| merge(record, &mut registers))
                    .transpose()
            })?;
            is_dense |= form == Some(Form::Dense);
        }
        store.modify(destination, |entry| {
            let sketch = entry.record().map(|record| record.to_vec());
            let mut sketch = sketch.unwrap_or_else(empty);
            fill(&mut sketch, &registers, is_dense, bytes_max)?;
            invalidate(&mut sketch);
            put(entry, &sketch)?;
            entry.event(EventClass::STRING, "pfadd");
            Ok::<_, CommandError>(())
        })
    })?;
    reply.ok();
    Ok(())
}

/// Raises a sketch to `registers`, none of which is below the sketch's own.
fn fill(
    sketch: &mut Vec<u8>,
    registers: &Registers,
    is_dense: bool,
    bytes_max: usize,
) -> CommandResult {
    if is_dense {
        if let Some(header) = header_of(sketch) {
            *sketch = dense(registers, header);
        }
        return Ok(());
    }
    for (index, value) in registers
        .iter()
        .enumerate()
        .filter(|(_, value)| **value > 0)
    {
        add(sketch, index, *value, bytes_max)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn elements_are_counted_once() {
        let mut server = TestServer::new();
        assert_eq!(server.integer("PFADD k a b c"), 1);
        assert_eq!(server.integer("PFADD k a b"), 0);
        assert_eq!(server.integer("PFCOUNT k"), 3);
        assert_eq!(server.integer("PFADD empty"), 1);
        assert_eq!(server.integer("PFADD empty"), 0);
        assert_eq!(server.integer("PFCOUNT empty none"), 0);
        assert_eq!(server.integer("STRLEN empty"), 18);
        server.assert_effects_replay();
    }

    #[test]
    fn many_elements_make_a_sketch_dense() {
        let mut server = TestServer::new();
        for hundred in 0..50 {
            let elements = (0..100).map(|number| format!(" e{}", hundred * 100 + number));
            let elements: String = elements.collect();
            server.run(&format!("PFADD one{elements}"));
            server.run(&format!("PFADD two{} x y", &elements[..60]));
        }
        assert_eq!(server.integer("STRLEN one"), 12_304);
        assert!((4_900..5_100).contains(&server.integer("PFCOUNT one")));
        assert!(server.integer("STRLEN two") < 3_001);
        server.run("PFMERGE both one two");
        server.run("PFMERGE two one");
        let count = server.integer("PFCOUNT both");
        assert_eq!(server.integer("PFCOUNT one two"), count);
        assert_eq!(server.integer("PFCOUNT two"), count);
        server.assert_effects_replay();
    }
}
