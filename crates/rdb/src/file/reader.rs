//! The reader: one item after the other, each borrowed until the next is asked for.

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

/// Reads a file from its front, once.
#[derive(Debug)]
pub struct FileReader<R> {
    input: Input<R>,
    version: u16,
    database: u32,
    deadline_unix_ms: Option<u64>,
    usage: Option<Usage>,
    checksum: Option<Checksum>,
    templates: Templates,
    /// The body of a hash by a template, made whole.
    expanded: Vec<u8>,
    left_out: LeftOut,
}

/// What was in a file at keys that were read, and is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Keys with metadata of modules.
    pub metadata_keys: u64,
    /// Producers of streams, whose repeated requests are not recognized any more.
    pub stream_producers: u64,
    /// Deadlines of members of sets and sorted sets.
    pub member_deadlines: u64,
    /// The first key with such, as far as it is shown.
    pub first_member_key: Vec<u8>,
}

/// What a file has to say.
#[derive(Debug)]
pub enum Item<'a> {
    /// What the writer tells about itself.
    Aux {
        /// The name: `redis-ver` and so on.
        name: Text<'a>,
        /// What it is.
        value: Text<'a>,
    },
    /// The records that follow are in this database.
    Database(u32),
    /// How many keys the database has, as a hint.
    Sizes {
        /// All of them.
        keys: u64,
        /// Those with a deadline.
        expiring: u64,
    },
    /// A library of functions: its code.
    Function(Text<'a>),
    /// A library of a release candidate, as it is written: no server of a release takes it.
    FunctionEarly(&'a [u8]),
    /// Something of a module that belongs to no key; it was passed.
    ModuleAux(ModuleName),
    /// How many keys a slot of a cluster has; it was passed.
    Slot,
    /// Slots of a cluster were about to move here; it was passed.
    SlotImport,
    /// A key with its value.
    Record(Record<'a>),
}

/// A key with its value, which is not understood yet.
#[derive(Debug)]
pub struct Record<'a> {
    /// The database it is in.
    pub database: u32,
    /// The key.
    pub key: Text<'a>,
    /// When it stops existing, in milliseconds since 1970 UTC.
    pub deadline_unix_ms: Option<u64>,
    /// How it was used.
    pub usage: Option<Usage>,
    /// The code of the value's type.
    pub type_code: u8,
    /// The value: for [`read_value`], or [`value::read`].
    pub body: &'a [u8],
    /// Deadlines of its members: for [`read_value`], or [`member_deadlines::apply`].
    pub member_deadlines: &'a [u8],
    /// Where in the file the value is.
    pub offset: u64,
}

/// What a file says about its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Its version has none.
    Absent,
    /// Its writer did not sum them up.
    Off,
    /// It is right.
    Right(u64),
}

impl<'a> Record<'a> {
    /// The value, of a file of this version.
    ///
    /// # Errors
    /// [`Fault::Malformed`], with where in the file the value is: how far was read of it, as far as
    /// that is known.
    pub fn value(&self, version: u16, limits: &Limits) -> Result<Value, FileError> {
        let reader = Reader::new(self.body, version, limits);
        let value = read_value(self.type_code, reader, self.member_deadlines);
        value.map_err(|(position, malformed)| FileError {
            offset: self.offset + position as u64,
            fault: malformed.into(),
        })
    }
}

/// The value of a body that has nothing after it but deadlines of its members.
///
/// # Errors
/// What is wrong, and how far into the body it was seen.
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

/// What was found: parts of the item that the input holds.
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
    /// Begins to read: the version.
    ///
    /// # Errors
    /// [`Fault::Magic`] and [`Fault::Version`] when it is no such file, or of an unknown version.
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

    /// The version of the format.
    #[must_use]
    pub fn version(&self) -> u16 {
        self.version
    }

    /// How many bytes were read.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// What the file says about its bytes, once its end was reached.
    #[must_use]
    pub fn checksum(&self) -> Option<Checksum> {
        self.checksum
    }

    /// What was left out up to here.
    #[must_use]
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// The next item; none at the end, if the file is whole.
    ///
    /// # Errors
    /// Damage, with its offset. The reader is of no use then.
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

    /// Makes sure that nothing follows the end.
    ///
    /// # Errors
    /// [`Malformed::Behind`]: a file that was not written as one, or of a damaged version.
    pub fn expect_nothing_behind(&mut self) -> Result<(), FileError> {
        match self.input.is_at_end()? {
            true => Ok(()),
            false => Err(self.input.wrong(Malformed::Behind)),
        }
    }

    /// What follows the end: what was read of it, and the source for the rest.
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

    /// Keeps a template: its number, a count and as many names.
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

    /// Makes a hash by a template whole.
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

    /// Name, engine, a description or none, and the code.
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
            // It is the type that is wrong, not what follows the key.
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

    /// A key as it is shown.
    fn shown(&self, key: Range<usize>) -> Vec<u8> {
        self.text(key).map_or_else(
            |_| Vec::new(),
            |key| {
                let bytes = key.as_bytes();
                bytes[..bytes.len().min(SHOWN_BYTES_MAX)].to_vec()
            },
        )
    }

    /// The text in a part of the item.
    fn text(&self, range: Range<usize>) -> Result<Text<'_>, FileError> {
        let offset = self.input.offset_of(range.start);
        let mut reader = Reader::new(self.input.part(range), self.version, self.input.limits());
        reader.text().map_err(|malformed| FileError {
            offset,
            fault: malformed.into(),
        })
    }
}

/// The version that a head tells.
fn version(head: [u8; HEAD_BYTES]) -> Option<u16> {
    let digits = head
        .strip_prefix(b"REDIS")
        .or_else(|| head.strip_prefix(b"VALKEY"))?;
    digits.iter().try_fold(0_u16, |number, digit| {
        let value = digit.is_ascii_digit().then(|| u16::from(digit - b'0'))?;
        Some(number * 10 + value)
    })
}

/// A deadline as it is written: -1 is none, and anything else below 0 has long passed.
fn deadline(unix_ms: i64) -> Option<u64> {
    (unix_ms != -1).then(|| u64::try_from(unix_ms).unwrap_or(0))
}
