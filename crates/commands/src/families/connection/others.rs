//! CLIENT LIST, KILL, PAUSE and UNBLOCK: what one connection may ask about, or do to, others.

use protocol::Reply;

use crate::args::Args;
use crate::context::Context;
use crate::error::{CommandError, CommandResult, subcommand_syntax};
use crate::port::{ClientFilter, ClientKind};
use crate::session::Fate;

pub(super) fn list(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let mut filter = ClientFilter::default();
    if args.remaining() == 2 && args.take_word("TYPE") {
        filter.kind = Some(client_kind(args.bytes()?)?);
    } else if args.remaining() >= 2 && args.take_word("ID") {
        let ids: Option<Vec<i64>> = args.by_ref().map(base::number::parse_i64).collect();
        let ids = ids.ok_or(CommandError::fixed("ERR Invalid client ID"))?;
        // A negative number is nobody's.
        filter.ids = Some(
            ids.into_iter()
                .filter_map(|id| u64::try_from(id).ok())
                .collect(),
        );
    } else if args.remaining() > 0 {
        return Err(CommandError::Syntax);
    }
    let text = context.server.clients(&filter);
    reply.verbatim("txt", text.as_bytes());
    Ok(())
}

pub(super) fn kill(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    if args.remaining() == 1 {
        let address = Some(text_of(args.bytes()?));
        let filter = ClientFilter {
            address,
            ..Default::default()
        };
        let count = context.server.kill_clients(context.session, &filter);
        if count.clients == 0 {
            return Err(CommandError::fixed("ERR No such client"));
        }
        if count.caller {
            context.session.fate = Fate::Close;
        }
        reply.ok();
        return Ok(());
    }
    let filter = kill_filter(args, context.session.client.id)?;
    let count = context.server.kill_clients(context.session, &filter);
    if count.caller {
        context.session.fate = Fate::Close;
    }
    reply.integer(i64::try_from(count.clients).unwrap_or(i64::MAX));
    Ok(())
}

pub(super) fn pause(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let timeout_ms = args.bytes()?;
    let writes_only = match args.remaining() {
        0 => false,
        1 if args.take_word("WRITE") => true,
        1 if args.take_word("ALL") => false,
        1 => {
            return Err(CommandError::fixed(
                "ERR CLIENT PAUSE mode must be WRITE or ALL",
            ));
        }
        _ => return Err(subcommand_syntax(args.request())),
    };
    let timeout_ms = base::number::parse_i64(timeout_ms).ok_or(CommandError::fixed(
        "ERR timeout is not an integer or out of range",
    ))?;
    let timeout_ms =
        u64::try_from(timeout_ms).map_err(|_| CommandError::fixed("ERR timeout is negative"))?;
    let until_unix_ms = context
        .now_unix_ms
        .checked_add(timeout_ms)
        .filter(|until| i64::try_from(*until).is_ok())
        .ok_or(CommandError::fixed("ERR timeout is out of range"))?;
    context.server.pause_clients(until_unix_ms, writes_only);
    reply.ok();
    Ok(())
}

/// Ends the wait of another client, as if time were over or with an error.
pub(super) fn unblock(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    const REASONS: CommandError =
        CommandError::fixed("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    let id = args.bytes()?;
    if args.remaining() > 1 {
        return Err(subcommand_syntax(args.request()));
    }
    let with_error = args.take_word("ERROR");
    if !with_error && !args.take_word("TIMEOUT") && args.remaining() > 0 {
        return Err(REASONS);
    }
    let id = base::number::parse_i64(id).ok_or(CommandError::NotInteger)?;
    let client = u64::try_from(id)
        .ok()
        .and_then(|id| context.server.client(id));
    let waiter = client.and_then(|client| client.waiter());
    let claimed = waiter.filter(|waiter| waiter.claim());
    if let Some(waiter) = &claimed {
        let waiting = &waiter.subject;
        let answer = match with_error {
            true => waiting.refusal("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
            false => waiting.in_vain(),
        };
        context.server.answer(&waiting.client, answer);
    }
    reply.integer(i64::from(claimed.is_some()));
    Ok(())
}

fn kill_filter(args: &mut Args<'_>, caller: u64) -> Result<ClientFilter, CommandError> {
    let mut filter = ClientFilter {
        except: Some(caller),
        ..Default::default()
    };
    while args.remaining() > 0 {
        if args.remaining() < 2 {
            return Err(CommandError::Syntax);
        }
        let option = args.bytes()?.to_ascii_uppercase();
        let value = args.bytes()?;
        match option.as_slice() {
            b"ID" => {
                const INVALID: CommandError =
                    CommandError::fixed("ERR client-id should be greater than 0");
                let id = positive(value).and_then(Result::ok).ok_or(INVALID)?;
                filter.ids.get_or_insert_default().push(id);
            }
            b"TYPE" => filter.kind = Some(client_kind(value)?),
            b"ADDR" => filter.address = Some(text_of(value)),
            b"LADDR" => filter.local_address = Some(text_of(value)),
            b"USER" => filter.user = Some(known_user(value)?),
            b"MAXAGE" => {
                let invalid = CommandError::fixed("ERR maxage is not an integer or out of range");
                let age = positive(value).ok_or(invalid)?.map_err(|NotPositive| {
                    CommandError::fixed("ERR maxage should be greater than 0")
                })?;
                filter.age_seconds_min = Some(age);
            }
            b"SKIPME" if value.eq_ignore_ascii_case(b"yes") => filter.except = Some(caller),
            b"SKIPME" if value.eq_ignore_ascii_case(b"no") => filter.except = None,
            _ => return Err(CommandError::Syntax),
        }
    }
    Ok(filter)
}

fn client_kind(word: &[u8]) -> Result<ClientKind, CommandError> {
    match word.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(ClientKind::Normal),
        b"master" | b"primary" => Ok(ClientKind::Primary),
        b"slave" | b"replica" => Ok(ClientKind::Replica),
        b"pubsub" => Ok(ClientKind::PubSub),
        _ => {
            let mut text = b"ERR Unknown client type '".to_vec();
            text.extend_from_slice(word);
            text.push(b'\'');
            Err(CommandError::Bytes(text))
        }
    }
}

struct NotPositive;

/// A number from 1 on; `None` when it is no number at all.
fn positive(text: &[u8]) -> Option<Result<u64, NotPositive>> {
    let number = base::number::parse_i64(text)?;
    let positive = u64::try_from(number).ok().filter(|number| *number > 0);
    Some(positive.ok_or(NotPositive))
}

fn known_user(name: &[u8]) -> Result<String, CommandError> {
    if name == b"default" {
        return Ok(text_of(name));
    }
    let mut text = b"ERR No such user '".to_vec();
    text.extend_from_slice(name);
    text.push(b'\'');
    Err(CommandError::Bytes(text))
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use crate::port::KillCount;
    use crate::session::Fate;
    use crate::testing::TestServer;

    #[test]
    fn filters_of_kill_are_a_conjunction_without_the_caller() {
        let mut server = TestServer::new();
        server.port.kills = KillCount {
            clients: 2,
            caller: true,
        };
        assert_eq!(
            server.integer("CLIENT KILL ID 5 ID 6 TYPE replica SKIPME no"),
            2
        );
        let asked = server.port.asked.join("");
        assert!(
            asked.contains("ids: Some([5, 6])") && asked.contains("except: None"),
            "{asked}"
        );
        assert!(server.session().fate == Fate::Close);
        let mut server = TestServer::new();
        assert_eq!(server.integer("CLIENT KILL MAXAGE 7"), 0);
        assert!(server.port.asked.join("").contains("except: Some(1)"));
        assert_eq!(server.error("CLIENT KILL 1.2.3.4:5"), "ERR No such client");
        assert_eq!(
            server.error("CLIENT KILL ID 0"),
            "ERR client-id should be greater than 0"
        );
        assert_eq!(
            server.error("CLIENT KILL MAXAGE 0"),
            "ERR maxage should be greater than 0"
        );
        assert!(
            server
                .error("CLIENT KILL TYPE x")
                .starts_with("ERR Unknown client type 'x'")
        );
    }

    #[test]
    fn a_pause_has_an_end() {
        let mut server = TestServer::new();
        server.run("CLIENT PAUSE 100 WRITE");
        server.run("CLIENT PAUSE 50");
        server.run("CLIENT UNPAUSE");
        assert_eq!(
            server.port.asked,
            ["pause writes for 100 ms", "pause all for 50 ms", "unpause"]
        );
        assert_eq!(server.error("CLIENT PAUSE -1"), "ERR timeout is negative");
        assert_eq!(
            server.error("CLIENT PAUSE 9223372036854775807"),
            "ERR timeout is out of range"
        );
    }
}
