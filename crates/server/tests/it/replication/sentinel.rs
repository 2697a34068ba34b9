//! Tests of Redis' Sentinel, unchanged, with built servers: it finds their replicas and promotes
//! one.

use std::process::{Child, Command, Stdio};

use protocol::Value;
use testkit::client::Client;
use testkit::process::{TemporaryDirectory, free_port, oracle_program};

use super::{iolite, must, run, until};

/// A Sentinel that ends with its test.
struct Sentinel {
    process: Child,
    address: std::net::SocketAddr,
    _directory: TemporaryDirectory,
}

impl Sentinel {
    /// Starts a Sentinel that alone decides over the primary at `port`.
    fn start(port: u16) -> Self {
        let directory = TemporaryDirectory::new("sentinel").unwrap();
        let own = free_port().unwrap();
        let file = directory.join("sentinel.conf");
        let lines = format!(
            "port {own}\nsentinel monitor group 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds group 1000\nsentinel failover-timeout group 5000\n"
        );
        std::fs::write(&file, lines).unwrap();
        let process = Command::new(oracle_program())
            .arg(&file)
            .arg("--sentinel")
            .current_dir(&directory)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            process,
            address: ([127, 0, 0, 1], own).into(),
            _directory: directory,
        }
    }

    fn client(&self) -> Client {
        let mut client = None;
        until("Sentinel listens", || {
            client = Client::connect_tcp(self.address).ok();
            client.is_some()
        });
        client.unwrap()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _already_gone = self.process.kill();
        let _already_waited = self.process.wait();
    }
}

#[test]
fn a_replica_is_made_the_primary_when_the_primary_is_gone() {
    let (primary, replica) = (iolite(&[]), iolite(&[]));
    super::follow(&mut replica.client().unwrap(), &primary);
    let mut writer = primary.client().unwrap();
    must(&mut writer, "SET kept 1");
    must(&mut writer, "WAIT 1 0");
    let sentinel = Sentinel::start(primary.address().unwrap().port());
    let mut asked = sentinel.client();
    until("Sentinel knows the replica", || {
        let Value::Array(fields) = run(&mut asked, "SENTINEL MASTER group") else {
            return false;
        };
        let pair = [&b"num-slaves"[..], b"1"].map(|word| Value::Bulk(word.to_vec()));
        fields.windows(2).any(|two| two == pair)
    });
    drop(primary);
    let port = replica.address().unwrap().port().to_string();
    until("clients are told of the new primary", || {
        let address = run(&mut asked, "SENTINEL GET-MASTER-ADDR-BY-NAME group");
        matches!(address, Value::Array(parts) if parts.last() == Some(&Value::Bulk(port.clone().into_bytes())))
    });
    // Sentinel had the earlier clients disconnected, so that they ask for the primary.
    let mut client = replica.client().unwrap();
    assert_eq!(must(&mut client, "INCR kept"), Value::Integer(2));
}
