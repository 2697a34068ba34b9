//! Deadlines of members of hashes, sets and sorted sets, as KeyDB writes them: auxiliary fields after the value of a key.
//!
//! ```text
//!   type │ key │ body │ 250 keydb-subexpire-key member │ 250 keydb-subexpire-when time │ …     time: a text, milliseconds since 1970
//! ```
//!
//! Only hashes have such deadlines here: those of other types are counted ([`LeftOut`](crate::file::LeftOut)). A deadline of a
//! member that is not there means nothing: KeyDB keeps it where a member was removed before its time.

use structures::Object;

use crate::file::opcode::AUX;
use crate::reader::{Limits, Malformed, Reader, Text};
use crate::value::Value;

/// The two fields of one deadline.
pub(crate) const MEMBER: &[u8] = b"keydb-subexpire-key";
pub(crate) const TIME: &[u8] = b"keydb-subexpire-when";

/// No deadline of a field is later, in milliseconds since 1970, as in Redis.
pub const LATEST_UNIX_MS: u64 = (1 << 46) - 1;

/// Gives a value the deadlines that stand in `fields`, which is what follows the body: auxiliary fields and nothing else.
/// Those of other meaning are passed, and so is all of a value that is no hash.
///
/// # Errors
/// [`Malformed`]: what is there is no auxiliary field, or a time is no number.
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
    // One that has passed long ago is as good as any that has passed; 0 would be none.
    let at = u64::try_from(at).unwrap_or(0).clamp(1, LATEST_UNIX_MS);
    hash.set_deadline(member.as_bytes(), Some(at))?;
    Ok(())
}
