//! Documentation of commands from COMMAND DOCS: names to complete, hints for further words, and
//! help.

use std::collections::BTreeMap;

use protocol::Value;

use super::print::text_of;
use crate::endpoint::Session;

/// A command or subcommand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) summary: String,
    pub(super) since: String,
    pub(super) group: String,
    /// The words that may follow the name, split where possible.
    pub(super) words: Vec<String>,
}

impl Entry {
    fn help(&self, name: &str, tells_group: bool) -> String {
        let syntax = format!("{name} {}", self.words.join(" "));
        let group = match tells_group {
            true => format!("  group: {}\n", self.group),
            false => String::new(),
        };
        format!(
            "  {}\n  summary: {}\n  since: {}\n{group}",
            syntax.trim_end(),
            self.summary,
            self.since
        )
    }
}

/// Lines of the prompt besides requests.
const HELP: &str = "\
help COMMAND tells of a command, help @GROUP of a group of commands; TAB completes names
5 COMMAND sends it five times
connect HOST PORT goes to another server
:set nohints shows no words still to come, :set hints does again
clear empties the screen, quit ends
";

/// All commands by their names in capitals; `CONFIG GET` is one name.
#[derive(Clone, Debug, Default)]
pub(super) struct Docs {
    pub(super) entries: BTreeMap<String, Entry>,
}

impl Docs {
    /// Asks a server. Empty for a server that does not know the command.
    pub(super) fn of(session: &mut Session) -> Self {
        let mut docs = Self::default();
        if let Ok(reply) = session.ask(&["COMMAND", "DOCS"]) {
            docs.add("", &reply);
        }
        docs
    }

    fn add(&mut self, parent: &str, commands: &Value) {
        for (name, told) in pairs(commands) {
            let name = String::from_utf8_lossy(&text_of(&name)).to_uppercase();
            // Names of subcommands contain the name of their command: CONFIG|GET.
            let name = match name.split_once('|') {
                Some((_, own)) => format!("{parent} {own}"),
                None if parent.is_empty() => name,
                None => format!("{parent} {name}"),
            };
            let mut entry = Entry::default();
            for (field, value) in pairs(&told) {
                let text = || String::from_utf8_lossy(&text_of(&value)).into_owned();
                match text_of(&field).as_slice() {
                    b"summary" => entry.summary = text(),
                    b"since" => entry.since = text(),
                    b"group" => entry.group = text(),
                    b"arguments" => entry.words = items(&value).iter().map(syntax).collect(),
                    b"subcommands" => self.add(&name, &value),
                    _ => {}
                }
            }
            self.entries.insert(name, entry);
        }
    }

    /// Returns the help for the command or group (`@string`) that these words name.
    pub(super) fn help(&self, words: &[String]) -> String {
        let name = words.join(" ");
        if name.is_empty() {
            return HELP.to_owned();
        }
        let found: Vec<String> = if let Some(group) = name.strip_prefix('@') {
            let one_form = |group: &str| group.to_lowercase().replace('_', "-");
            let group = one_form(group);
            let entries = self.entries.iter();
            let entries = entries.filter(|(_, entry)| one_form(&entry.group) == group);
            entries
                .map(|(known, entry)| entry.help(known, false))
                .collect()
        } else {
            let name = name.to_uppercase();
            let sub = format!("{name} ");
            let is_meant = |known: &str| known == name || known.starts_with(&sub);
            let entries = self.entries.iter().filter(|(known, _)| is_meant(known));
            entries
                .map(|(known, entry)| entry.help(known, true))
                .collect()
        };
        match found.is_empty() {
            true => format!("Nothing is known of '{name}'\n"),
            false => format!("\n{}\n", found.join("\n")),
        }
    }

    /// Returns the command at the beginning of a line, and the number of words in its name.
    pub(super) fn find(&self, words: &[String]) -> Option<(&Entry, usize)> {
        let name = words.first()?.to_uppercase();
        if let Some(second) = words.get(1)
            && let Some(entry) = self
                .entries
                .get(&format!("{name} {}", second.to_uppercase()))
        {
            return Some((entry, 2));
        }
        Some((self.entries.get(&name)?, 1))
    }
}

/// Returns names and values: from a RESP3 map, or from an array that alternates between them.
fn pairs(value: &Value) -> Vec<(Value, Value)> {
    match value {
        Value::Map(pairs) => pairs.clone(),
        Value::Array(values) => values
            .chunks_exact(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()))
            .collect(),
        _ => Vec::new(),
    }
}

fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) | Value::Set(values) => values,
        _ => &[],
    }
}

/// Returns an argument in the notation of the documentation: `[EX seconds | PX milliseconds]`.
fn syntax(argument: &Value) -> String {
    let (mut name, mut kind, mut token) = (String::new(), Vec::new(), String::new());
    let (mut parts, mut flags) = (Vec::new(), Vec::new());
    for (field, value) in pairs(argument) {
        let text = || String::from_utf8_lossy(&text_of(&value)).into_owned();
        match text_of(&field).as_slice() {
            b"name" => name = text(),
            b"display_text" => name = text(),
            b"type" => kind = text_of(&value),
            b"token" => token = text(),
            b"arguments" => parts = items(&value).iter().map(syntax).collect(),
            b"flags" => flags = items(&value).iter().map(text_of).collect(),
            _ => {}
        }
    }
    let has = |flag: &[u8]| flags.iter().any(|own| own == flag);
    let mut text = match kind.as_slice() {
        b"oneof" => parts.join(" | "),
        b"block" => parts.join(" "),
        b"pure-token" => String::new(),
        _ => name,
    };
    if !token.is_empty() {
        text = format!("{token} {text}").trim_end().to_owned();
    }
    if has(b"multiple") {
        let again = match has(b"multiple_token") {
            true => text.clone(),
            false => text
                .trim_start_matches(token.as_str())
                .trim_start()
                .to_owned(),
        };
        text = format!("{text} [{again} ...]");
    }
    match (has(b"optional"), kind.as_slice()) {
        (true, _) => format!("[{text}]"),
        (false, b"oneof") => format!("<{text}>"),
        (false, _) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn argument(fields: &[(&str, Value)]) -> Value {
        let fields = fields
            .iter()
            .flat_map(|(name, value)| [text(name), value.clone()]);
        Value::Array(fields.collect())
    }

    #[test]
    fn help_tells_of_commands_with_their_subcommands_and_of_groups() {
        let mut docs = Docs::default();
        let entry = |group: &str| Entry {
            summary: "Does.".to_owned(),
            since: "1.0.0".to_owned(),
            group: group.to_owned(),
            words: vec!["key".to_owned()],
        };
        docs.entries.insert("CONFIG".to_owned(), entry("server"));
        docs.entries
            .insert("CONFIG GET".to_owned(), entry("server"));
        docs.entries.insert("GET".to_owned(), entry("sorted-set"));
        let help = |words: &str| {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            docs.help(&words)
        };
        let told = "\n  GET key\n  summary: Does.\n  since: 1.0.0\n  group: sorted-set\n\n";
        assert_eq!(help("get"), told);
        assert!(help("config").contains("  CONFIG key\n"));
        assert!(help("config").contains("  CONFIG GET key\n"));
        assert!(!help("config get").contains("  CONFIG key\n"));
        let told = "\n  GET key\n  summary: Does.\n  since: 1.0.0\n\n";
        assert_eq!(help("@sorted_set"), told);
        assert_eq!(help("no such"), "Nothing is known of 'no such'\n");
        assert_eq!(help(""), HELP);
    }

    #[test]
    fn arguments_are_written_as_documentation_does() {
        let optional = Value::Set(vec![Value::Simple(b"optional".to_vec())]);
        let seconds = argument(&[
            ("name", text("seconds")),
            ("type", text("integer")),
            ("token", text("EX")),
        ]);
        let keep = argument(&[
            ("name", text("keepttl")),
            ("type", text("pure-token")),
            ("token", text("KEEPTTL")),
        ]);
        let either = argument(&[
            ("name", text("expiration")),
            ("type", text("oneof")),
            ("flags", optional),
            ("arguments", Value::Array(vec![seconds, keep])),
        ]);
        assert_eq!(syntax(&either), "[EX seconds | KEEPTTL]");
        let many = argument(&[
            ("name", text("key")),
            ("type", text("key")),
            ("flags", Value::Array(vec![text("multiple")])),
        ]);
        assert_eq!(syntax(&many), "key [key ...]");
    }
}
