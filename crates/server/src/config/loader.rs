//! Loading of settings at start: from the environment, then from lines of files, standard input and
//! `argv`.
//!
//! The last value read wins. Values are checked as they are read. Whether this version supports
//! them is checked at the end, on the final values, so that a later `save ""` makes an earlier
//! `save 3600 1` harmless.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use base::glob::{self, Case};
use base::words;

use super::directive::{Directive, Standing};
use super::directives;
use super::settings::Settings;
use super::table::FORGOTTEN_WORDS;
use super::value::{Gathering, is_pattern};
use crate::identity;
use base::os_error::system_reason;

/// Maximum depth of files that include one another.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Prefix of environment variables that set directives.
const VARIABLE_PREFIX: &str = "IOLITE_";
/// Rest of the names of variables that the tools and the Python package use. They may also be set
/// for a server.
const VARIABLES_OF_OTHERS: [&str; 4] = ["AUTH", "PROGRAM", "SOURCE_AUTH", "TARGET_AUTH"];
/// Suffix of variables that name a file with the value.
const VARIABLE_FILE_SUFFIX: &str = "_FILE";

/// Settings while they are loaded.
#[derive(Debug)]
pub(crate) struct Loader {
    settings: Settings,
    /// Where each directive was last set, in the order of the table.
    places: Vec<Option<Place>>,
}

/// Result of a [`Loader`].
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) settings: Settings,
    /// One line that names the settings without effect, if there are any.
    pub(crate) remark: Option<String>,
}

/// Where a value was read.
#[derive(Debug, Clone)]
struct Place {
    source: Source,
    /// The line, or the equivalent line.
    text: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// A line of a file, or of standard input after it.
    Line(usize),
    /// An option of the command line.
    Option,
    Variable(String),
}

/// Why the settings cannot be used; the text is for standard error.
#[derive(Debug)]
pub(crate) struct LoadError {
    place: Option<Place>,
    reason: String,
}

impl Loader {
    /// Starts with no directive set.
    pub(crate) fn new() -> Self {
        Self {
            settings: Settings::default(),
            places: vec![None; directives::all().len()],
        }
    }

    /// Reads the variables that set directives: `IOLITE_<DIRECTIVE>`, upper case with underscores,
    /// and `IOLITE_<DIRECTIVE>_FILE` for secrets. Other variables with the prefix are refused,
    /// because a misspelt `IOLITE_REQUIREPASS` would leave the server open.
    pub(crate) fn read_environment(
        &mut self,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<(), LoadError> {
        for (name, value) in variables {
            if let Some(name) = name.to_str()
                && let Some(rest) = name.strip_prefix(VARIABLE_PREFIX)
                && !VARIABLES_OF_OTHERS.contains(&rest)
                && !is_service_link(rest, value.as_bytes())
            {
                self.read_variable(name, rest, &value)?;
            }
        }
        Ok(())
    }

    fn read_variable(&mut self, name: &str, rest: &str, value: &OsStr) -> Result<(), LoadError> {
        let source = Source::Variable(name.to_owned());
        let refuse = |text: &[u8], reason: String| LoadError {
            place: Some(Place {
                source: source.clone(),
                text: text.to_vec(),
            }),
            reason,
        };
        if let Some((at, row)) = find_variable(rest) {
            return self.assign_text(at, row, value.as_bytes(), source);
        }
        if let Some(stem) = rest.strip_suffix(VARIABLE_FILE_SUFFIX)
            && let Some((at, row)) = find_variable(stem)
            && row.is_secret
        {
            let mut secret = std::fs::read(value).map_err(|error| {
                let (path, reason) = (Path::new(value).display(), system_reason(&error));
                refuse(
                    row.name.as_bytes(),
                    format!("Can't read the file '{path}': {reason}"),
                )
            })?;
            cut_line_end(&mut secret);
            return self.assign_text(at, row, &secret, source);
        }
        let mut reason = "No directive has this name in the environment".to_owned();
        let spelt = rest.to_ascii_lowercase().replace('_', "-");
        if let Some(near) = directives::find_nearest(spelt.as_bytes()) {
            let near = near.to_ascii_uppercase().replace('-', "_");
            reason = format!("{reason}; the nearest is {VARIABLE_PREFIX}{near}");
        }
        Err(refuse(name.as_bytes(), reason))
    }

    /// Sets a directive from one text that contains all its words.
    fn assign_text(
        &mut self,
        at: usize,
        row: &Directive,
        text: &[u8],
        source: Source,
    ) -> Result<(), LoadError> {
        let mut line = row.name.as_bytes().to_vec();
        line.push(b' ');
        line.extend_from_slice(words::quote(text).as_bytes());
        let place = Place {
            source,
            text: visible(row, &line),
        };
        self.assign(at, row, &[text.to_vec()], &place)
            .map_err(|reason| LoadError::at(place, reason))
    }

    /// Reads the lines of `text`.
    pub(crate) fn read_text(&mut self, text: &[u8]) -> Result<(), LoadError> {
        self.read_lines(text, 1, Source::Line)
    }

    /// Reads the options of the command line, each in the form of a line of a file.
    pub(crate) fn read_options(&mut self, lines: &[u8]) -> Result<(), LoadError> {
        self.read_lines(lines, 1, |_| Source::Option)
    }

    fn read_lines(
        &mut self,
        text: &[u8],
        depth: usize,
        source_of: fn(usize) -> Source,
    ) -> Result<(), LoadError> {
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = trim(line);
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let place = Place {
                source: source_of(index + 1),
                text: line.to_vec(),
            };
            self.read_line(place, depth)?;
        }
        Ok(())
    }

    fn read_line(&mut self, mut place: Place, depth: usize) -> Result<(), LoadError> {
        let Ok(parts) = words::split(&place.text) else {
            let reason = "Unbalanced quotes in configuration line";
            return Err(LoadError::at(place, reason.to_owned()));
        };
        let Some((name, arguments)) = parts.split_first() else {
            return Ok(());
        };
        if let Some((at, row, _)) = directives::find(name) {
            place.text = visible(row, &place.text);
            return self
                .assign(at, row, arguments, &place)
                .map_err(|reason| LoadError::at(place, reason));
        }
        if let ([pattern], true) = (arguments, name.eq_ignore_ascii_case(b"include")) {
            return self.include(pattern, place, depth);
        }
        if !arguments.is_empty() && name.eq_ignore_ascii_case(b"user") {
            self.settings.add_user(arguments);
            return Ok(());
        }
        if let ([name, new], true) = (arguments, name.eq_ignore_ascii_case(b"rename-command")) {
            self.settings.rename_command(name, new);
            return Ok(());
        }
        let is_forgotten = |word: &&str| name.eq_ignore_ascii_case(word.as_bytes());
        if arguments.len() == 1 && FORGOTTEN_WORDS.iter().any(is_forgotten) {
            return Ok(());
        }
        let reason = directives::find_refused(name).unwrap_or_else(|| unknown_directive(name));
        Err(LoadError::at(place, reason))
    }

    fn assign(
        &mut self,
        at: usize,
        row: &Directive,
        arguments: &[Vec<u8>],
        place: &Place,
    ) -> Result<(), String> {
        let from_line = |place: &Place| matches!(place.source, Source::Line(_) | Source::Option);
        let gathering = match &self.places[at] {
            Some(earlier) if from_line(earlier) => Gathering::Onto,
            _ => Gathering::Anew,
        };
        match arguments {
            [all] if row.kind.takes_words() && !all.is_empty() => {
                let several = words::split(all)
                    .map_err(|_| "Unbalanced quotes in configuration line".to_owned())?;
                self.settings.assign(at, &several, gathering)?;
            }
            _ => self.settings.assign(at, arguments, gathering)?,
        }
        self.places[at] = Some(place.clone());
        Ok(())
    }

    /// Reads the files that match `pattern`. Without wildcards the file must exist.
    fn include(&mut self, pattern: &[u8], place: Place, depth: usize) -> Result<(), LoadError> {
        if depth == INCLUDE_DEPTH_MAX {
            let reason = format!("More than {INCLUDE_DEPTH_MAX} files include one another");
            return Err(LoadError::at(place, reason));
        }
        let path = PathBuf::from(OsStr::from_bytes(pattern));
        if !is_pattern(pattern) {
            return self.read_lines(&read_file(&path)?, depth + 1, Source::Line);
        }
        for path in expand(&path) {
            self.read_lines(&read_file(&path)?, depth + 1, Source::Line)?;
        }
        Ok(())
    }

    /// Checks that this version supports the settings that were read.
    pub(crate) fn finish(mut self) -> Result<Loaded, LoadError> {
        self.settings.keep_log_in_group(false);
        let rows = directives::all().iter().zip(self.places).enumerate();
        let mut without_effect: Vec<(&str, Vec<&str>)> = Vec::new();
        for (at, (row, place)) in rows {
            let Some(place) = place else { continue };
            if let Err(reason) = row.check_standing(self.settings.value(at)) {
                return Err(LoadError::at(place, reason));
            }
            if let Standing::WithoutEffect { reason } = row.standing {
                match without_effect
                    .iter_mut()
                    .find(|(other, _)| *other == reason)
                {
                    Some((_, names)) => names.push(row.name),
                    None => without_effect.push((reason, vec![row.name])),
                }
            }
        }
        Ok(Loaded {
            settings: self.settings,
            remark: remark_on(&without_effect),
        })
    }
}

impl LoadError {
    /// An error that no single line causes.
    pub(crate) fn new(reason: String) -> Self {
        Self {
            place: None,
            reason,
        }
    }

    fn at(place: Place, reason: String) -> Self {
        Self {
            place: Some(place),
            reason,
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = identity::IOLITE_VERSION;
        write!(f, "\n*** FATAL CONFIG FILE ERROR (Iolite {version}) ***\n")?;
        if let Some(place) = &self.place {
            match &place.source {
                Source::Line(line) => {
                    writeln!(f, "Reading the configuration file, at line {line}")?;
                }
                Source::Option => writeln!(f, "Reading the command line")?,
                Source::Variable(name) => writeln!(f, "Reading the environment variable {name}")?,
            }
            writeln!(f, ">>> '{}'", String::from_utf8_lossy(&place.text))?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for LoadError {}

/// Returns Redis' text, and the name that was probably meant.
fn unknown_directive(name: &[u8]) -> String {
    let mut reason = "Bad directive or wrong number of arguments".to_owned();
    if let Some(near) = directives::find_nearest(name) {
        reason = format!("{reason}; the nearest directive is '{near}'");
    }
    reason
}

/// Returns the bytes of a configuration file.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, LoadError> {
    std::fs::read(path).map_err(|error| {
        let (path, reason) = (path.display(), system_reason(&error));
        LoadError::new(format!(
            "Fatal error, can't open config file '{path}': {reason}"
        ))
    })
}

/// Returns the files that match `pattern`, sorted by name.
fn expand(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let part = part.as_os_str();
        if !is_pattern(part.as_bytes()) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        found = found
            .iter()
            .flat_map(|path| matching_entries(path, part))
            .collect();
    }
    found.retain(|path| path.exists());
    found
}

/// Returns the entries of `dir` that match `pattern`; hidden entries only if `pattern` starts with
/// a dot.
fn matching_entries(dir: &Path, pattern: &OsStr) -> Vec<PathBuf> {
    let pattern = pattern.as_bytes();
    let place = if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    };
    let Ok(entries) = std::fs::read_dir(place) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| !name.as_bytes().starts_with(b".") || pattern.starts_with(b"."))
        .filter(|name| glob::matches(pattern, name.as_bytes(), Case::Sensitive))
        .map(|name| dir.join(name))
        .collect();
    paths.sort();
    paths
}

/// Returns the directive for the environment's spelling `name`.
fn find_variable(name: &str) -> Option<(usize, &'static Directive)> {
    let same = |spelling: &str| spelling.to_ascii_uppercase().replace('-', "_") == name;
    let mut rows = directives::all().iter().enumerate();
    rows.find(|(_, row)| row.names().any(same))
        .map(|(at, row)| (at, *row))
}

/// Whether Kubernetes made this variable for a service whose name starts with `iolite`, such as
/// `IOLITE_PORT=tcp://10.0.0.1:6379` or `IOLITE_PORT_6379_TCP_ADDR=10.0.0.1`.
fn is_service_link(rest: &str, value: &[u8]) -> bool {
    let address = [b"tcp://".as_slice(), b"udp://", b"sctp://"];
    let is_address = address.iter().any(|start| value.starts_with(start));
    let after_port = rest.split("PORT_").nth(1).unwrap_or_default();
    is_address
        || rest.contains("SERVICE_HOST")
        || rest.contains("SERVICE_PORT")
        || after_port.starts_with(|first: char| first.is_ascii_digit())
}

/// Returns `line`, without its value if that is a secret.
fn visible(row: &Directive, line: &[u8]) -> Vec<u8> {
    if row.is_secret {
        format!("{} (hidden)", row.name).into_bytes()
    } else {
        line.to_vec()
    }
}

fn remark_on(without_effect: &[(&str, Vec<&str>)]) -> Option<String> {
    let groups: Vec<String> = without_effect
        .iter()
        .map(|(reason, names)| format!("{} ({reason})", names.join(", ")))
        .collect();
    let text = groups.join("; ");
    (!text.is_empty()).then(|| format!("Accepted without effect: {text}"))
}

fn trim(line: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| b" \t\r\n".contains(byte);
    let start = line.iter().take_while(|byte| is_blank(byte)).count();
    let line = &line[start..];
    let end = line.iter().rev().take_while(|byte| is_blank(byte)).count();
    &line[..line.len() - end]
}

fn cut_line_end(text: &mut Vec<u8>) {
    if text.last() == Some(&b'\n') {
        text.pop();
        if text.last() == Some(&b'\r') {
            text.pop();
        }
    }
}
