//! The HELP subcommand of containers.

use protocol::Reply;

use crate::error::CommandResult;

/// Writes the lines that every container's HELP has around its own.
pub(crate) fn write(reply: &mut Reply<'_>, container: &str, lines: &[&str]) -> CommandResult {
    let title = format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    reply.array(lines.len() + 3);
    reply.simple(&title);
    for line in lines.iter().chain(&["HELP", "    Prints this help."]) {
        reply.simple(line);
    }
    Ok(())
}
