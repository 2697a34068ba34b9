//! A trained dictionary: what short values have in common, kept once, and the file that it is in.
//!
//! ```text
//!   0          8         16       20          24      28    32
//!   │"IOLDICT\n"│ version │ number │ per mille │ bytes │ sum │ the dictionary, as zstd has it …
//! ```
//!
//! Numbers are little-endian. `per mille` is what samples took when it was made, of what they were; `bytes` the length of
//! what follows; `sum` the CRC-32C of everything else. zstd's dictionary has an identity of its own, which each frame
//! repeats: that is `number`, so a frame is never read by another dictionary.
//!
//! A file is written and synced before the first entry that needs it, never changed, and removed when no segment has
//! such an entry any more. Its number is not used again while anything may name it.

use std::fmt;

use durability::checksum;
use zstd::zstd_safe::{CDict, DDict};

/// What names of dictionaries end with.
const SUFFIX: &str = ".dict";

const MAGIC: &[u8; 8] = b"IOLDICT\n";
const VERSION: u64 = 1;
const HEAD_BYTES: usize = 32;

/// What zstd's dictionaries begin with. Without that it would take anything for one.
const ZSTD_MAGIC: [u8; 4] = 0xEC30_A437_u32.to_le_bytes();

/// What follows the head is not longer.
pub(crate) const DICTIONARY_BYTES_MAX: usize = 64 << 10;

/// No file is longer.
pub(crate) const FILE_BYTES_MAX: u64 = (HEAD_BYTES + DICTIONARY_BYTES_MAX) as u64;

/// Values are compressed fast rather than far: a thread does so that is to make room.
pub(crate) const LEVEL: i32 = 1;

/// Which file a dictionary is, whatever process reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DictionaryName {
    /// Its number, which names the file.
    pub number: u32,
    /// Length of the file.
    pub bytes: u64,
    /// What tells it from another file that had this number: the sum in its head.
    pub sum: u32,
}

/// A dictionary, prepared for reading: all readers share it.
pub(crate) struct Dictionary {
    pub(crate) name: DictionaryName,
    pub(crate) to_read: DDict<'static>,
    /// What samples took of what they were, in thousandths.
    pub(crate) expected_per_mille: u32,
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl PartialEq for Dictionary {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Dictionary {}

impl Dictionary {
    /// Takes what a file has.
    pub(crate) fn decode(file: &[u8]) -> Result<Self, &'static str> {
        let (head, content) = file
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or("it ends too soon")?;
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| head[at + byte]));
        let sum = number(28);
        if sum != sum_of(&head[..28], content) {
            return Err("its sum is wrong");
        }
        let version = VERSION.to_le_bytes();
        if head[..8] != *MAGIC || head[8..16] != version {
            return Err("it is no dictionary, or one of another version");
        }
        let is_whole = usize::try_from(number(24)) == Ok(content.len());
        if !is_whole || content.len() > DICTIONARY_BYTES_MAX || number(16) == 0 {
            return Err("its head is wrong");
        }
        let id = content
            .get(4..8)
            .filter(|_| content.starts_with(&ZSTD_MAGIC));
        if id != Some(&number(16).to_le_bytes()) {
            return Err("its head is wrong");
        }
        let to_read = DDict::try_create(content).ok_or("zstd does not take it")?;
        Ok(Self {
            name: DictionaryName {
                number: number(16),
                bytes: file.len() as u64,
                sum,
            },
            to_read,
            expected_per_mille: number(20),
        })
    }

    /// Memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.to_read.sizeof() as u64
    }
}

/// The file of a dictionary that zstd made, which gets a number; none where that is none.
pub(crate) fn encode(number: u32, per_mille: u32, mut content: Vec<u8>) -> Option<Vec<u8>> {
    renumber(&mut content, number)?;
    let mut file = MAGIC.to_vec();
    file.extend_from_slice(&VERSION.to_le_bytes());
    let bytes = u32::try_from(content.len()).ok()?;
    for word in [number, per_mille, bytes] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&sum_of(&file, &content).to_le_bytes());
    file.extend_from_slice(&content);
    Some(file)
}

/// Changes the identity that a dictionary of zstd has.
pub(crate) fn renumber(content: &mut [u8], number: u32) -> Option<()> {
    content.strip_prefix(&ZSTD_MAGIC)?;
    content
        .get_mut(4..8)?
        .copy_from_slice(&number.to_le_bytes());
    Some(())
}

/// A dictionary prepared for writing, of what its file has.
pub(crate) fn to_write(file: &[u8]) -> Option<CDict<'static>> {
    CDict::try_create(file.get(HEAD_BYTES..)?, LEVEL)
}

fn sum_of(head: &[u8], content: &[u8]) -> u32 {
    checksum::append(checksum::append(0, head), content)
}

/// The name of the file of a dictionary.
#[must_use]
pub fn dictionary_name(number: u32) -> String {
    format!("{number:08x}{SUFFIX}")
}

/// The number that a file's name tells, if it is a dictionary's.
pub(crate) fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(SUFFIX)?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    (dictionary_name(number) == name).then_some(number)
}

/// Whether a file is what is left of the writing of a dictionary.
pub(crate) fn is_half(name: &str) -> bool {
    let whole = name.strip_suffix(".new");
    whole.is_some_and(|whole| number_of(whole).is_some())
}
