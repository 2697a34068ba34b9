//! Plain requests of one command that stand one behind the other, run in one loop.
//!
//! A command that is asked for often names such a loop of its own in its row
//! ([`CommandSpec::series`](crate::CommandSpec::series)): the compiler then puts the handler, the
//! arguments it takes and the store's operation together, and what is the same for all requests is
//! found out once. For all other commands the loop calls the handler of the row.

use std::sync::atomic::Ordering;

use protocol::{Reply, Requests};
use store::{Handle, Key};

use super::visit::{Visit, refuse};
use crate::args::Args;
use crate::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::plan::PlannedRun;
use crate::table::Found;

/// A loop over a series: calls [`Series::each`] with the command's handler.
pub type SeriesLoop = fn(&mut Series<'_, '_, '_>);

/// A run of requests, and how far it is.
pub struct Series<'s, 'v, 'i> {
    pub(super) visit: &'s mut Visit<'v>,
    /// Number of the first one in its batch.
    pub(super) first: usize,
    pub(super) requests: Requests<'i>,
    /// How many of them run at most, one at least.
    pub(super) requests_max: usize,
    pub(super) planned: &'s PlannedRun,
    pub(super) found: &'static Found,
    /// When the replies are as long as this, the rest has to wait.
    pub(super) reply_bytes_end: usize,
    /// The last one is to be run aside.
    pub(super) is_aside: bool,
    /// How many ran.
    pub(super) done: usize,
}

impl Series<'_, '_, '_> {
    /// Runs one request after the other.
    #[inline(always)]
    pub fn each(
        &mut self,
        handler: impl Fn(&mut Context<'_>, &mut Args<'_>, &mut Reply<'_>) -> CommandResult,
    ) {
        let (found, visit) = (self.found, &mut *self.visit);
        let (mut done, mut refused) = (0, 0);
        let mut first_key = self.planned.first_key;
        for request in self.requests.clone() {
            visit.context.plan.begin(first_key);
            first_key += self.planned.keys_each;
            done += 1;
            let mut args = Args::new(request, 1);
            if found.needs_room && !visit.make_room(found.index, request.wire_bytes()) {
                visit.refuse(visit.reply.mark(), &CommandError::OutOfMemory);
                refused += 1;
            } else {
                let start = visit.reply.mark();
                let result = handler(&mut visit.context, &mut args, &mut visit.reply);
                if let Err(error) = result {
                    if error == CommandError::Aside {
                        visit.reply.rollback(start);
                        self.is_aside = true;
                        refused += 1;
                        break;
                    }
                    visit.ledger.counters.count_failure(found.index);
                    visit.refuse(start, &error);
                }
            }
            if visit.context.store.has_served() {
                visit.serve();
            }
            let is_full = visit.reply.len_with_attachments() >= self.reply_bytes_end;
            if is_full || done >= self.requests_max {
                break;
            }
        }
        self.note(done, done - refused);
    }

    /// As [`Series::each`], for a command that looks up its first argument, a key, and changes nothing:
    /// then less can happen, and what the plan knows of the keys is taken in order.
    #[inline(always)]
    pub fn each_look(
        &mut self,
        look: impl Fn(&mut Handle, &Key<'_>, &mut Reply<'_>) -> CommandResult,
    ) {
        let (found, visit) = (self.found, &mut *self.visit);
        let context = &mut visit.context;
        let database = context.session.database;
        let mut planned = context.plan.keys_of(self.planned).iter();
        let mut done = 0;
        for request in self.requests.clone() {
            done += 1;
            let Some(name) = request.arg(1) else {
                continue;
            };
            let hash = match planned.next() {
                Some(key) => key.hash(),
                None => context.store.hash(name),
            };
            let key = Key::with_hash(name, hash, database);
            let start = visit.reply.mark();
            if let Err(error) = look(context.store, &key, &mut visit.reply) {
                visit.ledger.counters.count_failure(found.index);
                refuse(&visit.ledger, &mut visit.reply, start, &error);
            }
            let is_full = visit.reply.len_with_attachments() >= self.reply_bytes_end;
            if is_full || done >= self.requests_max {
                break;
            }
        }
        self.note(done, done);
    }

    /// Notes how many ran, and how many of these to their end.
    #[inline]
    fn note(&mut self, done: usize, calls: usize) {
        let (index, visit) = (self.found.index, &mut *self.visit);
        visit.ledger.counters.count_calls(index, calls);
        visit.lap.add(index, self.first, done, calls);
        let client = &visit.context.session.client;
        client.last_command.store(index, Ordering::Relaxed);
        self.done = done;
    }

    /// Runs a series of a command without a loop of its own.
    pub(crate) fn each_by_row(&mut self) {
        self.each(self.found.handler);
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::Share;
    use crate::testing::TestServer;

    const ALL: Share = Share {
        requests_max: usize::MAX,
        reply_bytes_max: usize::MAX,
    };

    #[test]
    fn an_error_in_a_series_is_one_reply_among_others() {
        let mut server = TestServer::new();
        let lines = [
            "SET a 1",
            "SET b 2 NX",
            "SET b 3 NX",
            "SET b 4 SOON",
            "LPUSH list x",
            "GET a",
            "GET list",
            "GET b",
            "GET",
            "GET none",
            "GET a b",
            "INCR a",
            "INCR list",
            "INCR a",
        ];
        let sent = server.shares(&lines, ALL);
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
        let count = "-ERR wrong number of arguments for 'get' command\r\n";
        let expected = format!(
            "+OK\r\n+OK\r\n$-1\r\n-ERR syntax error\r\n:1\r\n$1\r\n1\r\n{wrong}$1\r\n2\r\n{count}$-1\r\n{count}\
             :2\r\n{wrong}:3\r\n"
        );
        assert_eq!(
            sent.concat().escape_ascii().to_string(),
            expected.escape_default().to_string()
        );
        assert_eq!(server.counts("SET"), (4, 1));
        assert_eq!(server.counts("GET"), (4, 1));
        assert_eq!(server.counts("INCR"), (3, 1));
    }

    #[test]
    fn a_batch_of_long_requests_is_cut_though_no_two_are_alike() {
        let mut server = TestServer::new();
        // Of different lengths, so that none continues the series of the one before.
        let lines: Vec<String> = (0..12)
            .map(|number| {
                let tail = "x".repeat(number);
                let members = (0..100).map(|member| format!("{member} m{member}{tail}"));
                format!("ZADD ranking {}", members.collect::<Vec<_>>().join(" "))
            })
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let sent = server.shares(&lines, ALL);
        assert_eq!(sent, vec![b":100\r\n".repeat(3); 4]);
    }

    #[test]
    fn a_series_stops_where_the_share_ends_and_goes_on_from_there() {
        let mut server = TestServer::new();
        server.run("SET a 0123456789");
        let lines = ["GET a"; 40];
        // Each reply has 17 bytes.
        for (reply_bytes_max, replies_each) in [(1, 1), (17, 1), (18, 2), (100, 6)] {
            let share = Share {
                reply_bytes_max,
                ..ALL
            };
            let sent = server.shares(&lines, share);
            assert_eq!(sent.concat(), b"$10\r\n0123456789\r\n".repeat(40));
            let (last, others) = sent.split_last().unwrap();
            assert!(
                others
                    .iter()
                    .all(|replies| replies.len() == 17 * replies_each)
            );
            assert!(last.len() <= 17 * replies_each);
        }
    }

    #[test]
    fn a_client_in_a_special_state_is_answered_as_it_wants() {
        let mut server = TestServer::new();
        let lines = [
            "SET a 1",
            "CLIENT REPLY SKIP",
            "GET a",
            "GET a",
            "CLIENT REPLY OFF",
            "GET a",
        ];
        let sent = server.shares(&lines, ALL);
        assert_eq!(sent.concat(), b"+OK\r\n$1\r\n1\r\n");
        assert_eq!(server.counts("GET"), (3, 0));
    }
}
