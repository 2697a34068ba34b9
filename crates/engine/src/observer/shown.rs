//! How requests are shown: truncated in logs, whole to monitors, by their keys in the audit log.
//! The logs, the monitors and the audit's rules themselves know no command.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use base::glob::{Case, matches};
use base::words::quote;
use protocol::Request;

use super::audit::{Audit, AuditFilter};
use super::log::{ARGUMENT_BYTES_MAX, Shown};
use super::monitors::Monitors;
use crate::arrival::LongArgument;
use crate::client_record::ClientRecord;
use crate::context::Context;
use crate::key_places as places;
use crate::push::Push;
use crate::spec::{CommandSpec, Group, categories_of};
use crate::table::Table;

/// Maximum number of arguments of a request that are kept. If there are more, the last one says how
/// many.
const ARGUMENTS_MAX: usize = 32;
/// Replacement for an argument that must not be shown.
pub(crate) const REDACTED: &[u8] = b"(redacted)";

/// Maximum number of keys in a line. For a request with more keys, the line says how many.
const KEYS_SHOWN_MAX: usize = 16;
/// Maximum number of bytes of a key in a line.
const KEY_BYTES_MAX: usize = 256;

impl Shown {
    /// Returns a truncated request with its client.
    #[must_use]
    pub(crate) fn new(
        table: &'static Table,
        request: Request<'_>,
        long: Option<&LongArgument>,
        client: &ClientRecord,
    ) -> Self {
        Self {
            arguments: shortened(table, request, long),
            address: client.address.to_string(),
            client_name: client.names().name,
        }
    }
}

fn shortened(
    table: &'static Table,
    request: Request<'_>,
    long: Option<&LongArgument>,
) -> Vec<Vec<u8>> {
    let count = request.len();
    let kept = if count > ARGUMENTS_MAX {
        ARGUMENTS_MAX - 1
    } else {
        count
    };
    let is_secret = secrets(table, request);
    let argument = |(index, bytes)| match long {
        _ if is_secret(index) => REDACTED.to_vec(),
        Some(long) if long.index == index => shortened_argument(&long.beginning, long.len),
        _ => shortened_argument(bytes, bytes.len()),
    };
    let mut arguments: Vec<_> = request
        .iter()
        .enumerate()
        .take(kept)
        .map(argument)
        .collect();
    if count > kept {
        arguments.push(format!("... ({} more arguments)", count - kept).into_bytes());
    }
    arguments
}

/// Returns the shown form of an argument of `len` bytes that begins with `beginning`.
fn shortened_argument(beginning: &[u8], len: usize) -> Vec<u8> {
    if len <= ARGUMENT_BYTES_MAX {
        return beginning.to_vec();
    }
    let shown = &beginning[..ARGUMENT_BYTES_MAX.min(beginning.len())];
    let mut text = shown.to_vec();
    text.extend_from_slice(format!("... ({} more bytes)", len - shown.len()).as_bytes());
    text
}

/// Returns a predicate for the arguments of a request that hold names or passwords and must not be
/// shown.
pub(crate) fn secrets(table: &'static Table, request: Request<'_>) -> impl Fn(usize) -> bool {
    // Falls back to the original name if the client's name for the command is unknown.
    let name = request.name();
    let found = table.find(name).or_else(|| table.original().find(name));
    let row = found.and_then(|found| {
        let container = (found.index, found.spec);
        let word = request.arg(1).unwrap_or_default();
        match table.find_subcommand(container, word) {
            Some((_, spec)) => spec.secrets,
            None => found.spec.secrets,
        }
    });
    move |index| row.is_some_and(|is_secret| is_secret(&request, index))
}

impl Monitors {
    /// Shows all monitors a request that ran. A script is followed by the commands that it ran.
    #[cold]
    pub(crate) fn show(
        &self,
        context: &mut Context<'_>,
        spec: &CommandSpec,
        request: Request<'_>,
        long: Option<&LongArgument>,
    ) {
        let client = source_of(&context.session.client);
        let mut lines = vec![line_of(context, &client, request, long)];
        if spec.group == Group::Scripting {
            lines.extend(std::mem::take(&mut context.session.script_shown));
        }
        for line in lines {
            let push = Push::new(|reply| reply.simple(&line));
            for client in self.lock().iter() {
                context.server.push(client, &push);
            }
        }
    }
}

/// Returns the line for a command that ran inside a script.
pub(crate) fn line_of_script(context: &Context<'_>, request: Request<'_>) -> String {
    line_of(context, "lua", request, None)
}

/// Returns a line with the time, the database, the client and the request.
fn line_of(
    context: &Context<'_>,
    source: &str,
    request: Request<'_>,
    long: Option<&LongArgument>,
) -> String {
    let now_us = context.server.now_unix_us();
    let mut line = format!(
        "{}.{:06} [{} {}]",
        now_us / 1_000_000,
        now_us % 1_000_000,
        context.session.database,
        source
    );
    let is_secret = secrets(context.table, request);
    for (index, argument) in request.iter().enumerate() {
        line.push(' ');
        let shown = match long {
            _ if is_secret(index) => REDACTED,
            Some(long) if long.index == index => &long.beginning,
            _ => argument,
        };
        line.push_str(&quote(shown));
    }
    line
}

/// Returns a client's address, or the path if the client uses a Unix socket.
fn source_of(client: &ClientRecord) -> String {
    match client.local_address.strip_suffix(":0") {
        Some(path) if path.starts_with('/') => format!("unix:{path}"),
        _ => client.address.to_string(),
    }
}

impl Audit {
    /// Writes an audit line about a request if the filter selects it. `verdict` says whether it was
    /// executed or denied.
    #[cold]
    pub(crate) fn note(
        &self,
        context: &Context<'_>,
        spec: &CommandSpec,
        name: &str,
        request: Request<'_>,
        verdict: &str,
    ) {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let Some(rules) = rules.as_ref().map(Arc::clone) else {
            return;
        };
        let user = context.session.permit.user().name();
        let keys: Vec<&[u8]> = places::that_fit(context.table, spec, &request)
            .into_iter()
            .filter_map(|(at, _)| request.arg(at))
            .collect();
        if !rules.filter.wants(user, spec, &keys) {
            return;
        }
        let limit = rules.filter.lines_per_second_max;
        let is_taken = self.has_room(context.now_unix_ms / 1000, limit)
            && rules.sink.take(line(context, name, &keys, verdict));
        if !is_taken {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl AuditFilter {
    fn wants(&self, user: &[u8], spec: &CommandSpec, keys: &[&[u8]]) -> bool {
        let fits = |patterns: &[Vec<u8>], text: &[u8]| {
            let mut patterns = patterns.iter();
            patterns.any(|pattern| matches(pattern, text, Case::Sensitive))
        };
        let is_in = || {
            let categories = categories_of(spec);
            let mut wanted = self.categories.iter();
            wanted.any(|wanted| categories.contains(&wanted.as_str()))
        };
        (self.users.is_empty() || fits(&self.users, user))
            && (self.categories.is_empty() || is_in())
            && (self.keys.is_empty() || keys.iter().any(|key| fits(&self.keys, key)))
    }
}

fn line(context: &Context<'_>, name: &str, keys: &[&[u8]], verdict: &str) -> String {
    let client = &context.session.client;
    let mut line = format!(
        "time_ms={} verdict={verdict} user={} client={} address={} database={} command={name}",
        context.now_unix_ms,
        quote(context.session.permit.user().name()),
        client.id,
        quote(client.address.as_bytes()),
        context.session.database,
    );
    if client.came_by_http() {
        line.push_str(" via=http");
    }
    for key in keys.iter().take(KEYS_SHOWN_MAX) {
        let shown = &key[..key.len().min(KEY_BYTES_MAX)];
        let _infallible = write!(line, " key={}", quote(shown));
    }
    if keys.len() > KEYS_SHOWN_MAX {
        let _infallible = write!(line, " keys={}", keys.len());
    }
    line
}

#[cfg(test)]
mod tests {
    use protocol::OwnedRequest;

    use super::*;

    fn shown(args: &[&str]) -> Vec<String> {
        let request = OwnedRequest::new(args);
        let arguments = shortened(Table::build([]), request.request(), None);
        let text = |argument: Vec<u8>| String::from_utf8(argument).unwrap();
        arguments.into_iter().map(text).collect()
    }

    #[test]
    fn long_requests_are_cut_short() {
        let many: Vec<String> = (0..33).map(|number| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let short = shown(&many);
        assert_eq!((short.len(), short[30].as_str()), (32, "30"));
        assert_eq!(short[31], "... (2 more arguments)");
        assert_eq!(shown(&many[..32]).last().unwrap(), "31");
        let long = "x".repeat(131);
        let argument = format!("{}... (3 more bytes)", &long[..128]);
        assert_eq!(shown(&["SET", "k", &long]), ["SET", "k", &argument]);
    }

    #[test]
    fn secrets_are_not_shown() {
        static ROWS: [CommandSpec; 1] = [CommandSpec {
            name: "CONFIG",
            subcommands: &[CommandSpec {
                name: "SET",
                secrets: Some(|_, at| at == 3),
                ..CommandSpec::BLANK
            }],
            ..CommandSpec::BLANK
        }];
        let request = OwnedRequest::new(&["config", "set", "requirepass", "pw", "port", "1"]);
        let shown = shortened(Table::build(&ROWS), request.request(), None);
        assert_eq!(shown[2..4], [&b"requirepass"[..], REDACTED]);
        assert_eq!(shown[5], b"1");
    }
}
