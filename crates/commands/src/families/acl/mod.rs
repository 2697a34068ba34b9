//! ACL: users, what they may do, and what they were not allowed lately.

mod categories;
mod denials;
mod rows;
mod users;

use access::Change;
use engine::args::Args;
use engine::context::Context;
use engine::error::CommandResult;
use engine::port::{ClientCondition, ClientFilter};
use engine::session::Fate;
use protocol::Reply;

use crate::help;

pub use rows::COMMANDS;

/// Closes the clients of a user who is one no more.
fn end_clients(context: &mut Context<'_>, name: &[u8]) {
    let name = String::from_utf8_lossy(name).into_owned();
    let filter = ClientFilter::of(ClientCondition::User(name));
    let killed = context.server.kill_clients(context.session, &filter);
    if killed.caller {
        context.session.fate = Fate::Close;
    }
}

/// Has those clients closed that are subscribed to what their user may hear no more.
fn end_subscribers(context: &mut Context<'_>, change: &Change) {
    if !change.loses_channels() {
        return;
    }
    let rules = change.user.rules();
    context.server.end_subscribers(&change.user);
    let session = &mut *context.session;
    let is_own = session.permit.user().name() == change.user.name();
    let subscriptions = session.subscriptions.as_ref();
    if is_own && subscriptions.is_some_and(|own| !own.are_allowed(&rules)) {
        session.fate = Fate::Close;
    }
}

/// ACL LOAD: the users of the file and no others. Clients stay whose user is still there, unless they listen
/// to what they may hear no more.
fn load(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    for change in context.server.load_users()? {
        if context.shared.access.users.has(&change.user) {
            end_subscribers(context, &change);
        } else {
            end_clients(context, change.user.name());
        }
    }
    reply.ok();
    Ok(())
}

/// ACL SAVE: all users into the file.
fn save(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    context.server.save_users()?;
    reply.ok();
    Ok(())
}

fn write_help(
    _context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    help::write(reply, "ACL", rows::HELP)
}
