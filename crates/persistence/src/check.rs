//! `iolite check FILE…`: reads files without loading them, and reports their content.
//!
//! Every value is decoded as if it were loaded, so a file that passes can be imported. The exit
//! code is 0 if all files are whole, and 1 otherwise. A directory with append-only files stands for
//! all of them, and so does a directory with data of our own: its checkpoint with all parts, and
//! the log behind it.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use engine::{Settings, Table};
use rdb::file::{Checksum, Fault, FileError, FileReader, Item, Record};
use rdb::{Malformed, Value};
use structures::Kind;

use super::aof::Flaw;
use base::os_error::system_reason;

mod append_only;
mod native;

use native::Native;

/// Maximum bytes of a value about the writer that are shown.
const SHOWN_BYTES_MAX: usize = 100;

/// The result of checking some files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Text for the operator, including its last newline.
    pub text: String,
    /// Whether all files are whole.
    pub is_good: bool,
    /// The same, file by file.
    pub files: Vec<CheckedFile>,
}

/// The result of checking a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedFile {
    /// The file.
    pub path: PathBuf,
    /// Its content, in lines for the operator.
    pub found: String,
    /// Why it is not whole, or `None` if it is.
    pub damage: Option<String>,
}

/// Checks the files at `paths`, which contain commands of `table`.
#[must_use]
pub fn files(table: &'static Table, paths: &[PathBuf]) -> Checked {
    let mut checked = Checked {
        text: String::new(),
        is_good: !paths.is_empty(),
        files: Vec::new(),
    };
    if paths.is_empty() {
        checked.text.push_str("Usage: iolite check FILE...\n");
    }
    for path in paths {
        if let Some(native) = Native::at(path) {
            let mut words = String::new();
            let outcome = native.check(paths, &mut words);
            checked.add(native.path(), &words, outcome);
            continue;
        }
        for (path, place) in append_only::expand(path) {
            let (findings, outcome) = match place {
                Ok(place) => file(table, &path, place),
                Err(damage) => (Findings::default(), Err(damage)),
            };
            checked.add(&path, &findings, outcome);
        }
    }
    checked
}

impl Checked {
    fn add(&mut self, path: &Path, found: &dyn fmt::Display, outcome: Result<(), Damage>) {
        self.is_good &= outcome.is_ok();
        let damage = outcome.err().map(|damage| damage.to_string());
        let verdict = match &damage {
            None => "OK".to_owned(),
            Some(damage) => format!("DAMAGED: {damage}"),
        };
        // Writing to a string does not fail.
        let _always = write!(self.text, "{}\n{found}  {verdict}\n", path.display());
        self.files.push(CheckedFile {
            path: path.to_owned(),
            found: found.to_string(),
            damage,
        });
    }
}

/// Why a file is not whole.
enum Damage {
    System(io::Error),
    File(FileError),
    Log(Flaw),
    /// A message, with the file and the position in it.
    Native(String),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(error) => f.write_str(&system_reason(error)),
            Self::File(error) => error.fmt(f),
            Self::Log(flaw) => flaw.fmt(f),
            Self::Native(what) => f.write_str(what),
        }
    }
}

impl From<FileError> for Damage {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl From<io::Error> for Damage {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Kinds of files other than a file of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Whether the manifest of a log names it.
    is_of_log: bool,
    /// Whether it is the last file of that log.
    is_last: bool,
}

fn file(table: &'static Table, path: &Path, place: Place) -> (Findings, Result<(), Damage>) {
    let mut findings = Findings::default();
    let outcome = File::open(path)
        .map_err(Damage::System)
        .and_then(|file| open_file(table, file, place, &mut findings));
    (findings, outcome)
}

/// Checks a file with records, requests, or both in this order.
fn open_file(
    table: &'static Table,
    mut file: File,
    place: Place,
    findings: &mut Findings,
) -> Result<(), Damage> {
    let mut offset = 0;
    let has_requests = append_only::are_requests_at(&mut file, offset)?;
    if !(has_requests || place.is_of_log && file.metadata()?.len() == 0) {
        let mut reader = rdb_file(&file, findings)?;
        offset = reader.offset();
        let mut behind = file.try_clone()?;
        if !append_only::are_requests_at(&mut behind, offset)? {
            return Ok(reader.expect_nothing_behind()?);
        }
    }
    append_only::requests(table, &mut file, offset, place, findings).map_err(Damage::Log)
}

/// Reads records up to their end.
fn rdb_file<R: Read>(source: R, findings: &mut Findings) -> Result<FileReader<R>, Damage> {
    let limits = Settings::default().value_limits();
    let mut reader = FileReader::open(source, limits)?;
    let version = reader.version();
    findings.version = version;
    while let Some(item) = reader.next()? {
        match item {
            Item::Record(record) => match record.value(version, &limits) {
                Ok(value) => findings.count(&record, &value),
                // Old servers wrote such keys, and a load leaves them out.
                Err(error) if matches!(error.fault, Fault::Malformed(Malformed::Empty)) => {
                    findings.empty_keys += 1;
                }
                Err(error) => return Err(error.into()),
            },
            Item::Aux { name, value } => {
                let value = value.as_bytes();
                let shown = &value[..value.len().min(SHOWN_BYTES_MAX)];
                let name = name.as_bytes().escape_ascii();
                findings.line(format_args!("{name}: {}", shown.escape_ascii()));
            }
            Item::Function(_) => findings.functions += 1,
            Item::FunctionEarly(_) => findings.line(format_args!(
                "functions in the format of a release candidate (not loaded)"
            )),
            Item::ModuleAux(name) => {
                findings.line(format_args!("data of the module type {name} (not loaded)"));
            }
            Item::SlotImport => findings.line(format_args!("slots that were about to move")),
            Item::Database(_) | Item::Sizes { .. } | Item::Slot => {}
        }
    }
    let left_out = reader.left_out();
    if left_out.metadata_keys > 0 {
        findings.line(format_args!(
            "metadata of modules beside {} keys (not loaded)",
            left_out.metadata_keys
        ));
    }
    if left_out.stream_producers > 0 {
        findings.line(format_args!(
            "{} idempotent producers of streams (not loaded)",
            left_out.stream_producers
        ));
    }
    if left_out.member_deadlines > 0 {
        findings.line(format_args!(
            "{} deadlines of members of sets and sorted sets (not loaded), the first at the key '{}'",
            left_out.member_deadlines,
            left_out.first_member_key.escape_ascii()
        ));
    }
    findings.checksum = reader.checksum();
    findings.bytes = reader.offset();
    Ok(reader)
}

/// The content of a file.
#[derive(Default)]
struct Findings {
    version: u16,
    bytes: u64,
    checksum: Option<Checksum>,
    databases: BTreeMap<u32, Counts>,
    functions: u64,
    empty_keys: u64,
    /// Other lines.
    lines: String,
    /// The content behind the records.
    requests: String,
}

/// The keys of one database.
#[derive(Default)]
struct Counts {
    keys: u64,
    with_deadline: u64,
    kinds: BTreeMap<&'static str, u64>,
}

impl Findings {
    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _always = writeln!(self.lines, "  {line}");
    }

    fn write_head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  RDB version {}", self.version)?;
        if self.bytes > 0 {
            write!(f, ", {} bytes", self.bytes)?;
        }
        match self.checksum {
            Some(Checksum::Right(sum)) => writeln!(f, ", checksum {sum:016x} is right"),
            Some(Checksum::Off | Checksum::Absent) => writeln!(f, ", without a checksum"),
            None => writeln!(f),
        }
    }

    fn count(&mut self, record: &Record<'_>, value: &Value) {
        let counts = self.databases.entry(record.database).or_default();
        counts.keys += 1;
        counts.with_deadline += u64::from(record.deadline_unix_ms.is_some());
        let kind = match value {
            Value::String(_) => "string",
            Value::Object(object) => Kind::name(object.kind()),
        };
        *counts.kinds.entry(kind).or_default() += 1;
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.version > 0 {
            self.write_head(f)?;
        }
        f.write_str(&self.lines)?;
        if self.functions > 0 {
            writeln!(f, "  libraries of functions: {}", self.functions)?;
        }
        if self.empty_keys > 0 {
            writeln!(
                f,
                "  keys without elements (not loaded): {}",
                self.empty_keys
            )?;
        }
        for (number, counts) in &self.databases {
            let (keys, with_deadline) = (counts.keys, counts.with_deadline);
            write!(
                f,
                "  database {number}: {keys} keys, {with_deadline} with a deadline"
            )?;
            for (at, (kind, count)) in counts.kinds.iter().enumerate() {
                let before = if at == 0 { ": " } else { ", " };
                write!(f, "{before}{count} {kind}")?;
            }
            writeln!(f)?;
        }
        f.write_str(&self.requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdb::Style;
    use rdb::file::{Content, Entry, FileWriter};

    fn written() -> Vec<u8> {
        let style = Style {
            version: 11,
            compresses: true,
        };
        let mut writer = FileWriter::new(Vec::new(), style, true);
        writer.aux("redis-ver", b"7.2.4").unwrap();
        writer.database(3, || None).unwrap();
        for (key, deadline_unix_ms) in [(b"a", None), (b"b", Some(4_000_000_000_000))] {
            let entry = Entry {
                key,
                deadline_unix_ms,
                usage: None,
                content: Content::Text(b"text"),
            };
            writer.record(&entry).unwrap();
        }
        writer.finish().unwrap();
        writer.into_sink()
    }

    #[test]
    fn what_is_in_a_file_is_told() {
        let mut findings = Findings::default();
        assert!(rdb_file(&written()[..], &mut findings).is_ok());
        let text = findings.to_string();
        assert!(text.contains("  RDB version 11, "), "{text}");
        assert!(text.contains(" is right\n  redis-ver: 7.2.4\n"), "{text}");
        let database = "  database 3: 2 keys, 1 with a deadline: 2 string\n";
        assert!(text.ends_with(database), "{text}");
    }

    #[test]
    fn damage_is_told_with_its_offset_and_what_was_read_before_it() {
        let mut file = written();
        let at = file.len() - 1;
        file[at] ^= 1;
        let path = std::env::temp_dir().join(format!("iolite-check-{}.rdb", std::process::id()));
        std::fs::write(&path, &file).unwrap();
        let checked = files(testkit::table(), std::slice::from_ref(&path));
        std::fs::remove_file(&path).unwrap();
        assert!(!checked.is_good);
        let offset = format!("  DAMAGED: at offset {}: the checksum is ", file.len() - 8);
        assert!(checked.text.contains(&offset), "{}", checked.text);
        assert!(checked.text.contains("database 3: 2 keys"));
        let missing = files(testkit::table(), &[path]);
        assert!(!missing.is_good && missing.text.contains("No such file"));
        assert!(!files(testkit::table(), &[]).is_good);
    }
}
