//! The reader: one item after the other, each borrowed until the next is requested.

use std::io::Read;
use std::ops::Range;

use super::extent;
use super::input::Input;
use super::{
    CHECKSUM_VERSION, Fault, FileError, HEAD_BYTES, ModuleName, SHOWN_BYTES_MAX, TEMPLATES_VERSION,
    Usage, opcode,
};
use crate::reader::{Limits, Malformed, Reader, Text};
use crate::templates::{Templates, is_by_template};
use crate::value::{self, Value};
use crate::{VERSION_VALKEY, is_read};
use crate::{code, member_deadlines, metadata};

/// Reads a file once, from its start.
#[derive(Debug)]
pub struct FileReader<R> {
    input: Input<R>,
    version: u16,
    database: u32,
    deadline_unix_ms: Option<u64>,
    usage: Option<Usage>,
    checksum: Option<Checksum>,
    templates: Templates,
    /// The expanded body of a hash with a template.
    expanded: Vec<u8>,
    left_out: LeftOut,
}

/// Data of the keys that were read which is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Keys with metadata of modules.
    pub metadata_keys: u64,
    /// Producers of streams, whose repeated requests are no longer recognized.
    pub stream_producers: u64,
    /// Deadlines of members of sets and sorted sets.
    pub member_deadlines: u64,
    /// The first key with a member deadline, cut off to the shown length.
    pub first_member_key: Vec<u8>,
}

/// An item of a file.
#[derive(Debug)]
pub enum Item<'a> {
    /// A fact about the writer.
    Aux {
        /// The name, such as `redis-ver`.
        name: Text<'a>,
        /// The value.
        value: Text<'a>,
    },
    /// The following records are in this database.
    Database(u32),
    /// How many keys the database has, as a hint.
    Sizes {
        /// Number of all keys.
        keys: u64,
        /// Number of keys with a deadline.
        expiring: u64,
    },
    /// The code of a library of functions.
    Function(Text<'a>),
    /// A library in the format of a release candidate, as written: no released server accepts it.
    FunctionEarly(&'a [u8]),
    /// Data of a module that belongs to no key; it was skipped.
    ModuleAux(ModuleName),
    /// The number of keys in a cluster slot; it was skipped.
    Slot,
    /// Cluster slots that were about to move here; it was skipped.
    SlotImport,
    /// A key with its value.
    Record(Record<'a>),
}

/// A key with its value, which is not decoded yet.
#[derive(Debug)]
pub struct Record<'a> {
    /// The database that contains it.
    pub database: u32,
    /// The key.
    pub key: Text<'a>,
    /// When it expires, in milliseconds since 1970 UTC.
    pub deadline_unix_ms: Option<u64>,
    /// Its use before the file was written.
    pub usage: Option<Usage>,
    /// The code of the value's type.
    pub type_code: u8,
    /// The value: for [`read_value`], or [`value::read`].
    pub body: &'a [u8],
    /// Deadlines of its members: for [`read_value`], or [`member_deadlines::apply`].
    pub member_deadlines: &'a [u8],
    /// Offset of the value in the file.
    pub offset: u64,
}

/// The file's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The version has none.
    Absent,
    /// The writer did not compute it.
    Off,
    /// It is correct.
    Right(u64),
}

impl<'a> Record<'a> {
    /// Decodes the value, of a file of this version.
    ///
    /// # Errors
    /// [`Fault::Malformed`], with the offset in the file up to which the value was read, if known.
    pub fn value(&self, version: u16, limits: &Limits) -> Result<Value, FileError> {
        let reader = Reader::new(self.body, version, limits);
        let value = read_value(self.type_code, reader, self.member_deadlines);
        value.map_err(|(position, malformed)| FileError {
            offset: self.offset + position as u64,
            fault: malformed.into(),
        })
    }
}

/// Decodes a body that nothing follows except deadlines of its members.
///
/// # Errors
/// The fault, and its position in the body.
pub fn read_value(
    type_code: u8,
    mut reader: Reader<'_>,
    member_deadlines: &[u8],
) -> Result<Value, (usize, Malformed)> {
    let len = reader.rest().len();
    let value = value::read(type_code, &mut reader);
    let position = len - reader.rest().len();
    let mut value = value.map_err(|malformed| (position, malformed))?;
    if position < len {
        return Err((position, Malformed::Behind));
    }
    let applied = member_deadlines::apply(member_deadlines, reader.limits(), &mut value);
    applied.map_err(|malformed| (position, malformed))?;
    Ok(value)
}

/// A found item, as ranges of the input's present item.
enum Found {
    Aux(Range<usize>, Range<usize>),
    Database(u32),
    Sizes(u64, u64),
    Function(Range<usize>),
    FunctionEarly(Range<usize>),
    ModuleAux(ModuleName),
    Slot,
    SlotImport,
    Record {
        type_code: u8,
        key: Range<usize>,
        body: Range<usize>,
        member_deadlines: Range<usize>,
    },
    End,
}

impl<R: Read> FileReader<R> {
    /// Begins to read a file and checks its version.
    ///
    /// # Errors
    /// [`Fault::Magic`] and [`Fault::Version`] if it is not an RDB file, or has an unknown version.
    pub fn open(source: R, limits: Limits) -> Result<Self, FileError> {
        let mut input = Input::new(source, limits);
        let head = input.array::<HEAD_BYTES>();
        let begin = |fault| FileError { offset: 0, fault };
        let head = head.map_err(|error| match error.fault {
            Fault::Malformed(_) => begin(Fault::Magic),
            fault => begin(fault),
        })?;
        let version = version(head).ok_or_else(|| begin(Fault::Magic))?;
        if !is_read(version) {
            return Err(begin(Fault::Version(version)));
        }
        Ok(Self {
            input,
            version,
            database: 0,
            deadline_unix_ms: None,
            usage: None,
            checksum: None,
            templates: Templates::default(),
            expanded: Vec::new(),
            left_out: LeftOut::default(),
        })
    }

    /// Returns the version of the format.
    #[must_use]
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Returns how many bytes were read.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// Returns the file's checksum, once its end was reached.
    #[must_use]
    pub fn checksum(&self) -> Option<Checksum> {
        self.checksum
    }

    /// Returns what was left out up to here.
    #[must_use]
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Returns the next item, or `None` at the end if the file is complete.
    ///
    /// # Errors
    /// Damage, with its offset. The reader is unusable afterwards.
    #[allow(
        clippy::should_implement_trait,
        reason = "an item is borrowed, which no iterator can do"
    )]
    pub fn next(&mut self) -> Result<Option<Item<'_>>, FileError> {
        if self.checksum.is_some() {
            return Ok(None);
        }
        let found = self.find()?;
        let item = match found {
            Found::Aux(name, value) => Item::Aux {
                name: self.text(name)?,
                value: self.text(value)?,
            },
            Found::Database(number) => Item::Database(number),
            Found::Sizes(keys, expiring) => Item::Sizes { keys, expiring },
            Found::Function(code) => Item::Function(self.text(code)?),
            Found::FunctionEarly(library) => Item::FunctionEarly(self.input.part(library)),
            Found::ModuleAux(name) => Item::ModuleAux(name),
            Found::Slot => Item::Slot,
            Found::SlotImport => Item::SlotImport,
            Found::Record {
                type_code,
                key,
                body,
                member_deadlines,
            } => {
                let is_expanded = is_by_template(type_code);
                if is_expanded {
                    self.expand(type_code, body.clone())?;
                }
                Item::Record(Record {
                    database: self.database,
                    deadline_unix_ms: self.deadline_unix_ms.take(),
                    usage: self.usage.take(),
                    key: self.text(key)?,
                    type_code: if is_expanded { code::HASH } else { type_code },
                    offset: self.input.offset_of(body.start),
                    body: match is_expanded {
                        true => &self.expanded,
                        false => self.input.part(body),
                    },
                    member_deadlines: self.input.part(member_deadlines),
                })
            }
            Found::End => return Ok(None),
        };
        Ok(Some(item))
    }

    /// Checks that nothing follows the end.
    ///
    /// # Errors
    /// [`Malformed::Behind`]: several files in one, or a damaged version.
    pub fn expect_nothing_behind(&mut self) -> Result<(), FileError> {
        match self.input.is_at_end()? {
            true => Ok(()),
            false => Err(self.input.wrong(Malformed::Behind)),
        }
    }

    /// Returns what was read beyond the end, and the source of the rest.
    pub fn into_rest(self) -> (Vec<u8>, R) {
        self.input.into_rest()
    }

    fn find(&mut self) -> Result<Found, FileError> {
        loop {
            let input = &mut self.input;
            input.begin();
            match input.byte()? {
                opcode::AUX => return Ok(Found::Aux(input.text()?, input.text()?)),
                opcode::DATABASE => return self.find_database(),
                opcode::SIZES => return Ok(Found::Sizes(input.length()?, input.length()?)),
                opcode::DEADLINE_MS => {
                    let at = i64::from_le_bytes(input.array()?);
                    self.deadline_unix_ms = deadline(at);
                }
                opcode::DEADLINE_SECONDS => {
                    let at = i64::from(i32::from_le_bytes(input.array()?));
                    self.deadline_unix_ms = deadline(at * 1000);
                }
                opcode::IDLE => self.usage = Some(Usage::IdleSeconds(input.length()?)),
                opcode::FREQUENCY => self.usage = Some(Usage::Frequency(input.byte()?)),
                opcode::FUNCTION => return input.text().map(Found::Function),
                opcode::FUNCTION_EARLY => return self.find_early_function(),
                opcode::MODULE_AUX => return extent::pass_module(input).map(Found::ModuleAux),
                opcode::SLOT_INFO => {
                    extent::lengths(input, 3)?;
                    return Ok(Found::Slot);
                }
                opcode::SLOT_IMPORT if self.version == VERSION_VALKEY => {
                    extent::texts(input, 1)?;
                    extent::each(input, |input| extent::lengths(input, 2))?;
                    return Ok(Found::SlotImport);
                }
                opcode::METADATA if metadata::is_of(self.version) => {
                    extent::pass_metadata(input)?;
                    self.left_out.metadata_keys += 1;
                }
                opcode::TEMPLATE if self.has_templates() => self.take_template()?,
                opcode::END => return self.find_end(),
                type_code => return self.find_record(type_code),
            }
        }
    }

    fn has_templates(&self) -> bool {
        self.version >= TEMPLATES_VERSION && self.version != VERSION_VALKEY
    }

    /// Adds a template: its number, a count and as many names.
    fn take_template(&mut self) -> Result<(), FileError> {
        let input = &mut self.input;
        let begin = input.position();
        extent::lengths(input, 1)?;
        extent::each(input, |input| extent::texts(input, 1))?;
        let body = input.part(begin..input.position());
        let mut reader = Reader::new(body, self.version, input.limits());
        let offset = input.offset_of(begin);
        self.templates
            .add(&mut reader)
            .map_err(|malformed| FileError {
                offset,
                fault: malformed.into(),
            })
    }

    /// Expands a hash with a template.
    fn expand(&mut self, type_code: u8, body: Range<usize>) -> Result<(), FileError> {
        let input = &self.input;
        let offset = input.offset_of(body.start);
        let mut reader = Reader::new(input.part(body), self.version, input.limits());
        let expanded = self
            .templates
            .expand(type_code, &mut reader, &mut self.expanded);
        expanded.map_err(|malformed| FileError {
            offset,
            fault: malformed.into(),
        })
    }

    fn find_database(&mut self) -> Result<Found, FileError> {
        let number = u32::try_from(self.input.length()?);
        self.database = number.map_err(|_| self.input.wrong(Malformed::Number))?;
        Ok(Found::Database(self.database))
    }

    /// Reads name, engine, an optional description, and the code.
    fn find_early_function(&mut self) -> Result<Found, FileError> {
        let input = &mut self.input;
        let begin = input.position();
        extent::texts(input, 2)?;
        let has_description = input.length()? != 0;
        extent::texts(input, if has_description { 2 } else { 1 })?;
        Ok(Found::FunctionEarly(begin..input.position()))
    }

    fn find_record(&mut self, type_code: u8) -> Result<Found, FileError> {
        let input = &mut self.input;
        let type_offset = input.offset_of(0);
        let key = input.text();
        let begin = input.position();
        let key = key?;
        match extent::pass(input, type_code, self.version, &self.templates) {
            Ok(producers) => self.left_out.stream_producers += producers,
            // The type is wrong, not what follows the key.
            Err(FileError {
                fault: Fault::Malformed(Malformed::Type(code)),
                ..
            }) => {
                let fault = Fault::Type {
                    code,
                    version: self.version,
                    key: self.shown(key),
                };
                return Err(FileError {
                    offset: type_offset,
                    fault,
                });
            }
            Err(error) => return Err(error),
        }
        let end = self.input.position();
        let count = extent::pass_member_deadlines(&mut self.input)?;
        if count > 0 && !code::is_hash(type_code) {
            if self.left_out.member_deadlines == 0 {
                self.left_out.first_member_key = self.shown(key.clone());
            }
            self.left_out.member_deadlines += count;
        }
        Ok(Found::Record {
            type_code,
            key,
            body: begin..end,
            member_deadlines: end..self.input.position(),
        })
    }

    fn find_end(&mut self) -> Result<Found, FileError> {
        let input = &mut self.input;
        let mut checksum = Checksum::Absent;
        if self.version >= CHECKSUM_VERSION {
            let summed = input.sum();
            let offset = input.offset();
            let stated = u64::from_le_bytes(input.array()?);
            checksum = match stated {
                0 => Checksum::Off,
                _ if stated == summed => Checksum::Right(summed),
                _ => {
                    let fault = Fault::Checksum { stated, summed };
                    return Err(FileError { offset, fault });
                }
            };
        }
        self.checksum = Some(checksum);
        Ok(Found::End)
    }

    /// Returns a key, cut off to the shown length.
    fn shown(&self, key: Range<usize>) -> Vec<u8> {
        self.text(key).map_or_else(
            |_| Vec::new(),
            |key| {
                let bytes = key.as_bytes();
                bytes[..bytes.len().min(SHOWN_BYTES_MAX)].to_vec()
            },
        )
    }

    /// Returns the text in a part of the item.
    fn text(&self, range: Range<usize>) -> Result<Text<'_>, FileError> {
        let offset = self.input.offset_of(range.start);
        let mut reader = Reader::new(self.input.part(range), self.version, self.input.limits());
        reader.text().map_err(|malformed| FileError {
            offset,
            fault: malformed.into(),
        })
    }
}

/// Parses the version in a head.
fn version(head: [u8; HEAD_BYTES]) -> Option<u16> {
    let digits = head
        .strip_prefix(b"REDIS")
        .or_else(|| head.strip_prefix(b"VALKEY"))?;
    digits.iter().try_fold(0_u16, |number, digit| {
        let value = digit.is_ascii_digit().then(|| u16::from(digit - b'0'))?;
        Some(number * 10 + value)
    })
}

/// Converts a deadline from the file: -1 means none, and other negative values have long passed.
fn deadline(unix_ms: i64) -> Option<u64> {
    (unix_ms != -1).then(|| u64::try_from(unix_ms).unwrap_or(0))
}
