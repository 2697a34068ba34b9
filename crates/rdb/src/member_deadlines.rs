//! Deadlines of members of hashes, sets and sorted sets, as KeyDB writes them: auxiliary fields
//! after a key's value.
//!
//! ```text
//!   type │ key │ body │ 250 keydb-subexpire-key member │ 250 keydb-subexpire-when time │ …     time: a text, milliseconds since 1970
//! ```
//!
//! Only hashes have such deadlines here: those of other types are counted
//! ([`LeftOut`](crate::file::LeftOut)). A deadline of an absent member has no meaning: KeyDB keeps
//! it if the member was removed before its deadline.

use structures::Object;

use crate::file::opcode::AUX;
use crate::reader::{Limits, Malformed, Reader, Text};
use crate::value::Value;

/// The two fields of one deadline.
pub(crate) const MEMBER: &[u8] = b"keydb-subexpire-key";
pub(crate) const TIME: &[u8] = b"keydb-subexpire-when";

/// Maximum deadline of a field, in milliseconds since 1970, as in Redis.
pub const LATEST_UNIX_MS: u64 = (1 << 46) - 1;

/// Gives a value the deadlines in `fields`, the part behind the body, which consists of auxiliary
/// fields only. Other fields are skipped, and so are all fields if the value is not a hash.
///
/// # Errors
/// [`Malformed`]: something else than an auxiliary field, or a time that is not a number.
pub fn apply(fields: &[u8], limits: &Limits, value: &mut Value) -> Result<(), Malformed> {
    let mut reader = Reader::new(fields, 0, limits);
    let mut member = None;
    while !reader.rest().is_empty() {
        if reader.byte()? != AUX {
            return Err(Malformed::Behind);
        }
        let (name, text) = (reader.text()?, reader.text()?);
        match (name.as_bytes(), member.take()) {
            (MEMBER, _) => member = Some(text),
            (TIME, Some(member)) => set(value, &member, &text)?,
            _ => {}
        }
    }
    Ok(())
}

fn set(value: &mut Value, member: &Text<'_>, time: &Text<'_>) -> Result<(), Malformed> {
    let Value::Object(Object::Hash(hash)) = value else {
        return Ok(());
    };
    let at = base::number::parse_i64(time.as_bytes()).ok_or(Malformed::Number)?;
    // Any past deadline has the same effect; 0 would mean none.
    let at = u64::try_from(at).unwrap_or(0).clamp(1, LATEST_UNIX_MS);
    hash.set_deadline(member.as_bytes(), Some(at))?;
    Ok(())
}
