//! The rules of one user: whether and how it may log in, and what it may do.

use crate::catalog::Catalog;
use crate::error::RuleError;
use crate::password::Digest;
use crate::selector::{ChannelUse, Denial, Request, Selector, join};

/// The defaults for new users and selectors (`acl-pubsub-default`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// Whether they may use all channels.
    pub all_channels: bool,
}

/// The rules of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    is_on: bool,
    needs_no_password: bool,
    sanitizes_payload: bool,
    passwords: Vec<Digest>,
    /// The user's own selector first, then those given in parentheses.
    selectors: Vec<Selector>,
}

impl Rules {
    /// Returns the rules of a user that may do nothing and cannot log in.
    #[must_use]
    pub fn new(defaults: Defaults) -> Self {
        Self {
            is_on: false,
            needs_no_password: false,
            sanitizes_payload: true,
            passwords: Vec::new(),
            selectors: vec![Selector::new(defaults.all_channels)],
        }
    }

    /// Returns the rules of a user that may do everything and needs no password.
    #[must_use]
    pub fn unrestricted() -> Self {
        Self {
            is_on: true,
            needs_no_password: true,
            sanitizes_payload: true,
            passwords: Vec::new(),
            selectors: vec![Selector::unrestricted()],
        }
    }

    /// Applies one rule.
    ///
    /// # Errors
    /// The reason why the rule is invalid. Nothing is changed then.
    pub fn apply(
        &mut self,
        rule: &[u8],
        catalog: &Catalog,
        defaults: Defaults,
    ) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"" => {}
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"nopass" => {
                self.needs_no_password = true;
                self.passwords.clear();
            }
            b"resetpass" => {
                self.needs_no_password = false;
                self.passwords.clear();
            }
            b"sanitize-payload" => self.sanitizes_payload = true,
            b"skip-sanitize-payload" => self.sanitizes_payload = false,
            b"clearselectors" => self.selectors.truncate(1),
            b"reset" => *self = Self::new(defaults),
            _ => match rule {
                [b'>', password @ ..] => self.add_password(Digest::of(password)),
                [b'#', hash @ ..] => self.add_password(read_hash(hash)?),
                [b'<', password @ ..] => self.remove_password(&Digest::of(password))?,
                [b'!', hash @ ..] => self.remove_password(&read_hash(hash)?)?,
                [b'(', rules @ .., b')'] => {
                    let selector = read_selector(rules, catalog, defaults)?;
                    self.selectors.push(selector);
                }
                _ => {
                    let own = self.selectors.first_mut();
                    own.map_or(Ok(()), |own| own.apply(rule, catalog))?;
                }
            },
        }
        Ok(())
    }

    fn add_password(&mut self, password: Digest) {
        self.needs_no_password = false;
        if !self.passwords.contains(&password) {
            self.passwords.push(password);
        }
    }

    fn remove_password(&mut self, password: &Digest) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| known == password);
        self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    /// Makes this the only password, or lets the user log in without one if `None`.
    pub fn set_password(&mut self, password: Option<&[u8]>) {
        self.passwords = password.map(Digest::of).into_iter().collect();
        self.needs_no_password = password.is_none();
    }

    /// Returns whether a password is one of the user's. Takes the same time for every password.
    #[must_use]
    pub fn accepts(&self, password: &[u8]) -> bool {
        let given = Digest::of(password);
        let known = self.passwords.iter();
        let is_known = known.fold(false, |found, known| found | known.is_same(&given));
        self.is_on && (self.needs_no_password | is_known)
    }

    /// Returns whether the user may log in.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns whether any password is accepted.
    #[must_use]
    pub fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// Returns the passwords, in the order in which they were given.
    #[must_use]
    pub fn passwords(&self) -> &[Digest] {
        &self.passwords
    }

    /// Returns the selectors, the user's own first.
    #[must_use]
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// Returns whether the user may do everything.
    #[must_use]
    pub fn is_unrestricted(&self) -> bool {
        self.selectors.iter().any(Selector::is_unrestricted)
    }

    /// Checks whether one of the selectors allows all of a request.
    ///
    /// # Errors
    /// The denial of the selector that came closest.
    pub fn check(&self, request: &dyn Request) -> Result<(), Denial> {
        let mut nearest = Denial::Command;
        for selector in &self.selectors {
            match selector.check(request) {
                Ok(()) => return Ok(()),
                Err(denial) => nearest = nearest.max(denial),
            }
        }
        Err(nearest)
    }

    /// Returns whether a selector that allows all of a request also allows reading every key.
    #[must_use]
    pub fn reads_all_keys(&self, request: &dyn Request) -> bool {
        let mut selectors = self.selectors.iter();
        selectors.any(|one| one.check(request).is_ok() && one.reads_all_keys())
    }

    /// Returns whether the user may use a channel, or a pattern of channels.
    #[must_use]
    pub fn allows_channel(&self, channel: &[u8], wanted: ChannelUse) -> bool {
        let mut selectors = self.selectors.iter();
        selectors.any(|one| one.allows_channel(channel, wanted))
    }

    /// Returns whether the user may read every key that begins with `prefix`.
    #[must_use]
    pub fn reads_prefix(&self, prefix: &[u8]) -> bool {
        self.selectors.iter().any(|one| one.reads_prefix(prefix))
    }

    /// Returns whether a user whose rules change to `new` loses channels or patterns of channels.
    /// Actual subscriptions of clients are not considered.
    #[must_use]
    pub fn loses_channels(&self, new: &Self) -> bool {
        let mut olds = self.selectors.iter().map(Selector::channel_patterns);
        let has = |pattern: &[u8]| {
            let mut news = new.selectors.iter().map(Selector::channel_patterns);
            news.any(|patterns| {
                patterns.is_none_or(|them| them.iter().any(|one| **one == *pattern))
            })
        };
        let has_all = new
            .selectors
            .iter()
            .any(|one| one.channel_patterns().is_none());
        olds.any(|patterns| match patterns {
            None => !has_all,
            Some(patterns) => patterns.iter().any(|pattern| !has(pattern)),
        })
    }

    /// Returns the words that say how the user logs in.
    #[must_use]
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.needs_no_password {
            flags.push("nopass");
        }
        flags.push(if self.sanitizes_payload {
            "sanitize-payload"
        } else {
            "skip-sanitize-payload"
        });
        flags
    }

    /// Returns all of this as rules that turn a new user into the same user.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = self.flags().into_iter().map(Vec::from).collect();
        let hashes = self.passwords.iter();
        parts.extend(hashes.map(|hash| format!("#{}", hash.to_hex()).into_bytes()));
        for (at, selector) in self.selectors.iter().enumerate() {
            let text = selector.text();
            parts.push(match at {
                0 => text,
                _ => [b"(", text.as_slice(), b")"].concat(),
            });
        }
        join(parts.into_iter())
    }
}

fn read_hash(hash: &[u8]) -> Result<Digest, RuleError> {
    Digest::from_hex(hash).ok_or(RuleError::BadHash)
}

fn read_selector(
    rules: &[u8],
    catalog: &Catalog,
    defaults: Defaults,
) -> Result<Selector, RuleError> {
    let mut selector = Selector::new(defaults.all_channels);
    let mut rules = rules;
    while let [b' ', rest @ ..] | [rest @ .., b' '] = rules {
        rules = rest;
    }
    if !rules.is_empty() {
        for rule in rules.split(|byte| *byte == b' ') {
            // If the text were parsed again, the selector would end here, and what follows would be
            // the user's.
            if rule.ends_with(b")") {
                return Err(RuleError::Syntax);
            }
            selector.apply(rule, catalog)?;
        }
    }
    Ok(selector)
}

/// Joins the words of each selector: a selector may be given as one word or as several.
///
/// # Errors
/// The index of the word that opens a parenthesis which is never closed.
pub fn merge_selectors<'w>(words: &[&'w [u8]]) -> Result<Vec<std::borrow::Cow<'w, [u8]>>, usize> {
    let mut merged = Vec::new();
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (at, word) in words.iter().enumerate() {
        match &mut open {
            Some((_, text)) => {
                text.push(b' ');
                text.extend_from_slice(word);
                if word.ends_with(b")")
                    && let Some((_, text)) = open.take()
                {
                    merged.push(text.into());
                }
            }
            None if word.starts_with(b"(") && !word.ends_with(b")") => {
                open = Some((at, word.to_vec()));
            }
            None => merged.push((*word).into()),
        }
    }
    open.map_or(Ok(merged), |(at, _)| Err(at))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::catalog::tests::small;

    fn rules(words: &str) -> Rules {
        let mut rules = Rules::new(Defaults::default());
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        for rule in merge_selectors(&words).unwrap() {
            rules.apply(&rule, small(), Defaults::default()).unwrap();
        }
        rules
    }

    fn shown(words: &str) -> String {
        String::from_utf8(rules(words).text()).unwrap()
    }

    #[test]
    fn a_new_user_may_do_nothing() {
        assert_eq!(shown(""), "off sanitize-payload resetchannels -@all");
        assert!(!rules("").accepts(b"") && !rules("nopass").accepts(b""));
        assert_eq!(shown("on >a ~* +get reset"), shown(""));
        let all = String::from_utf8(Rules::unrestricted().text()).unwrap();
        assert_eq!(all, "on nopass sanitize-payload ~* &* +@all");
        assert_eq!(rules(&all), Rules::unrestricted());
    }

    #[test]
    fn passwords_come_and_go() {
        let both = rules("on >a >b >a");
        assert!(both.accepts(b"a") && both.accepts(b"b") && !both.accepts(b"c"));
        assert_eq!(both.passwords().len(), 2);
        assert!(!rules("on >a >b <a").accepts(b"a"));
        assert!(rules("on nopass").accepts(b"anything"));
        assert!(!rules("on nopass >a").accepts(b"b"));
        let hash = Digest::of(b"a").to_hex();
        assert!(rules(&format!("on #{hash}")).accepts(b"a"));
        assert!(!rules(&format!("on >a !{hash}")).accepts(b"a"));
        let mut one = rules("on");
        for (rule, error) in [
            ("<a", RuleError::NoSuchPassword),
            ("#abc", RuleError::BadHash),
            ("!abc", RuleError::BadHash),
        ] {
            let applied = one.apply(rule.as_bytes(), small(), Defaults::default());
            assert_eq!(applied, Err(error));
        }
    }

    #[test]
    fn selectors_are_shown_behind_the_users_own_rules() {
        let text =
            "off skip-sanitize-payload resetchannels -@all +get (~a resetchannels -@all +set)";
        assert_eq!(shown("+get skip-sanitize-payload (~a +set)"), text);
        assert_eq!(shown("+get skip-sanitize-payload ( ~a +set )"), text);
        assert_eq!(rules("( ) clearselectors").selectors().len(), 1);
        assert_eq!(merge_selectors(&[b"on", b"(+a", b"(+b"]), Err(1));
        let mut one = rules("");
        for rule in [&b"(~a  +get)"[..], b"(~a) +@all)", b"(~a))"] {
            let refused = one.apply(rule, small(), Defaults::default());
            assert_eq!(refused, Err(RuleError::Syntax));
        }
    }

    #[test]
    fn who_loses_a_channel_is_known() {
        let loses = |old: &str, new: &str| rules(old).loses_channels(&rules(new));
        assert!(loses("&*", "&a") && loses("&a &b", "&a") && loses("&a*", "&a"));
        assert!(!loses("&a", "&a &b") && !loses("&a", "&*") && !loses("", "&a"));
        assert!(!loses("&a", "(&a)") && loses("&a (&b)", "&a"));
    }
}
