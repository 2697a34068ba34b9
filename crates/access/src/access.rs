//! Users with what is kept about their attempts: one owner of who may do what.

use crate::denials::Denials;
use crate::throttle::Throttle;
use crate::users::Users;

/// Who may do what on a server.
#[derive(Debug, Default)]
pub struct Access {
    /// Users and their rules.
    pub users: Users,
    /// What they were not allowed lately.
    pub denials: Denials,
    /// Who failed to log in lately, and how often.
    pub throttle: Throttle,
}
