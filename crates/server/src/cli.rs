//! Conversion of `argv`, the environment, files and standard input to [`Settings`].
//!
//! The command line is Redis': `iolite [file] [--directive value ...] [-]`. Options become lines
//! below those of the file and of standard input (`-`), so one grammar serves all three. The last
//! value read wins, in the order defaults, environment, file, standard input, options. The
//! environment comes before the file so that values saved by CONFIG REWRITE hold after a restart.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use base::words;

use crate::cluster_tool::quoted;
use crate::config::{LoadError, Loader, Origin, Settings, read_file, system_reason};
use crate::group;
use crate::keeping::offline::Form;
use crate::log::Log;
use crate::{identity, system_check};
use persistence::check::{Checked, CheckedFile};
use persistence::recovery::Target;

mod order;
mod point;
mod tools;

use order::{Order, Wish};

/// What the command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// Run the server.
    Serve(Box<Startup>),
    /// Run a tool that works as a client of a server, with these words.
    Tool(tool::Tool, Vec<String>),
    /// Read these files, and report their contents.
    Check {
        /// The files.
        files: Vec<PathBuf>,
        /// Whether the report is JSON.
        is_json: bool,
    },
    /// Examine a running server.
    Doctor {
        /// The server.
        target: Box<tool::endpoint::Endpoint>,
        /// Whether the report is JSON.
        is_json: bool,
    },
    /// Show or change the control group of a running server.
    Cluster {
        /// The server.
        target: Box<tool::endpoint::Endpoint>,
        /// The request.
        wish: crate::cluster_tool::Wish,
        /// Whether the report is JSON.
        is_json: bool,
    },
    /// Make a control group that lost its majority continue with one node.
    Recover {
        /// The directory of its data.
        dir: PathBuf,
        /// Whether to do it, instead of only reporting what would be lost.
        is_confirmed: bool,
        /// Whether the report is JSON.
        is_json: bool,
    },
    /// Load a file into the data directory.
    Import {
        /// The settings of the data directory and of persistence.
        startup: Box<Startup>,
        /// The file.
        file: PathBuf,
        /// Whether the report is JSON.
        is_json: bool,
    },
    /// Write the data of the data directory into a file.
    Export {
        /// The settings of the data directory.
        startup: Box<Startup>,
        /// The file, or the directory of a log.
        file: PathBuf,
        /// The format of the file.
        form: Form,
        /// The version of the format, if one is requested.
        version: Option<u16>,
        /// Whether the report is JSON.
        is_json: bool,
    },
    /// Print `text` on standard output and exit with `code`.
    Print {
        /// The text, with its last newline.
        text: String,
        /// The exit code.
        code: u8,
    },
}

/// A server to start.
#[derive(Debug)]
pub struct Startup {
    /// The settings.
    pub settings: Settings,
    /// Where they came from.
    pub origin: Origin,
    /// Point up to which the data is loaded.
    pub recover_to: Target,
    /// Lines for the log, once it is open: settings accepted without effect, and the like.
    pub remarks: Vec<String>,
}

/// The command line, the environment or a file cannot be used: the caller prints this on standard
/// error and exits with 1.
#[derive(Debug)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl From<LoadError> for StartError {
    fn from(error: LoadError) -> Self {
        Self(error.to_string())
    }
}

/// Reads the command line `arguments` (the program first), `environment`, files and `stdin`. Has no
/// other effects.
///
/// # Errors
/// [`StartError`], whose text is for standard error.
pub fn read(
    arguments: Vec<OsString>,
    environment: impl Iterator<Item = (OsString, OsString)>,
    stdin: &mut dyn Read,
) -> Result<Invocation, StartError> {
    let program = arguments.first().cloned().unwrap_or_default();
    let options = arguments.get(1..).unwrap_or_default();
    if let Some((tool, words)) = tool_words(&program, options) {
        return Ok(Invocation::Tool(tool, words));
    }
    let started = tools::as_server(options);
    let options = started.as_deref().unwrap_or(options);
    if let Some(asked) = tools::read(options)? {
        return Ok(asked);
    }
    if let Some(printed) = special(&program, options)? {
        return Ok(printed);
    }
    let order = Order::read(options)?;
    let options = order.as_ref().map_or(options, |order| &order.options);
    let (options, recover_to) = point::take(options)?;
    let line = CommandLine::read(&options);
    let mut loader = Loader::new();
    loader.read_environment(environment)?;
    loader.read_text(&line.gather(stdin)?)?;
    loader.read_options(&line.lines)?;
    if order.as_ref().is_some_and(|order| order.is_json) {
        // Standard output is for the output that a program reads.
        loader.read_options(b"loglevel nothing")?;
    }
    let loaded = loader.finish()?;
    let mut remarks = Vec::new();
    if line.file.is_none() && !line.reads_stdin {
        remarks.push(format!(
            "No configuration file given, the defaults hold; to give one: {} /path/to/iolite.conf",
            program.display()
        ));
    }
    remarks.extend(loaded.remark);
    let startup = Box::new(Startup {
        settings: loaded.settings,
        origin: Origin {
            file: line.file,
            arguments,
        },
        recover_to,
        remarks,
    });
    Ok(invocation(startup, order))
}

/// Returns the order for a data directory, or otherwise the server to run.
fn invocation(startup: Box<Startup>, order: Option<Order>) -> Invocation {
    let Some(order) = order else {
        return Invocation::Serve(startup);
    };
    let Order { file, is_json, .. } = order;
    match order.wish {
        Wish::Import => Invocation::Import {
            startup,
            file,
            is_json,
        },
        Wish::Export(form, version) => Invocation::Export {
            startup,
            file,
            form,
            version,
            is_json,
        },
    }
}

impl Startup {
    /// Makes `dir` the working directory and opens the log there.
    ///
    /// # Errors
    /// The directory cannot be entered, or the log file cannot be written.
    pub fn enter(&mut self) -> Result<Log, StartError> {
        let refuse = |what: &str, error: &std::io::Error| {
            let reason = system_reason(error);
            StartError::from(LoadError::new(format!("{what}: {reason}")))
        };
        let entered = self.settings.enter_dir();
        entered.map_err(|error| refuse("Can't chdir to the directory of 'dir'", &error))?;
        let is_member = group::control::is_member(&self.settings.config().dir);
        self.settings.keep_log_in_group(is_member);
        let config = self.settings.config();
        if let Some(path) = &config.log_file {
            let opened = OpenOptions::new().append(true).create(true).open(path);
            opened.map_err(|error| refuse("Can't open the log file", &error))?;
        }
        Ok(Log::new(config.log_level, config.log_file))
    }
}

/// Returns the result of a check of files, as JSON.
#[must_use]
pub fn checked_json(checked: &Checked) -> String {
    let file = |file: &CheckedFile| {
        let lines: Vec<String> = file.found.lines().map(|line| quoted(line.trim())).collect();
        let damage = file.damage.as_deref().map(quoted);
        format!(
            "{{\"path\":{},\"is_good\":{},\"found\":[{}],\"damage\":{}}}",
            quoted(&file.path.to_string_lossy()),
            file.damage.is_none(),
            lines.join(","),
            damage.as_deref().unwrap_or("null")
        )
    };
    let files: Vec<String> = checked.files.iter().map(file).collect();
    let (is_good, files) = (checked.is_good, files.join(","));
    format!("{{\"is_good\":{is_good},\"files\":[{files}]}}")
}

/// Returns a tool with its words, if one is requested: as in `iolite bench`, or by a link to the
/// binary that is called `iolite-bench` or `redis-cli`. A configuration file called `bench` is
/// still `./bench`.
fn tool_words(program: &OsStr, options: &[OsString]) -> Option<(tool::Tool, Vec<String>)> {
    let name = Path::new(program).file_name().and_then(OsStr::to_str);
    let (tool, words) = match name.and_then(tool::Tool::by_link) {
        Some(tool) => (tool, options),
        None => {
            let (first, rest) = options.split_first()?;
            (tool::Tool::by_word(first.to_str()?)?, rest)
        }
    };
    let texts = words.iter().map(|word| word.to_string_lossy().into_owned());
    Some((tool, texts.collect()))
}

/// Handles what the first option alone decides.
fn special(program: &OsStr, options: &[OsString]) -> Result<Option<Invocation>, StartError> {
    let print = |text: String, code: u8| Ok(Some(Invocation::Print { text, code }));
    match options.first().map(|option| option.as_bytes()) {
        Some(b"-v" | b"--version") => print(identity::version_line(), 0),
        Some(b"-h" | b"--help" | b"help") => print(usage(program), 0),
        Some(b"--check-system") => {
            let report = system_check::report();
            print(report.text, u8::from(!report.is_good))
        }
        Some(b"--test-memory") => Err(StartError(
            "Iolite has no memory test. Use one that runs without an operating system, such as \
             memtest86+."
                .to_owned(),
        )),
        _ => Ok(None),
    }
}

/// The options, by kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct CommandLine {
    /// Absolute path of the file.
    file: Option<PathBuf>,
    reads_stdin: bool,
    /// Whether the file was named by letters alone.
    is_bare_word: bool,
    /// The options as lines of a file.
    lines: Vec<u8>,
}

impl CommandLine {
    fn read(options: &[OsString]) -> Self {
        let mut line = Self::default();
        let mut rest = options;
        if let [first, others @ ..] = options
            && !first.as_bytes().starts_with(b"-")
        {
            let path = Path::new(first);
            let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'-';
            line.is_bare_word = first.as_bytes().iter().all(is_letter);
            line.file = Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
            rest = others;
        }
        // While the option before it has no value, an argument that starts with `--` is its value.
        let mut may_be_option = true;
        for (at, option) in rest.iter().enumerate() {
            let option = option.as_bytes();
            let is_outermost = at + 1 == rest.len() || (at == 0 && line.file.is_none());
            if option == b"-" && is_outermost {
                line.reads_stdin = true;
            } else if let (true, Some(name)) = (may_be_option, option.strip_prefix(b"--")) {
                let next = rest.get(at + 1).map(|next| next.as_bytes());
                may_be_option = line.push_name(option, name, next);
            } else {
                line.lines
                    .extend_from_slice(words::quote(option).as_bytes());
                line.lines.push(b' ');
                may_be_option = true;
            }
        }
        line
    }

    /// Starts the line of `option`. Returns `true` if its value is already complete: in the same
    /// argument, or a `--save` without a value, which means no save points.
    fn push_name(&mut self, option: &[u8], name: &[u8], next: Option<&[u8]>) -> bool {
        if !self.lines.is_empty() {
            self.lines.push(b'\n');
        }
        self.lines.extend_from_slice(name);
        self.lines.push(b' ');
        if !words::split(option).is_ok_and(|parts| parts.len() == 1) {
            return true;
        }
        let lacks_value = next.is_none_or(|next| next.starts_with(b"--"));
        if lacks_value && option.eq_ignore_ascii_case(b"--save") {
            self.lines.extend_from_slice(b"\"\"");
            return true;
        }
        if lacks_value && option.eq_ignore_ascii_case(b"--witness") {
            self.lines.extend_from_slice(b"yes");
            return true;
        }
        false
    }

    /// Whether the word in place of a configuration file is no file, and does not look like one.
    fn is_unknown_word(&self) -> bool {
        self.is_bare_word && self.file.as_ref().is_some_and(|path| !path.exists())
    }

    /// Returns the lines of the file and of standard input, in this order.
    fn gather(&self, stdin: &mut dyn Read) -> Result<Vec<u8>, StartError> {
        let mut text = match &self.file {
            Some(path) if self.is_unknown_word() => {
                let word = path.file_name().unwrap_or_default();
                return Err(tools::unknown(&word.to_string_lossy()));
            }
            Some(path) => read_file(path)?,
            None => Vec::new(),
        };
        if self.reads_stdin {
            stdin.read_to_end(&mut text).map_err(|error| {
                let reason = system_reason(&error);
                StartError(format!(
                    "Can't read the configuration from standard input: {reason}"
                ))
            })?;
        }
        Ok(text)
    }
}

fn usage(program: &OsStr) -> String {
    let program = Path::new(program)
        .file_name()
        .unwrap_or_else(|| OsStr::new("iolite"));
    let program = program.display();
    format!(
        "Usage: {program} [/path/to/iolite.conf] [options] [-]
       {program} - (read the configuration from standard input)
       {program} -v or --version
       {program} -h or --help
       {program} --check-system
       {program} help [COMMAND]
       {program} bench [options] (measure a server; bench --help)
       {program} cli [options] [COMMAND ARGS...] (a client; cli --help)
       {program} top [options] (what a server does, once a second)
       {program} analyze FILE or --live (what takes the memory)
       {program} migrate SOURCE TARGET (copy keys between servers)
       {program} --recover-to POINT [options] (start with the data as it was then)
       {program} check FILE... (verify files, and tell what is in them)
       {program} doctor [-h HOST] [-p PORT] (say what is wrong with a server)
       {program} cluster COMMAND (the control group, and nodes that become a cluster)
       {program} import FILE [options] (load RDB or AOF into the data of --dir)
       {program} export FILE.rdb [--rdb-version N] [options] (write that data)
       {program} export --aof DIR [options] (the same, for Redis with appendonly)
       {program} completions SHELL, {program} man [COMMAND] (print them)

Options are the directives of the configuration file, with their values:
       {program} (run the server with the defaults)
       echo 'maxmemory 128mb' | {program} -
       {program} /etc/iolite/6379.conf
       {program} --port 7777 --threads 4
       {program} /etc/iolite/6379.conf --loglevel verbose --save \"\"

The environment sets directives too, below the file: IOLITE_MAXMEMORY=128mb,
or IOLITE_REQUIREPASS_FILE=/run/secrets/password for a secret kept in a file.

POINT is a sequence of the log (a number), a time as 2026-11-21T18:30:00Z, or one
in seconds since 1970 as @1795285800.250. What is behind it is set aside.
"
    )
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
