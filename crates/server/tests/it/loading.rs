//! What clients get while data is being loaded.

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
    rig.node().loading.add_bytes(1_000);
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
    rig.node().loading.add_keys(5, 2);
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
