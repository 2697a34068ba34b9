//! ACL: users, their permissions, and recent denials.

mod categories;
mod denials;
mod rows;
mod users;

use access::Change;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::port::{ClientCondition, ClientFilter};
use engine::session::Fate;
use protocol::Reply;

use crate::help;

pub use rows::COMMANDS;

/// Closes the clients of a user that no longer exists.
fn end_clients(context: &mut Context<'_>, name: &[u8]) {
    let name = String::from_utf8_lossy(name).into_owned();
    let filter = ClientFilter::of(ClientCondition::User(name));
    let killed = context.server.kill_clients(context.session, &filter);
    if killed.caller {
        context.session.fate = Fate::Close;
    }
}

/// Closes the clients with subscriptions that their user may no longer have.
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

/// ACL LOAD: replaces all users by those in the file. Clients of users that still exist stay
/// connected, unless they have subscriptions that their user may no longer have.
fn load(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    if context.server.shares_users() {
        return Err(CommandError::fixed(
            "ERR The users are those of the control group (cluster-sync acl): ACL SETUSER and ACL DELUSER change them on all nodes",
        ));
    }
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

/// ACL SAVE: writes all users to the file.
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
