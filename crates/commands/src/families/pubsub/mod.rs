//! Publish/subscribe: messages to the present subscribers.

use engine::context::Context;
use engine::spec::CommandSpec;

mod publish;
mod subscribe;

/// The rows of this family, by theme.
pub const COMMANDS: &[&[CommandSpec]] = &[subscribe::COMMANDS, publish::COMMANDS];

/// Ends all subscriptions of the client without confirmations, as RESET does.
pub(crate) fn unsubscribe_all(context: &mut Context<'_>, reply: &mut protocol::Reply<'_>) {
    subscribe::unsubscribe_all(context, reply);
}
