//! A schedule on one server: performs a step, and detects when all of its effects are there.

use std::io;
use std::time::Duration;

use protocol::Value;

use super::super::sequence::{Answer, Request, Side};
use super::super::state;
use super::grammar::EXPIRING_KEYS;
use super::normal::{is_invalidation, normal, units};
use super::session::{Session, is_message, is_one_of};
use super::{Action, Step, show_answer};
use crate::client::Client;
use crate::patience::Patience;
use crate::target::Target;

/// A time longer than any timeout in a step in which keys expire.
const WAITS_MS: u64 = 45;
/// Maximum time until closed connections have disappeared.
const GONE_WITHIN: Duration = Duration::from_secs(60);

/// The sessions of a schedule on a server, and a connection that observes them.
pub(super) struct Stage<'s> {
    side: &'s dyn Target,
    resp3: Vec<bool>,
    /// The sessions; `None` if closed.
    sessions: Vec<Option<Session>>,
    /// Connection numbers of all sessions, including closed ones.
    ids: Vec<i64>,
    observer: Client,
    heard: Vec<Vec<Answer>>,
    /// Lifetime of an expiring key.
    lives_ms: u64,
}

/// What each session has received in a step, and whether it is blocked afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scene {
    heard: Vec<Vec<Answer>>,
    blocked: Vec<bool>,
}

impl<'s> Stage<'s> {
    /// Opens the sessions on a server that holds no data and has no other client.
    pub(super) fn open(side: &'s mut Side, resp3: &[bool], lives_ms: u64) -> io::Result<Self> {
        let observer = side.fresh_client(false)?;
        let mut stage = Self {
            side: side.target(),
            resp3: resp3.to_vec(),
            sessions: Vec::new(),
            ids: Vec::new(),
            observer,
            heard: vec![Vec::new(); resp3.len()],
            lives_ms,
        };
        stage.await_clients(|ids| ids.len() <= 1)?;
        // Sessions of the previous schedule may have left data when they closed.
        stage.observer.command(&["FLUSHALL"])?;
        let silence = ["CONFIG", "SET", "notify-keyspace-events", ""];
        stage.observer.command(&silence)?;
        for &resp3 in resp3 {
            let session = Session::open(stage.side, resp3)?;
            stage.ids.push(session.id);
            stage.sessions.push(Some(session));
        }
        Ok(stage)
    }

    /// Whether the requests can be executed in only one order after the step. A session that is
    /// served goes on at once, while other sessions that wait for the same key are served.
    /// Therefore a session with further requests must be the only one that waits.
    pub(super) fn is_definite(&self, step: &Step) -> bool {
        let requests = step.action.requests();
        let waits = |session: &Session| !session.is_answered();
        let others = || {
            let sessions = self.sessions.iter().enumerate();
            let others = sessions.filter(|(at, _)| *at != step.session);
            others.filter_map(|(_, session)| session.as_ref())
        };
        if others().any(Session::has_more_to_say) {
            let waits = self.sessions[step.session].as_ref().is_some_and(waits);
            let may_wait = requests.iter().any(may_block);
            return requests.is_empty() || (requests.len() == 1 && !waits && !may_wait);
        }
        let before_last = requests.split_last().map_or(&[][..], |(_, rest)| rest);
        let goes_on = before_last.iter().any(may_block)
            || !requests.is_empty() && self.sessions[step.session].as_ref().is_some_and(waits);
        !goes_on || !others().any(waits)
    }

    /// Performs the step. [`Self::settle`] or [`Self::await_like`] waits for its effects.
    pub(super) fn perform(&mut self, step: &Step) -> io::Result<()> {
        let at = step.session;
        if step.action == Action::Close {
            let closed = self.sessions[at].take().map(|session| session.id);
            return match closed {
                Some(id) => self.await_clients(|ids| !ids.contains(&id)),
                None => Ok(()),
            };
        }
        if step.action == Action::Kill {
            if self.sessions[at].is_some() {
                let id = self.ids[at].to_string();
                self.observer.command(&["CLIENT", "KILL", "ID", &id])?;
            }
            return Ok(());
        }
        if self.sessions[at].is_none() {
            let session = Session::open(self.side, self.resp3[at])?;
            self.ids[at] = session.id;
            self.sessions[at] = Some(session);
        }
        if matches!(step.action, Action::Expire(_)) {
            for key in EXPIRING_KEYS {
                let lives_ms = self.lives_ms.to_string();
                self.observer
                    .command(&["SET", key, "brief", "PX", &lives_ms])?;
            }
        }
        if let Some(session) = &mut self.sessions[at] {
            // If the server has closed the connection, the next read finds it.
            let _sent = session.send(step.action.requests(), &self.ids);
        }
        Ok(())
    }

    /// Waits until every session is answered or blocked, and no more input comes.
    pub(super) fn settle(&mut self, step: &Step, patience: Duration) -> io::Result<Scene> {
        let patience = Patience::of(patience);
        self.await_answers(patience)?;
        if matches!(step.action, Action::Expire(_)) {
            self.expire()?;
            self.await_answers(patience)?;
        }
        self.scene()
    }

    fn await_answers(&mut self, patience: Patience) -> io::Result<()> {
        // Two quiet passes are needed: a session that is served goes on, and may thereby serve
        // another.
        let mut quiet_count = 0;
        while quiet_count < 2 {
            let heard_before = self.heard_count();
            let blocked = self.blocked()?;
            self.listen();
            let mut sessions = self.sessions.iter().zip(&blocked);
            let settled = sessions.all(|(session, blocked)| {
                *blocked || session.as_ref().is_none_or(Session::is_answered)
            });
            quiet_count = match settled && self.heard_count() == heard_before {
                true => quiet_count + 1,
                false => 0,
            };
            if !patience.lasts() {
                break;
            }
        }
        Ok(())
    }

    /// Waits until the sessions have received as much as in another server's scene, and the same
    /// ones are blocked.
    pub(super) fn await_like(
        &mut self,
        step: &Step,
        scene: &Scene,
        patience: Duration,
    ) -> io::Result<Scene> {
        let patience = Patience::of(patience);
        if matches!(step.action, Action::Expire(_)) {
            self.await_answers(patience)?;
            self.expire()?;
        }
        loop {
            self.listen();
            let heard_enough = self.units() >= scene.units();
            if (heard_enough && self.blocked()? == scene.blocked) || !patience.lasts() {
                break;
            }
            if !heard_enough {
                // The server needs the processor more than this loop does.
                std::thread::yield_now();
            }
        }
        self.observer.command(&["PING"])?;
        self.listen();
        self.scene()
    }

    /// Returns all data, read on a connection of its own.
    pub(super) fn held(&self) -> Answer {
        let held = self
            .side
            .connect()
            .and_then(|mut client| state::read(&mut client));
        held.map_err(|error| error.to_string())
    }

    /// Waits until the keys that live for milliseconds have expired, and makes the server notice.
    fn expire(&mut self) -> io::Result<()> {
        std::thread::sleep(Duration::from_millis(WAITS_MS.max(self.lives_ms + 5)));
        let mut exists = vec!["EXISTS"];
        exists.extend(EXPIRING_KEYS);
        self.observer.command(&exists)?;
        Ok(())
    }

    fn scene(&mut self) -> io::Result<Scene> {
        let blocked = self.blocked()?;
        let fresh = vec![Vec::new(); self.sessions.len()];
        let heard = std::mem::replace(&mut self.heard, fresh);
        Ok(Scene { heard, blocked })
    }

    fn heard_count(&self) -> usize {
        self.heard.iter().map(Vec::len).sum()
    }

    fn units(&self) -> usize {
        units(&self.heard)
    }

    fn listen(&mut self) {
        for (session, heard) in self.sessions.iter_mut().zip(&mut self.heard) {
            let is_open = session
                .as_mut()
                .is_some_and(|session| session.listen(heard));
            if !is_open {
                *session = None;
            }
        }
    }

    /// Returns which sessions wait in a blocking command.
    fn blocked(&mut self) -> io::Result<Vec<bool>> {
        let clients = self.clients()?;
        let is_blocked = |id: &i64| {
            let client = clients.iter().find(|client| client.id == *id);
            client.is_some_and(|client| client.is_blocked)
        };
        let open = self.sessions.iter().map(Option::is_some);
        let blocked = self.ids.iter().zip(open);
        Ok(blocked.map(|(id, open)| open && is_blocked(id)).collect())
    }

    fn clients(&mut self) -> io::Result<Vec<Listed>> {
        let listed = self.observer.command(&["CLIENT", "LIST"])?;
        let Value::Bulk(text) = &listed else {
            return Err(io::Error::other(format!("CLIENT LIST: {listed:?}")));
        };
        let text = String::from_utf8_lossy(text);
        Ok(text.lines().filter_map(Listed::parse).collect())
    }

    fn await_clients(&mut self, mut are_right: impl FnMut(&[i64]) -> bool) -> io::Result<()> {
        let patience = Patience::of(GONE_WITHIN);
        while patience.lasts() {
            let ids: Vec<i64> = self.clients()?.iter().map(|client| client.id).collect();
            if are_right(&ids) {
                return Ok(());
            }
        }
        Err(io::Error::other("closed connections stay in CLIENT LIST"))
    }
}

fn may_block(request: &Request) -> bool {
    let name = request[0].to_ascii_uppercase();
    name.starts_with(b"B") || name.starts_with(b"XREAD") || name == b"WAIT"
}

/// A line of CLIENT LIST.
struct Listed {
    id: i64,
    is_blocked: bool,
}

impl Listed {
    fn parse(line: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut fields = line.split(' ').filter_map(|field| field.split_once('='));
            fields
                .find(|(field, _)| *field == name)
                .map(|(_, value)| value)
        };
        Some(Self {
            id: field("id")?.parse().ok()?,
            // Since Redis 7.4 these commands wait for a thread that frees memory, not for another
            // client.
            is_blocked: field("flags")?.contains('b')
                && !field("cmd").is_some_and(|cmd| matches!(cmd, "flushdb" | "flushall")),
        })
    }
}

impl Scene {
    pub(super) fn blocked_count(&self) -> u64 {
        self.blocked.iter().map(|blocked| u64::from(*blocked)).sum()
    }

    pub(super) fn messages_count(&self) -> u64 {
        let answers = self.heard.iter().flatten();
        let messages = answers.filter(|answer| answer.as_ref().is_ok_and(is_message));
        messages.count() as u64
    }

    fn units(&self) -> usize {
        units(&self.heard)
    }

    /// Returns what both servers answered, if the answers differ.
    ///
    /// Since Redis 7.2, a client that publishes to itself or invalidates a key that it tracks
    /// receives that message after the reply.
    pub(super) fn difference(
        &self,
        other: &Self,
        step: &Step,
        compares_replies: bool,
    ) -> Option<[String; 2]> {
        let publishing: [&[u8]; 3] = [b"PUBLISH", b"SPUBLISH", b"EXEC"];
        let mut requests = step.action.requests().iter();
        let publishes = requests.any(|request| is_one_of(&request[0], &publishing));
        let is_compared = |answer: &Answer| {
            compares_replies || !answer.as_ref().is_ok_and(|value| !is_message(value))
        };
        for (session, (ours, theirs)) in self.heard.iter().zip(&other.heard).enumerate() {
            let [ours, theirs] = [ours, theirs].map(|heard| {
                let mut heard = normal(heard);
                heard.retain(is_compared);
                let itself = publishes || heard.iter().any(is_invalidation);
                if itself && session == step.session {
                    // The sort is stable: replies and messages each keep their order.
                    heard.sort_by_key(|answer| answer.as_ref().is_ok_and(is_message));
                }
                heard
            });
            if ours != theirs {
                let pairs = ours.iter().zip(&theirs);
                let same_count = pairs.take_while(|(ours, theirs)| ours == theirs).count();
                let shown = |heard: &[Answer]| show_heard(session, &heard[same_count..]);
                return Some([shown(&ours), shown(&theirs)]);
            }
        }
        let blocked = |scene: &Self| format!("blocked: {:?}", scene.blocked);
        (self.blocked != other.blocked).then(|| [blocked(self), blocked(other)])
    }
}

fn show_heard(session: usize, heard: &[Answer]) -> String {
    let shown: Vec<String> = heard.iter().map(show_answer).collect();
    format!("{} <- session {session}", shown.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::Listed;

    #[test]
    fn who_waits_until_a_flush_is_done_is_not_blocked() {
        let is_blocked = |line: &str| Listed::parse(line).expect("a line").is_blocked;
        assert!(is_blocked("id=7 addr=127.0.0.1:1 flags=b cmd=blpop resp=2"));
        assert!(!is_blocked(
            "id=7 addr=127.0.0.1:1 flags=b cmd=flushdb resp=2"
        ));
        assert!(!is_blocked(
            "id=7 addr=127.0.0.1:1 flags=b cmd=flushall resp=2"
        ));
        assert!(!is_blocked("id=7 addr=127.0.0.1:1 flags=N cmd=get resp=2"));
    }
}
