//! All users of a server.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::catalog::Catalog;
use crate::error::RuleError;
use crate::rules::{Defaults, Rules, merge_selectors};
use crate::user::User;

/// The user that everybody is who has not logged in.
pub const DEFAULT: &[u8] = b"default";

/// All users of a server, by name.
#[derive(Debug)]
pub struct Users {
    /// Never replaced, so that it can be had without the lock.
    default: Arc<User>,
    known: Mutex<BTreeMap<Box<[u8]>, Arc<User>>>,
    all_channels: AtomicBool,
}

/// Why a user was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetError {
    /// Its name has spaces or zero bytes.
    Name,
    /// A parenthesis that this word opens is never closed.
    Parenthesis(Vec<u8>),
    /// This rule is none.
    Rule(Vec<u8>, RuleError),
}

/// What became of a user, for those who are connected as it.
#[derive(Clone, Debug)]
pub struct Change {
    /// Whose.
    pub user: Arc<User>,
    /// What it was before; `None` of a new one.
    pub before: Option<Arc<Rules>>,
}

impl Change {
    /// Whether subscribers may be subscribed to what they no longer may hear.
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
    /// The default user alone, who may do everything.
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

    /// What holds for new users.
    #[must_use]
    pub fn defaults(&self) -> Defaults {
        Defaults {
            all_channels: self.all_channels.load(Ordering::Relaxed),
        }
    }

    /// Says what holds for new users.
    pub fn set_defaults(&self, defaults: Defaults) {
        self.all_channels
            .store(defaults.all_channels, Ordering::Relaxed);
    }

    /// The default user.
    #[must_use]
    pub fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// Whether who connects has to log in.
    #[must_use]
    pub fn must_log_in(&self) -> bool {
        let rules = self.default.rules();
        !(rules.is_on() && rules.needs_no_password())
    }

    /// A user by name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<Arc<User>> {
        self.known().get(name).cloned()
    }

    /// All of them, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<User>> {
        self.known().values().cloned().collect()
    }

    /// The user with this name and password. Whether the name or the password is wrong takes the same
    /// time, but for the look for the name.
    #[must_use]
    pub fn log_in(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let user = self.find(name);
        let rules = match &user {
            Some(user) => user.rules(),
            // Nobody can log in as this one; the password is hashed all the same.
            None => Arc::new(Rules::new(Defaults::default())),
        };
        let is_right = rules.accepts(password);
        user.filter(|_| is_right)
    }

    /// Applies rules to a user, one by one, all or none; a user that is not known is made.
    ///
    /// # Errors
    /// What is wrong; nothing is changed then.
    pub fn set(&self, name: &[u8], rules: &[&[u8]], catalog: &Catalog) -> Result<Change, SetError> {
        let rules = checked(name, rules)?;
        let defaults = self.defaults();
        // Held over reading and writing: two changes at a time make both.
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

    /// What [`Users::set`] would make of a user, as a line of a file of users. Nothing is changed.
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

    /// Forgets a user; it is told. The default user stays.
    pub fn remove(&self, name: &[u8]) -> Option<Arc<User>> {
        if name == DEFAULT {
            return None;
        }
        self.known().remove(name)
    }

    /// Whether a user is among them, and not another one by the same name.
    #[must_use]
    pub fn has(&self, user: &Arc<User>) -> bool {
        let known = self.known();
        known
            .get(user.name())
            .is_some_and(|other| Arc::ptr_eq(other, user))
    }

    /// Has these users and the default one, and no others; what became of those that there were is told. A user
    /// whose name stays is the same one with other rules. `default` is what the default user is unless they say
    /// it.
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
            // They are in the order of their names.
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

    /// Has the default user ask for this password, or for none (`requirepass`).
    pub fn set_default_password(&self, password: Option<&[u8]>) {
        let _changing = self.known();
        let mut rules = Rules::clone(&self.default.rules());
        rules.set_password(password);
        self.default.set(rules);
    }
}

/// The rules of a change as they are applied.
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

/// Whether a user may be called so.
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
