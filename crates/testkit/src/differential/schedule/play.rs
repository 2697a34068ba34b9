//! A schedule on one server: performing a step, and knowing when all of its effects are there.

use std::io;
use std::time::Duration;

use protocol::Value;

use super::super::sequence::{Answer, Side};
use super::super::state;
use super::grammar::EXPIRING_KEYS;
use super::normal::{normal, units};
use super::session::{Session, is_message};
use super::{Action, Step, show_answer};
use crate::client::Client;
use crate::patience::Patience;
use crate::target::Target;

/// How long a key lives that expires: longer than a request takes to be served, nearly always.
const LIVES_MS: u64 = 40;
/// Longer than any key lives that is waited for, and than anyone waits for one.
const EXPIRES_WITHIN: Duration = Duration::from_millis(LIVES_MS + 5);
/// Until connections that were closed are gone for good.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// The sessions of a schedule on a server, and a connection that looks on.
pub(super) struct Stage<'s> {
    side: &'s dyn Target,
    resp3: Vec<bool>,
    /// `None`: closed.
    sessions: Vec<Option<Session>>,
    /// Of all sessions, those closed included.
    ids: Vec<i64>,
    observer: Client,
    heard: Vec<Vec<Answer>>,
}

/// What every session has heard in a step, and whether it is blocked afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scene {
    heard: Vec<Vec<Answer>>,
    blocked: Vec<bool>,
}

impl<'s> Stage<'s> {
    /// Opens the sessions on a server that holds nothing and has no other client.
    pub(super) fn open(side: &'s mut Side, resp3: &[bool]) -> io::Result<Self> {
        let observer = side.fresh_client(false)?;
        let mut stage = Self {
            side: side.target(),
            resp3: resp3.to_vec(),
            sessions: Vec::new(),
            ids: Vec::new(),
            observer,
            heard: vec![Vec::new(); resp3.len()],
        };
        stage.await_clients(|ids| ids.len() <= 1)?;
        // What the last schedule's sessions left when they went.
        stage.observer.command(&["FLUSHALL"])?;
        for &resp3 in resp3 {
            let session = Session::open(stage.side, resp3)?;
            stage.ids.push(session.id);
            stage.sessions.push(Some(session));
        }
        Ok(stage)
    }

    /// Does what the step says; effects are awaited by [`Self::settle`] or [`Self::await_like`].
    pub(super) fn perform(&mut self, step: &Step) -> io::Result<()> {
        let at = step.session;
        if step.action == Action::Close {
            let closed = self.sessions[at].take().map(|session| session.id);
            return match closed {
                Some(id) => self.await_clients(|ids| !ids.contains(&id)),
                None => Ok(()),
            };
        }
        if self.sessions[at].is_none() {
            let session = Session::open(self.side, self.resp3[at])?;
            self.ids[at] = session.id;
            self.sessions[at] = Some(session);
        }
        if matches!(step.action, Action::Expire(_)) {
            for key in EXPIRING_KEYS {
                let lives_ms = LIVES_MS.to_string();
                self.observer
                    .command(&["SET", key, "brief", "PX", &lives_ms])?;
            }
        }
        if let Some(session) = &mut self.sessions[at] {
            // A connection that the server has closed is met when it is read.
            let _sent = session.send(step.action.requests(), &self.ids);
        }
        Ok(())
    }

    /// Waits until every session is answered or blocked and nothing more comes.
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
        // Quiet twice: what a session that is served goes on to do may serve another.
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

    /// Waits until the sessions have heard as much as in a scene of another server, and as many are
    /// blocked.
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

    /// All data, read on a connection of its own.
    pub(super) fn held(&self) -> Answer {
        let held = self
            .side
            .connect()
            .and_then(|mut client| state::read(&mut client));
        held.map_err(|error| error.to_string())
    }

    /// Waits until what lives for milliseconds is gone, and has the server see that.
    fn expire(&mut self) -> io::Result<()> {
        std::thread::sleep(EXPIRES_WITHIN);
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

    /// Which sessions wait in a blocking command.
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
            is_blocked: field("flags")?.contains('b'),
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

    /// What both servers said, where they do not say the same.
    pub(super) fn difference(&self, other: &Self) -> Option<[String; 2]> {
        for (session, (ours, theirs)) in self.heard.iter().zip(&other.heard).enumerate() {
            let (ours, theirs) = (normal(ours), normal(theirs));
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
