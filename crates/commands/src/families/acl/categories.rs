//! ACL CAT: the categories and their commands.

use access::Catalog;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult, shown, subcommand_syntax};
use protocol::Reply;

/// Maximum number of bytes of a name that an error repeats.
const NAME_SHOWN_MAX: usize = 128;

pub(super) fn cat(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let catalog = context.table.catalog();
    match args.remaining() {
        0 => {
            reply.array(catalog.categories().len());
            for category in catalog.categories() {
                reply.bulk(category.as_bytes());
            }
            Ok(())
        }
        1 => commands_of(catalog, args.bytes()?, reply),
        _ => Err(subcommand_syntax(args.request())),
    }
}

fn commands_of(catalog: &Catalog, category: &[u8], reply: &mut Reply<'_>) -> CommandResult {
    let Some(commands) = catalog.in_category(category) else {
        let name = shown(category, NAME_SHOWN_MAX);
        let text = [b"ERR Unknown category '", name, b"'"].concat();
        return Err(CommandError::Bytes(text));
    };
    reply.array(commands.len());
    for id in commands {
        let name = catalog.get(id).map(|names| names.full_name.as_bytes());
        reply.bulk(name.unwrap_or_default());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn categories_and_their_commands_are_told() {
        let mut server = TestServer::new();
        assert!(server.texts("ACL CAT").contains(&"dangerous".to_owned()));
        let pubsub = server.texts("ACL CAT PubSub");
        assert!(pubsub.contains(&"pubsub|numsub".to_owned()));
        assert!(!pubsub.contains(&"get".to_owned()));
        assert_eq!(server.error("ACL CAT x"), "ERR Unknown category 'x'");
        assert!(server.error("ACL CAT a b").contains("'CAT'. Try ACL HELP."));
    }
}
