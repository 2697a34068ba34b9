//! A Redis server, as the reference for the table of commands.

use std::io;

use protocol::Value;
use testkit::process::{Server, ServerBuilder};

/// Returns a running `redis-server`, or `None` if there is none; in CI that is a failure.
pub(crate) fn start() -> Option<Server> {
    or_none(ServerBuilder::oracle().start())
}

/// Returns the started server, or reports that it is missing.
#[expect(
    clippy::print_stderr,
    reason = "who runs the tests should know what was left out"
)]
pub(crate) fn or_none(started: io::Result<Server>) -> Option<Server> {
    match started {
        Ok(server) => Some(server),
        Err(error) => {
            assert!(
                std::env::var_os("CI").is_none(),
                "redis-server is required: {error}"
            );
            eprintln!("not compared with Redis: {error}");
            None
        }
    }
}

/// Returns its reply, in RESP3.
pub(crate) fn ask(server: &Server, request: &[&str]) -> Value {
    let mut client = server.client().unwrap();
    client.command(&["HELLO", "3"]).unwrap();
    client.command(request).unwrap()
}
