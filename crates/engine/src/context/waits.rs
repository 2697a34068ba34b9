//! How a handler lets its client wait for keys, for the log, or for replicas ([`waiting`](crate::waiting)).

use std::sync::Arc;

use protocol::OwnedRequest;
use store::{Entry, Key, Wanted};
use structures::Structure;

use super::Context;
use crate::args::Args;
use crate::error::{CommandError, CommandResult};
use crate::session::ReplyMode;
use crate::waiting::{InVain, Wait, Waiting};

impl Context<'_> {
    /// Runs `take` at the first of `keys` that holds a structure `S` and for which no other client
    /// has waited longer. The keys are locked. Returns whether there is such a key.
    ///
    /// # Errors
    /// WRONGTYPE if an earlier key holds another type, and the errors of `take`.
    pub fn take_first<S: Structure>(
        &mut self,
        keys: &[Key<'_>],
        wanted: Wanted,
        mut take: impl FnMut(&mut Entry<'_>) -> CommandResult,
    ) -> Result<bool, CommandError> {
        let turn = self.turn;
        // A request that may not wait does not stand in line: a transaction takes what it pushed
        // itself, and waiting clients are served after it.
        let stands_in_line = self.may_block;
        for key in keys {
            let is_taken = self.store.modify(key, |entry| {
                let is_there = match entry.record() {
                    Some(record) => record.structure::<S>().map(|_| true)?,
                    None => false,
                };
                if !is_there || (stands_in_line && !turn.has_come(key, wanted)) {
                    return Ok::<_, CommandError>(false);
                }
                turn.take()?;
                take(entry).map(|()| true)
            })?;
            if is_taken {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets the client wait for `keys`, or keeps its place in line if it has waited already. The
    /// keys are locked, and nothing was found in them. The handler has written nothing, and returns
    /// this result.
    ///
    /// # Errors
    /// Always [`CommandError::Blocks`].
    pub fn wait_for(
        &mut self,
        keys: &[Key<'_>],
        wanted: Wanted,
        timeout_ms: Option<u64>,
        args: &Args<'_>,
    ) -> CommandResult {
        self.wait_with(keys, wanted, timeout_ms, || {
            OwnedRequest::from(args.request())
        })
    }

    /// Does the same, for a later run of another request than the one that was sent.
    ///
    /// # Errors
    /// Always [`CommandError::Blocks`].
    pub fn wait_with(
        &mut self,
        keys: &[Key<'_>],
        wanted: Wanted,
        timeout_ms: Option<u64>,
        request: impl FnOnce() -> OwnedRequest,
    ) -> CommandResult {
        if self.turn.waiter.is_none() {
            self.begin_wait(keys, wanted, timeout_ms, (request(), InVain::Nothing));
        }
        Err(CommandError::Blocks)
    }

    /// Lets the client wait until the log is on disk up to a position, or until the timeout.
    ///
    /// # Errors
    /// Always [`CommandError::Blocks`].
    pub fn wait_for_log(
        &mut self,
        timeout_ms: Option<u64>,
        log_end: u64,
        args: &Args<'_>,
    ) -> CommandResult {
        let in_vain = InVain::OnDisks {
            sequence: Some(log_end),
            wants_local: true,
            wanted: 0,
        };
        let result = self.wait_in_vain(timeout_ms, in_vain, args);
        if let Some(wait) = &mut self.session.wait {
            wait.log_end = Some(log_end);
        }
        result
    }

    /// Lets the client wait until the timeout, or until another event ends the wait.
    ///
    /// # Errors
    /// Always [`CommandError::Blocks`].
    fn wait_in_vain(
        &mut self,
        timeout_ms: Option<u64>,
        in_vain: InVain,
        args: &Args<'_>,
    ) -> CommandResult {
        let request = OwnedRequest::from(args.request());
        self.begin_wait(&[], Wanted::List, timeout_ms, (request, in_vain));
        Err(CommandError::Blocks)
    }

    /// Lets the client wait until replicas, and maybe the local disk, have the log as far as
    /// `in_vain` says, or until the timeout.
    ///
    /// # Errors
    /// Always [`CommandError::Blocks`].
    pub fn wait_for_copies(
        &mut self,
        timeout_ms: Option<u64>,
        in_vain: InVain,
        args: &Args<'_>,
    ) -> CommandResult {
        let result = self.wait_in_vain(timeout_ms, in_vain, args);
        if let Some(wait) = &self.session.wait {
            self.server.await_copies(&wait.waiter);
        }
        result
    }

    fn begin_wait(
        &mut self,
        keys: &[Key<'_>],
        wanted: Wanted,
        timeout_ms: Option<u64>,
        (request, in_vain): (OwnedRequest, InVain),
    ) {
        let name = request.request().name();
        // A request to be run later has the command's own name, whatever its client calls the
        // command.
        let table = self.table;
        let Some(command) = table.find(name).or_else(|| table.original().find(name)) else {
            unreachable!("the command that runs is in the table");
        };
        let session = &mut *self.session;
        let waiting = Waiting {
            client: Arc::clone(&session.client),
            request,
            command: command.index,
            resp: session.resp,
            is_silent: session.reply_mode != ReplyMode::On,
            in_vain,
        };
        let waiter = self.turn.waiters.wait(self.store, keys, wanted, waiting);
        let _none = session.client.set_waiter(Some(Arc::clone(&waiter)));
        session.wait = Some(Box::new(Wait {
            waiter,
            timeout_ms,
            log_end: None,
        }));
    }
}
