//! The options that name a server: the same for all tools, and those of `redis-cli`.

use clap::{Arg, ArgAction, ArgMatches};

use crate::endpoint::Endpoint;
use crate::error::BenchError;
use crate::options::command::{encryption, flag, option};
use crate::options::{Given, endpoint_of};

/// Variables that may hold a password, so that it is on no command line.
const PASSWORD_VARIABLES: [&str; 2] = ["IOLITE_AUTH", "REDISCLI_AUTH"];

/// Returns the options.
#[must_use]
pub fn arguments() -> Vec<Arg> {
    let mut arguments = vec![
        option("-h", "HOST", "Where the server is (127.0.0.1)"),
        option("-p", "PORT", "Its port (6379)"),
        option("-s", "SOCKET", "Its Unix socket"),
        option(
            "-u",
            "URI",
            "All of it: redis://user:password@host:port/database, rediss:// with TLS",
        ),
        option(
            "-a",
            "PASSWORD",
            "The password to enter with; rather in IOLITE_AUTH or REDISCLI_AUTH",
        )
        .visible_alias("pass"),
        option("--user", "NAME", "The user to enter as"),
        option("-n", "N", "The database (0)"),
        flag("-3", "RESP3"),
    ];
    arguments.extend(encryption());
    arguments.push(
        Arg::new("--help")
            .long("help")
            .action(ArgAction::Help)
            .help("Prints this"),
    );
    arguments
}

/// Returns the server that these [`arguments`] name.
///
/// # Errors
/// Invalid options.
pub fn named_by(matches: &ArgMatches) -> Result<Endpoint, BenchError> {
    endpoint(&Given(matches))
}

/// Returns the server that the options name.
///
/// # Errors
/// Invalid options.
pub(crate) fn endpoint(given: &Given<'_>) -> Result<Endpoint, BenchError> {
    let mut endpoint = endpoint_of(given, "-n")?;
    if endpoint.credentials.is_none() {
        let passwords = PASSWORD_VARIABLES
            .iter()
            .filter_map(|name| std::env::var(name).ok());
        let password = passwords.into_iter().find(|password| !password.is_empty());
        let user = given.text("--user").map(str::to_owned);
        endpoint.credentials = password.map(|password| (user, password));
    }
    Ok(endpoint)
}
