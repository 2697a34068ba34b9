//! All users of a server.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::catalog::Catalog;
use crate::error::RuleError;
use crate::rules::{Defaults, Rules, merge_selectors};
use crate::user::User;

/// The user of every client that has not logged in.
pub const DEFAULT: &[u8] = b"default";

/// All users of a server, by name.
#[derive(Debug)]
pub struct Users {
    /// Never replaced, so it can be read without the lock.
    default: Arc<User>,
    known: Mutex<BTreeMap<Box<[u8]>, Arc<User>>>,
    all_channels: AtomicBool,
}

/// The reason why a user was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetError {
    /// The name contains spaces or zero bytes.
    Name,
    /// The parenthesis that this word opens is never closed.
    Parenthesis(Vec<u8>),
    /// This rule is invalid.
    Rule(Vec<u8>, RuleError),
}

/// The change of a user, for the clients that are connected as this user.
#[derive(Clone, Debug)]
pub struct Change {
    /// The changed user.
    pub user: Arc<User>,
    /// The rules before the change, or `None` for a new user.
    pub before: Option<Arc<Rules>>,
}

impl Change {
    /// Returns whether subscribers may have subscriptions that they are no longer allowed.
    #[must_use]
    pub fn loses_channels(&self) -> bool {
        let before = self.before.as_ref();
        before.is_some_and(|before| before.loses_channels(&self.user.rules()))
    }
}

impl Default for Users {
    fn default() -> Self {
        Self::new()
    }
}

impl Users {
    /// Returns the default user alone, who may do everything.
    #[must_use]
    pub fn new() -> Self {
        let default = Arc::new(User::new(DEFAULT, Rules::unrestricted()));
        let known = BTreeMap::from([(DEFAULT.into(), Arc::clone(&default))]);
        Self {
            default,
            known: Mutex::new(known),
            all_channels: AtomicBool::new(false),
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Box<[u8]>, Arc<User>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the defaults for new users.
    #[must_use]
    pub fn defaults(&self) -> Defaults {
        Defaults {
            all_channels: self.all_channels.load(Ordering::Relaxed),
        }
    }

    /// Sets the defaults for new users.
    pub fn set_defaults(&self, defaults: Defaults) {
        self.all_channels
            .store(defaults.all_channels, Ordering::Relaxed);
    }

    /// Returns the default user.
    #[must_use]
    pub fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// Returns whether new connections have to log in.
    #[must_use]
    pub fn must_log_in(&self) -> bool {
        let rules = self.default.rules();
        !(rules.is_on() && rules.needs_no_password())
    }

    /// Returns a user by name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<Arc<User>> {
        self.known().get(name).cloned()
    }

    /// Returns all users, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<User>> {
        self.known().values().cloned().collect()
    }

    /// Returns the user with this name and password. A wrong name and a wrong password take the
    /// same time, except for the lookup of the name.
    #[must_use]
    pub fn log_in(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let user = self.find(name);
        let rules = match &user {
            Some(user) => user.rules(),
            // No client can log in as this user, but the password is still hashed.
            None => Arc::new(Rules::new(Defaults::default())),
        };
        let is_right = rules.accepts(password);
        user.filter(|_| is_right)
    }

    /// Applies rules to a user one by one, all or none. An unknown user is created.
    ///
    /// # Errors
    /// The reason of the refusal. Nothing is changed then.
    pub fn set(&self, name: &[u8], rules: &[&[u8]], catalog: &Catalog) -> Result<Change, SetError> {
        let rules = checked(name, rules)?;
        let defaults = self.defaults();
        // Held from the read to the write, so that two concurrent changes are both applied.
        let mut known = self.known();
        let user = known.get(name).cloned();
        let before = user.as_ref().map(|user| user.rules());
        let new = applied(before.as_deref(), &rules, catalog, defaults)?;
        let user = match user {
            Some(user) => {
                user.set(new);
                user
            }
            None => {
                let user = Arc::new(User::new(name, new));
                known.insert(name.into(), Arc::clone(&user));
                user
            }
        };
        Ok(Change { user, before })
    }

    /// Returns what [`Users::set`] would make of a user, as a line of a file of users. Changes
    /// nothing.
    ///
    /// # Errors
    /// As [`Users::set`].
    pub fn line_with(
        &self,
        name: &[u8],
        rules: &[&[u8]],
        catalog: &Catalog,
    ) -> Result<Vec<u8>, SetError> {
        let rules = checked(name, rules)?;
        let before = self.find(name).map(|user| user.rules());
        let new = applied(before.as_deref(), &rules, catalog, self.defaults())?;
        Ok(User::new(name, new).line())
    }

    /// Removes a user and returns it. The default user stays.
    pub fn remove(&self, name: &[u8]) -> Option<Arc<User>> {
        if name == DEFAULT {
            return None;
        }
        self.known().remove(name)
    }

    /// Returns whether this very user is in the list, and not another one of the same name.
    #[must_use]
    pub fn has(&self, user: &Arc<User>) -> bool {
        let known = self.known();
        known
            .get(user.name())
            .is_some_and(|other| Arc::ptr_eq(other, user))
    }

    /// Replaces all users by these and the default one, and returns the change of each previous
    /// user. A user whose name stays keeps its identity and gets other rules. `default` has the
    /// default user's rules if `users` does not define it.
    pub fn replace(&self, users: Vec<(Vec<u8>, Rules)>, mut default: Rules) -> Vec<Change> {
        let mut known = self.known();
        let before = std::mem::take(&mut *known);
        let told = before.into_values().map(|user| Change {
            before: Some(user.rules()),
            user,
        });
        let told: Vec<Change> = told.collect();
        for (name, rules) in users {
            if name == DEFAULT {
                default = rules;
                continue;
            }
            // They are ordered by name.
            let kept = told.binary_search_by(|change| change.user.name().cmp(&name));
            let user = match kept.ok().and_then(|at| told.get(at)) {
                Some(change) => {
                    change.user.set(rules);
                    Arc::clone(&change.user)
                }
                None => Arc::new(User::new(&name, rules)),
            };
            known.insert(name.into_boxed_slice(), user);
        }
        self.default.set(default);
        known.insert(DEFAULT.into(), Arc::clone(&self.default));
        told
    }

    /// Makes this the default user's only password, or lets it log in without one if `None`
    /// (`requirepass`).
    pub fn set_default_password(&self, password: Option<&[u8]>) {
        let _changing = self.known();
        let mut rules = Rules::clone(&self.default.rules());
        rules.set_password(password);
        self.default.set(rules);
    }
}

/// Returns the rules of a change in the form in which they are applied.
fn checked<'r>(name: &[u8], rules: &[&'r [u8]]) -> Result<Vec<Cow<'r, [u8]>>, SetError> {
    if !is_valid_name(name) {
        return Err(SetError::Name);
    }
    merge_selectors(rules).map_err(|at| {
        SetError::Parenthesis(rules.get(at).map_or_else(Vec::new, |word| word.to_vec()))
    })
}

fn applied(
    before: Option<&Rules>,
    rules: &[Cow<'_, [u8]>],
    catalog: &Catalog,
    defaults: Defaults,
) -> Result<Rules, SetError> {
    let mut new = before.map_or_else(|| Rules::new(defaults), Rules::clone);
    for rule in rules {
        let applied = new.apply(rule, catalog, defaults);
        applied.map_err(|error| SetError::Rule(rule.to_vec(), error))?;
    }
    Ok(new)
}

/// Returns whether a name is valid for a user.
#[must_use]
pub fn is_valid_name(name: &[u8]) -> bool {
    let is_bad = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0B);
    !name.iter().any(is_bad)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::catalog::tests::small;

    fn set(users: &Users, name: &str, rules: &str) -> Result<Change, SetError> {
        let rules: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
        users.set(name.as_bytes(), &rules, small())
    }

    #[test]
    fn users_are_made_changed_and_removed() {
        let users = Users::new();
        assert!(!users.must_log_in());
        assert!(set(&users, "a", "on >x").unwrap().before.is_none());
        assert!(users.log_in(b"a", b"x").is_some());
        assert!(users.log_in(b"a", b"y").is_none() && users.log_in(b"b", b"x").is_none());
        let user = users.find(b"a").unwrap();
        set(&users, "a", "off").unwrap();
        assert!(!user.rules().is_on());
        assert!(users.remove(b"default").is_none() && users.remove(b"a").is_some());
        assert_eq!(users.all().len(), 1);
    }

    #[test]
    fn a_change_may_be_tried() {
        let users = Users::new();
        set(&users, "a", "on ~x").unwrap();
        let before = users.find(b"a").unwrap().line();
        let line = users.line_with(b"a", &[b"~y"], small()).unwrap();
        assert_eq!(users.find(b"a").unwrap().line(), before);
        set(&users, "a", "~y").unwrap();
        assert_eq!(users.find(b"a").unwrap().line(), line);
        assert!(users.line_with(b"new", &[b"on"], small()).is_ok() && users.find(b"new").is_none());
    }

    #[test]
    fn a_change_is_all_or_nothing() {
        let users = Users::new();
        let wrong = set(&users, "a", "on +nothing").unwrap_err();
        assert_eq!(
            wrong,
            SetError::Rule(b"+nothing".to_vec(), RuleError::Unknown)
        );
        assert!(users.find(b"a").is_none());
        assert_eq!(set(&users, "a b", "on").unwrap_err(), SetError::Name);
        let open = set(&users, "a", "on (+get").unwrap_err();
        assert_eq!(open, SetError::Parenthesis(b"(+get".to_vec()));
    }

    #[test]
    fn the_default_user_may_ask_for_a_password() {
        let users = Users::new();
        users.set_default_password(Some(b"x"));
        assert!(users.must_log_in() && users.log_in(b"default", b"x").is_some());
        users.set_default_password(None);
        assert!(!users.must_log_in());
        set(&users, "default", "off").unwrap();
        assert!(users.must_log_in());
    }

    #[test]
    fn all_users_may_be_replaced_at_once() {
        let users = Users::new();
        set(&users, "old", "on &a").unwrap();
        let old = users.find(b"old").unwrap();
        let new = Rules::new(users.defaults());
        set(&users, "gone", "on").unwrap();
        let changed = users.replace(vec![(b"old".to_vec(), new)], Rules::unrestricted());
        assert_eq!(changed.len(), 3);
        assert!(users.has(&old) && !old.rules().is_on());
        let lost = changed.iter().filter(|change| change.loses_channels());
        assert_eq!(lost.count(), 1);
        let gone = changed.iter().find(|change| !users.has(&change.user));
        assert_eq!(gone.unwrap().user.name(), b"gone");
        assert!(!users.must_log_in());
        users.set_defaults(Defaults { all_channels: true });
        let text = set(&users, "b", "on").unwrap().user.rules().text();
        assert_eq!(text, b"on sanitize-payload &* -@all");
    }
}
