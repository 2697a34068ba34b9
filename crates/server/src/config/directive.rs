//! A row of the table of directives.

use super::value::{Kind, Value};
use crate::identity;

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Directive {
    /// Name, in lower case.
    pub(super) name: &'static str,
    /// Other names with the same meaning.
    pub(super) aliases: &'static [&'static str],
    /// Kind of its values.
    pub(super) kind: Kind,
    /// Default value, as a file would write it.
    pub(super) default: &'static str,
    /// When it may be set.
    pub(super) change: ChangeRule,
    /// Whether its value is kept out of messages and may be read from a file of its own.
    pub(super) is_secret: bool,
    /// Whether CONFIG GET shows it only if the client asks for it by its full name.
    pub(super) is_hidden: bool,
    /// Whether it has an effect.
    pub(super) standing: Standing,
    /// Final check of a value that its kind allows: brings the value into range, or refuses it.
    pub(super) admit: fn(Value) -> Result<Value, String>,
}

/// When a directive may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeRule {
    /// At start and by CONFIG SET.
    Always,
    /// By CONFIG SET only where `enable-protected-configs` allows it.
    Protected,
    /// At start only.
    AtStart,
}

/// Whether a directive has an effect in this version.
#[derive(Debug, Clone, Copy)]
pub(super) enum Standing {
    /// It does what its name says.
    Works,
    /// Every value is accepted and has no effect; `reason` says why the effect is not needed.
    WithoutEffect { reason: &'static str },
    /// Only the default and the values in `also` describe what the server does. Other values are
    /// refused with the sentence "Iolite x.y `lacks`".
    Fixed {
        lacks: &'static str,
        also: &'static [&'static str],
    },
}

impl Directive {
    /// Makes a row for a directive that works and can always be set.
    pub(super) const fn new(name: &'static str, kind: Kind, default: &'static str) -> Self {
        Self {
            name,
            aliases: &[],
            kind,
            default,
            change: ChangeRule::Always,
            is_secret: false,
            is_hidden: false,
            standing: Standing::Works,
            admit: Ok,
        }
    }

    pub(super) const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    pub(super) const fn at_start(mut self) -> Self {
        self.change = ChangeRule::AtStart;
        self
    }

    pub(super) const fn protected(mut self) -> Self {
        self.change = ChangeRule::Protected;
        self
    }

    pub(super) const fn secret(mut self) -> Self {
        self.is_secret = true;
        self
    }

    pub(super) const fn hidden(mut self) -> Self {
        self.is_hidden = true;
        self
    }

    pub(super) const fn admit(mut self, admit: fn(Value) -> Result<Value, String>) -> Self {
        self.admit = admit;
        self
    }

    pub(super) const fn without_effect(mut self, reason: &'static str) -> Self {
        self.standing = Standing::WithoutEffect { reason };
        self
    }

    pub(super) const fn fixed(mut self, lacks: &'static str) -> Self {
        self.standing = Standing::Fixed { lacks, also: &[] };
        self
    }

    pub(super) const fn or(mut self, values: &'static [&'static str]) -> Self {
        if let Standing::Fixed { lacks, .. } = self.standing {
            self.standing = Standing::Fixed {
                lacks,
                also: values,
            };
        }
        self
    }

    /// Returns all names, the directive's own first.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// Checks that this version supports `value`.
    ///
    /// # Errors
    /// The sentence that says what this version lacks.
    pub(super) fn check_standing(&self, value: &Value) -> Result<(), String> {
        let Standing::Fixed { lacks, also } = self.standing else {
            return Ok(());
        };
        let shown = self.kind.show(value);
        let allowed = std::iter::once(&self.default).chain(also);
        if allowed.into_iter().any(|text| shown == text.as_bytes()) {
            return Ok(());
        }
        let (name, version) = (self.name, identity::IOLITE_VERSION);
        let accepted = if self.default.is_empty() {
            "\"\""
        } else {
            self.default
        };
        Err(format!(
            "Iolite {version} {lacks}; only '{name} {accepted}' is accepted"
        ))
    }
}
