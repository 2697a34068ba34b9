//! Plays a sequence of requests on two servers. Both start empty; their replies and data must
//! agree.

use std::io;

use protocol::Value;

use super::{Manner, accepted, exchange, state};
use crate::client::Client;
use crate::target::{Launcher, Target};
use crate::transcript::show;

/// Number of requests sent at once.
const BATCH: usize = 64;

/// A request, as its words.
pub type Request = Vec<Vec<u8>>;

/// A server that is restarted if it has ended.
pub struct Side {
    launcher: Launcher,
    args: Vec<String>,
    target: Box<dyn Target>,
}

impl Side {
    /// Starts the server with additional words on its command line.
    ///
    /// # Errors
    /// If the server does not start.
    pub fn start(launcher: Launcher, args: &[String]) -> io::Result<Self> {
        let target = (launcher.start)(args)?;
        Ok(Self {
            launcher,
            args: args.to_vec(),
            target,
        })
    }

    /// Returns the server's name in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        self.launcher.name
    }

    /// Deletes all keys of the server, and returns a connection to it.
    pub(super) fn fresh_client(&mut self, resp3: bool) -> io::Result<Client> {
        let mut client = match self.target.connect() {
            Ok(client) => client,
            Err(_) => {
                self.target = (self.launcher.start)(&self.args)?;
                self.target.connect()?
            }
        };
        client
            .command(&["FLUSHALL"])
            .map_err(|error| self.because("FLUSHALL", &error))?;
        if resp3 {
            client.hello3()?;
        }
        Ok(client)
    }

    /// Returns the running server.
    pub(super) fn target(&self) -> &dyn Target {
        &*self.target
    }

    fn because(&self, what: &str, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {what}: {error}", self.name()))
    }

    /// Returns the replies to all requests, then what the server holds. A broken connection counts
    /// as an answer.
    fn play(&mut self, requests: &[Request], resp3: bool) -> io::Result<(Vec<Answer>, Answer)> {
        let mut client = self.fresh_client(resp3)?;
        let mut answers = Vec::with_capacity(requests.len());
        for batch in requests.chunks(BATCH) {
            play_batch(&mut client, batch, &mut answers);
        }
        let held = match self
            .target
            .connect()
            .and_then(|mut client| state::read(&mut client))
        {
            Ok(held) => Ok(held),
            Err(error) => Err(error.to_string()),
        };
        Ok((answers, held))
    }
}

/// A reply, or what happened instead of a reply.
pub(super) type Answer = Result<Value, String>;

fn play_batch(client: &mut Client, batch: &[Request], answers: &mut Vec<Answer>) {
    let sent = batch.iter().try_fold(Vec::new(), |mut bytes, request| {
        let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        protocol::encode_request(&mut bytes, &words);
        Ok::<_, io::Error>(bytes)
    });
    let sent = sent.and_then(|bytes| client.send_raw(&bytes));
    for _ in batch {
        answers.push(match (&sent, client.receive()) {
            (Err(error), _) => Err(format!("cannot be sent: {error}")),
            (_, Ok(Some(value))) => Ok(value),
            (_, Ok(None)) => Err("the server has closed the connection".to_owned()),
            (_, Err(error)) => Err(error.to_string()),
        });
    }
}

/// Where two servers disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disagreement {
    /// Index of the request, or the number of requests if the data differ.
    pub at: usize,
    /// What the first server answered.
    pub one: String,
    /// What the second server answered.
    pub two: String,
}

/// The result of a comparison.
pub(super) struct Comparison {
    pub(super) disagreement: Option<Disagreement>,
    /// The reasons of the accepted differences, one for each.
    pub(super) accepted: Vec<&'static str>,
}

/// Plays requests on both servers.
///
/// # Errors
/// If a server cannot be reached, even after a restart.
pub(super) fn compare(
    one: &mut Side,
    two: &mut Side,
    requests: &[Request],
    manner: Manner,
) -> io::Result<Comparison> {
    let (answers, held) = one.play(requests, manner.resp3)?;
    let (other_answers, other_held) = two.play(requests, manner.resp3)?;
    let mut accepted = Vec::new();
    for (at, (answer, other)) in answers.iter().zip(&other_answers).enumerate() {
        if answer == other && answer.is_ok() {
            continue;
        }
        let reason = match (answer, other) {
            (Ok(answer), Ok(other)) => accepted::reason(&requests[at], answer, other),
            _ => None,
        };
        match reason {
            Some(reason) => accepted.push(reason),
            None => {
                let disagreement = Disagreement {
                    at,
                    one: show_answer(answer),
                    two: show_answer(other),
                };
                return Ok(Comparison {
                    disagreement: Some(disagreement),
                    accepted,
                });
            }
        }
    }
    let mut difference = state::compare(held, other_held);
    if difference.is_none() && manner.exchanges {
        let (mut client, mut other) = (one.target.connect()?, two.target.connect()?);
        let (held, other_held) = exchange::exchange(&mut client, &mut other);
        difference = state::compare(held, other_held).map(|(one, two)| {
            let after = |text| format!("with the values of the other: {text}");
            (after(one), after(two))
        });
    }
    Ok(Comparison {
        disagreement: difference.map(|(one, two)| Disagreement {
            at: requests.len(),
            one,
            two,
        }),
        accepted,
    })
}

fn show_answer(answer: &Answer) -> String {
    match answer {
        Ok(value) => show(value),
        Err(what) => format!("({what})"),
    }
}
