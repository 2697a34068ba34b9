//! Redis itself, asked for its table of commands.

use std::io;

use protocol::Value;
use testkit::process::{Server, ServerBuilder};

/// A running `redis-server`, or `None` where there is none; in CI that is a failure.
pub(crate) fn start() -> Option<Server> {
    or_none(ServerBuilder::oracle().start())
}

/// What came of starting one that is told something.
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

/// Its reply, in RESP3.
pub(crate) fn ask(server: &Server, request: &[&str]) -> Value {
    let mut client = server.client().unwrap();
    client.command(&["HELLO", "3"]).unwrap();
    client.command(request).unwrap()
}
