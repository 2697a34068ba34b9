//! ACL LOG: recent denials.

use access::Entry;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandResult, subcommand_syntax};
use protocol::Reply;

/// Default number of entries shown.
const SHOWN: usize = 10;

pub(super) fn log(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let denials = &context.shared.access.denials;
    let count = match args.remaining() {
        0 => SHOWN,
        1 if args.take_word("RESET") => {
            denials.forget();
            reply.ok();
            return Ok(());
        }
        1 => {
            let count = args.integer()?;
            usize::try_from(count.max(0)).unwrap_or(usize::MAX)
        }
        _ => return Err(subcommand_syntax(args.request())),
    };
    let entries = denials.latest(count);
    reply.array(entries.len());
    for entry in &entries {
        write(entry, context.now_unix_ms, reply);
    }
    Ok(())
}

fn write(entry: &Entry, now_unix_ms: u64, reply: &mut Reply<'_>) {
    let report = &entry.report;
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let age_ms = u32::try_from(now_unix_ms.saturating_sub(entry.updated_unix_ms));
    reply.map(10);
    reply.bulk(b"count");
    reply.integer(number(entry.count));
    reply.bulk(b"reason");
    reply.bulk(report.reason.name().as_bytes());
    reply.bulk(b"context");
    reply.bulk(report.origin.name().as_bytes());
    reply.bulk(b"object");
    reply.bulk(&report.object);
    reply.bulk(b"username");
    reply.bulk(&report.user);
    reply.bulk(b"age-seconds");
    reply.double(f64::from(age_ms.unwrap_or(u32::MAX)) / 1000.0);
    reply.bulk(b"client-info");
    reply.bulk(report.client.as_bytes());
    reply.bulk(b"entry-id");
    reply.integer(number(entry.id));
    reply.bulk(b"timestamp-created");
    reply.integer(number(entry.created_unix_ms));
    reply.bulk(b"timestamp-last-updated");
    reply.integer(number(entry.updated_unix_ms));
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    /// Returns the reason, the origin, and the object of each entry.
    fn entries(server: &mut TestServer) -> Vec<[String; 3]> {
        let Value::Array(entries) = server.run("ACL LOG 100") else {
            panic!("no array");
        };
        let field = |fields: &[Value], at: usize| match &fields[at] {
            Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{other:?}"),
        };
        let fields = |entry: Value| match entry {
            Value::Array(fields) => [3, 5, 7].map(|at| field(&fields, at)),
            other => panic!("{other:?}"),
        };
        entries.into_iter().map(fields).collect()
    }

    #[test]
    fn what_is_denied_is_logged_where_it_came_from() {
        let mut server = TestServer::new();
        server.run("ACL SETUSER u on nopass +get +multi +exec +acl +publish ~a*");
        server.run("AUTH u x");
        server.error("GET b");
        server.error("PUBLISH c m");
        server.error("CONFIG GET x");
        server.run("MULTI");
        server.error("SET a 1");
        server.error("EXEC");
        server.error("AUTH u2 x");
        let expected = [
            ["auth", "toplevel", "AUTH"],
            ["command", "multi", "set"],
            ["command", "toplevel", "config|get"],
            ["channel", "toplevel", "c"],
            ["key", "toplevel", "b"],
        ];
        assert_eq!(entries(&mut server), expected);
        server.run("ACL LOG RESET");
        assert!(entries(&mut server).is_empty());
        assert!(server.error("ACL LOG a b").contains("'LOG'. Try ACL HELP."));
    }
}
