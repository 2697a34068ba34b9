//! Measures the memory of idle clients.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use testkit::process::{Server, ServerBuilder};

/// Maximum number of bytes of process memory per idle client, not counting the kernel's memory.
const CLIENT_BYTES_MAX: u64 = 1024;
/// Growth of the process that does not depend on its clients: partly filled pages, counters, the
/// allocator's own tables.
const BESIDE_BYTES: u64 = 512 * 1024;
/// Size of the request, and of its reply, with which each client is active once.
const ACTIVE_BYTES: usize = 16 * 1024;

fn connect(server: &Server) -> UnixStream {
    UnixStream::connect(server.socket()).unwrap()
}

/// Sends a request and reads its whole reply.
fn exchange(client: &mut UnixStream, request: &[u8], reply: &[u8]) {
    client.write_all(request).unwrap();
    let mut received = vec![0; reply.len()];
    client.read_exact(&mut received).unwrap();
    assert!(received == reply);
}

/// Returns the bytes per client: after they connected, and after each was active once.
fn bytes_per_client(clients_count: u64) -> (u64, u64) {
    let arguments = ["--maxclients", "20000", "--threads", "1"];
    let server = ServerBuilder::iolite().args(&arguments).start().unwrap();
    let content = "x".repeat(ACTIVE_BYTES);
    let bulk = format!("${ACTIVE_BYTES}\r\n{content}\r\n");
    let echo = format!("*2\r\n$4\r\nECHO\r\n{bulk}");
    // The server makes its one-time allocations before it is measured.
    let mut first = connect(&server);
    exchange(&mut first, echo.as_bytes(), bulk.as_bytes());
    let before = server.anonymous_bytes().unwrap();
    let grown = |server: &Server| {
        let grown = server.anonymous_bytes().unwrap().saturating_sub(before);
        grown.saturating_sub(BESIDE_BYTES) / clients_count
    };
    let mut clients: Vec<_> = (0..clients_count).map(|_| connect(&server)).collect();
    // Connections are accepted in order, so all are there when the last is served.
    exchange(clients.last_mut().unwrap(), b"PING\r\n", b"+PONG\r\n");
    let idle = grown(&server);
    for client in &mut clients {
        // The request is sent in two parts, so that the first part has to be buffered.
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
