//! One set of permissions: which commands, on which keys, through which channels.
//!
//! Rules are applied one by one in the given order. The text of each command rule is kept once, in
//! addition to the bits that the rules set, so that the rules can be shown and written again.

use base::glob::{Case, matches};

use crate::catalog::{Catalog, CommandId};
use crate::error::RuleError;

/// The use of a key by a request. If neither flag is set, the request only asks about the key,
/// which any pattern allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyUse {
    /// Whether the key's data is returned or copied.
    pub reads: bool,
    /// Whether the key's data changes.
    pub writes: bool,
}

/// The way in which a request names a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelUse {
    /// The channel itself: a pattern that matches it allows it.
    Channel,
    /// A pattern of channels: only the identical pattern allows it.
    Pattern,
}

/// The properties of a request that decide whether it is allowed. Positions are those of its
/// arguments.
pub trait Request {
    /// Returns the command or the subcommand.
    fn command(&self) -> CommandId;
    /// Returns whether every user may run it, such as AUTH.
    fn is_free(&self) -> bool;
    /// Returns an argument; 0 is the name.
    fn argument(&self, at: usize) -> Option<&[u8]>;
    /// Returns the arguments that are keys.
    fn keys(&self) -> Vec<(usize, KeyUse)>;
    /// Returns the arguments that are channels to publish or subscribe to.
    fn channels(&self) -> Vec<(usize, ChannelUse)>;
}

/// The reason why a request is denied. Later reasons reveal more: a user who may not run the
/// command learns nothing about the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    /// The command.
    Command,
    /// The key at this argument.
    Key(usize),
    /// The channel at this argument.
    Channel(usize),
}

/// One set of permissions; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    commands: Commands,
    /// The key patterns, or `None` for all keys.
    keys: Option<Vec<KeyPattern>>,
    /// The channel patterns, or `None` for all channels.
    channels: Option<Vec<Box<[u8]>>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Commands {
    /// Whether every command is allowed, including those that do not exist yet.
    has_all: bool,
    /// Whether the last rule about all commands allowed them.
    begins_with_all: bool,
    /// One bit for each command. Ignored if all are allowed.
    bits: Vec<u64>,
    /// The commands that are allowed only with these first arguments.
    first_arguments: Vec<(CommandId, Box<[u8]>)>,
    /// The rules after the last one about all commands, as they are shown: sign and name.
    text: Vec<(u8, Vec<u8>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    pattern: Box<[u8]>,
    allows: KeyUse,
}

impl Selector {
    /// Returns a selector that allows nothing, or only all channels if `all_channels` is set.
    #[must_use]
    pub fn new(all_channels: bool) -> Self {
        Self {
            commands: Commands::default(),
            keys: Some(Vec::new()),
            channels: (!all_channels).then(Vec::new),
        }
    }

    /// Returns a selector that allows everything.
    #[must_use]
    pub fn unrestricted() -> Self {
        let commands = Commands {
            has_all: true,
            begins_with_all: true,
            ..Commands::default()
        };
        Self {
            commands,
            keys: None,
            channels: None,
        }
    }

    /// Returns whether the selector allows everything.
    #[must_use]
    pub fn is_unrestricted(&self) -> bool {
        self.commands.has_all && self.keys.is_none() && self.channels.is_none()
    }

    /// Applies one rule.
    ///
    /// # Errors
    /// The reason why the rule is invalid. Nothing is changed then.
    pub fn apply(&mut self, rule: &[u8], catalog: &Catalog) -> Result<(), RuleError> {
        let word = rule.to_ascii_lowercase();
        match word.as_slice() {
            b"allkeys" | b"~*" => self.keys = None,
            b"resetkeys" => self.keys = Some(Vec::new()),
            b"allchannels" | b"&*" => self.channels = None,
            b"resetchannels" => self.channels = Some(Vec::new()),
            b"allcommands" | b"+@all" => self.commands = Self::unrestricted().commands,
            b"nocommands" | b"-@all" => self.commands = Commands::default(),
            [b'~' | b'%', ..] => self.add_key_pattern(rule)?,
            [b'&', ..] => self.add_channel_pattern(&rule[1..])?,
            [sign @ (b'+' | b'-'), b'@', category @ ..] => {
                let on = *sign == b'+';
                self.commands.set_category(category, on, catalog)?;
            }
            [b'+', name @ ..] => self.commands.allow(name, catalog)?,
            [b'-', name @ ..] => self.commands.deny(name, catalog)?,
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn add_key_pattern(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let patterns = self.keys.as_mut().ok_or(RuleError::KeysAfterAll)?;
        let (allows, pattern) = split_key_rule(rule).ok_or(RuleError::Syntax)?;
        refuse_spaces(pattern)?;
        match patterns.iter_mut().find(|one| *one.pattern == *pattern) {
            Some(known) => {
                known.allows.reads |= allows.reads;
                known.allows.writes |= allows.writes;
            }
            None => patterns.push(KeyPattern {
                pattern: pattern.into(),
                allows,
            }),
        }
        Ok(())
    }

    fn add_channel_pattern(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        let patterns = self.channels.as_mut().ok_or(RuleError::ChannelsAfterAll)?;
        refuse_spaces(pattern)?;
        if !patterns.iter().any(|known| **known == *pattern) {
            patterns.push(pattern.into());
        }
        Ok(())
    }

    /// Checks whether the selector allows a request.
    ///
    /// # Errors
    /// The first thing that it denies.
    pub fn check(&self, request: &dyn Request) -> Result<(), Denial> {
        if !request.is_free() && !self.commands.allow_request(request) {
            return Err(Denial::Command);
        }
        if let Some(patterns) = &self.keys {
            for (at, wanted) in request.keys() {
                let key = request.argument(at).unwrap_or_default();
                if !patterns.iter().any(|pattern| pattern.allows(key, wanted)) {
                    return Err(Denial::Key(at));
                }
            }
        }
        if self.channels.is_some() {
            for (at, wanted) in request.channels() {
                let channel = request.argument(at).unwrap_or_default();
                if !self.allows_channel(channel, wanted) {
                    return Err(Denial::Channel(at));
                }
            }
        }
        Ok(())
    }

    /// Returns whether the selector allows a channel, or a pattern of channels.
    #[must_use]
    pub fn allows_channel(&self, channel: &[u8], wanted: ChannelUse) -> bool {
        let Some(patterns) = &self.channels else {
            return true;
        };
        patterns.iter().any(|pattern| match wanted {
            ChannelUse::Pattern => **pattern == *channel,
            ChannelUse::Channel => matches(pattern, channel, Case::Sensitive),
        })
    }

    /// Returns whether the selector allows reading every key.
    #[must_use]
    pub fn reads_all_keys(&self) -> bool {
        let is_all = |one: &KeyPattern| one.allows.reads && *one.pattern == *b"*";
        self.keys
            .as_ref()
            .is_none_or(|patterns| patterns.iter().any(is_all))
    }

    /// Returns whether the selector allows reading every key that begins with `prefix`, by a
    /// pattern that is itself such a prefix.
    #[must_use]
    pub fn reads_prefix(&self, prefix: &[u8]) -> bool {
        let covers = |one: &KeyPattern| {
            let is_plain = |text: &&[u8]| !text.iter().any(|byte| b"*?[\\".contains(byte));
            let start = one.pattern.strip_suffix(b"*").filter(is_plain);
            one.allows.reads && start.is_some_and(|start| prefix.starts_with(start))
        };
        self.keys
            .as_ref()
            .is_none_or(|patterns| patterns.iter().any(covers))
    }

    /// Returns the key patterns as rules.
    #[must_use]
    pub fn keys_text(&self) -> Vec<u8> {
        let Some(patterns) = &self.keys else {
            return b"~*".to_vec();
        };
        join(patterns.iter().map(|one| {
            let sign: &[u8] = match (one.allows.reads, one.allows.writes) {
                (true, false) => b"%R~",
                (false, true) => b"%W~",
                // `~*` would be another rule, which permits no other pattern.
                _ if *one.pattern == *b"*" => b"%RW~",
                _ => b"~",
            };
            [sign, &one.pattern].concat()
        }))
    }

    /// Returns the channel patterns as rules.
    #[must_use]
    pub fn channels_text(&self) -> Vec<u8> {
        let Some(patterns) = &self.channels else {
            return b"&*".to_vec();
        };
        join(patterns.iter().map(|one| [b"&".as_slice(), one].concat()))
    }

    /// Returns the commands as rules.
    #[must_use]
    pub fn commands_text(&self) -> Vec<u8> {
        let all: &[u8] = if self.commands.begins_with_all {
            b"+@all"
        } else {
            b"-@all"
        };
        let rules = self.commands.text.iter();
        let rules = rules.map(|(sign, name)| [std::slice::from_ref(sign), name].concat());
        join(std::iter::once(all.to_vec()).chain(rules))
    }

    /// Returns all of this as rules that turn a new selector into the same selector.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        let mut parts = Vec::new();
        let keys = self.keys_text();
        if !keys.is_empty() {
            parts.push(keys);
        }
        if self.channels.is_some() {
            parts.push(b"resetchannels".to_vec());
        }
        let channels = self.channels_text();
        if !channels.is_empty() {
            parts.push(channels);
        }
        parts.push(self.commands_text());
        join(parts.into_iter())
    }

    /// Returns the channel patterns, or `None` if all channels are allowed.
    pub(crate) fn channel_patterns(&self) -> Option<&[Box<[u8]>]> {
        self.channels.as_deref()
    }
}

impl Commands {
    fn has(&self, id: CommandId) -> bool {
        let word = self.bits.get(usize::from(id / 64)).copied();
        self.has_all || word.unwrap_or(0) >> (id % 64) & 1 != 0
    }

    fn set(&mut self, id: CommandId, on: bool, catalog: &Catalog) {
        if self.bits.is_empty() {
            let fill = if self.has_all { u64::MAX } else { 0 };
            self.bits = vec![fill; catalog.len().div_ceil(64)];
        }
        if let Some(word) = self.bits.get_mut(usize::from(id / 64)) {
            let bit = 1 << (id % 64);
            if on {
                *word |= bit;
            } else {
                *word &= !bit;
                self.has_all = false;
            }
        }
    }

    /// Allows or denies a command and all its subcommands.
    fn change(&mut self, id: CommandId, on: bool, catalog: &Catalog) {
        self.set(id, on, catalog);
        self.first_arguments.retain(|(command, _)| *command != id);
        let subcommands = catalog.get(id).map(|names| names.subcommands.clone());
        for subcommand in subcommands.unwrap_or(0..0) {
            self.set(subcommand, on, catalog);
        }
    }

    fn set_category(
        &mut self,
        category: &[u8],
        on: bool,
        catalog: &Catalog,
    ) -> Result<(), RuleError> {
        let commands = catalog.in_category(category).ok_or(RuleError::Unknown)?;
        for id in commands {
            self.change(id, on, catalog);
        }
        self.note(on, &[b"@", category].concat());
        Ok(())
    }

    fn allow(&mut self, name: &[u8], catalog: &Catalog) -> Result<(), RuleError> {
        let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
            let id = catalog.find(name).ok_or(RuleError::Unknown)?;
            self.change(id, true, catalog);
            self.note(true, name);
            return Ok(());
        };
        let (command, argument) = (&name[..bar], &name[bar + 1..]);
        let id = catalog.find(command).ok_or(RuleError::Unknown)?;
        let names = catalog.get(id).ok_or(RuleError::Unknown)?;
        if names.container.is_some() {
            return Err(RuleError::ArgumentOfSubcommand);
        }
        if argument.is_empty() {
            return Err(RuleError::Syntax);
        }
        refuse_spaces(argument)?;
        if names.subcommands.is_empty() {
            let known = (id, argument.into());
            if !self.first_arguments.contains(&known) {
                self.first_arguments.push(known);
            }
        } else {
            let id = catalog.find(name).ok_or(RuleError::Unknown)?;
            self.change(id, true, catalog);
        }
        self.note(true, name);
        Ok(())
    }

    fn deny(&mut self, name: &[u8], catalog: &Catalog) -> Result<(), RuleError> {
        let id = catalog.find(name).ok_or(RuleError::Unknown)?;
        self.change(id, false, catalog);
        self.note(false, name);
        Ok(())
    }

    /// Stores the text of a rule. Removes the rules that it makes meaningless.
    fn note(&mut self, on: bool, name: &[u8]) {
        self.text.retain(|(_, known)| {
            let rest = known.strip_prefix(name);
            !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"|"))
        });
        let sign = if on { b'+' } else { b'-' };
        self.text.push((sign, name.to_vec()));
    }

    fn allow_request(&self, request: &dyn Request) -> bool {
        let id = request.command();
        self.has(id)
            || self.first_arguments.iter().any(|(command, argument)| {
                let given = request.argument(1);
                *command == id && given.is_some_and(|given| given.eq_ignore_ascii_case(argument))
            })
    }
}

impl KeyPattern {
    fn allows(&self, key: &[u8], wanted: KeyUse) -> bool {
        (self.allows.reads || !wanted.reads)
            && (self.allows.writes || !wanted.writes)
            && matches(&self.pattern, key, Case::Sensitive)
    }
}

/// Returns what a rule about keys allows, and its pattern.
fn split_key_rule(rule: &[u8]) -> Option<(KeyUse, &[u8])> {
    let all = KeyUse {
        reads: true,
        writes: true,
    };
    if let Some(pattern) = rule.strip_prefix(b"~") {
        return Some((all, pattern));
    }
    let mut allows = KeyUse::default();
    let mut rest = rule.strip_prefix(b"%")?;
    loop {
        match rest {
            [b'r' | b'R', after @ ..] if !allows.reads => {
                allows.reads = true;
                rest = after;
            }
            [b'w' | b'W', after @ ..] if !allows.writes => {
                allows.writes = true;
                rest = after;
            }
            // A rule without a pattern matches the empty key alone.
            [] if allows != KeyUse::default() => return Some((allows, rest)),
            [b'~', pattern @ ..] if allows != KeyUse::default() => return Some((allows, pattern)),
            _ => return None,
        }
    }
}

fn refuse_spaces(pattern: &[u8]) -> Result<(), RuleError> {
    let is_bad = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0B);
    if pattern.iter().any(is_bad) {
        return Err(RuleError::Syntax);
    }
    Ok(())
}

pub(crate) fn join(parts: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    parts.collect::<Vec<_>>().join(&b' ')
}

#[cfg(test)]
#[path = "selector/tests.rs"]
mod tests;
