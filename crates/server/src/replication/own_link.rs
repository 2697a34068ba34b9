//! Follows a primary by the own link.

use super::following::{Ended, Following};

/// One connection to the primary's link port, from the first byte to the last.
pub(super) fn follow(following: &Following, port: u16) -> Ended {
    following.refuse(&format!(
        "this version does not follow servers by the own link (port {port}) yet"
    ));
    Ended::Refused
}
