//! The commands that rules refer to: names, subcommands, categories.

use std::collections::HashMap;
use std::ops::Range;

/// Number of a command or a subcommand, dense from 0.
pub type CommandId = u16;

/// One command or subcommand, as the command table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandNames {
    /// The name in lower case. A subcommand's name begins with that of its container:
    /// `client|list`.
    pub full_name: String,
    /// The categories of the command, without `@`.
    pub categories: Vec<&'static str>,
    /// The container of a subcommand.
    pub container: Option<CommandId>,
    /// The subcommands of a container.
    pub subcommands: Range<CommandId>,
}

/// All commands, by number and by name.
#[derive(Debug)]
pub struct Catalog {
    commands: Vec<CommandNames>,
    by_name: HashMap<String, CommandId>,
    categories: &'static [&'static str],
}

impl Catalog {
    /// Returns a catalog of `commands`, numbered in their order, and of all `categories` in the
    /// order in which they are shown. Commands past the largest [`CommandId`] are left out, and so
    /// always denied.
    #[must_use]
    pub fn new(commands: Vec<CommandNames>, categories: &'static [&'static str]) -> Self {
        let names = commands.iter().enumerate();
        let by_name = names
            .filter_map(|(id, names)| Some((names.full_name.clone(), id.try_into().ok()?)))
            .collect();
        Self {
            commands,
            by_name,
            categories,
        }
    }

    /// Returns the number of commands and subcommands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Returns whether the catalog has no commands.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Returns a command by its full name, in any case.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<CommandId> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.by_name.get(&name).copied()
    }

    /// Returns the names and categories of a command.
    #[must_use]
    pub fn get(&self, id: CommandId) -> Option<&CommandNames> {
        self.commands.get(usize::from(id))
    }

    /// Returns all categories, in the order in which they are shown.
    #[must_use]
    pub fn categories(&self) -> &'static [&'static str] {
        self.categories
    }

    /// Returns the commands and subcommands of a category (any case), or `None` if there is no such
    /// category.
    #[must_use]
    pub fn in_category(&self, name: &[u8]) -> Option<Vec<CommandId>> {
        let is_it = |category: &&&str| category.as_bytes().eq_ignore_ascii_case(name);
        let category = *self.categories.iter().find(is_it)?;
        let commands = self.commands.iter().enumerate();
        let is_in = |names: &CommandNames| names.categories.contains(&category);
        let ids = commands.filter(|(_, names)| is_in(names));
        Some(ids.filter_map(|(id, _)| id.try_into().ok()).collect())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a catalog of a few commands: get set mget select config(get set) publish auth.
    pub(crate) fn small() -> &'static Catalog {
        static SMALL: std::sync::LazyLock<Catalog> = std::sync::LazyLock::new(|| {
            let command = |name: &str, categories: &[&'static str]| CommandNames {
                full_name: name.to_owned(),
                categories: categories.to_vec(),
                container: None,
                subcommands: 0..0,
            };
            let subcommand = |name: &str| CommandNames {
                container: Some(4),
                ..command(name, &["admin", "slow"])
            };
            let config = CommandNames {
                subcommands: 7..9,
                ..command("config", &["slow"])
            };
            let commands = vec![
                command("get", &["read", "string", "fast"]),
                command("set", &["write", "string", "slow"]),
                command("mget", &["read", "string", "fast"]),
                command("select", &["fast", "connection"]),
                config,
                command("publish", &["pubsub", "fast"]),
                command("auth", &["fast", "connection"]),
                subcommand("config|get"),
                subcommand("config|set"),
            ];
            let categories = &[
                "read",
                "write",
                "string",
                "fast",
                "slow",
                "admin",
                "pubsub",
                "connection",
            ];
            Catalog::new(commands, categories)
        });
        &SMALL
    }

    #[test]
    fn commands_are_found_in_any_case_and_by_category() {
        let catalog = small();
        assert_eq!(catalog.find(b"CONFIG|Set"), Some(8));
        assert_eq!(catalog.find(b"config|x"), None);
        assert_eq!(catalog.in_category(b"ADMIN"), Some(vec![7, 8]));
        assert_eq!(catalog.in_category(b"none"), None);
        assert_eq!((catalog.len(), catalog.is_empty()), (9, false));
    }
}
