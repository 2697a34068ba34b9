//! The argument tree of `COMMAND DOCS`, read off the row's syntax line.
//!
//! ```text
//!   key value [NX | XX] [GET] [EX seconds | KEEPTTL] [key value ...]
//!   └ argument          └ optional token           └ optional, any number of times
//!             └ optional choice
//! ```
//!
//! Words in capitals are tokens; a token before a word names it. `<a | b>` is a choice that must be
//! made, `[…]` may be left out, `...` says that what stands before it may repeat.

use protocol::Reply;

/// One argument, or a group of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Argument {
    name: String,
    kind: ArgumentKind,
    token: Option<String>,
    optional: bool,
    multiple: bool,
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

    /// What a placeholder of this name stands for.
    fn of_word(word: &str) -> Self {
        match word {
            "key" | "newkey" | "destkey" | "source" | "destination" | "key1" | "key2" => Self::Key,
            "pattern" => Self::Pattern,
            "increment" => Self::Integer,
            "seconds" | "milliseconds" | "count" | "offset" | "bit" | "start" | "end" | "index"
            | "decrement" | "cursor" | "timeout" | "db" | "destination-db" | "index1"
            | "index2" | "protover" | "version" | "client-id" | "maxage" | "min-match-len"
            | "value-integer" => Self::Integer,
            "increment-float" => Self::Double,
            word if word.starts_with("unix-time") => Self::UnixTime,
            _ => Self::Text,
        }
    }
}

/// The arguments that a syntax line describes.
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
    /// Everything up to a closing mark or a `|`, as a list.
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

    /// What stands between an opening mark, where the parser is, and `close`.
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

    fn word(&mut self, word: &str) -> Argument {
        let is_token = word.chars().all(|c| !c.is_lowercase());
        if !is_token {
            let kind = ArgumentKind::of_word(word);
            return Argument {
                name: word.to_owned(),
                kind,
                ..Argument::default()
            };
        }
        let next = self.words.get(self.at).copied();
        let names_next = next.is_some_and(|next| next.starts_with(|c: char| c.is_lowercase()));
        if names_next {
            self.at += 1;
            let mut named = self.word(next.unwrap_or_default());
            named.token = Some(word.to_owned());
            return named;
        }
        Argument {
            name: word.to_lowercase(),
            kind: ArgumentKind::PureToken,
            token: Some(word.to_owned()),
            ..Argument::default()
        }
    }
}

/// `key [key ...]` is one argument that may repeat; anything else in brackets is optional.
fn push_optional(arguments: &mut Vec<Argument>, mut group: Argument) {
    let parts: Vec<&str> = if group.kind == ArgumentKind::Block {
        group.parts.iter().map(|part| part.name.as_str()).collect()
    } else {
        vec![group.name.as_str()]
    };
    let repeats = group.multiple || group.parts.last().is_some_and(|part| part.multiple);
    if repeats && arguments.len() >= parts.len() {
        let before = &arguments[arguments.len() - parts.len()..];
        if before
            .iter()
            .map(|argument| argument.name.as_str())
            .eq(parts.iter().copied())
        {
            let at = arguments.len() - parts.len();
            let mut tail = arguments.split_off(at);
            if tail.len() > 1 {
                arguments.push(block(tail));
            } else {
                arguments.append(&mut tail);
            }
            if let Some(last) = arguments.last_mut() {
                last.multiple = true;
            }
            return;
        }
    }
    group.optional = true;
    arguments.push(group);
}

fn one(mut parts: Vec<Argument>) -> Argument {
    if parts.len() == 1 {
        parts.remove(0)
    } else {
        block(parts)
    }
}

fn block(mut parts: Vec<Argument>) -> Argument {
    let multiple = parts
        .last_mut()
        .is_some_and(|last| std::mem::take(&mut last.multiple));
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

/// Writes arguments as `COMMAND DOCS` shows them. `keys` counts the key specifications used so far.
pub(super) fn write(reply: &mut Reply<'_>, arguments: &[Argument], keys: &mut i64) {
    reply.array(arguments.len());
    for argument in arguments {
        let is_key = argument.kind == ArgumentKind::Key;
        let flags = argument.optional || argument.multiple;
        let fields = 2
            + usize::from(is_key)
            + usize::from(argument.token.is_some())
            + usize::from(flags)
            + usize::from(!argument.parts.is_empty());
        reply.map(fields);
        reply.bulk(b"name");
        reply.bulk_str(&argument.name);
        reply.bulk(b"type");
        reply.bulk_str(argument.kind.name());
        if is_key {
            reply.bulk(b"key_spec_index");
            reply.integer(*keys);
            *keys += 1;
        }
        if let Some(token) = &argument.token {
            reply.bulk(b"token");
            reply.bulk_str(token);
        }
        if flags {
            reply.bulk(b"flags");
            reply.array(usize::from(argument.optional) + usize::from(argument.multiple));
            if argument.optional {
                reply.simple("optional");
            }
            if argument.multiple {
                reply.simple("multiple");
            }
        }
        if !argument.parts.is_empty() {
            reply.bulk(b"arguments");
            write(reply, &argument.parts, keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
