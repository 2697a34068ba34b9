//! The command line: `redis-benchmark`'s flags as they mean there, and ours beside them.

use std::path::PathBuf;
use std::time::Duration;

use crate::catalogue::{self, Test};
use crate::endpoint::{Address, Endpoint};
use crate::error::BenchError;
use crate::keys::KeyOrder;
use crate::secrecy::Secrecy;
use crate::template::Template;
use crate::workload::{Limit, Pace, ValueBytes, Workload};

mod arguments;
mod usage;

use arguments::Arguments;
pub use usage::usage;

/// Time of a run of a comparison or the suite, and before it, when none is given.
pub(crate) const RUN: Duration = Duration::from_secs(2);
/// See [`RUN`].
pub(crate) const WARM_UP: Duration = Duration::from_millis(300);

/// What the command line asks for.
#[derive(Clone, Debug)]
pub enum Job {
    /// Measure one server, or several in turns.
    Measure(Options),
    /// Measure the published workloads.
    Suite(Options),
    /// Open connections and leave them alone.
    Idle(Options),
    /// Make a page of measurements.
    Report(ReportOptions),
    /// Print this and end.
    Print(String),
}

/// What `report` takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportOptions {
    /// Files that `--json` wrote.
    pub inputs: Vec<PathBuf>,
    /// Where the page goes.
    pub output: Option<PathBuf>,
    /// Its heading.
    pub title: Option<String>,
}

/// What a measurement takes.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub struct Options {
    /// The server; in a comparison, how to enter each of them.
    pub endpoint: Endpoint,
    /// Servers that run already, by name.
    pub compare: Vec<(String, Address)>,
    /// Servers to be started, by name: the command.
    pub start: Vec<(String, String)>,
    /// Processors of started servers; empty for any.
    pub server_cpus: String,
    /// Turns of each server in a comparison.
    pub rounds: usize,
    /// What is measured, apart from the kind of request.
    pub shape: Workload,
    /// Values of `-P`, `-c` and `--threads`: every combination is measured.
    pub pipelines: Vec<usize>,
    /// See [`pipelines`](Self::pipelines).
    pub connections: Vec<usize>,
    /// See [`pipelines`](Self::pipelines).
    pub threads: Vec<usize>,
    /// Kinds of requests, each measured alone, or one mix.
    pub(crate) tests: Vec<Test>,
    /// Shares of kinds measured together; empty when each is measured alone.
    pub(crate) mix: Vec<(Template, u32)>,
    /// Share of the first server's throughput that is asked for, in an open run.
    pub rate_share: Option<f64>,
    /// Whether pauses of an open run are random.
    pub is_random: bool,
    /// Whether a time or a count was given.
    pub has_limit: bool,
    /// Whether every key is set before measuring.
    pub is_preloaded: bool,
    /// Whether data of the server may be deleted.
    pub may_flush: bool,
    /// Whether to start over at the end.
    pub is_endless: bool,
    /// A line a test.
    pub is_quiet: bool,
    /// Comma-separated values.
    pub is_csv: bool,
    /// Whether to show how it goes.
    pub shows_progress: bool,
    /// Digits after the point of `-q`'s latencies.
    pub precision: usize,
    /// Where measurements go.
    pub json: Option<PathBuf>,
    /// Names of the suite's workloads; empty for the published ones.
    pub only: Vec<String>,
    /// The largest key space of the suite.
    pub keys_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoint: Endpoint::new("server", Address::Tcp("127.0.0.1".to_owned(), 6379)),
            compare: Vec::new(),
            start: Vec::new(),
            server_cpus: String::new(),
            rounds: 5,
            shape: Workload::default(),
            pipelines: vec![1],
            connections: vec![50],
            threads: vec![1],
            tests: Vec::new(),
            mix: Vec::new(),
            rate_share: None,
            is_random: false,
            has_limit: false,
            is_preloaded: false,
            may_flush: false,
            is_endless: false,
            is_quiet: false,
            is_csv: false,
            shows_progress: true,
            precision: 3,
            json: None,
            only: Vec::new(),
            keys_max: u64::MAX,
        }
    }
}

/// Reads the words after `bench`.
///
/// # Errors
/// [`BenchError::Usage`].
pub fn read(words: Vec<String>) -> Result<Job, BenchError> {
    let mut arguments = Arguments::new(words);
    match arguments.peek() {
        Some("report") => {
            arguments.skip();
            read_report(arguments).map(Job::Report)
        }
        Some("suite") => {
            arguments.skip();
            read_measurement(arguments, Job::Suite)
        }
        _ => read_measurement(arguments, Job::Measure),
    }
}

fn read_report(mut arguments: Arguments) -> Result<ReportOptions, BenchError> {
    let mut report = ReportOptions::default();
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "-o" | "--output" => report.output = Some(arguments.value(&word)?.into()),
            "--title" => report.title = Some(arguments.value(&word)?),
            flag if flag.starts_with('-') && flag.len() > 1 => return Err(unknown(flag)),
            file => report.inputs.push(file.into()),
        }
    }
    if report.inputs.is_empty() {
        return Err(BenchError::Usage(
            "report needs files that --json wrote".to_owned(),
        ));
    }
    Ok(report)
}

fn read_measurement(mut arguments: Arguments, job: fn(Options) -> Job) -> Result<Job, BenchError> {
    let mut reader = Reader::default();
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "--help" => return Ok(Job::Print(usage())),
            "-v" | "--version" => return Ok(Job::Print(version())),
            flag if flag.starts_with('-') && flag.len() > 1 => {
                let is_known = reader.server_flag(flag, &mut arguments)?
                    || reader.secrecy_flag(flag, &mut arguments)?
                    || reader.load_flag(flag, &mut arguments)?
                    || reader.key_flag(flag, &mut arguments)?
                    || reader.pace_flag(flag, &mut arguments)?
                    || reader.output_flag(flag, &mut arguments)?;
                if !is_known {
                    return Err(unknown(flag));
                }
            }
            _ => {
                reader.command = arguments.rest(word);
                break;
            }
        }
    }
    let is_idle = reader.is_idle;
    let options = reader.finish()?;
    Ok(if is_idle {
        Job::Idle(options)
    } else {
        job(options)
    })
}

fn version() -> String {
    format!("iolite-bench {}\n", env!("CARGO_PKG_VERSION"))
}

fn unknown(flag: &str) -> BenchError {
    BenchError::Usage(format!("Unknown option {flag}; --help shows all"))
}

/// What `--tls` and its kin say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecrecyOptions {
    /// Who signs the server's certificate.
    pub authorities_file: Option<PathBuf>,
    /// A directory with more of them.
    pub authorities_directory: Option<PathBuf>,
    /// Whether any certificate will do.
    pub is_insecure: bool,
    /// The client's own certificate.
    pub certificate_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
    /// The name that the server's certificate has to be for.
    pub server_name: Option<String>,
    /// Ciphers of TLS 1.2.
    pub ciphers: String,
    /// Ciphers of TLS 1.3.
    pub cipher_suites: String,
}

/// Options while they are read.
#[derive(Debug, Default)]
struct Reader {
    options: Options,
    host: Option<String>,
    port: Option<u16>,
    socket: Option<PathBuf>,
    user: Option<String>,
    password: Option<String>,
    /// A request written out on the command line.
    command: Vec<String>,
    is_idle: bool,
    rate: Option<f64>,
    is_secret: bool,
    secrecy: SecrecyOptions,
}

impl Reader {
    /// Which server, and how to enter. `false` when the flag is another's; so below.
    fn server_flag(&mut self, flag: &str, from: &mut Arguments) -> Result<bool, BenchError> {
        let options = &mut self.options;
        match flag {
            "-h" => self.host = Some(from.value(flag)?),
            "-p" => self.port = Some(from.number(flag)?),
            "-s" => self.socket = Some(from.value(flag)?.into()),
            "-a" => self.password = Some(from.value(flag)?),
            "--user" => self.user = Some(from.value(flag)?),
            "-u" => self.read_uri(&from.value(flag)?)?,
            "--dbnum" => options.endpoint.database = from.number(flag)?,
            "-3" => options.endpoint.is_resp3 = true,
            "--server-pid" => options.endpoint.pid = Some(from.number(flag)?),
            "--compare" => {
                for pair in from.pairs(flag)? {
                    let address = parse_address(&pair.1)?;
                    options.compare.push((pair.0, address));
                }
            }
            "--start" => options.start.extend(from.pairs(flag)?),
            "--server-cpus" => options.server_cpus = from.value(flag)?,
            "--rounds" => options.rounds = from.positive(flag)?,
            "--flush" => options.may_flush = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// How connections are encrypted.
    fn secrecy_flag(&mut self, flag: &str, from: &mut Arguments) -> Result<bool, BenchError> {
        let secrecy = &mut self.secrecy;
        match flag {
            "--tls" => self.is_secret = true,
            "--sni" => secrecy.server_name = Some(from.value(flag)?),
            "--cacert" => secrecy.authorities_file = Some(from.value(flag)?.into()),
            "--cacertdir" => secrecy.authorities_directory = Some(from.value(flag)?.into()),
            "--insecure" => secrecy.is_insecure = true,
            "--cert" => secrecy.certificate_file = Some(from.value(flag)?.into()),
            "--key" => secrecy.key_file = Some(from.value(flag)?.into()),
            "--tls-ciphers" => secrecy.ciphers = from.value(flag)?,
            "--tls-ciphersuites" => secrecy.cipher_suites = from.value(flag)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What is sent, and by how many.
    fn load_flag(&mut self, flag: &str, from: &mut Arguments) -> Result<bool, BenchError> {
        let options = &mut self.options;
        match flag {
            "-c" => options.connections = from.positive_list(flag)?,
            "-P" => options.pipelines = from.positive_list(flag)?,
            "--threads" => options.threads = from.positive_list(flag)?,
            "--cpus" => options.shape.cpus = parse_cpus(&from.value(flag)?)?,
            "-d" => options.shape.value_bytes = parse_value_bytes(&from.value(flag)?)?,
            "-t" => options.tests = parse_tests(&from.value(flag)?)?,
            "--ratio" => options.mix = parse_ratio(&from.value(flag)?)?,
            "--mix" => options.mix = parse_mix(&from.value(flag)?)?,
            "--only" => {
                options.only = from.value(flag)?.split(',').map(str::to_owned).collect();
            }
            "-I" => self.is_idle = true,
            "-k" => match from.number::<u8>(flag)? {
                1 => {}
                _ => return Err(BenchError::Usage("-k 0 is not supported".to_owned())),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Which keys.
    fn key_flag(&mut self, flag: &str, from: &mut Arguments) -> Result<bool, BenchError> {
        let options = &mut self.options;
        match flag {
            "-r" => options.shape.key_space = parse_count(&from.value(flag)?)?.max(1),
            "--key-bytes" => options.shape.key_bytes = from.positive(flag)?,
            "--zipf" => {
                options.shape.key_order = KeyOrder::Zipf {
                    exponent: from.amount(flag)?,
                }
            }
            "--sequential" => options.shape.key_order = KeyOrder::Sequential,
            "--seed" => options.shape.seed = from.number(flag)?,
            "--preload" => options.is_preloaded = true,
            "--keys-max" => options.keys_max = parse_count(&from.value(flag)?)?.max(1),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// How fast, and how long.
    fn pace_flag(&mut self, flag: &str, from: &mut Arguments) -> Result<bool, BenchError> {
        let options = &mut self.options;
        match flag {
            "-n" => {
                options.shape.limit = Limit::Requests(parse_count(&from.value(flag)?)?);
                options.has_limit = true;
            }
            "--duration" => {
                options.shape.limit = Limit::Time(from.seconds(flag)?);
                options.has_limit = true;
            }
            "--warmup" => options.shape.warm_up = from.seconds(flag)?,
            "--rate" => {
                let text = from.value(flag)?;
                match text.strip_suffix('%') {
                    Some(percent) => options.rate_share = Some(parse_percent(percent)?),
                    None => self.rate = Some(parse_count(&text)?.max(1) as f64),
                }
            }
            "--poisson" => options.is_random = true,
            "-l" => options.is_endless = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// How results are shown.
    fn output_flag(&mut self, flag: &str, from: &mut Arguments) -> Result<bool, BenchError> {
        let options = &mut self.options;
        match flag {
            "-q" => options.is_quiet = true,
            "--csv" => options.is_csv = true,
            "--json" => options.json = Some(from.value(flag)?.into()),
            "--precision" => options.precision = from.number(flag)?,
            "--no-progress" => options.shows_progress = false,
            "-e" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `redis://user:password@host:port/database`; `rediss` for an encrypted connection.
    fn read_uri(&mut self, uri: &str) -> Result<(), BenchError> {
        let refuse = || BenchError::Usage(format!("Cannot understand the address '{uri}'"));
        let rest = match uri.strip_prefix("rediss://") {
            Some(rest) => {
                self.is_secret = true;
                rest
            }
            None => uri.strip_prefix("redis://").ok_or_else(refuse)?,
        };
        let (rest, database) = rest.split_once('/').unwrap_or((rest, ""));
        if !database.is_empty() {
            self.options.endpoint.database = database.parse().map_err(|_| refuse())?;
        }
        let host = match rest.rsplit_once('@') {
            None => rest,
            Some((credentials, host)) => {
                let (user, password) = credentials.split_once(':').unwrap_or(("", credentials));
                self.user = (!user.is_empty()).then(|| user.to_owned());
                self.password = Some(password.to_owned());
                host
            }
        };
        if let Address::Tcp(host, port) = parse_address(host)? {
            (self.host, self.port) = (Some(host), Some(port));
        }
        Ok(())
    }

    fn finish(self) -> Result<Options, BenchError> {
        let mut options = self.options;
        options.endpoint.address = match self.socket {
            Some(path) => Address::Unix(path),
            None => Address::Tcp(
                self.host.unwrap_or_else(|| "127.0.0.1".to_owned()),
                self.port.unwrap_or(6379),
            ),
        };
        if self.is_secret {
            let secrecy = Secrecy::load(self.secrecy).map_err(BenchError::Usage)?;
            options.endpoint.secrecy = Some(secrecy);
        }
        options.endpoint.credentials = self.password.map(|password| (self.user, password));
        if let Some(requests_per_second) = self.rate {
            let is_random = options.is_random;
            options.shape.pace = Pace::Open {
                requests_per_second,
                is_random,
            };
        }
        if !self.command.is_empty() {
            let template = Template::named(&self.command.join(" "), &self.command);
            options.tests = vec![Test {
                template,
                filled_by: Vec::new(),
            }];
            options.mix.clear();
        }
        if options.tests.is_empty() && options.mix.is_empty() {
            options.tests = catalogue::default_tests();
        }
        let is_comparison = !options.compare.is_empty() || !options.start.is_empty();
        if is_comparison && !options.has_limit {
            options.shape.limit = Limit::Time(RUN);
            options.shape.warm_up = WARM_UP;
            options.has_limit = true;
        }
        check(&options.shape)?;
        Ok(options)
    }
}

/// Refuses what contradicts itself.
fn check(shape: &Workload) -> Result<(), BenchError> {
    let digits_max = shape.key_space.saturating_sub(1).max(1).ilog10() as usize + 1;
    if shape.key_space > 1 << 32 {
        return Err(BenchError::Usage("-r: at most 4294967296 keys".to_owned()));
    }
    if shape.key_bytes < digits_max + 1 {
        return Err(BenchError::Usage(format!(
            "--key-bytes: {} keys need at least {} bytes",
            shape.key_space,
            digits_max + 1
        )));
    }
    Ok(())
}

/// `host:port`, `[::1]:port`, or the path of a Unix socket.
fn parse_address(text: &str) -> Result<Address, BenchError> {
    if text.starts_with('/') || text.starts_with('.') {
        return Ok(Address::Unix(text.into()));
    }
    let refuse = || BenchError::Usage(format!("Cannot understand the address '{text}'"));
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| refuse())?),
        None => (text, 6379),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(refuse());
    }
    Ok(Address::Tcp(host.to_owned(), port))
}

/// A count, `10000`, `10K` or `1.5M`.
fn parse_count(text: &str) -> Result<u64, BenchError> {
    let refuse = || BenchError::Usage(format!("'{text}' is not a count"));
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1e3),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1e6),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1e9),
        _ => return text.parse().map_err(|_| refuse()),
    };
    let number: f64 = digits.parse().map_err(|_| refuse())?;
    match number.is_finite() && number >= 0.0 {
        true => Ok(crate::units::whole(number * factor)),
        false => Err(refuse()),
    }
}

/// `50`, of 100.
fn parse_percent(text: &str) -> Result<f64, BenchError> {
    let percent = text
        .parse()
        .ok()
        .filter(|percent: &f64| percent.is_finite() && *percent > 0.0);
    let refuse = || BenchError::Usage(format!("'{text}%' is not a share"));
    percent.map(|percent| percent / 100.0).ok_or_else(refuse)
}

/// `64`, or `50-149`.
fn parse_value_bytes(text: &str) -> Result<ValueBytes, BenchError> {
    let refuse = || BenchError::Usage(format!("'{text}' is not a size such as 64 or 50-149"));
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    let min = min.parse().map_err(|_| refuse())?;
    let max = max.parse().map_err(|_| refuse())?;
    if min > max || max > 512 * 1024 * 1024 {
        return Err(refuse());
    }
    Ok(ValueBytes { min, max })
}

/// `1,4-6`.
pub(crate) fn parse_cpus(text: &str) -> Result<Vec<usize>, BenchError> {
    let refuse = || BenchError::Usage(format!("'{text}' is not a list such as 1,4-6"));
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.parse().map_err(|_| refuse())?;
        let last: usize = last.parse().map_err(|_| refuse())?;
        if last.saturating_sub(first) > 4096 {
            return Err(refuse());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// `set,get`.
fn parse_tests(text: &str) -> Result<Vec<Test>, BenchError> {
    let mut tests = Vec::new();
    for name in text.split(',').filter(|name| !name.is_empty()) {
        let found = catalogue::find(name);
        if found.is_empty() {
            let names = catalogue::names();
            return Err(BenchError::Usage(format!(
                "There is no test '{name}'; there are {names}"
            )));
        }
        tests.extend(found);
    }
    Ok(tests)
}

/// `1:9`, of SET to GET.
fn parse_ratio(text: &str) -> Result<Vec<(Template, u32)>, BenchError> {
    let refuse = || BenchError::Usage(format!("'{text}' is not a ratio such as 1:9"));
    let (set, get) = text.split_once(':').ok_or_else(refuse)?;
    let set = set.parse().map_err(|_| refuse())?;
    let get = get.parse().map_err(|_| refuse())?;
    let mix = Workload::set_get_mix(set, get);
    if mix.is_empty() {
        Err(refuse())
    } else {
        Ok(mix)
    }
}

/// `get=8,set=1,incr=1`.
fn parse_mix(text: &str) -> Result<Vec<(Template, u32)>, BenchError> {
    let refuse = || BenchError::Usage(format!("'{text}' is not a mix such as get=8,set=2"));
    let mut mix = Vec::new();
    for part in text.split(',') {
        let (name, weight) = part.split_once('=').ok_or_else(refuse)?;
        let weight: u32 = weight.parse().map_err(|_| refuse())?;
        for test in parse_tests(name)? {
            mix.push((test.template, weight));
        }
    }
    mix.retain(|(_, weight)| *weight > 0);
    if mix.is_empty() {
        Err(refuse())
    } else {
        Ok(mix)
    }
}

#[cfg(test)]
mod tests;
