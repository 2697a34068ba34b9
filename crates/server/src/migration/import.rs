//! A move that the target asks for. It sends the request to the source, which proceeds as if it had
//! received the order itself. The link of the request lives as long as the move: if the target
//! closes it, the move is cancelled.

use std::sync::Arc;
use std::time::Duration;

use cluster::NodeId;

use super::Migrations;
use super::job::{Job, Stage};
use super::source::{Stopped, connect};
use super::target::say;
use super::wire::{Begin, Step};
use crate::node::Node;
use crate::replication::session::{Reader, Received, Writer};
use replication::link::Message;

/// Interval between two checks for a message of the other end.
const LOOK: Duration = Duration::from_millis(50);

/// Asks the source for slots, and waits until the move is over. Runs on a thread of its own.
pub(super) fn ask(node: &Arc<Node>, job: &Job) {
    let ended = asked(node, job);
    job.change(node.core.clock.now_unix_ms(), |it| match ended {
        Ok(()) => it.stage = Stage::Done,
        Err(Stopped::Cancelled) => it.stage = Stage::Cancelled,
        Err(Stopped::Failed(reason) | Stopped::Refused(reason)) => {
            it.stage = Stage::Failed;
            it.error = reason;
        }
    });
}

fn asked(node: &Arc<Node>, job: &Job) -> Result<(), Stopped> {
    let group = node.control.log();
    let group = group.ok_or_else(|| Stopped::Refused(super::ALONE.to_owned()))?;
    let mut session = connect(node, &group.watch(), job.source)?;
    let begin = Begin {
        name: job.name,
        ranges: job.ranges.clone(),
        keys: 0,
        bytes: 0,
    };
    say(&mut session.writer, Step::Ask, &begin.encode())?;
    session.reader.set_time(LOOK)?;
    let told = loop {
        if job.is_cancelled() || node.is_stopping() {
            break Err(Stopped::Cancelled);
        }
        match session.reader.next() {
            Ok(Received::Message(Message::Slots(step))) => match Step::of(step.step) {
                Some(Step::Done) => break Ok(()),
                Some(Step::Refused) => {
                    let reason = String::from_utf8_lossy(step.bytes).into_owned();
                    break Err(Stopped::Failed(reason));
                }
                _ => {}
            },
            Ok(_) => {}
            Err(fault) => break Err(fault.into()),
        }
    };
    session.conduit.end();
    told
}

/// At the source: gives slots to the node that asks for them. Returns when the move is over.
///
/// # Errors
/// Why the move failed.
pub(super) fn give(
    migrations: &Migrations,
    node: &Arc<Node>,
    to: NodeId,
    begin: &Begin,
    (reader, writer): (&mut Reader, &mut Writer),
) -> Result<(), String> {
    let job = migrations.export(node, begin.name, begin.ranges.clone(), to)?;
    reader.set_time(LOOK).map_err(|fault| fault.to_string())?;
    while !job.stage().is_over() && !node.is_stopping() {
        if reader.next().is_err() {
            migrations.cancel(&job);
            std::thread::sleep(LOOK);
        }
    }
    let progress = job.progress();
    if progress.stage != Stage::Done {
        return Err(match progress.error.is_empty() {
            true => "the move was cancelled at the source".to_owned(),
            false => progress.error,
        });
    }
    say(writer, Step::Done, &[0; 8]).map_err(|fault| fault.to_string())
}
