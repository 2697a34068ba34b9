//! Metadata of modules at keys, since Redis 8.6. There are no modules here, so it is skipped.
//!
//! ```text
//!   243 │ count │ class (4), data of a module … │ type, key, value as ever
//! ```

use crate::reader::{Malformed, Reader};

/// The code before metadata of the key that follows. It has another meaning in Valkey.
pub(crate) const CODE: u8 = 243;
/// The first version with metadata.
const VERSION: u16 = 13;

/// Bytes of a class's name.
pub(crate) const CLASS_BYTES: usize = 4;

/// Kinds of a module's data.
pub(crate) mod part {
    pub(crate) const END: u64 = 0;
    pub(crate) const SIGNED: u64 = 1;
    pub(crate) const UNSIGNED: u64 = 2;
    pub(crate) const FLOAT: u64 = 3;
    pub(crate) const DOUBLE: u64 = 4;
    pub(crate) const TEXT: u64 = 5;
}

/// Whether a version has metadata.
pub(crate) fn is_of(version: u16) -> bool {
    (VERSION..=crate::VERSION_READ_MAX).contains(&version)
}

/// Skips metadata, behind its code.
pub(crate) fn pass(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    for _ in 0..reader.count(CLASS_BYTES + 1)? {
        reader.skip(CLASS_BYTES)?;
        loop {
            match reader.length()? {
                part::END => break,
                part::SIGNED | part::UNSIGNED => {
                    reader.length()?;
                }
                part::FLOAT => reader.skip(size_of::<f32>())?,
                part::DOUBLE => reader.skip(size_of::<f64>())?,
                part::TEXT => {
                    reader.text()?;
                }
                _ => return Err(Malformed::Length),
            }
        }
    }
    Ok(())
}
