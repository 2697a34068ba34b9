//! Running out of descriptors: the loop pauses accepting, serves existing connections, and accepts
//! again later.
//!
//! The limit applies to the process, so the test runs itself again as a child process.

use std::process::Command;
use std::sync::atomic::Ordering;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::rig::{Kind, Rig, eventually};

const CHILD: &str = "REACTOR_TEST_FEW_DESCRIPTORS";

#[test]
fn accept_backs_off_without_descriptors() {
    if std::env::var_os(CHILD).is_some() {
        return with_few_descriptors();
    }
    let status = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "descriptors::accept_backs_off_without_descriptors",
        ])
        .env(CHILD, "1")
        .status()
        .unwrap();
    assert!(status.success());
}

fn with_few_descriptors() {
    let rig = Rig::new();
    let mut inside = rig.connect(Kind::Tcp4);
    inside.send("in\n");
    inside.expect("in\n");
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = |current| {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(current),
                maximum,
            },
        )
    };
    limit(64).unwrap();
    // Clients are in this process, too: both ends count, and the last clients only connect.
    let mut waiting = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect(rig.tcp_address()) {
        waiting.push(stream);
    }
    eventually("accept failed", || {
        rig.shared.accept_failures.load(Ordering::SeqCst) > 0
    });
    inside.send("still in\n");
    inside.expect("still in\n");
    let connected = waiting.len() + 1;
    limit(1024).unwrap();
    eventually("all accepted", || rig.opened_count() == connected);
}
