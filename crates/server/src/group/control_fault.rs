//! A node whose control log cannot be written takes no part in the group until it can: it reports
//! that, and behaves as if cut off.
//!
//! ```text
//!   a fault ─► no vote, no entry, no heartbeat, no seal ─► its lease ends; the others find it silent, and go on without it
//!   none any more ─► heartbeats ─► it is heard again, and told what was decided meanwhile
//! ```
//!
//! Its knowledge of the group is older than the other nodes' decisions, and its promises would not
//! outlive the process.

use consensus::Standing;

use super::driver::Driver;

impl Driver {
    /// Logs changes in the state of the control log's files.
    pub(super) fn tell_control_faults(&self, before: &Standing) {
        let now = &self.standing;
        if (&now.fault, &now.snapshot_fault, &now.ended)
            == (&before.fault, &before.snapshot_fault, &before.ended)
        {
            return;
        }
        let directory = self.part.directory().display().to_string();
        match (&before.fault, &now.fault) {
            (_, Some(fault)) if before.fault != now.fault => self.warn(&format!(
                "The control log in {directory} cannot be written ({fault}): this node takes no part in its control group, and is no primary, until it can be. Make room on that disk, or mend it: this node goes on by itself then"
            )),
            (Some(_), None) => self.tell(&format!(
                "The control log in {directory} can be written again: this node takes part in its control group"
            )),
            _ => {}
        }
        match (&before.snapshot_fault, &now.snapshot_fault) {
            (_, Some(fault)) if before.snapshot_fault != now.snapshot_fault => self.warn(&format!(
                "No snapshot of the control log can be written in {directory} ({fault}): the log grows until one can be. Make room on that disk, or mend it"
            )),
            (Some(_), None) => self.tell(&format!(
                "A snapshot of the control log in {directory} is written"
            )),
            _ => {}
        }
        if let (None, Some(ended)) = (&before.ended, &now.ended) {
            self.warn(&format!(
                "The control log in {directory} has ended ({ended}): this node takes no part in its control group until it is started anew"
            ));
        }
    }

    /// Why this node takes no part, or `None` if it does.
    pub(super) fn control_fault(&self) -> Option<String> {
        let standing = &self.standing;
        standing.fault.clone().or_else(|| standing.ended.clone())
    }
}
