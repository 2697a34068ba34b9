//! Who wants to see every command that runs (MONITOR).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::words::quote;
use protocol::Request;

use super::log::{REDACTED, secrets};
use crate::arrival::LongArgument;
use crate::context::Context;
use crate::push::Push;
use crate::session::ClientRecord;
use crate::spec::{CommandSpec, Group};

/// The clients that see all commands.
#[derive(Debug, Default)]
pub struct Monitors {
    clients: Mutex<Vec<Arc<ClientRecord>>>,
    count: AtomicUsize,
}

impl Monitors {
    /// Adds the client that asks; once is enough.
    pub fn add(&self, client: &Arc<ClientRecord>) {
        if !client.has_flag(ClientRecord::MONITOR) {
            client.set_flag(ClientRecord::MONITOR, true);
            let mut clients = self.lock();
            clients.push(Arc::clone(client));
            self.count.store(clients.len(), Ordering::Relaxed);
        }
    }

    /// Lets a client go, on its own thread; a no-op when it is none of them.
    pub fn remove(&self, client: &ClientRecord) {
        if client.has_flag(ClientRecord::MONITOR) {
            client.set_flag(ClientRecord::MONITOR, false);
            let mut clients = self.lock();
            clients.retain(|other| other.id != client.id);
            self.count.store(clients.len(), Ordering::Relaxed);
        }
    }

    /// Whether nobody looks.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Shows all of them a request that ran; behind a script, what that ran.
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

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<ClientRecord>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a command is shown that ran inside of a script.
pub(crate) fn line_of_script(context: &Context<'_>, request: Request<'_>) -> String {
    line_of(context, "lua", request, None)
}

/// When, in which database, by whom, and what.
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

/// A client's address; of one on a Unix socket, the path of that.
fn source_of(client: &ClientRecord) -> String {
    match client.local_address.strip_suffix(":0") {
        Some(path) if path.starts_with('/') => format!("unix:{path}"),
        _ => client.address.to_string(),
    }
}
