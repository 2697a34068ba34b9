//! Follows a primary by Redis' PSYNC.

use super::following::{Ended, Following, Link};

/// One connection to the primary, from the first byte to the last.
pub(super) fn follow(following: &Following) -> Ended {
    following.set_link(Link::Connect);
    if let Some(port) = super::own_link::discover(following) {
        return Ended::OwnLink(port);
    }
    following.refuse("this version does not follow servers by PSYNC yet");
    Ended::Refused
}
