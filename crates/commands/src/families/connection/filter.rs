//! Parses the arguments that select clients for CLIENT LIST and CLIENT KILL: conditions with a
//! value each, all of which must hold. Most have an opposite that begins with `NOT-`.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::port::{ClientCondition, ClientFilter, ClientKind};

/// Letters that FLAGS accepts.
const FLAGS: &[u8] = b"OSMPxdbcuAUrBTetIEN";

/// The command that filters, which decides the errors for ids.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// CLIENT LIST.
    List,
    /// CLIENT KILL.
    Kill,
}

/// Parses the remaining arguments as a filter, for the client that asks.
pub(super) fn parse(
    args: &mut Args<'_>,
    purpose: Purpose,
    context: &Context<'_>,
) -> Result<ClientFilter, CommandError> {
    let caller = context.session.client.id;
    let mut filter = ClientFilter {
        except: (purpose == Purpose::Kill).then_some(caller),
        ..ClientFilter::default()
    };
    while let Some(option) = args.next() {
        if args.remaining() == 0 {
            return Err(CommandError::Syntax);
        }
        let option = option.to_ascii_uppercase();
        let (name, is_negated) = match option.strip_prefix(b"NOT-") {
            Some(name) => (name, true),
            None => (option.as_slice(), false),
        };
        match name {
            b"SKIPME" if !is_negated => skip(args, &mut filter, caller)?,
            b"ID" => {
                let ids = ids(args, purpose)?;
                filter.add_ids(ids, is_negated);
            }
            _ => {
                let condition = condition(name, args.bytes()?, context);
                // CLIENT LIST reports a surplus word before the error of another word.
                if condition.is_err() && args.remaining() == 1 && purpose == Purpose::List {
                    return Err(CommandError::Syntax);
                }
                filter.conditions.push((condition?, is_negated));
            }
        }
    }
    Ok(filter)
}

fn skip(args: &mut Args<'_>, filter: &mut ClientFilter, caller: u64) -> CommandResult {
    filter.except = if args.take_word("YES") {
        Some(caller)
    } else if args.take_word("NO") {
        None
    } else {
        return Err(CommandError::Syntax);
    };
    Ok(())
}

/// Parses one or more ids, up to the next word.
fn ids(args: &mut Args<'_>, purpose: Purpose) -> Result<Vec<u64>, CommandError> {
    let mut ids = Vec::new();
    while let Some(id) = args.peek().map(base::number::parse_i64) {
        let invalid = match purpose {
            Purpose::List => CommandError::fixed("ERR Invalid client ID"),
            Purpose::Kill => CommandError::fixed("ERR client-id should be greater than 0"),
        };
        match id.map(u64::try_from) {
            None if ids.is_empty() => return Err(invalid),
            // What follows begins with a word that has a value.
            None if args.remaining() == 1 && purpose == Purpose::List => return Err(invalid),
            None => break,
            Some(Ok(id)) if id > 0 => ids.push(id),
            // No client has such an id.
            Some(_) if purpose == Purpose::List => ids.push(0),
            Some(_) if ids.is_empty() => return Err(invalid),
            Some(_) => break,
        }
        args.next();
    }
    Ok(ids)
}

fn condition(
    name: &[u8],
    value: &[u8],
    context: &Context<'_>,
) -> Result<ClientCondition, CommandError> {
    let text = || String::from_utf8_lossy(value).into_owned();
    Ok(match name {
        b"ADDR" => ClientCondition::Address(text()),
        b"LADDR" => ClientCondition::LocalAddress(text()),
        b"IP" => ClientCondition::Ip(text()),
        b"TYPE" => ClientCondition::Kind(kind(value)?),
        b"USER" => {
            let user = context.shared.access.users.find(value);
            user.ok_or_else(|| complaint("ERR No such user '", value))?;
            ClientCondition::User(text())
        }
        b"MAXAGE" => ClientCondition::AgeSeconds(seconds("maxage", value)?),
        b"IDLE" => ClientCondition::IdleSeconds(seconds("idle", value)?),
        b"FLAGS" => ClientCondition::Flags(flags(value)?),
        b"NAME" => ClientCondition::Name(text()),
        b"LIB-NAME" => ClientCondition::LibraryName(text()),
        b"LIB-VER" => ClientCondition::LibraryVersion(text()),
        b"CAPA" => ClientCondition::Capability(text()),
        b"DB" => {
            let database = base::number::parse_i64(value);
            let database = database.and_then(|number| u16::try_from(number).ok());
            let invalid = CommandError::fixed("ERR DB number should be between 0 and 65535");
            ClientCondition::Database(database.ok_or(invalid)?)
        }
        _ => return Err(CommandError::Syntax),
    })
}

fn kind(word: &[u8]) -> Result<ClientKind, CommandError> {
    match word.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(ClientKind::Normal),
        b"master" | b"primary" => Ok(ClientKind::Primary),
        b"slave" | b"replica" => Ok(ClientKind::Replica),
        b"pubsub" => Ok(ClientKind::PubSub),
        _ => Err(complaint("ERR Unknown client type '", word)),
    }
}

fn seconds(name: &str, value: &[u8]) -> Result<u64, CommandError> {
    let Some(number) = base::number::parse_i64(value) else {
        let text = format!("ERR {name} is not an integer or out of range");
        return Err(CommandError::Text(text.into()));
    };
    let positive = u64::try_from(number).ok().filter(|number| *number > 0);
    positive
        .ok_or_else(|| CommandError::Text(format!("ERR {name} should be greater than 0").into()))
}

fn flags(value: &[u8]) -> Result<String, CommandError> {
    let text: String = value.iter().copied().map(char::from).collect();
    if value.iter().all(|letter| FLAGS.contains(letter)) {
        return Ok(text);
    }
    Err(CommandError::Text(
        format!("ERR Unknown flags found in the provided filter: {text}").into(),
    ))
}

fn complaint(about: &str, word: &[u8]) -> CommandError {
    let mut text = about.as_bytes().to_vec();
    text.extend_from_slice(word);
    text.push(b'\'');
    CommandError::Bytes(text)
}
