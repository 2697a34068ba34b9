//! Tests that the page about three machines works if it is followed literally.

use std::collections::BTreeMap;
use std::path::Path;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, TemporaryDirectory, free_port};

/// A machine of the page: its ports, its directory, and the command that runs there.
struct Machine {
    directory: TemporaryDirectory,
    ports: [u16; 3],
    words: Vec<String>,
}

/// Returns the commands of the page, by machine.
fn commands() -> Vec<(String, Vec<String>)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/deploy/group/README.md");
    let page = std::fs::read_to_string(page).unwrap();
    let command = |line: &str| {
        let (machine, command) = line.split_once("$ iolite ")?;
        let words = command.split_whitespace().map(str::to_owned);
        (!machine.is_empty()).then(|| (machine.to_owned(), words.collect()))
    };
    page.lines().filter_map(command).collect()
}

/// Returns machines that all run here: a name stands for its ports.
fn machines() -> BTreeMap<String, Machine> {
    let ports = || [(); 3].map(|()| free_port().unwrap());
    let mut machines: BTreeMap<String, Machine> = commands()
        .into_iter()
        .map(|(name, words)| {
            let directory = TemporaryDirectory::new("page").unwrap();
            let ports = ports();
            (
                name,
                Machine {
                    directory,
                    ports,
                    words,
                },
            )
        })
        .collect();
    let places: BTreeMap<String, [u16; 3]> = machines
        .iter()
        .map(|(name, machine)| (name.clone(), machine.ports))
        .collect();
    for machine in machines.values_mut() {
        let [_, _, sentinel_port] = machine.ports;
        for word in &mut machine.words {
            if let Some([port, link_port, _]) = places.get(word) {
                *word = format!("127.0.0.1:{port}@{link_port}");
            } else if word == "26379" {
                *word = sentinel_port.to_string();
            }
        }
    }
    machines
}

impl Machine {
    fn start(&self) -> Server {
        let directory = self.directory.join("");
        let [port, link_port, _] = self.ports.map(|port| port.to_string());
        let place = [
            "--dir",
            directory.to_str().unwrap(),
            "--port",
            &port,
            "--repl-port",
            &link_port,
        ];
        let builder = ServerBuilder::iolite().args(&self.words).args(&place);
        builder.args(&["--threads", "1"]).start().unwrap()
    }
}

/// Connects a client with the password of the page.
fn connect(port: u16) -> std::io::Result<Client> {
    let mut client = Client::connect_tcp(([127, 0, 0, 1], port).into())?;
    let answer = client.command(&["AUTH", "PASSWORD"])?;
    assert_eq!(answer, Value::Simple(b"OK".to_vec()));
    Ok(client)
}

/// Returns the section `replication` of a server's INFO.
fn info(port: u16) -> String {
    let info = connect(port).and_then(|mut client| client.command(&["INFO", "replication"]));
    match info {
        Ok(Value::Bulk(info)) => String::from_utf8(info).unwrap(),
        _ => String::new(),
    }
}

/// Returns the port of the primary according to a node, with the commands of the page.
fn primary(machine: &Machine) -> Option<u16> {
    let [_, _, port] = machine.ports;
    let mut client = connect(port).ok()?;
    let words = "sentinel get-master-addr-by-name mymaster";
    let told = client.command(&words.split(' ').collect::<Vec<_>>()).ok()?;
    let Value::Array(parts) = told else {
        return None;
    };
    let Some(Value::Bulk(port)) = parts.get(1) else {
        return None;
    };
    std::str::from_utf8(port).ok()?.parse().ok()
}

fn wait_until(what: &str, servers: &[&Server], mut is_so: impl FnMut() -> bool) {
    let patience = Patience::of(crate::WAIT);
    while !is_so() {
        let logs: Vec<String> = servers.iter().map(|server| server.log()).collect();
        assert!(patience.lasts(), "not {what}\n{}", logs.join("\n====\n"));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn three_machines_three_commands() {
    let machines = machines();
    let names: Vec<&String> = machines.keys().collect();
    assert_eq!(names, ["db1", "db2", "db3"]);
    let all: Vec<&Machine> = machines.values().collect();
    let mut servers: Vec<Server> = all.iter().map(|machine| machine.start()).collect();
    let [first_port, ..] = all[0].ports;
    let shown: Vec<&Server> = servers.iter().collect();
    wait_until("a group of three", &shown, || {
        let info = info(first_port);
        info.contains("control_fault_tolerance:1") && info.contains("connected_slaves:2")
    });
    assert!(
        all.iter()
            .all(|machine| primary(machine) == Some(first_port))
    );
    let set = |port: u16, value: &str| {
        connect(port).and_then(|mut client| client.command(&["SET", "key", value]))
    };
    let ok = Value::Simple(b"OK".to_vec());
    assert_eq!(set(first_port, "1").unwrap(), ok);
    // The primary is lost, and another node takes its place.
    drop(servers.remove(0));
    let left: Vec<&Server> = servers.iter().collect();
    wait_until("another primary", &left, || {
        let port = primary(all[1]).filter(|port| *port != first_port);
        port.is_some_and(|port| set(port, "2").is_ok_and(|told| told == ok))
    });
    // Restarted with the same command, it follows.
    let back = all[0].start();
    wait_until("it follows", &[&back, left[0], left[1]], || {
        info(first_port).contains("master_link_status:up")
    });
}
