//! What the families of structures share: access to the structure at a key.
//!
//! ```text
//!   read     structure::read(context, &key, reply, |list: Option<&List>, reply| …)
//!   change   context.store.modify(&key, |entry| {
//!                let answer = entry.change(|list: &mut List| …)?;          an absent key: None
//!                let answer = entry.change_or_create(|list: &mut List| …)?;
//!                entry.effect(|effect| effect.command(&[…]));              if anything changed
//!                …
//!            })
//! ```
//!
//! Both refuse a key with another type. `change` removes a key whose structure became empty. A
//! change writes its reply inside the closure, because it runs exactly once.

use engine::context::Context;
use engine::error::CommandError;
use protocol::Reply;
use store::{Key, StoreError};
use structures::{AHEAD_MAX, ELEMENT_BYTES_MAX, Element, Structure};

/// Shows the structure at a key to `visit`, with the reply to write to, or `None` for an absent
/// key. If `visit` runs again, its previous output is discarded.
///
/// # Errors
/// WRONGTYPE if the key holds another type.
#[inline]
pub(crate) fn read<S: Structure, R>(
    context: &mut Context<'_>,
    key: &Key<'_>,
    reply: &mut Reply<'_>,
    mut visit: impl FnMut(Option<&S>, &mut Reply<'_>) -> R,
) -> Result<R, CommandError> {
    let mark = reply.mark();
    context.store.read_structure(key, |record| {
        reply.rollback(mark);
        let lent;
        let structure = match record {
            Some(record) => {
                lent = record.structure::<S>()?;
                Some(&*lent)
            }
            None => None,
        };
        Ok(visit(structure, reply))
    })
}

/// Replies with a number of elements, 0 for an absent key. A structure out of memory has its number
/// in the stub; for a structure in memory, `len` returns it.
///
/// # Errors
/// WRONGTYPE if the key holds another type.
#[inline]
pub(crate) fn count<S: Structure>(
    context: &mut Context<'_>,
    key: &Key<'_>,
    reply: &mut Reply<'_>,
    len: impl Fn(&S) -> usize,
) -> Result<(), CommandError> {
    let counted = context.store.read_structure(key, |record| {
        let Some(record) = record else {
            return Ok(0);
        };
        match record.cold_len(S::KIND)? {
            Some(count) => Ok(count),
            None => record.structure::<S>().map(|structure| len(&structure)),
        }
    });
    write_count(reply, counted?);
    Ok(())
}

/// Returns an argument as an element of a structure.
///
/// # Errors
/// If it exceeds the maximum length of an element.
#[inline]
pub(crate) fn element(argument: &[u8]) -> Result<Element<'_>, CommandError> {
    if argument.len() > ELEMENT_BYTES_MAX {
        return Err(StoreError::TooLarge.into());
    }
    Ok(Element::parse(argument))
}

/// Whether the element with this index, of `count` that one command looks up, begins a batch. If
/// so, the caller announces the next [`AHEAD_MAX`] to the structure.
#[inline]
pub(crate) fn begins_batch(index: usize, count: usize) -> bool {
    count > 1 && index.is_multiple_of(AHEAD_MAX)
}

/// Writes an element as a string, directly from its memory.
#[inline]
pub(crate) fn write_element(reply: &mut Reply<'_>, element: Element<'_>) {
    match element {
        Element::Integer(number) => reply.bulk_integer(number),
        Element::Bytes(bytes) => reply.bulk(bytes),
    }
}

/// Writes a number of elements.
#[inline]
pub(crate) fn write_count(reply: &mut Reply<'_>, count: usize) {
    reply.integer(i64::try_from(count).unwrap_or(i64::MAX));
}
