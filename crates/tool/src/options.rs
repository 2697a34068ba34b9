//! The command line: `redis-benchmark`'s flags with their meaning there, and our own.

use std::path::PathBuf;
use std::time::Duration;

use clap::ArgMatches;
use clap::error::ErrorKind;

use crate::catalogue::{self, Test};
use crate::endpoint::{Address, Endpoint};
use crate::error::BenchError;
use crate::keys::KeyOrder;
use crate::template::Template;
use crate::tls::TlsClient;
use crate::workload::{Limit, Pace, ValueBytes, Workload};

pub(crate) mod command;
mod given;

pub use command::command;
pub(crate) use given::Given;

/// Program name in messages.
const NAME: &str = "iolite bench";

/// Default duration of a run of a comparison or the suite, and of its warm-up.
pub(crate) const RUN: Duration = Duration::from_secs(2);
/// See [`RUN`].
pub(crate) const WARM_UP: Duration = Duration::from_millis(300);

/// The job that the command line requests.
#[derive(Clone, Debug)]
pub enum Job {
    /// Measure one server, or several in turns.
    Measure(Options),
    /// Measure the published workloads.
    Suite(Options),
    /// Open connections and leave them idle.
    Idle(Options),
    /// Make a page of measurements.
    Report(ReportOptions),
    /// Print this and end.
    Print(String),
}

/// Options of `report`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportOptions {
    /// Files that `--json` wrote.
    pub inputs: Vec<PathBuf>,
    /// Path of the page.
    pub output: Option<PathBuf>,
    /// Its heading.
    pub title: Option<String>,
}

/// Options of a measurement.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub struct Options {
    /// The server; in a comparison, the credentials for each of them.
    pub endpoint: Endpoint,
    /// Servers that are already running, by name.
    pub compare: Vec<(String, Address)>,
    /// Commands of servers to be started, by name.
    pub start: Vec<(String, String)>,
    /// Processors for started servers; empty for any.
    pub server_cpus: String,
    /// Number of turns of each server in a comparison.
    pub rounds: usize,
    /// The workload, apart from the kind of request.
    pub shape: Workload,
    /// Values of `-P`, `-c` and `--threads`: every combination is measured.
    pub pipelines: Vec<usize>,
    /// See [`pipelines`](Self::pipelines).
    pub connections: Vec<usize>,
    /// See [`pipelines`](Self::pipelines).
    pub threads: Vec<usize>,
    /// Kinds of requests: each is measured alone, unless there is a mix.
    pub(crate) tests: Vec<Test>,
    /// Shares of kinds that are measured together; empty if each is measured alone.
    pub(crate) mix: Vec<(Template, u32)>,
    /// For an open run: the rate as a share of the first server's throughput.
    pub rate_share: Option<f64>,
    /// Whether the pauses of an open run are random.
    pub is_random: bool,
    /// Whether a time or a count was given.
    pub has_limit: bool,
    /// Whether every key is set before measuring.
    pub is_preloaded: bool,
    /// Whether the server's data may be deleted.
    pub may_flush: bool,
    /// Whether to start over at the end.
    pub is_endless: bool,
    /// Whether to print one line per test.
    pub is_quiet: bool,
    /// Whether to print comma-separated values.
    pub is_csv: bool,
    /// Whether to show progress.
    pub shows_progress: bool,
    /// Digits after the point in the latencies of `-q`.
    pub precision: usize,
    /// The file for measurements.
    pub json: Option<PathBuf>,
    /// Names of the suite's workloads; empty for the published ones.
    pub only: Vec<String>,
    /// Maximum key space of the suite.
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

/// Parses the words after `bench`.
///
/// # Errors
/// [`BenchError::Usage`].
pub fn read(words: Vec<String>) -> Result<Job, BenchError> {
    let words = std::iter::once(NAME.to_owned()).chain(words);
    let matches = match command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            return Ok(Job::Print(error.to_string()));
        }
        Err(error) => return Err(BenchError::Usage(error.to_string().trim_end().to_owned())),
    };
    match matches.subcommand() {
        Some(("report", given)) => Ok(Job::Report(report_of(given))),
        Some((_suite, given)) => measurement_of(&Given(given), Job::Suite),
        None => measurement_of(&Given(&matches), Job::Measure),
    }
}

fn report_of(given: &ArgMatches) -> ReportOptions {
    let path = |id| given.get_one::<PathBuf>(id).cloned();
    ReportOptions {
        inputs: given
            .get_many("files")
            .unwrap_or_default()
            .cloned()
            .collect(),
        output: path("--output"),
        title: given.get_one("--title").cloned(),
    }
}

fn measurement_of(given: &Given<'_>, job: fn(Options) -> Job) -> Result<Job, BenchError> {
    if given.has("--version") {
        return Ok(Job::Print(version()));
    }
    let mut options = Options::default();
    read_server(given, &mut options)?;
    read_load(given, &mut options)?;
    read_keys(given, &mut options)?;
    read_time(given, &mut options)?;
    read_output(given, &mut options)?;
    let options = finish(given, options)?;
    Ok(if given.has("-I") {
        Job::Idle(options)
    } else {
        job(options)
    })
}

fn version() -> String {
    format!("iolite-bench {}\n", env!("CARGO_PKG_VERSION"))
}

/// The options around `--tls`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Certificates of the authorities that sign the server's certificate.
    pub authorities_file: Option<PathBuf>,
    /// A directory with more of them.
    pub authorities_directory: Option<PathBuf>,
    /// Whether any certificate is accepted.
    pub is_insecure: bool,
    /// The client's own certificate.
    pub certificate_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
    /// The name for which the server's certificate has to be issued.
    pub server_name: Option<String>,
    /// Ciphers of TLS 1.2.
    pub ciphers: String,
    /// Ciphers of TLS 1.3.
    pub cipher_suites: String,
}

/// Reads the server and its credentials.
fn read_server(given: &Given<'_>, options: &mut Options) -> Result<(), BenchError> {
    options.endpoint = endpoint_of(given, "--dbnum")?;
    options.endpoint.pid = given.number("--server-pid")?;
    let owned = |id| given.text(id).map(str::to_owned);
    for (name, address) in given.pairs("--compare")?.0 {
        options.compare.push((name, parse_address(&address)?));
    }
    options.start = given.pairs("--start")?.0;
    if let Some(cpus) = owned("--server-cpus") {
        options.server_cpus = cpus;
    }
    options.rounds = given.positive("--rounds")?.unwrap_or(options.rounds);
    options.may_flush = given.has("--flush");
    Ok(())
}

/// Returns the server that the options name; `database` is the option with the database number.
pub(crate) fn endpoint_of(given: &Given<'_>, database: &str) -> Result<Endpoint, BenchError> {
    let mut entrance = Entrance::default();
    if let Some(uri) = given.text("-u") {
        entrance.read_uri(uri)?;
    }
    let owned = |id| given.text(id).map(str::to_owned);
    let host = owned("-h").or(entrance.host);
    let port = given.number("-p")?.or(entrance.port);
    let address = match given.text("-s") {
        Some(path) => Address::Unix(path.into()),
        None => Address::Tcp(
            host.unwrap_or_else(|| "127.0.0.1".to_owned()),
            port.unwrap_or(6379),
        ),
    };
    let mut endpoint = Endpoint::new("server", address);
    let user = owned("--user").or(entrance.user);
    let password = owned("-a").or(entrance.password);
    endpoint.credentials = password.map(|password| (user, password));
    endpoint.database = given.number(database)?.unwrap_or(entrance.database);
    endpoint.is_resp3 = given.has("-3");
    if given.has("--tls") || entrance.is_encrypted {
        let tls = TlsClient::load(tls_of(given)).map_err(BenchError::Usage)?;
        endpoint.tls = Some(tls);
    }
    Ok(endpoint)
}

/// Returns the server at an address or a URI.
pub(crate) fn endpoint_at(given: &Given<'_>, place: &str) -> Result<Endpoint, BenchError> {
    let mut entrance = Entrance::default();
    let address = match place.contains("://") {
        true => {
            entrance.read_uri(place)?;
            let host = entrance.host.take();
            Address::Tcp(
                host.unwrap_or_else(|| "127.0.0.1".to_owned()),
                entrance.port.unwrap_or(6379),
            )
        }
        false => parse_address(place)?,
    };
    let mut endpoint = Endpoint::new("server", address);
    let user = entrance.user;
    endpoint.credentials = entrance.password.map(|password| (user, password));
    endpoint.database = entrance.database;
    if given.has("--tls") || entrance.is_encrypted {
        let tls = TlsClient::load(tls_of(given)).map_err(BenchError::Usage)?;
        endpoint.tls = Some(tls);
    }
    Ok(endpoint)
}

/// Returns the TLS options.
fn tls_of(given: &Given<'_>) -> TlsOptions {
    let owned = |id| given.text(id).map(str::to_owned);
    let path = |id| given.text(id).map(PathBuf::from);
    TlsOptions {
        authorities_file: path("--cacert"),
        authorities_directory: path("--cacertdir"),
        is_insecure: given.has("--insecure"),
        certificate_file: path("--cert"),
        key_file: path("--key"),
        server_name: owned("--sni"),
        ciphers: owned("--tls-ciphers").unwrap_or_default(),
        cipher_suites: owned("--tls-ciphersuites").unwrap_or_default(),
    }
}

/// Reads what is sent, and by how many connections and threads.
fn read_load(given: &Given<'_>, options: &mut Options) -> Result<(), BenchError> {
    for (id, list) in [
        ("-c", &mut options.connections),
        ("-P", &mut options.pipelines),
        ("--threads", &mut options.threads),
    ] {
        if let Some(given) = given.positive_list(id)? {
            *list = given;
        }
    }
    if let Some(cpus) = given.text("--cpus") {
        options.shape.cpus = parse_cpus(cpus)?;
    }
    if let Some(bytes) = given.text("-d") {
        options.shape.value_bytes = parse_value_bytes(bytes)?;
    }
    if let Some(tests) = given.text("-t") {
        options.tests = parse_tests(tests)?;
    }
    if let Some(ratio) = given.text("--ratio") {
        options.mix = parse_ratio(ratio)?;
    }
    if let Some(mix) = given.text("--mix") {
        options.mix = parse_mix(mix)?;
    }
    if let Some(only) = given.text("--only") {
        options.only = only.split(',').map(str::to_owned).collect();
    }
    match given.number::<u8>("-k")? {
        None | Some(1) => Ok(()),
        Some(_) => Err(BenchError::Usage("-k 0 is not supported".to_owned())),
    }
}

/// Reads the options about keys.
fn read_keys(given: &Given<'_>, options: &mut Options) -> Result<(), BenchError> {
    let shape = &mut options.shape;
    if let Some(count) = given.text("-r") {
        shape.key_space = parse_count(count)?.max(1);
    }
    shape.key_bytes = given.positive("--key-bytes")?.unwrap_or(shape.key_bytes);
    if let Some(exponent) = given.amount("--zipf")? {
        shape.key_order = KeyOrder::Zipf { exponent };
    }
    if given.has("--sequential") {
        shape.key_order = KeyOrder::Sequential;
    }
    shape.seed = given.number("--seed")?.unwrap_or(shape.seed);
    options.is_preloaded = given.has("--preload");
    if let Some(count) = given.text("--keys-max") {
        options.keys_max = parse_count(count)?.max(1);
    }
    Ok(())
}

/// Reads the rate and the duration.
fn read_time(given: &Given<'_>, options: &mut Options) -> Result<(), BenchError> {
    if let Some(count) = given.text("-n") {
        options.shape.limit = Limit::Requests(parse_count(count)?);
        options.has_limit = true;
    }
    if let Some(time) = given.seconds("--duration")? {
        options.shape.limit = Limit::Time(time);
        options.has_limit = true;
    }
    let warm_up = given.seconds("--warmup")?;
    options.shape.warm_up = warm_up.unwrap_or(options.shape.warm_up);
    options.is_random = given.has("--poisson");
    options.is_endless = given.has("-l");
    let Some(rate) = given.text("--rate") else {
        return Ok(());
    };
    match rate.strip_suffix('%') {
        Some(percent) => options.rate_share = Some(parse_percent(percent)?),
        None => {
            options.shape.pace = Pace::Open {
                requests_per_second: parse_count(rate)?.max(1) as f64,
                is_random: options.is_random,
            };
        }
    }
    Ok(())
}

/// Reads the options about output.
fn read_output(given: &Given<'_>, options: &mut Options) -> Result<(), BenchError> {
    options.is_quiet = given.has("-q");
    options.is_csv = given.has("--csv");
    options.json = given.text("--json").map(PathBuf::from);
    options.precision = given.number("--precision")?.unwrap_or(options.precision);
    options.shows_progress = !given.has("--no-progress");
    Ok(())
}

/// The address and the credentials in a URI.
#[derive(Default)]
struct Entrance {
    host: Option<String>,
    port: Option<u16>,
    user: Option<String>,
    password: Option<String>,
    database: u32,
    is_encrypted: bool,
}

impl Entrance {
    /// Parses `redis://user:password@host:port/database`; `rediss` for an encrypted connection.
    fn read_uri(&mut self, uri: &str) -> Result<(), BenchError> {
        let refuse = || BenchError::Usage(format!("Cannot understand the address '{uri}'"));
        let rest = match uri.strip_prefix("rediss://") {
            Some(rest) => {
                self.is_encrypted = true;
                rest
            }
            None => uri.strip_prefix("redis://").ok_or_else(refuse)?,
        };
        let (rest, database) = rest.split_once('/').unwrap_or((rest, ""));
        if !database.is_empty() {
            self.database = database.parse().map_err(|_| refuse())?;
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
}

fn finish(given: &Given<'_>, mut options: Options) -> Result<Options, BenchError> {
    let mut words = given.pairs("--compare")?.1;
    words.extend(given.pairs("--start")?.1);
    words.extend(given.all("command").map(str::to_owned));
    if !words.is_empty() {
        let template = Template::named(&words.join(" "), &words);
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

/// Refuses contradictory options.
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

/// Parses `host:port`, `[::1]:port`, or the path of a Unix socket.
pub(crate) fn parse_address(text: &str) -> Result<Address, BenchError> {
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

/// Parses a count, such as `10000`, `10K` or `1.5M`.
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

/// Parses a percentage, such as `50`.
fn parse_percent(text: &str) -> Result<f64, BenchError> {
    let percent = text
        .parse()
        .ok()
        .filter(|percent: &f64| percent.is_finite() && *percent > 0.0);
    let refuse = || BenchError::Usage(format!("'{text}%' is not a share"));
    percent.map(|percent| percent / 100.0).ok_or_else(refuse)
}

/// Parses a size, such as `64` or `50-149`.
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

/// Parses a list of processors, such as `1,4-6`.
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

/// Parses a list of tests, such as `set,get`.
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

/// Parses a ratio of SET to GET, such as `1:9`.
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

/// Parses a mix, such as `get=8,set=1,incr=1`.
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
