//! One set of permissions: which commands, on which keys, through which channels.
//!
//! Rules are applied one by one in the order given; the text of the command rules is kept beside the
//! bits they set, each rule once, so that what was written can be shown and written again.

use base::glob::{Case, matches};

use crate::catalog::{Catalog, CommandId};
use crate::error::RuleError;

/// What a request does to a key. Neither: it only asks about it, which any pattern allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyUse {
    /// Its data leaves or goes elsewhere.
    pub reads: bool,
    /// Its data changes.
    pub writes: bool,
}

/// How a request names a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelUse {
    /// The channel itself: a pattern that fits it allows it.
    Channel,
    /// A pattern of channels: only the very same pattern allows it.
    Pattern,
}

/// What there is to know of a request to judge it. Positions are those of its arguments.
pub trait Request {
    /// The command, or the subcommand.
    fn command(&self) -> CommandId;
    /// Whether everybody may run it, AUTH and the like.
    fn is_free(&self) -> bool;
    /// An argument; 0 is the name.
    fn argument(&self, at: usize) -> Option<&[u8]>;
    /// The arguments that are keys.
    fn keys(&self) -> Vec<(usize, KeyUse)>;
    /// The arguments that are channels to send to or to hear.
    fn channels(&self) -> Vec<(usize, ChannelUse)>;
}

/// Why a request is denied. A later one says more: who may not even run the command learns nothing of
/// the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    /// The command.
    Command,
    /// The key at this argument.
    Key(usize),
    /// The channel at this argument.
    Channel(usize),
}

/// Who may do what; see the head of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    commands: Commands,
    /// `None`: all keys.
    keys: Option<Vec<KeyPattern>>,
    /// `None`: all channels.
    channels: Option<Vec<Box<[u8]>>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Commands {
    /// Every command, those that are not known yet included.
    has_all: bool,
    /// The last rule about all commands allowed them.
    begins_with_all: bool,
    /// One bit for each; not looked at when all are allowed.
    bits: Vec<u64>,
    /// Commands that are allowed with these first arguments only.
    first_arguments: Vec<(CommandId, Box<[u8]>)>,
    /// The rules behind the last one about all commands, as they are shown: sign and name.
    text: Vec<(u8, Vec<u8>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    pattern: Box<[u8]>,
    allows: KeyUse,
}

impl Selector {
    /// One that allows nothing; or, with `all_channels`, nothing but all channels.
    #[must_use]
    pub fn new(all_channels: bool) -> Self {
        Self {
            commands: Commands::default(),
            keys: Some(Vec::new()),
            channels: (!all_channels).then(Vec::new),
        }
    }

    /// One that allows everything.
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

    /// Whether it allows everything.
    #[must_use]
    pub fn is_unrestricted(&self) -> bool {
        self.commands.has_all && self.keys.is_none() && self.channels.is_none()
    }

    /// Applies one rule.
    ///
    /// # Errors
    /// Why it is none; nothing is changed then.
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

    /// Whether it allows a request.
    ///
    /// # Errors
    /// What it denies first.
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

    /// Whether it allows a channel, or a pattern of channels.
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

    /// Whether it allows to read every key.
    #[must_use]
    pub fn reads_all_keys(&self) -> bool {
        let is_all = |one: &KeyPattern| one.allows.reads && *one.pattern == *b"*";
        self.keys
            .as_ref()
            .is_none_or(|patterns| patterns.iter().any(is_all))
    }

    /// Whether it allows to read every key that begins with `prefix`, by a pattern that is such a
    /// prefix itself.
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

    /// Its key patterns as rules.
    #[must_use]
    pub fn keys_text(&self) -> Vec<u8> {
        let Some(patterns) = &self.keys else {
            return b"~*".to_vec();
        };
        join(patterns.iter().map(|one| {
            let sign: &[u8] = match (one.allows.reads, one.allows.writes) {
                (true, false) => b"%R~",
                (false, true) => b"%W~",
                // `~*` would be another rule, which lets no pattern stand beside it.
                _ if *one.pattern == *b"*" => b"%RW~",
                _ => b"~",
            };
            [sign, &one.pattern].concat()
        }))
    }

    /// Its channel patterns as rules.
    #[must_use]
    pub fn channels_text(&self) -> Vec<u8> {
        let Some(patterns) = &self.channels else {
            return b"&*".to_vec();
        };
        join(patterns.iter().map(|one| [b"&".as_slice(), one].concat()))
    }

    /// Its commands as rules.
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

    /// All of it as rules, which make the same selector out of a new one.
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

    /// Its channel patterns; `None` when it allows all channels.
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

    /// Allows or denies a command with all its subcommands.
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

    /// Keeps the text of a rule; those that it makes meaningless go.
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

/// What a rule about keys allows, and its pattern.
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
            // Without a pattern it is one that fits the empty key alone.
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
