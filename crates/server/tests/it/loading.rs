//! Tests of the replies to clients while data is loaded.

use std::io::Write as _;
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::TemporaryDirectory;

use crate::time::{Rig, line, reply, send};

#[test]
fn clients_are_told_to_wait_and_how_long() {
    let rig = Rig::new(&[]);
    let mut peer = rig.connect();
    rig.node().begin_loading(4_000);
    send(&mut peer, b"GET k\r\nPING\r\n");
    for _ in 0..2 {
        let refused = line(&mut peer);
        assert_eq!(refused, "-LOADING Redis is loading the dataset in memory");
    }
    rig.node().core.env.loading.add_bytes(1_000);
    rig.clock().advance_ms(2_000);
    send(&mut peer, b"INFO persistence\r\n");
    let info = reply(&mut peer);
    for shown in [
        "\r\nloading:1\r\n",
        "\r\nloading_start_time:1700000000\r\n",
        "\r\nloading_total_bytes:4000\r\n",
        "\r\nloading_loaded_bytes:1000\r\n",
        "\r\nloading_loaded_perc:25.00\r\n",
        "\r\nloading_eta_seconds:6\r\n",
    ] {
        assert!(info.contains(shown), "{shown:?} in {info}");
    }
    send(&mut peer, b"CONFIG SET appendonly yes\r\n");
    assert!(line(&mut peer).ends_with("Data is being loaded."));
    rig.node().core.env.loading.add_keys(5, 2);
    rig.node().end_loading();
    send(&mut peer, b"PING\r\nINFO persistence\r\n");
    assert_eq!(line(&mut peer), "+PONG");
    assert_eq!(line(&mut peer).as_bytes()[0], b'$');
    let mut lines = std::iter::repeat_with(|| line(&mut peer));
    for shown in [
        "loading:0",
        "rdb_last_load_keys_expired:2",
        "rdb_last_load_keys_loaded:5",
        "loading_eta_seconds:0",
    ] {
        assert!(lines.any(|line| line == shown), "{shown}");
    }
}

/// A client of a replica that is receiving its data learns from it which other nodes to ask.
#[test]
fn who_loads_tells_of_its_cluster() {
    let rig = Rig::new(&["--cluster-enabled", "yes"]);
    rig.node().begin_loading(4_000);
    let told = |asked: &str| {
        let mut peer = rig.connect();
        send(&mut peer, format!("CLUSTER {asked}\r\n").as_bytes());
        line(&mut peer)
    };
    for asked in ["INFO", "NODES", "SLOTS", "SHARDS", "MYID", "MYSHARDID"] {
        let told = told(asked);
        assert!(!told.starts_with("-LOADING"), "{asked}: {told}");
    }
    assert!(told("COUNTKEYSINSLOT 1").starts_with("-LOADING"));
}

/// As in Redis, stopping a server that still loads does not wait for the end of loading.
#[test]
fn a_signal_or_a_client_stops_a_server_that_loads() {
    for how in ["-TERM", "-INT", "SHUTDOWN"] {
        // With more data, loading takes longer, until the stop meets the server loading.
        let is_met = (0..5).any(|doublings| is_stopped_while_it_loads(how, 400_000 << doublings));
        assert!(is_met, "{how}: everything was loaded first");
    }
}

/// Starts a server with this many keys to load and stops it. Returns whether the stop came before
/// the end of loading.
fn is_stopped_while_it_loads(how: &str, keys_count: u32) -> bool {
    let directory = TemporaryDirectory::new("loading").unwrap();
    let file = std::fs::File::create(directory.join("appendonly.aof")).unwrap();
    let mut file = std::io::BufWriter::new(file);
    for key in 0..keys_count {
        write!(file, "*3\r\n$3\r\nSET\r\n$8\r\n{key:08}\r\n$5\r\nvalue\r\n").unwrap();
    }
    drop(file);
    let socket = directory.join("socket");
    let mut child = std::process::Command::new(testkit::process::iolite_program())
        .args(["--port", "0", "--appendonly", "yes"])
        .args(["--logfile", "server.log", "--pidfile"])
        .arg(directory.join("pid"))
        .arg("--unixsocket")
        .arg(&socket)
        .arg("--dir")
        .arg(&*directory)
        .spawn()
        .unwrap();
    let patience = Patience::of(Duration::from_secs(120));
    let mut client = loop {
        assert!(patience.lasts(), "it never listens");
        match Client::connect_unix(&socket) {
            Ok(client) => break client,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let told = client.command(&["GET", "k"]).unwrap();
    if how == "SHUTDOWN" {
        client.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    } else {
        let pid = child.id().to_string();
        let mut killing = std::process::Command::new("kill");
        assert!(killing.args([how, &pid]).status().unwrap().success());
    }
    assert!(child.wait().unwrap().success(), "{how}");
    let log = std::fs::read_to_string(directory.join("server.log")).unwrap();
    if log.contains("Ready to accept") {
        return false;
    }
    assert!(matches!(told, Value::Error(text) if text.starts_with(b"LOADING")));
    assert!(log.contains("Stopped while loading"), "{how}: {log}");
    assert!(!directory.join("pid").exists(), "{how}");
    true
}
