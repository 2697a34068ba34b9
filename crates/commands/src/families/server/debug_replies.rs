//! DEBUG PROTOCOL and DEBUG OBJECT: replies of every type, for tests of clients, and a value's
//! encoding.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use protocol::{Reply, Resp};
use rdb::Value;

/// The number that Redis returns, too.
#[allow(clippy::approx_constant, reason = "not meant to be pi")]
const SOME_DOUBLE: f64 = 3.141;

/// Writes one reply of the named type.
pub(super) fn protocol(args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    match args.bytes()?.to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12345),
        b"double" => reply.double(SOME_DOUBLE),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"map" => {
            reply.map(3);
            for number in 0..3 {
                reply.integer(number);
                reply.boolean(number == 1);
            }
        }
        b"attrib" => attribute(reply),
        b"push" if reply.version() == Resp::V2 => {
            return Err(CommandError::fixed(
                "ERR RESP2 is not supported by this command",
            ));
        }
        b"push" => {
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
            // A push is not a reply.
            reply.bulk(b"Some real reply following the push reply");
        }
        b"verbatim" => reply.verbatim("txt", b"This is a verbatim\nstring"),
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        b"bignum" => reply.big_number("1234567999999999999999999999999999999"),
        _ => {
            return Err(CommandError::fixed(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

fn attribute(reply: &mut Reply<'_>) {
    if reply.attribute(1) {
        reply.bulk(b"key-popularity");
        reply.array(2);
        reply.bulk(b"key:123");
        reply.integer(90);
    }
    // An attribute is not a reply.
    reply.bulk(b"Some real reply following the attribute");
}

/// Replies with a value's encoding in the words of Redis. Its address is not disclosed.
pub(super) fn object(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let seen = context.store.inspect_expired(&key, |record| {
        let record = record?;
        let value = match record.object() {
            Some(object) => Value::Object(object.clone()),
            None => Value::String(record.to_vec()),
        };
        Some((value, record.encoding(), record.idle_seconds()))
    });
    let (value, encoding, idle_seconds) = seen.ok_or(CommandError::NoSuchKey)?;
    let mut payload = Vec::new();
    rdb::dump::write(&value, true, &mut payload);
    // Excludes the leading type, and the trailing version and checksum of DUMP.
    let serialized_bytes = payload.len().saturating_sub(11);
    let lru = (context.now_unix_ms / 1000).saturating_sub(idle_seconds) & 0x00FF_FFFF;
    let name = encoding.name();
    reply.simple(&format!(
        "Value at:0x0 refcount:1 encoding:{name} serializedlength:{serialized_bytes} lru:{lru} \
         lru_seconds_idle:{idle_seconds}"
    ));
    Ok(())
}
