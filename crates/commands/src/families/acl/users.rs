//! Users: SETUSER DELUSER GETUSER LIST USERS WHOAMI, and DRYRUN and GENPASS.

use std::sync::Arc;

use access::{Selector, SetError};
use engine::args::Args;
use engine::context::Context;
use engine::engine::resolve;
use engine::error::{CommandError, CommandResult, shown, subcommand_syntax};
use engine::permission::{Subject, explain};
use engine::shared_change::{MakePart, SharedChange, SharedPart};
use protocol::{OwnedRequest, Reply};

use super::{end_clients, end_subscribers};

/// Maximum number of bytes of a name or a rule that an error repeats.
const SHOWN_BYTES_MAX: usize = 1024;
/// Default number of bits of a generated password.
const PASSWORD_BITS: u16 = 256;
/// Maximum number of bits that can be requested.
const PASSWORD_BITS_MAX: u16 = 4096;

pub(super) fn set(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let name = args.bytes()?;
    let rules: Vec<&[u8]> = args.rest().collect();
    if context.server.shares_users() {
        return set_in_group(context, name, &rules, reply);
    }
    let set = context
        .shared
        .access
        .users
        .set(name, &rules, context.table.catalog());
    let change = set.map_err(|error| refuse(&error))?;
    end_subscribers(context, &change);
    reply.ok();
    Ok(())
}

/// Sets a user on all nodes of the control group, or on none. Each node that applies the change
/// closes clients with subscriptions that the user may no longer have.
fn set_in_group(
    context: &mut Context<'_>,
    name: &[u8],
    rules: &[&[u8]],
    reply: &mut Reply<'_>,
) -> CommandResult {
    context.pace.admit_waiting()?;
    let catalog = context.table.catalog();
    let rules: Vec<Vec<u8>> = rules.iter().map(|rule| rule.to_vec()).collect();
    let subject = name.to_vec();
    let made: MakePart = Box::new(move |shared| {
        let rules: Vec<&[u8]> = rules.iter().map(Vec::as_slice).collect();
        let line = shared.access.users.line_with(&subject, &rules, catalog);
        line.map(Some).map_err(|error| refuse(&error))
    });
    // Errors in the rules are reported at once.
    made(context.shared)?;
    let change = Arc::new(SharedChange {
        parts: vec![(SharedPart::User(name.to_vec()), made)],
        when_done: Box::new(|_, _, reply| reply.ok()),
    });
    context.outside(|server| server.change_shared(&change, reply))
}

fn refuse(error: &SetError) -> CommandError {
    let text = match error {
        SetError::Name => b"ERR Usernames can't contain spaces or null characters".to_vec(),
        SetError::Parenthesis(word) => {
            let word = shown(word, SHOWN_BYTES_MAX);
            let before = b"ERR Unmatched parenthesis in acl selector starting at '";
            [before, word, b"'."].concat()
        }
        SetError::Rule(rule, error) => {
            let rule = shown(rule, SHOWN_BYTES_MAX);
            let error = error.to_string();
            let before = b"ERR Error in ACL SETUSER modifier '";
            [before, rule, b"': ", error.as_bytes()].concat()
        }
    };
    CommandError::Bytes(text)
}

pub(super) fn remove(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let names: Vec<&[u8]> = args.rest().collect();
    if names.contains(&access::DEFAULT) {
        return Err(CommandError::fixed(
            "ERR The 'default' user cannot be removed",
        ));
    }
    if context.server.shares_users() {
        context.pace.admit_waiting()?;
        let removal = |name: &&[u8]| {
            let made: MakePart = Box::new(|_| Ok(None));
            (SharedPart::User(name.to_vec()), made)
        };
        let change = Arc::new(SharedChange {
            parts: names.iter().map(removal).collect(),
            when_done: Box::new(|_, removed, reply| reply.count(removed)),
        });
        return context.outside(|server| server.change_shared(&change, reply));
    }
    let mut removed = 0;
    for name in names {
        if context.shared.access.users.remove(name).is_some() {
            removed += 1;
            end_clients(context, name);
        }
    }
    reply.integer(removed);
    Ok(())
}

pub(super) fn describe(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let Some(user) = context.shared.access.users.find(args.bytes()?) else {
        reply.null();
        return Ok(());
    };
    let rules = user.rules();
    reply.map(6);
    reply.bulk(b"flags");
    let flags = rules.flags();
    reply.set(flags.len());
    for flag in flags {
        reply.bulk(flag.as_bytes());
    }
    reply.bulk(b"passwords");
    reply.array(rules.passwords().len());
    for password in rules.passwords() {
        reply.bulk(password.to_hex().as_bytes());
    }
    let mut selectors = rules.selectors().iter();
    if let Some(own) = selectors.next() {
        write_selector(own, reply);
    }
    reply.bulk(b"selectors");
    reply.array(selectors.len());
    for selector in selectors {
        reply.map(3);
        write_selector(selector, reply);
    }
    Ok(())
}

/// Writes three fields of a map.
fn write_selector(selector: &Selector, reply: &mut Reply<'_>) {
    reply.bulk(b"commands");
    reply.bulk(&selector.commands_text());
    reply.bulk(b"keys");
    reply.bulk(&selector.keys_text());
    reply.bulk(b"channels");
    reply.bulk(&selector.channels_text());
}

pub(super) fn list(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let users = context.shared.access.users.all();
    reply.array(users.len());
    for user in users {
        reply.bulk(&user.line());
    }
    Ok(())
}

pub(super) fn names(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let users = context.shared.access.users.all();
    reply.array(users.len());
    for user in users {
        reply.bulk(user.name());
    }
    Ok(())
}

pub(super) fn who_am_i(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    reply.bulk(context.session.permit.user().name());
    Ok(())
}

pub(super) fn dry_run(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let name = args.bytes()?;
    let Some(user) = context.shared.access.users.find(name) else {
        let name = shown(name, SHOWN_BYTES_MAX);
        let text = [b"ERR User '", name, b"' not found"].concat();
        return Err(CommandError::Bytes(text));
    };
    let words: Vec<&[u8]> = args.rest().collect();
    let request = OwnedRequest::new(&words);
    let request = request.request();
    let table = context.table;
    let found = table.original().find(request.name());
    let resolved = found.and_then(|found| resolve(table, found, request).ok());
    let Some((index, spec, _)) = resolved else {
        let name = shown(request.name(), SHOWN_BYTES_MAX);
        let text = [b"ERR Command '", name, b"' not found"].concat();
        return Err(CommandError::Bytes(text));
    };
    if !spec.arity.accepts(request.len()) {
        let full_name = table.full_name(index).unwrap_or_default();
        return Err(CommandError::WrongArity(full_name.into()));
    }
    let subject = Subject {
        table,
        index,
        spec,
        request,
    };
    match user.rules().check(&subject) {
        Ok(()) => reply.ok(),
        Err(denial) => reply.bulk(&explain(denial, user.name(), &subject)),
    }
    Ok(())
}

pub(super) fn generate_password(
    _context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let bits = match args.remaining() {
        0 => PASSWORD_BITS,
        1 => {
            let bits = args.integer()?;
            let bits = u16::try_from(bits).ok();
            let bits = bits.filter(|bits| (1..=PASSWORD_BITS_MAX).contains(bits));
            bits.ok_or(CommandError::fixed(
                "ERR ACL GENPASS argument must be the number of bits for the output password, a \
                 positive number up to 4096",
            ))?
        }
        _ => return Err(subcommand_syntax(args.request())),
    };
    reply.bulk(access::generate(bits).as_bytes());
    Ok(())
}

#[cfg(test)]
#[path = "users/tests.rs"]
mod tests;
