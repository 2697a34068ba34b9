//! What the families of structures have in common: reading the structure at a key.
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
//! Both refuse a key that holds something else, and `change` removes a key whose structure became
//! empty. A change writes its reply inside the closure: it runs exactly once.

use engine::context::Context;
use engine::error::CommandError;
use protocol::Reply;
use store::{Key, StoreError};
use structures::{AHEAD_MAX, ELEMENT_BYTES_MAX, Element, Structure};

/// Shows the structure at a key to `visit`, with the reply to write to; an absent key as `None`.
/// What `visit` wrote is taken back when it is run again.
///
/// # Errors
/// WRONGTYPE when the key holds something else.
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

/// Answers with a number of elements, 0 for an absent key: that of a structure which is not in memory stands in its stub, and
/// of one that is, `len` tells it.
///
/// # Errors
/// WRONGTYPE when the key holds something else.
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

/// An argument as an element of a structure.
///
/// # Errors
/// When it is longer than any element may be.
#[inline]
pub(crate) fn element(argument: &[u8]) -> Result<Element<'_>, CommandError> {
    if argument.len() > ELEMENT_BYTES_MAX {
        return Err(StoreError::TooLarge.into());
    }
    Ok(Element::parse(argument))
}

/// Whether the element with this index, of so many that one command looks for, begins a batch: then
/// the structure is told of the next [`AHEAD_MAX`].
#[inline]
pub(crate) fn begins_batch(index: usize, count: usize) -> bool {
    count > 1 && index.is_multiple_of(AHEAD_MAX)
}

/// Writes an element as a string, straight from where it is.
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
