//! A user as sessions see it: any thread may replace its rules at any time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use crate::rules::Rules;

/// A user with its current rules.
#[derive(Debug)]
pub struct User {
    name: Box<[u8]>,
    rules: RwLock<Arc<Rules>>,
    /// Number of times the rules were replaced.
    version: AtomicU64,
    is_restricted: AtomicBool,
}

impl User {
    /// Returns a user with these rules.
    #[must_use]
    pub fn new(name: &[u8], rules: Rules) -> Self {
        Self {
            name: name.into(),
            is_restricted: AtomicBool::new(!rules.is_unrestricted()),
            rules: RwLock::new(Arc::new(rules)),
            version: AtomicU64::new(0),
        }
    }

    /// Returns the user's name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the user's definition, as a line of a file of users.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        [b"user ", &*self.name, b" ", &self.rules().text()].concat()
    }

    /// Returns the current rules.
    #[must_use]
    pub fn rules(&self) -> Arc<Rules> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&rules)
    }

    /// Replaces the rules.
    pub(crate) fn set(&self, rules: Rules) {
        let is_restricted = !rules.is_unrestricted();
        let mut place = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(rules);
        self.version.fetch_add(1, Ordering::Release);
        self.is_restricted.store(is_restricted, Ordering::Release);
    }
}

/// The rights of a session: its user, and the user's rules as last seen.
#[derive(Clone, Debug)]
pub struct Permit {
    user: Arc<User>,
    rules: Arc<Rules>,
    version: u64,
}

impl Permit {
    /// Returns the permit of a user.
    #[must_use]
    pub fn new(user: Arc<User>) -> Self {
        // The version is read first: if the rules are newer than it, they are only read once more.
        let version = user.version.load(Ordering::Acquire);
        let rules = user.rules();
        Self {
            user,
            rules,
            version,
        }
    }

    /// Returns a permit for everything, of a user in no list, for what the server does itself.
    #[must_use]
    pub fn unrestricted() -> Self {
        static NOBODY: LazyLock<Permit> =
            LazyLock::new(|| Permit::new(Arc::new(User::new(b"", Rules::unrestricted()))));
        NOBODY.clone()
    }

    /// Returns the user.
    #[must_use]
    pub fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// Returns whether some requests may be denied. Costs one load.
    #[inline]
    #[must_use]
    pub fn is_restricted(&self) -> bool {
        self.user.is_restricted.load(Ordering::Acquire)
    }

    /// Returns the rules as last seen.
    #[inline]
    #[must_use]
    pub fn seen(&self) -> &Rules {
        &self.rules
    }

    /// Returns the current rules. Costs one load, unless they have changed.
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
