//! The argument tree of `COMMAND DOCS`, parsed from the row's syntax line.
//!
//! ```text
//!   key value [NX | XX] [GET] [EX seconds | KEEPTTL] [key value ...]
//!   └ argument          └ optional token           └ optional, any number of times
//!             └ optional choice
//! ```
//!
//! Words in capitals are tokens. A token before one word names it, before several words it makes
//! them a block, before `<…>` it names the choice. `<a | b>` is a mandatory choice, `[…]` is
//! optional, and `...` lets the preceding argument repeat. The type of a word follows from the word
//! itself, or is given after it: `value:integer`. A token whose argument has another name is
//! written `CH:change`.

pub(super) use key_cursor::KeyCursor;
use protocol::Reply;

mod key_cursor;

/// One argument, or a group of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Argument {
    name: String,
    kind: ArgumentKind,
    token: Option<String>,
    optional: bool,
    multiple: bool,
    /// Whether every repetition repeats the token too.
    multiple_token: bool,
    parts: Vec<Argument>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ArgumentKind {
    #[default]
    Text,
    Integer,
    Double,
    Key,
    Pattern,
    UnixTime,
    PureToken,
    OneOf,
    Block,
}

impl ArgumentKind {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Integer => "integer",
            Self::Double => "double",
            Self::Key => "key",
            Self::Pattern => "pattern",
            Self::UnixTime => "unix-time",
            Self::PureToken => "pure-token",
            Self::OneOf => "oneof",
            Self::Block => "block",
        }
    }

    /// Returns the type of a placeholder, and its name.
    fn of_word(word: &str) -> (Self, &str) {
        const STATED: &[(&str, ArgumentKind)] = &[
            (":integer", ArgumentKind::Integer),
            (":string", ArgumentKind::Text),
            (":key", ArgumentKind::Key),
            (":double", ArgumentKind::Double),
        ];
        for (ending, kind) in STATED {
            if let Some(name) = word.strip_suffix(ending) {
                return (*kind, name);
            }
        }
        let kind = match word {
            "key" | "newkey" | "destkey" | "source" | "destination" | "key1" | "key2" => Self::Key,
            "pattern" => Self::Pattern,
            "seconds" | "milliseconds" | "count" | "offset" | "bit" | "start" | "end" | "index"
            | "increment" | "decrement" | "cursor" | "timeout" | "db" | "destination-db"
            | "index1" | "index2" | "protover" | "version" | "client-id" | "maxage"
            | "min-match-len" | "numfields" => Self::Integer,
            word if word.starts_with("unix-time") => Self::UnixTime,
            _ => Self::Text,
        };
        (kind, word)
    }
}

/// Returns the arguments that a syntax line describes.
pub(super) fn parse(syntax: &str) -> Vec<Argument> {
    let spaced = ["[", "]", "<", ">", "|"]
        .iter()
        .fold(syntax.to_owned(), |text, mark| {
            text.replace(mark, &format!(" {mark} "))
        });
    let words: Vec<&str> = spaced.split_whitespace().collect();
    Parser {
        words: &words,
        at: 0,
    }
    .sequence()
}

struct Parser<'a> {
    words: &'a [&'a str],
    at: usize,
}

impl Parser<'_> {
    /// Parses everything up to a closing mark or a `|` as a list.
    fn sequence(&mut self) -> Vec<Argument> {
        let mut arguments: Vec<Argument> = Vec::new();
        while let Some(word) = self.words.get(self.at).copied() {
            match word {
                "]" | ">" | "|" => break,
                "[" => {
                    let group = self.group("]");
                    push_optional(&mut arguments, group);
                }
                "<" => {
                    let group = self.group(">");
                    arguments.push(group);
                }
                "..." => {
                    self.at += 1;
                    if let Some(last) = arguments.last_mut() {
                        last.multiple = true;
                    }
                }
                word => {
                    self.at += 1;
                    arguments.push(self.word(word));
                }
            }
        }
        arguments
    }

    /// Parses the part between an opening mark, where the parser is, and `close`.
    fn group(&mut self, close: &str) -> Argument {
        self.at += 1;
        let mut choices = vec![self.sequence()];
        while self.words.get(self.at) == Some(&"|") {
            self.at += 1;
            choices.push(self.sequence());
        }
        debug_assert_eq!(self.words.get(self.at), Some(&close));
        self.at += 1;
        let mut choices: Vec<Argument> = choices.into_iter().map(one).collect();
        if choices.len() == 1 {
            return choices.remove(0);
        }
        let name = choices
            .iter()
            .map(|choice| choice.name.as_str())
            .collect::<Vec<_>>()
            .join("-or-");
        Argument {
            name,
            kind: ArgumentKind::OneOf,
            parts: choices,
            ..Argument::default()
        }
    }

    /// Parses a placeholder, or a token with the words it names. The parser is after `word`.
    fn word(&mut self, word: &str) -> Argument {
        if let Some((token, name)) = word.split_once(':')
            && !token.contains(char::is_lowercase)
        {
            return pure_token(token, name.to_owned());
        }
        if word.contains(|c: char| c.is_lowercase()) {
            return placeholder(word);
        }
        let token = Some(word.to_owned());
        if self.words.get(self.at) == Some(&"<") {
            let choice = self.group(">");
            return Argument { token, ..choice };
        }
        let mut named = Vec::new();
        while let Some(next) = self.words.get(self.at) {
            if !next.contains(|c: char| c.is_lowercase()) {
                break;
            }
            named.push(placeholder(next));
            self.at += 1;
        }
        if named.is_empty() {
            return pure_token(word, word.to_lowercase());
        }
        let repeated = self.repeated(&named);
        Argument {
            token,
            ..counted(named, repeated)
        }
    }

    /// Returns how many of the words after a token may repeat according to `[word ...]`, if not all
    /// of them do (`FIELDS numfields field [field ...]`). Moves the parser behind that group.
    fn repeated(&mut self, named: &[Argument]) -> usize {
        let rest = self.words.get(self.at..).unwrap_or_default();
        let Some(dots) = rest.iter().position(|word| *word == "...") else {
            return 0;
        };
        let Some(words) = rest.get(1..dots).filter(|words| words.len() < named.len()) else {
            return 0;
        };
        let last = named.iter().rev().zip(words.iter().rev());
        let is_end = rest.first() == Some(&"[") && rest.get(dots + 1) == Some(&"]");
        if !is_end || !last.into_iter().all(|(a, b)| a.is_like(&placeholder(b))) {
            return 0;
        }
        self.at += dots + 2;
        words.len()
    }
}

/// Groups `parts`, of which the last `repeated` may repeat together.
fn counted(mut parts: Vec<Argument>, repeated: usize) -> Argument {
    if repeated == 0 {
        return one(parts);
    }
    let mut last = one(parts.split_off(parts.len().saturating_sub(repeated)));
    last.multiple = true;
    parts.push(last);
    let mut whole = block(parts);
    if let Some(last) = whole.parts.last_mut().filter(|_| whole.multiple) {
        last.multiple = true;
        whole.multiple = false;
    }
    whole
}

fn pure_token(token: &str, name: String) -> Argument {
    Argument {
        name,
        kind: ArgumentKind::PureToken,
        token: Some(token.to_owned()),
        ..Argument::default()
    }
}

fn placeholder(word: &str) -> Argument {
    let (kind, name) = ArgumentKind::of_word(word);
    Argument {
        name: name.to_owned(),
        kind,
        ..Argument::default()
    }
}

/// Adds a group in brackets. `key [key ...]` is one argument that may repeat; anything else is
/// optional.
fn push_optional(arguments: &mut Vec<Argument>, mut group: Argument) {
    if group.multiple && repeat_last(arguments, &group) {
        return;
    }
    group.optional = true;
    arguments.push(group);
}

/// Whether `group` means that the preceding argument may repeat. If so, marks that argument.
fn repeat_last(arguments: &mut Vec<Argument>, group: &Argument) -> bool {
    if let Some(last) = arguments.last_mut()
        && last.is_like(group)
        && (group.token.is_none() || group.token == last.token)
    {
        last.multiple = true;
        last.multiple_token = group.token.is_some();
        return true;
    }
    let Some(start) = arguments.len().checked_sub(group.parts.len()) else {
        return false;
    };
    let is_sequence = group.kind == ArgumentKind::Block && group.token.is_none();
    if !is_sequence
        || !arguments[start..]
            .iter()
            .zip(&group.parts)
            .all(|(a, b)| a.is_like(b))
    {
        return false;
    }
    let tail = arguments.split_off(start);
    arguments.push(Argument {
        multiple: true,
        ..block(tail)
    });
    true
}

fn one(mut parts: Vec<Argument>) -> Argument {
    if parts.len() == 1 {
        parts.remove(0)
    } else {
        block(parts)
    }
}

fn block(mut parts: Vec<Argument>) -> Argument {
    // `...` at the end applies to the whole, unless other parts repeat by themselves.
    let repeats = parts.iter().filter(|part| part.multiple).count();
    let last = parts.last_mut().filter(|_| repeats == 1);
    let multiple = last.is_some_and(|last| std::mem::take(&mut last.multiple));
    let name = parts
        .iter()
        .map(|part| part.name.as_str())
        .collect::<Vec<_>>()
        .join("-");
    Argument {
        name,
        kind: ArgumentKind::Block,
        multiple,
        parts,
        ..Argument::default()
    }
}

impl Argument {
    /// Whether two arguments accept the same, apart from tokens.
    fn is_like(&self, other: &Self) -> bool {
        self.kind == other.kind && self.name == other.name
    }
}

/// Writes arguments as `COMMAND DOCS` shows them.
pub(super) fn write(reply: &mut Reply<'_>, arguments: &[Argument], keys: &mut KeyCursor<'_>) {
    reply.array(arguments.len());
    for argument in arguments {
        let slot = reply.begin_map();
        let mut fields = 2;
        reply.bulk(b"name");
        reply.bulk_str(&argument.name);
        reply.bulk(b"type");
        reply.bulk_str(argument.kind.name());
        if argument.parts.is_empty() {
            fields += 1;
            reply.bulk(b"display_text");
            reply.bulk_str(&argument.name);
        }
        let key = match argument.kind {
            ArgumentKind::Key => keys.next(),
            ArgumentKind::Pattern => keys.of_pattern(),
            _ => None,
        };
        if let Some(index) = key {
            fields += 1;
            reply.bulk(b"key_spec_index");
            reply.integer(i64::try_from(index).unwrap_or(i64::MAX));
        }
        if let Some(token) = &argument.token {
            fields += 1;
            reply.bulk(b"token");
            reply.bulk_str(token);
        }
        fields += usize::from(write_flags(reply, argument));
        if !argument.parts.is_empty() {
            fields += 1;
            reply.bulk(b"arguments");
            write(reply, &argument.parts, keys);
        }
        reply.end_map(slot, fields);
    }
}

/// Writes the flags of an argument. Returns whether there were any.
fn write_flags(reply: &mut Reply<'_>, argument: &Argument) -> bool {
    let flags = [
        (argument.optional, "optional"),
        (argument.multiple, "multiple"),
        (argument.multiple_token, "multiple_token"),
    ];
    let count = flags.iter().filter(|(set, _)| *set).count();
    if count == 0 {
        return false;
    }
    reply.bulk(b"flags");
    reply.set(count);
    for (_, name) in flags.iter().filter(|(set, _)| *set) {
        reply.simple(name);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::spec::{KeyAccess, KeySpec};

    fn names(arguments: &[Argument]) -> Vec<&str> {
        arguments
            .iter()
            .map(|argument| argument.name.as_str())
            .collect()
    }

    #[test]
    fn words_tokens_and_choices() {
        let arguments = parse("key value [NX | XX] [EX seconds | KEEPTTL]");
        assert_eq!(
            names(&arguments),
            ["key", "value", "nx-or-xx", "seconds-or-keepttl"]
        );
        assert_eq!(arguments[2].kind, ArgumentKind::OneOf);
        assert!(arguments[2].optional);
        assert_eq!(arguments[3].parts[0].token.as_deref(), Some("EX"));
        assert_eq!(arguments[3].parts[0].kind, ArgumentKind::Integer);
        assert_eq!(arguments[3].parts[1].kind, ArgumentKind::PureToken);
    }

    #[test]
    fn repetition_makes_one_argument() {
        let arguments = parse("key [key ...]");
        assert_eq!(names(&arguments), ["key"]);
        assert!(arguments[0].multiple && !arguments[0].optional);
        let arguments = parse("key value [key value ...]");
        assert_eq!(names(&arguments), ["key-value"]);
        assert_eq!(arguments[0].kind, ArgumentKind::Block);
        assert!(arguments[0].multiple);
    }

    #[test]
    fn tokens_name_what_follows_them() {
        let arguments = parse("[AUTH username password] [TYPE <NORMAL | PUBSUB>] [ID id [id ...]]");
        assert_eq!(arguments[0].kind, ArgumentKind::Block);
        assert_eq!(arguments[0].token.as_deref(), Some("AUTH"));
        assert_eq!(names(&arguments[0].parts), ["username", "password"]);
        assert_eq!(arguments[1].kind, ArgumentKind::OneOf);
        assert_eq!(arguments[1].token.as_deref(), Some("TYPE"));
        assert!(arguments[2].multiple && arguments[2].optional && !arguments[2].multiple_token);
    }

    #[test]
    fn what_a_count_is_of_repeats_alone() {
        for (syntax, kind) in [
            ("FIELDS numfields field [field ...]", ArgumentKind::Text),
            (
                "FIELDS numfields field value [field value ...]",
                ArgumentKind::Block,
            ),
        ] {
            let arguments = parse(syntax);
            assert_eq!(arguments.len(), 1, "{arguments:?}");
            assert_eq!(arguments[0].token.as_deref(), Some("FIELDS"));
            assert!(!arguments[0].multiple);
            let [count, what] = &arguments[0].parts[..] else {
                panic!("{arguments:?}")
            };
            assert!(count.kind == ArgumentKind::Integer && !count.multiple);
            assert!(what.kind == kind && what.multiple);
        }
    }

    #[test]
    fn a_repeated_token_is_said_to_be() {
        let arguments = parse("key [GET encoding offset [GET encoding offset ...]]");
        assert_eq!(names(&arguments), ["key", "encoding-offset"]);
        assert_eq!(arguments[1].token.as_deref(), Some("GET"));
        assert!(arguments[1].optional && arguments[1].multiple && arguments[1].multiple_token);
    }

    #[test]
    fn kinds_may_be_stated() {
        let arguments = parse("value:integer ip:port");
        assert_eq!(names(&arguments), ["value", "ip:port"]);
        assert_eq!(arguments[0].kind, ArgumentKind::Integer);
        assert_eq!(arguments[1].kind, ArgumentKind::Text);
    }

    #[test]
    fn keys_know_their_specification() {
        let indexes = |specs: &[KeySpec], count: usize| -> Vec<Option<usize>> {
            let mut cursor = KeyCursor::new(specs);
            (0..count).map(|_| cursor.next()).collect()
        };
        let access = KeyAccess::RO;
        let two = [KeySpec::range(1, 1, 1, access)];
        assert_eq!(indexes(&two, 3), [Some(0), Some(0), None]);
        let separate = [KeySpec::one(1, access), KeySpec::range(2, -1, 1, access)];
        assert_eq!(indexes(&separate, 3), [Some(0), Some(1), None]);
    }

    #[test]
    fn nothing_is_nothing() {
        assert!(parse("").is_empty());
    }

    #[test]
    fn every_row_can_be_read() {
        for spec in crate::table().commands() {
            for row in std::iter::once(*spec).chain(spec.subcommands) {
                let marks = |mark| row.syntax.matches(mark).count();
                assert_eq!(marks("["), marks("]"), "{}", row.syntax);
                assert_eq!(marks("<"), marks(">"), "{}", row.syntax);
                assert_eq!(parse(row.syntax).is_empty(), row.syntax.is_empty());
            }
        }
    }
}
