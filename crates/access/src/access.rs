//! The users, their denied requests and their failed logins, in one owner.

use std::sync::Arc;

use crate::denials::Denials;
use crate::throttle::Throttle;
use crate::user::User;
use crate::users::Users;

/// The access control of a server.
#[derive(Debug, Default)]
pub struct Access {
    /// Users and their rules.
    pub users: Users,
    /// The recent denials.
    pub denials: Denials,
    /// The recent failed logins of each address.
    pub throttle: Throttle,
}

/// The reason why a login failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogInError {
    /// Too many attempts from that address failed.
    TooOften,
    /// The name or the password is wrong, or the user is off.
    Wrong,
}

impl LogInError {
    /// Returns the text that a client is sent.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::TooOften => {
                "ERR Too many failed logins from this address, please try again in a moment"
            }
            Self::Wrong => "WRONGPASS invalid username-password pair or user is disabled.",
        }
    }
}

impl Access {
    /// Returns the user with this name and password, for a client at an address. Failures count for
    /// the address, whichever port they occurred on, so all ports must pass times of the same
    /// clock.
    ///
    /// # Errors
    /// The reason why the login failed. A wrong password is counted.
    pub fn log_in(
        &self,
        name: &[u8],
        password: &[u8],
        address: &str,
        now_unix_ms: u64,
    ) -> Result<Arc<User>, LogInError> {
        if !self.throttle.admits(address, now_unix_ms) {
            return Err(LogInError::TooOften);
        }
        self.users.log_in(name, password).ok_or_else(|| {
            self.throttle.note_failure(address, now_unix_ms);
            LogInError::Wrong
        })
    }
}
