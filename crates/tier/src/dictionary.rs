//! A trained dictionary: the common content of short values, stored once, and its file.
//!
//! ```text
//!   0          8         16       20          24      28    32
//!   │"IOLDICT\n"│ version │ number │ per mille │ bytes │ sum │ the dictionary, as zstd has it …
//! ```
//!
//! Numbers are little-endian. `per mille` is the compressed size of the samples at training, in
//! thousandths of their raw size; `bytes` is the length of what follows; `sum` is the CRC-32C of
//! everything else. zstd's dictionary has its own identity, which each frame repeats. The identity
//! is `number`, so no frame is read with another dictionary.
//!
//! A file is written and synced before the first entry that needs it, is never changed, and is
//! removed when no segment has such an entry any more. Its number is not reused while anything may
//! name it.

use std::fmt;

use durability::checksum;
use zstd::zstd_safe::{CDict, DDict};

/// Suffix of the names of dictionary files.
const SUFFIX: &str = ".dict";

const MAGIC: &[u8; 8] = b"IOLDICT\n";
const VERSION: u64 = 1;
const HEAD_BYTES: usize = 32;

/// The first bytes of zstd's dictionaries. Without this check, zstd would accept any bytes as a
/// dictionary.
const ZSTD_MAGIC: [u8; 4] = 0xEC30_A437_u32.to_le_bytes();

/// Maximum length of what follows the head.
pub(crate) const DICTIONARY_BYTES_MAX: usize = 64 << 10;

/// Maximum length of a file.
pub(crate) const FILE_BYTES_MAX: u64 = (HEAD_BYTES + DICTIONARY_BYTES_MAX) as u64;

/// Level for fast rather than strong compression, because the thread that compresses has to free
/// memory.
pub(crate) const LEVEL: i32 = 1;

/// Identity of a dictionary's file, the same for every process that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DictionaryName {
    /// Number of the dictionary, which names the file.
    pub number: u32,
    /// Length of the file.
    pub bytes: u64,
    /// The sum in its head, which distinguishes it from another file that had this number.
    pub sum: u32,
}

/// A dictionary, prepared for reading and shared by all readers.
pub(crate) struct Dictionary {
    pub(crate) name: DictionaryName,
    pub(crate) to_read: DDict<'static>,
    /// Compressed size of the samples, in thousandths of their raw size.
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
    /// Decodes the content of a file.
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

    /// Returns the memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.to_read.sizeof() as u64
    }
}

/// Returns the file of a dictionary that zstd trained, with a number, or `None` if `content` is not
/// a dictionary.
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

/// Changes the identity of a zstd dictionary.
pub(crate) fn renumber(content: &mut [u8], number: u32) -> Option<()> {
    content.strip_prefix(&ZSTD_MAGIC)?;
    content
        .get_mut(4..8)?
        .copy_from_slice(&number.to_le_bytes());
    Some(())
}

/// Prepares the dictionary of a file for writing.
pub(crate) fn to_write(file: &[u8]) -> Option<CDict<'static>> {
    CDict::try_create(file.get(HEAD_BYTES..)?, LEVEL)
}

fn sum_of(head: &[u8], content: &[u8]) -> u32 {
    checksum::append(checksum::append(0, head), content)
}

/// Returns the name of a dictionary's file.
#[must_use]
pub fn dictionary_name(number: u32) -> String {
    format!("{number:08x}{SUFFIX}")
}

/// Returns the number in a file's name, or `None` if it is not a dictionary's.
pub(crate) fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(SUFFIX)?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    (dictionary_name(number) == name).then_some(number)
}

/// Whether a file is the remains of an incomplete write of a dictionary.
pub(crate) fn is_half(name: &str) -> bool {
    let whole = name.strip_suffix(".new");
    whole.is_some_and(|whole| number_of(whole).is_some())
}
