//! A user as sessions see it: rules that may be exchanged at any time by any thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use crate::rules::Rules;

/// A user with the rules it has at present.
#[derive(Debug)]
pub struct User {
    name: Box<[u8]>,
    rules: RwLock<Arc<Rules>>,
    /// Counts exchanges of the rules.
    version: AtomicU64,
    is_restricted: AtomicBool,
}

impl User {
    /// A user.
    #[must_use]
    pub fn new(name: &[u8], rules: Rules) -> Self {
        Self {
            name: name.into(),
            is_restricted: AtomicBool::new(!rules.is_unrestricted()),
            rules: RwLock::new(Arc::new(rules)),
            version: AtomicU64::new(0),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// All there is to say of it, as a file of users has it.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        [b"user ", &*self.name, b" ", &self.rules().text()].concat()
    }

    /// Its rules as they are now.
    #[must_use]
    pub fn rules(&self) -> Arc<Rules> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&rules)
    }

    /// Gives it other rules.
    pub(crate) fn set(&self, rules: Rules) {
        let is_restricted = !rules.is_unrestricted();
        let mut place = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(rules);
        self.version.fetch_add(1, Ordering::Release);
        self.is_restricted.store(is_restricted, Ordering::Release);
    }
}

/// What a session may do: its user, and the user's rules as they were seen last.
#[derive(Clone, Debug)]
pub struct Permit {
    user: Arc<User>,
    rules: Arc<Rules>,
    version: u64,
}

impl Permit {
    /// Of a user.
    #[must_use]
    pub fn new(user: Arc<User>) -> Self {
        // The version first: rules that are newer than it are only taken once more.
        let version = user.version.load(Ordering::Acquire);
        let rules = user.rules();
        Self {
            user,
            rules,
            version,
        }
    }

    /// To do everything, as a user that no list knows: for what the server does by itself.
    #[must_use]
    pub fn unrestricted() -> Self {
        static NOBODY: LazyLock<Permit> =
            LazyLock::new(|| Permit::new(Arc::new(User::new(b"", Rules::unrestricted()))));
        NOBODY.clone()
    }

    /// The user.
    #[must_use]
    pub fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// Whether some requests may be denied. One load.
    #[inline]
    #[must_use]
    pub fn is_restricted(&self) -> bool {
        self.user.is_restricted.load(Ordering::Acquire)
    }

    /// The rules as they were seen last.
    #[inline]
    #[must_use]
    pub fn seen(&self) -> &Rules {
        &self.rules
    }

    /// The rules as they are now. One load, unless they were changed.
    #[inline]
    pub fn rules(&mut self) -> &Arc<Rules> {
        if self.user.version.load(Ordering::Acquire) != self.version {
            *self = Self::new(Arc::clone(&self.user));
        }
        &self.rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Defaults;

    #[test]
    fn a_permit_follows_its_user() {
        let user = Arc::new(User::new(b"a", Rules::unrestricted()));
        let mut permit = Permit::new(Arc::clone(&user));
        assert!(!permit.is_restricted() && permit.rules().is_on());
        user.set(Rules::new(Defaults::default()));
        assert!(permit.is_restricted() && !permit.rules().is_on());
        assert_eq!(permit.user().name(), b"a");
        assert!(!Permit::unrestricted().is_restricted());
    }
}
