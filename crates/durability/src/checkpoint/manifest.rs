//! The manifest: a text that names every file of the checkpoint in force.
//!
//! ```text
//!   iolite-manifest 1
//!   lineage 3c0d8f5f4a2b1e6d7c8b9a0f1e2d3c4b5a697887
//!   generation 7
//!   log-from 41943040
//!   created 1700000000000
//!   directory checkpoint-7-1
//!   part 0000.part 1310720 9000 8f3cba9876543210
//!   part 0001.part 1179648 8100 0123456789abcdef
//!   database 0 17000
//!   database 3 100
//!   library 23216c7561206e616d653d61
//!   end 5ad9c2e1f0b3a487
//! ```
//!
//! Version 2 has lines about the history of the log before `end`. A manifest without any is written
//! as version 1, which older servers read.
//!
//! ```text
//!   iolite-manifest 2
//!   …
//!   cut 41943040                    (a replica's), or: settled 41950000
//!   term 7 3c0d8f5f4a2b1e6d7c8b9a0f1e2d3c4b5a697887 4096
//!   resp 41943040 123456 0
//!   end …
//! ```
//!
//! Version 3 has lines about the values that are not in the parts: segments of the tier, before the
//! lines of the history.
//!
//! ```text
//!   segment 000000000000002a 67108864 3c0d8f5f4a2b1e6d 61000
//! ```
//!
//! Version 4 has the dictionaries with which values in these segments are compressed, and for each
//! segment the numbers of those that it needs.
//!
//! ```text
//!   dictionary 00000007 65568 9ac3d2e1
//!   segment 000000000000002a 67108864 3c0d8f5f4a2b1e6d 61000 00000007
//! ```
//!
//! Each manifest has exactly one spelling, and any other is refused. This and the CRC-64 in the
//! last line, which covers everything before that line, leave no byte that could change unnoticed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::str::FromStr;

use base::crc::crc64;
use base::hex;

/// Version of the format with a [`History`].
pub const MANIFEST_VERSION: u32 = 2;
/// Version without a history.
const PLAIN_VERSION: u32 = 1;
/// Version with values in segments of the tier.
const TIER_VERSION: u32 = 3;
/// Version with compressed values and their dictionaries.
const DICTIONARY_VERSION: u32 = 4;
/// Maximum number of terms in a manifest.
pub const TERMS_MAX: usize = 1024;

const TITLE: &str = "iolite-manifest";

/// Length of the last line with the checksum.
const END_BYTES: usize = "end 0123456789abcdef\n".len();

/// The history of writes that something belongs to: 20 bytes, chosen at random when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lineage(pub [u8; 20]);

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::text(&self.0))
    }
}

impl FromStr for Lineage {
    type Err = ManifestFlaw;

    /// Parses 40 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, ManifestFlaw> {
        let bytes = bytes_of(text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(ManifestFlaw::Line)
    }
}

/// The manifest's entry of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartEntry {
    /// Its name in the checkpoint's directory.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The number of its records.
    pub records: u64,
    /// CRC-64 of its head, of the heads of its blocks and of its foot, which contain the sums of
    /// the rest.
    pub digest: u64,
}

/// A dictionary with which values in segments of the tier are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DictionaryEntry {
    /// Its number, which names the file.
    pub number: u32,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Its sum, which distinguishes it from another file of this number.
    pub sum: u32,
}

/// A segment of the tier that has values of the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    /// Its number, which names the file.
    pub ordinal: u64,
    /// Number of its bytes that belong to the checkpoint.
    pub bytes: u64,
    /// Distinguishes it from another file of this number.
    pub salt: u64,
    /// Number of records whose values are in it.
    pub records: u64,
    /// Numbers of the dictionaries that its values need, in ascending order.
    pub dictionaries: Vec<u32>,
}

/// The history of its log that a checkpoint keeps, for replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The sequence, equal to [`Manifest::log_sequence`], below which the checkpoint has exactly
    /// all effects. Set by a replica, which cuts between two batches. Effects are then not
    /// distinguished by their generations, which are the primary's.
    pub cut_sequence: Option<u64>,
    /// The sequence from which on the log has no effect of an older generation that is in the
    /// checkpoint, because all writers that saw the older generation had finished. Effects from
    /// there on belong to this history, or to another primary's, which has generations of its own.
    pub settled_sequence: Option<u64>,
    /// The terms that begin below the cut, oldest first; older ones may be left out.
    pub terms: Vec<TermEntry>,
    /// The position of the stream for Redis replicas.
    pub resp: Option<RespEntry>,
}

/// A term of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermEntry {
    /// Rises with each term.
    pub number: u64,
    /// Distinguishes it from all other terms with this number.
    pub id: [u8; 20],
    /// The sequence of its frame.
    pub start: u64,
}

/// A position in the stream for Redis replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RespEntry {
    /// The sequence of the log there.
    pub sequence: u64,
    /// The offset of the stream.
    pub offset: u64,
    /// The database that the stream has selected.
    pub database: u16,
}

impl History {
    /// Whether there is no history to keep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn write(&self, text: &mut String) -> fmt::Result {
        if let Some(sequence) = self.cut_sequence {
            writeln!(text, "cut {sequence}")?;
        }
        if let Some(sequence) = self.settled_sequence {
            writeln!(text, "settled {sequence}")?;
        }
        for TermEntry { number, id, start } in &self.terms {
            writeln!(text, "term {number} {} {start}", hex::text(id))?;
        }
        if let Some(resp) = &self.resp {
            let (sequence, offset) = (resp.sequence, resp.offset);
            writeln!(text, "resp {sequence} {offset} {}", resp.database)?;
        }
        Ok(())
    }

    /// Parses a line, split into words; `None` if it is not one of the history's.
    fn parse(&mut self, words: &[&str]) -> Option<()> {
        match words {
            ["cut", sequence] => self.cut_sequence = Some(sequence.parse().ok()?),
            ["settled", sequence] => self.settled_sequence = Some(sequence.parse().ok()?),
            ["term", number, id, start] => self.terms.push(TermEntry {
                number: number.parse().ok()?,
                id: bytes_of(id)?.try_into().ok()?,
                start: start.parse().ok()?,
            }),
            ["resp", sequence, offset, database] => {
                self.resp = Some(RespEntry {
                    sequence: sequence.parse().ok()?,
                    offset: offset.parse().ok()?,
                    database: database.parse().ok()?,
                });
            }
            _ => return None,
        }
        Some(())
    }

    /// Whether the terms ascend, the cut is where the log is needed from, and the settled sequence
    /// is not before that.
    fn fits(&self, log_sequence: Option<u64>) -> bool {
        let follows =
            |pair: &[TermEntry]| pair[0].number < pair[1].number && pair[0].start < pair[1].start;
        self.terms.len() <= TERMS_MAX
            && self.terms.windows(2).all(follows)
            && self
                .cut_sequence
                .is_none_or(|cut| Some(cut) == log_sequence && self.settled_sequence.is_none())
            && self
                .settled_sequence
                .is_none_or(|settled| log_sequence.is_some_and(|from| from <= settled))
    }
}

/// The manifest of the checkpoint in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The lineage of the records.
    pub lineage: Lineage,
    /// The generation that began with the cut: effects of older generations in the log are in the
    /// checkpoint.
    pub generation: u64,
    /// The sequence from which on the log may have effects that are not in the checkpoint, or
    /// `None` if there was no log at the cut.
    pub log_sequence: Option<u64>,
    /// When the cut was made, in milliseconds since 1970 UTC.
    pub created_unix_ms: u64,
    /// Directory of its parts, beside the manifest.
    pub directory: String,
    /// The parts, by number.
    pub parts: Vec<PartEntry>,
    /// Number of records of each database that has any.
    pub databases: BTreeMap<u16, u64>,
    /// The source of each library of functions.
    pub libraries: Vec<Vec<u8>>,
    /// The dictionaries that values in these segments need, by number.
    pub dictionaries: Vec<DictionaryEntry>,
    /// The segments with values that the parts only refer to, by number.
    pub segments: Vec<SegmentEntry>,
    /// The history of the log.
    pub history: History,
}

/// The effects of the log after a checkpoint that the checkpoint already has: those of generations
/// before its own, up to where the last of them is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    generation: u64,
    end: u64,
}

impl Overlap {
    /// No effects.
    pub const NONE: Self = Self {
        generation: 0,
        end: 0,
    };

    /// Whether the checkpoint has the effects of `generation` in the frame at `sequence`.
    #[inline]
    #[must_use]
    pub fn has(self, sequence: u64, generation: u64) -> bool {
        generation < self.generation && sequence < self.end
    }

    /// Limits the overlap to sequences below `end`: later frames were not yet written when it was
    /// determined.
    #[must_use]
    pub fn up_to(self, end: u64) -> Self {
        Self {
            end: self.end.min(end),
            ..self
        }
    }

    /// Returns the sequence from which on there are none.
    #[must_use]
    pub fn end(self) -> u64 {
        self.end
    }
}

/// A flaw of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestFlaw {
    /// It does not begin like a manifest.
    NoManifest,
    /// It was written by a newer server, in this version of the format.
    Version(u32),
    /// Its checksum is wrong: it was changed, or is not whole.
    Checksum,
    /// A line is not what must be there.
    Line,
    /// The parts do not have as many records as the databases.
    Counts,
    /// Its terms do not ascend or are too many, or the cut is not where the log is needed from.
    History,
    /// Its segments do not ascend.
    Segments,
    /// Its dictionaries do not ascend, or are not those that its segments need.
    Dictionaries,
}

impl fmt::Display for ManifestFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoManifest => "it is no manifest",
            Self::Version(version) => {
                return write!(f, "version {version} of the format is not known");
            }
            Self::Checksum => "damaged: its checksum is wrong",
            Self::Line => "damaged: a line is wrong",
            Self::Counts => "damaged: its counts contradict each other",
            Self::History => {
                "damaged: what it says about the history of the log contradicts itself"
            }
            Self::Segments => "damaged: its segments do not follow each other",
            Self::Dictionaries => "damaged: its dictionaries are not those of its segments",
        })
    }
}

impl std::error::Error for ManifestFlaw {}

impl Manifest {
    /// Returns the number of records of all parts.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.databases
            .values()
            .fold(0, |sum, records| sum.saturating_add(*records))
    }

    /// Returns the bytes of all parts.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts
            .iter()
            .fold(0, |sum, part| sum.saturating_add(part.bytes))
    }

    /// Returns which effects after [`Manifest::log_sequence`] are in the checkpoint.
    #[must_use]
    pub fn overlap(&self) -> Overlap {
        if self.history.cut_sequence.is_some() {
            return Overlap::NONE;
        }
        Overlap {
            generation: self.generation,
            end: self.history.settled_sequence.unwrap_or(u64::MAX),
        }
    }

    /// Whether the checkpoint has nothing that the log has from `sequence` on. `false` if the
    /// manifest does not say how far it reaches, because it may then have.
    #[must_use]
    pub fn is_before(&self, sequence: u64) -> bool {
        let History {
            cut_sequence,
            settled_sequence,
            ..
        } = self.history;
        let from = self.log_sequence;
        let end = cut_sequence.or(settled_sequence);
        from.zip(end)
            .is_some_and(|(from, end)| from.max(end) <= sequence)
    }

    /// Returns the text of the manifest.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _written = self.write(&mut text);
        let sum = crc64(0, text.as_bytes());
        let _written = writeln!(text, "end {sum:016x}");
        text
    }

    fn write(&self, text: &mut String) -> fmt::Result {
        writeln!(text, "{TITLE} {}", self.version())?;
        writeln!(text, "lineage {}", self.lineage)?;
        writeln!(text, "generation {}", self.generation)?;
        match self.log_sequence {
            Some(sequence) => writeln!(text, "log-from {sequence}")?,
            None => writeln!(text, "log-from none")?,
        }
        writeln!(text, "created {}", self.created_unix_ms)?;
        writeln!(text, "directory {}", self.directory)?;
        for part in &self.parts {
            let (name, bytes, records) = (&part.name, part.bytes, part.records);
            writeln!(text, "part {name} {bytes} {records} {:016x}", part.digest)?;
        }
        for (database, records) in &self.databases {
            writeln!(text, "database {database} {records}")?;
        }
        for library in &self.libraries {
            writeln!(text, "library {}", hex::text(library))?;
        }
        for dictionary in &self.dictionaries {
            let (number, bytes, sum) = (dictionary.number, dictionary.bytes, dictionary.sum);
            writeln!(text, "dictionary {number:08x} {bytes} {sum:08x}")?;
        }
        for segment in &self.segments {
            let (ordinal, salt) = (segment.ordinal, segment.salt);
            let (bytes, records) = (segment.bytes, segment.records);
            write!(text, "segment {ordinal:016x} {bytes} {salt:016x} {records}")?;
            for number in &segment.dictionaries {
                write!(text, " {number:08x}")?;
            }
            writeln!(text)?;
        }
        self.history.write(text)
    }

    fn version(&self) -> u32 {
        if !self.dictionaries.is_empty() {
            DICTIONARY_VERSION
        } else if !self.segments.is_empty() {
            TIER_VERSION
        } else if self.history.is_empty() {
            PLAIN_VERSION
        } else {
            MANIFEST_VERSION
        }
    }

    /// Parses a manifest.
    ///
    /// # Errors
    /// If it is anything other than the result of [`Manifest::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestFlaw> {
        let text =
            str::from_utf8(bytes).map_err(|_| match bytes.starts_with(TITLE.as_bytes()) {
                true => ManifestFlaw::Checksum,
                false => ManifestFlaw::NoManifest,
            })?;
        let mut lines = text.split('\n');
        let title = lines.next().and_then(|line| line.strip_prefix(TITLE));
        let version = title.and_then(|rest| rest.strip_prefix(' '));
        let version = version.ok_or(ManifestFlaw::NoManifest)?;
        match version.parse() {
            Ok(PLAIN_VERSION..=DICTIONARY_VERSION) => {}
            Ok(version) => return Err(ManifestFlaw::Version(version)),
            Err(_) => return Err(ManifestFlaw::NoManifest),
        }
        check_sum(text)?;
        let manifest = Self::parse(lines).ok_or(ManifestFlaw::Line)?;
        if manifest.encode() != text || !manifest.has_plain_names() {
            return Err(ManifestFlaw::Line);
        }
        manifest.check_counts()?;
        if !manifest.history.fits(manifest.log_sequence) {
            return Err(ManifestFlaw::History);
        }
        let rises = |pair: &[SegmentEntry]| pair[0].ordinal < pair[1].ordinal;
        if !manifest.segments.windows(2).all(rises) {
            return Err(ManifestFlaw::Segments);
        }
        if !manifest.has_its_dictionaries() {
            return Err(ManifestFlaw::Dictionaries);
        }
        Ok(manifest)
    }

    fn parse<'t>(mut lines: impl Iterator<Item = &'t str>) -> Option<Self> {
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let mut manifest = Self {
            lineage: value("lineage")?.parse().ok()?,
            generation: value("generation")?.parse().ok()?,
            log_sequence: match value("log-from")? {
                "none" => None,
                sequence => Some(sequence.parse().ok()?),
            },
            created_unix_ms: value("created")?.parse().ok()?,
            directory: value("directory")?.to_owned(),
            ..Self::default()
        };
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["part", name, bytes, records, digest] => manifest.parts.push(PartEntry {
                    name: (*name).to_owned(),
                    bytes: bytes.parse().ok()?,
                    records: records.parse().ok()?,
                    digest: u64::from_str_radix(digest, 16).ok()?,
                }),
                ["database", database, records] => {
                    let (database, records) = (database.parse().ok()?, records.parse().ok()?);
                    manifest.databases.insert(database, records);
                }
                ["library", digits] => manifest.libraries.push(bytes_of(digits)?),
                ["dictionary", number, bytes, sum] => manifest.dictionaries.push(DictionaryEntry {
                    number: u32::from_str_radix(number, 16).ok()?,
                    bytes: bytes.parse().ok()?,
                    sum: u32::from_str_radix(sum, 16).ok()?,
                }),
                ["segment", ordinal, bytes, salt, records, needed @ ..] => {
                    let needed = needed.iter().map(|one| u32::from_str_radix(one, 16).ok());
                    manifest.segments.push(SegmentEntry {
                        ordinal: u64::from_str_radix(ordinal, 16).ok()?,
                        bytes: bytes.parse().ok()?,
                        salt: u64::from_str_radix(salt, 16).ok()?,
                        records: records.parse().ok()?,
                        dictionaries: needed.collect::<Option<_>>()?,
                    });
                }
                ["end", _] => break,
                words => manifest.history.parse(words)?,
            }
        }
        Some(manifest)
    }

    /// Whether no name leads to another directory.
    fn has_plain_names(&self) -> bool {
        let plain = |name: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
            name.bytes().all(allowed) && !name.is_empty() && !name.starts_with('.')
        };
        let mut names = self.parts.iter().map(|part| part.name.as_str());
        plain(&self.directory) && names.all(plain)
    }

    /// Whether the dictionaries are those that the segments need, and all ascend.
    fn has_its_dictionaries(&self) -> bool {
        let rises = |numbers: &[u32]| numbers.windows(2).all(|pair| pair[0] < pair[1]);
        let named: Vec<u32> = self.dictionaries.iter().map(|one| one.number).collect();
        let needed = self.segments.iter().flat_map(|one| &one.dictionaries);
        let needed: BTreeSet<u32> = needed.copied().collect();
        rises(&named)
            && self.segments.iter().all(|one| rises(&one.dictionaries))
            && needed.into_iter().eq(named)
    }

    fn check_counts(&self) -> Result<(), ManifestFlaw> {
        let sum = |mut counts: Box<dyn Iterator<Item = u64> + '_>| {
            counts.try_fold(0_u64, |sum, count| sum.checked_add(count))
        };
        let parts = sum(Box::new(self.parts.iter().map(|part| part.records)));
        let databases = sum(Box::new(self.databases.values().copied()));
        if parts.is_some() && parts == databases {
            Ok(())
        } else {
            Err(ManifestFlaw::Counts)
        }
    }
}

/// Decodes hexadecimal digits.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes = pairs
        .iter()
        .map(|[high, low]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok());
    rest.is_empty().then(|| bytes.collect()).flatten()
}

/// Checks the last line.
fn check_sum(text: &str) -> Result<(), ManifestFlaw> {
    let front = text.len().checked_sub(END_BYTES);
    let split = front.and_then(|front| text.split_at_checked(front));
    let (content, end) = split.ok_or(ManifestFlaw::Checksum)?;
    let sum = crc64(0, content.as_bytes());
    if end == format!("end {sum:016x}\n") {
        Ok(())
    } else {
        Err(ManifestFlaw::Checksum)
    }
}
