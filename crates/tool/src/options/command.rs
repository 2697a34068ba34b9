//! The command line of `iolite bench`, for `--help`, the completions of shells and the manual
//! pages.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, ValueHint, value_parser};

use super::NAME;
use crate::catalogue;

/// Returns the command line of the load generator.
#[must_use]
pub fn command() -> Command {
    let bench = Command::new("bench")
        .bin_name(NAME)
        .about("Measures a server; iolite bench --help tells its options")
        .override_usage(
            "iolite bench [OPTIONS] [COMMAND ARGS...]     measure a server\n       \
             iolite bench --compare A=host:port B=host:port [OPTIONS]\n       \
             iolite bench suite [OPTIONS]                 the published workloads, (a) to (m) and more\n       \
             iolite bench report FILES... [-o PAGE.html]  a page of what --json wrote",
        )
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
        .subcommand(measuring(
            Command::new("suite").about("Measures the published workloads"),
        ))
        .subcommand(report());
    let bench = measuring(bench);
    bench.arg(
        Arg::new("command")
            .value_name("COMMAND ARGS")
            .help("One request; __key__, __rand_int__ and __data__ are replaced")
            .num_args(1..)
            .trailing_var_arg(true),
    )
}

fn report() -> Command {
    Command::new("report")
        .about("Makes a page of what --json wrote")
        .arg(
            Arg::new("files")
                .value_name("FILES")
                .help("Files that --json wrote")
                .required(true)
                .num_args(1..)
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath),
        )
        .arg(
            Arg::new("--output")
                .short('o')
                .long("output")
                .value_name("PAGE.html")
                .help("Where the page goes")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            Arg::new("--title")
                .long("title")
                .value_name("TEXT")
                .help("The heading of the page"),
        )
        .arg(help())
}

/// Returns the option `--help`, without a short form: `-h` is the host.
pub(crate) fn help() -> Arg {
    named("--help").action(ArgAction::Help).help("Prints this")
}

/// Adds the options of every measurement.
fn measuring(command: Command) -> Command {
    command
        .disable_help_flag(true)
        .args_override_self(true)
        .after_help(format!("Tests: {}", catalogue::names()))
        .next_help_heading("The server")
        .args(server())
        .args(encryption())
        .next_help_heading("The load")
        .args(load())
        .next_help_heading("The keys")
        .args(keys())
        .next_help_heading("The time")
        .args(time())
        .next_help_heading("The output")
        .args(output())
        .next_help_heading("The suite")
        .args(suite())
        .next_help_heading(None::<&str>)
        .arg(help())
        .arg(flag("--version", "Prints the version").short('v'))
}

/// Returns an option with this short or long name.
fn named(name: &'static str) -> Arg {
    let arg = Arg::new(name);
    match name.strip_prefix("--") {
        Some(long) => arg.long(long),
        None => arg.short(name.chars().nth(1).unwrap_or('?')),
    }
}

/// Returns an option with a value, which may begin with a minus.
pub(crate) fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    named(name)
        .value_name(value)
        .help(help)
        .allow_hyphen_values(true)
}

pub(crate) fn flag(name: &'static str, help: &'static str) -> Arg {
    named(name).help(help).action(ArgAction::SetTrue)
}

/// Returns an option with `NAME=VALUE` words up to the next option.
fn pairs(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    named(name)
        .value_name(value)
        .help(help)
        .num_args(1..)
        .action(ArgAction::Append)
}

fn server() -> Vec<Arg> {
    vec![
        option("-h", "HOST", "Where it is (127.0.0.1)"),
        option("-p", "PORT", "Its port (6379)"),
        option("-s", "SOCKET", "Its Unix socket"),
        option(
            "-u",
            "URI",
            "All of it: redis://user:password@host:port/database",
        ),
        option("-a", "PASSWORD", "The password to enter with"),
        option("--user", "NAME", "The user to enter as"),
        option("--dbnum", "N", "The database (0)"),
        flag("-3", "RESP3"),
        option(
            "--server-pid",
            "PID",
            "Its process, for processor time and memory; found by itself on this machine",
        ),
        pairs(
            "--compare",
            "NAME=ADDRESS",
            "Several in turns; ratios are to the first",
        ),
        pairs(
            "--start",
            "NAME='COMMAND'",
            "As --compare, with servers started for the run ({port} is replaced)",
        ),
        option(
            "--server-cpus",
            "LIST",
            "Where started servers run, as taskset takes it",
        ),
        option("--rounds", "N", "Turns of each server in a comparison (5)"),
        flag("--flush", "Allow what deletes the server's data"),
    ]
}

pub(crate) fn encryption() -> Vec<Arg> {
    vec![
        flag(
            "--tls",
            "Encrypted connections, as redis-benchmark has them",
        ),
        option("--cacert", "FILE", "Who signs the server's certificate"),
        option("--cacertdir", "DIR", "A directory with more of them"),
        flag("--insecure", "Take any certificate"),
        option(
            "--sni",
            "NAME",
            "The name that the server's certificate has to be for",
        ),
        option("--cert", "FILE", "The client's own certificate"),
        option("--key", "FILE", "Its key"),
        option("--tls-ciphers", "LIST", "Ciphers of TLS 1.2"),
        option("--tls-ciphersuites", "LIST", "Ciphers of TLS 1.3"),
    ]
}

fn load() -> Vec<Arg> {
    vec![
        option(
            "-c",
            "N",
            "Connections (50); a list such as 1,16,100 measures each, also of the next two",
        ),
        option("-P", "N", "Requests sent at once (1)"),
        option("--threads", "N", "Threads (1)"),
        option("--cpus", "LIST", "Processors the threads are pinned to"),
        option("-t", "NAMES", "Tests, each measured alone"),
        option("--ratio", "S:G", "SET and GET together").overrides_with("--mix"),
        option("--mix", "get=8,set=2", "Tests together, by their shares").overrides_with("--ratio"),
        option(
            "-d",
            "BYTES",
            "Length of values (3); 50-149 for any between",
        ),
        flag("-I", "Open connections, send nothing"),
        option("-k", "1", "Connections are kept").hide(true),
    ]
}

fn keys() -> Vec<Arg> {
    vec![
        option("-r", "N", "How many (1)"),
        option("--key-bytes", "N", "Their length (16)"),
        option("--zipf", "S", "Chosen by this exponent of Zipf's law")
            .overrides_with("--sequential"),
        flag("--sequential", "Chosen in order").overrides_with("--zipf"),
        flag("--preload", "Set all keys before measuring"),
        option("--seed", "N", "What random choices follow from"),
    ]
}

fn time() -> Vec<Arg> {
    vec![
        option("-n", "N", "Requests (100000); K, M and G are understood")
            .overrides_with("--duration"),
        option("--duration", "S", "Seconds, instead of a count").overrides_with("-n"),
        option("--warmup", "S", "Seconds before measuring"),
        option(
            "--rate",
            "N",
            "Requests a second whatever the server does; latencies count from when a request was due \
             (no coordinated omission); 50% of the first server's most",
        ),
        flag("--poisson", "With --rate, pauses are random"),
        flag("-l", "Start over at the end"),
    ]
}

fn output() -> Vec<Arg> {
    vec![
        flag("-q", "A line a test, as redis-benchmark prints it"),
        flag(
            "--csv",
            "Comma-separated values, as redis-benchmark prints them",
        ),
        option("--precision", "N", "Digits of -q's latencies (3)"),
        option(
            "--json",
            "FILE",
            "All measurements, for report; - for standard output",
        ),
        flag("--no-progress", "No line that shows how it goes"),
        flag("-e", "Errors are shown").hide(true),
    ]
}

fn suite() -> Vec<Arg> {
    vec![
        option(
            "--only",
            "a,b,...",
            "Some of the workloads; 'types' for those of lists, hashes, sets and so on",
        ),
        option("--keys-max", "N", "No key space above this"),
    ]
}
