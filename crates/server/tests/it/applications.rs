//! Tests of libraries for applications, unmodified from their registries, with the built server:
//! queues, locks, limiters, adapters. Most of them are scripts that were written for Redis.
//!
//! As for the clients' programs ([`crate::clients`]), `cargo xtask test clients` runs them.

use std::process::Command;

use crate::clients::{port, server};
use crate::programs::{node_with, programs, python_with, run};

/// The packages that the programs for Node need.
const NODE_PACKAGES: [&str; 8] = [
    "ioredis@6.0.0",
    "bullmq@6.7.0",
    "redlock@4.2.0",
    "rate-limiter-flexible@11.4.0",
    "socket.io@4.8.4",
    "socket.io-client@4.8.4",
    "@socket.io/redis-adapter@8.3.0",
    "@socket.io/redis-streams-adapter@0.3.1",
];

/// Runs a program in Node to a successful end, and returns its output.
fn node(program: &str) -> String {
    let server = server();
    let mut node = Command::new("node");
    node.arg(programs().join(program)).arg(port(&server));
    let directory = node_with("applications", &NODE_PACKAGES);
    run(node.current_dir(directory))
}

/// Runs a program in Python with these packages to a successful end, and returns its output.
fn python(program: &str, packages: &[&str]) -> String {
    let server = server();
    let mut python = Command::new(python_with(packages));
    // Jobs are imported by their name, from a directory in which the test must not write.
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    python.arg(programs().join(program)).arg(port(&server));
    run(&mut python)
}

#[test]
#[ignore = "needs Node and its packages: cargo xtask test clients"]
fn in_node() {
    println!("{}", node("bullmq.mjs"));
    println!("{}", node("locks_and_limits.mjs"));
    println!("{}", node("socket_io.mjs"));
}

#[test]
#[ignore = "needs Python and its packages: cargo xtask test clients"]
fn in_python() {
    let redis = "redis==8.1.0";
    println!("{}", python("rq_queue.py", &[redis, "rq==3.0.0"]));
    python(
        "celery_queue.py",
        &[redis, "celery==5.7.0", "packaging==26.3"],
    );
    println!("{}", python("rate_limits.py", &[redis, "limits==5.8.0"]));
}
