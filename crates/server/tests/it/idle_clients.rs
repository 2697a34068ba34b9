//! What clients cost that have nothing to say.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use testkit::process::{Server, ServerBuilder};

/// Most bytes of its own memory that an idle client may take, beside what the kernel takes.
const CLIENT_BYTES_MAX: u64 = 1024;
/// What the process may grow by beside its clients: pages that fill up, counters, the allocator's
/// own tables.
const BESIDE_BYTES: u64 = 512 * 1024;
/// Bytes of the request, and of its reply, that each client is active with.
const ACTIVE_BYTES: usize = 16 * 1024;

fn connect(server: &Server) -> UnixStream {
    UnixStream::connect(server.socket()).unwrap()
}

/// Sends a request and takes its whole reply.
fn exchange(client: &mut UnixStream, request: &[u8], reply: &[u8]) {
    client.write_all(request).unwrap();
    let mut received = vec![0; reply.len()];
    client.read_exact(&mut received).unwrap();
    assert!(received == reply);
}

/// Bytes per client: after they connected, and after each was active once.
fn bytes_per_client(clients_count: u64) -> (u64, u64) {
    let arguments = ["--maxclients", "20000", "--threads", "1"];
    let server = ServerBuilder::iolite().args(&arguments).start().unwrap();
    let content = "x".repeat(ACTIVE_BYTES);
    let bulk = format!("${ACTIVE_BYTES}\r\n{content}\r\n");
    let echo = format!("*2\r\n$4\r\nECHO\r\n{bulk}");
    // What the server takes once is taken before it is weighed.
    let mut first = connect(&server);
    exchange(&mut first, echo.as_bytes(), bulk.as_bytes());
    let before = server.anonymous_bytes().unwrap();
    let grown = |server: &Server| {
        let grown = server.anonymous_bytes().unwrap().saturating_sub(before);
        grown.saturating_sub(BESIDE_BYTES) / clients_count
    };
    let mut clients: Vec<_> = (0..clients_count).map(|_| connect(&server)).collect();
    // Accepted in order, so that all are there once the last is served.
    exchange(clients.last_mut().unwrap(), b"PING\r\n", b"+PONG\r\n");
    let idle = grown(&server);
    for client in &mut clients {
        // In two parts, so that the request has to be kept as it comes.
        let (start, rest) = echo.as_bytes().split_at(ACTIVE_BYTES / 2);
        client.write_all(start).unwrap();
        exchange(client, rest, bulk.as_bytes());
    }
    (idle, grown(&server))
}

#[test]
fn a_thousand_idle_clients_cost_a_kilobyte_each_at_most() {
    let (idle, after_activity) = bytes_per_client(1_000);
    assert!(idle <= CLIENT_BYTES_MAX, "{idle} bytes each");
    assert!(
        after_activity <= CLIENT_BYTES_MAX,
        "{after_activity} bytes each"
    );
}

#[test]
#[ignore = "needs 20,000 open files; cargo test -p server --release --test it -- --ignored idle --nocapture"]
#[allow(clippy::print_stdout, reason = "a figure for docs/bench")]
fn ten_thousand_idle_clients_cost_a_kilobyte_each_at_most() {
    let (idle, after_activity) = bytes_per_client(10_000);
    println!("bytes per client: {idle} idle, {after_activity} after 16 KB in and out");
    assert!(idle <= CLIENT_BYTES_MAX && after_activity <= CLIENT_BYTES_MAX);
}
