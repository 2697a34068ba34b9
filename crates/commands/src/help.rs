//! The HELP subcommand of containers.

use engine::error::CommandResult;
use protocol::Reply;

/// Writes the common lines of every container's HELP around its own lines.
pub(crate) fn write(reply: &mut Reply<'_>, container: &str, lines: &[&str]) -> CommandResult {
    let title = format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    reply.array(lines.len() + 3);
    reply.simple(&title);
    for line in lines.iter().chain(&["HELP", "    Print this help."]) {
        reply.simple(line);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    #[test]
    fn help_ends_as_that_of_redis_7_2() {
        // 7.0 has "Prints" there, so transcripts take both.
        for container in ["PUBSUB", "SCRIPT", "CONFIG", "OBJECT"] {
            let Value::Array(lines) = TestServer::new().run(&format!("{container} HELP")) else {
                panic!("{container} HELP gives no array");
            };
            let end = ["HELP", "    Print this help."].map(|line| Value::Simple(line.into()));
            assert!(lines.ends_with(&end), "{container}: {lines:?}");
        }
    }
}
