//! A replica whose disk has no room left: what it has is served, nothing counts as durable there, and it heals by itself.

use std::fs::File;
use std::io::{ErrorKind, Write as _};

use super::*;
use crate::power_cuts::Device;

const DEVICE_MIB: u64 = 64;

/// Takes all room of a device.
fn fill_up(device: &Device) -> std::path::PathBuf {
    let path = device.path().join("filler");
    let mut filler = File::create(&path).unwrap();
    for block in [vec![1; 256 << 10], vec![1; 4 << 10]] {
        loop {
            match filler.write_all(&block).and_then(|()| filler.sync_data()) {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                    break;
                }
            }
        }
    }
    path
}

#[test]
#[allow(clippy::print_stdout, reason = "for who reads the run")]
fn a_replica_whose_disk_is_full_serves_what_it_has_counts_for_nothing_and_heals() {
    let device = match Device::new(DEVICE_MIB, &[]) {
        Ok(device) => device,
        Err(reason) => {
            println!("skipped: a full disk needs root, ext4 and loop devices ({reason})");
            return;
        }
    };
    let directory = device.path().join("data");
    std::fs::create_dir(&directory).unwrap();
    let primary = Node::new(&[]);
    let replica = Node::new(&["--dir", directory.to_str().unwrap()]);
    let mut client = primary.client();
    fill(&mut client);
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    let filler = fill_up(&device);

    // Until the log of the replica has none of the room left that it took before.
    let value = "v".repeat(64 << 10);
    let patience = Patience::of(Duration::from_secs(120));
    let is_refused = || {
        replica
            .log()
            .contains("What the primary sent is not appended")
    };
    let mut count = 0;
    while !is_refused() {
        let done = client.command(&["SET", &format!("long:{}", count % 100), &value]);
        assert_eq!(done.unwrap(), Value::Simple(b"OK".to_vec()));
        count += 1;
        assert!(patience.lasts(), "{count} values\n{}", replica.log());
        std::thread::sleep(Duration::from_millis(1));
    }
    run(&mut client, "SET after 1");
    let durable = run(&mut client, "WAITAOF 0 1 200");
    assert_eq!(
        durable,
        Value::Array(vec![Value::Integer(1), Value::Integer(0)])
    );
    let mut reader = replica.client();
    let served = run(&mut reader, "GET string");
    assert_eq!(served, Value::Bulk(b"value".to_vec()));

    std::fs::remove_file(filler).unwrap();
    primary.wait_for_replica(&replica);
    run(&mut client, "SET at-last 1");
    let durable = run(&mut client, "WAITAOF 0 1 60000");
    assert_eq!(
        durable,
        Value::Array(vec![Value::Integer(1), Value::Integer(1)])
    );
    assert_eq!(primary.compare(), (1, 0));
}
