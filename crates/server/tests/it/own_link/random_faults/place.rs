//! A node of the fault test: its process, the relays by which other nodes reach it, and a file
//! system of its own that may be full or lose its power.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use testkit::relay::Relay;

use super::super::*;
use crate::power_cuts::Device;

/// Size of the file, which is sparse: unwritten parts take no space.
const DEVICE_MIB: u64 = 512;
/// Name of the files that use up the free space.
const FILLERS: &str = "fillers";

/// See the module.
pub(super) struct Place {
    pub(super) node: Node,
    /// The relay to its clients' port, which the node announces as that port.
    pub(super) clients: Relay,
    pub(super) links: Relay,
    /// The index of the node that it follows.
    pub(super) follows: Option<usize>,
    device: Option<Device>,
    /// The output of its earlier processes.
    past_log: String,
}

impl Place {
    pub(super) fn new(args: &[&str], has_device: bool) -> Self {
        let device = has_device
            .then(|| Device::new(DEVICE_MIB, &[]).ok())
            .flatten();
        let data = device.as_ref().map(|device| device.path().join("data"));
        if let Some(data) = &data {
            fs::create_dir(data).unwrap();
        }
        let mut node = Node::new_stopped(data, args);
        let links = Relay::to(node.link_port).unwrap();
        let clients = Relay::rewriting(node.port, node.link_port, links.port()).unwrap();
        // A hand-over of the office goes through the same relay.
        let announced = clients.port().to_string();
        node.args
            .extend(["--replica-announce-port".to_owned(), announced]);
        node.start(&[]);
        Self {
            node,
            clients,
            links,
            follows: None,
            device,
            past_log: String::new(),
        }
    }

    /// Returns whether it has a file system of its own.
    pub(super) fn has_device(&self) -> bool {
        self.device.is_some()
    }

    /// Kills the process as a crash does.
    pub(super) fn kill(&mut self) {
        if self.node.server.is_some() {
            let said = self.node.log();
            self.past_log += &said;
            self.past_log += "---- killed\n";
        }
        self.node.kill();
    }

    /// Returns the output of all its processes.
    pub(super) fn said(&self) -> String {
        let now = match &self.node.server {
            Some(server) => server.log(),
            None => String::new(),
        };
        format!("{}{now}", self.past_log)
    }

    /// Returns the last lines of that output.
    pub(super) fn tail(&self, lines: usize) -> String {
        let said = self.said();
        let all: Vec<&str> = said.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Returns the numbers of discarded writes that it has reported, one per report.
    pub(super) fn reported(&self) -> Vec<u64> {
        let said = self.said();
        let told = said.lines().filter_map(|line| {
            let (before, _) = line.split_once(" writes of ")?;
            line.contains("not in the primary's history")
                .then_some(())?;
            before.rsplit(' ').next()?.parse().ok()
        });
        told.collect()
    }

    /// Returns how often it has reported that it discards writes that are no longer in its log.
    pub(super) fn told_of_more(&self) -> usize {
        let what = "are not in the primary's history and are not kept";
        self.said().matches(what).count()
    }

    /// Uses up all space of its file system.
    pub(super) fn fill(&self) {
        let Some(device) = &self.device else { return };
        let fillers = device.path().join(FILLERS);
        fs::create_dir_all(&fillers).unwrap();
        for mib in [256, 128, 64, 32, 16, 8, 4, 2, 1] {
            // A file that does not fit is not created.
            let _full = Command::new("fallocate")
                .args(["-l", &format!("{mib}M")])
                .arg(fillers.join(mib.to_string()))
                .output();
        }
        let mut rest = File::create(fillers.join("rest")).unwrap();
        while rest
            .write_all(&[1; 4096])
            .and_then(|()| rest.sync_data())
            .is_ok()
        {}
    }

    /// Frees the space again.
    pub(super) fn free(&self) {
        if let Some(device) = &self.device {
            let _none = fs::remove_dir_all(device.path().join(FILLERS));
        }
    }

    /// Cuts the power: what was not on the device is lost, and the process ends.
    pub(super) fn cut_power(&mut self) {
        let Some(device) = &self.device else {
            return self.kill();
        };
        device.cut_power();
        self.kill();
        let Some(device) = &self.device else { return };
        device.unmount();
        device.mount().unwrap();
        self.free();
    }

    /// Returns the directory of all its data, which a test may remove.
    pub(super) fn kept(&self) -> PathBuf {
        self.node.data.join("iolite-data")
    }

    /// Removes everything that keeps other nodes from reaching it.
    pub(super) fn heal(&self) {
        for relay in [&self.clients, &self.links] {
            relay.hold_after(u64::MAX);
            relay.hold(false);
            relay.hold_way(true, false);
            relay.hold_way(false, false);
            relay.slow(0);
            relay.shut(false);
            relay.cut_after(u64::MAX);
        }
        self.free();
    }

    /// Shuts or opens the relays to it.
    pub(super) fn shut(&self, on: bool) {
        for relay in [&self.clients, &self.links] {
            relay.shut(on);
        }
    }
}
