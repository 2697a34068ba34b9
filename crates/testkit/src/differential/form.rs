//! Forms: how a command may be written, as one line of text, and random requests made from it.
//!
//! ```text
//!   WORD          itself, in capitals nearly always
//!   <kind>        a random word of that kind (draw.rs)
//!   [ x ]         x or nothing
//!   ( x | y )     one of them
//!   x*  x+        x any number of times up to four, at least none, at least once
//! ```
//!
//! `SET <key> <value> (NX|XX|GET|EX <s>)*` thus gives options in every combination, order and
//! number. Occasionally a request is spoilt afterwards: it has a word too few or too many, or a
//! word out of place.

use super::draw::{Draw, KINDS, Kind};

/// Maximum number of repetitions of a part.
const REPEATS_MAX: u64 = 4;
/// One in this many requests is spoilt.
const SPOILT_ONE_IN: u64 = 16;
/// Commands whose spoilt requests are not errors. A SPOP without a count takes a random member, a
/// RESTORE with the longest time overflows in Redis, and a SORT of another key changes that key's
/// encoding in Redis.
const NEVER_SPOILT: &[&str] = &["SPOP", "RESTORE", "RESTORE-ASKING", "SORT", "SORT_RO"];

/// Whether the request leaves different data on different servers: an entry whose id is the time,
/// or a list from which Redis 7.0 removes elements that later versions keep.
fn leaves_unlike_things(words: &[Vec<u8>]) -> bool {
    let is = |name: &[u8]| {
        words
            .first()
            .is_some_and(|word| word.eq_ignore_ascii_case(name))
    };
    let has = |wanted: &[u8]| words.iter().any(|word| word == wanted);
    is(b"XADD") && has(b"*") || is(b"LREM") && has(b"-9223372036854775808")
}

/// A parsed form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    Word(&'static str),
    Kind(Kind),
    Sequence(Vec<Form>),
    Choice(Vec<Form>),
    Maybe(Box<Form>),
    Repeat { form: Box<Form>, at_least: u64 },
}

impl Form {
    /// Parses a form.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub(super) fn parse(text: &'static str) -> Result<Self, String> {
        let mut reader = FormParser { rest: text };
        let form = reader.choice()?;
        match reader.rest {
            "" => Ok(form),
            rest => Err(format!("{text}: unexpected {rest}")),
        }
    }

    /// Returns the command's name, if the form begins with a fixed word.
    pub(super) fn name(&self) -> Option<&'static str> {
        match self {
            Self::Word(word) => Some(word),
            Self::Sequence(parts) => parts.first()?.name(),
            _ => None,
        }
    }

    /// Returns the words that the form may begin with.
    pub(super) fn names(&self) -> Vec<&'static str> {
        match self {
            Self::Word(word) => vec![word],
            Self::Sequence(parts) => parts.first().map_or_else(Vec::new, Self::names),
            Self::Choice(choices) => choices.iter().flat_map(Self::names).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns a random request of this form, which may be spoilt.
    pub(super) fn request(&self, draw: &mut Draw) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        self.append(draw, &mut words);
        let may_be_spoilt = self.name().is_none_or(|name| !NEVER_SPOILT.contains(&name));
        if draw.once_in(SPOILT_ONE_IN) && may_be_spoilt {
            let whole = words.clone();
            spoil(&mut words, draw);
            if leaves_unlike_things(&words) {
                words = whole;
            }
        }
        words
    }

    /// Returns a random request of this form, never spoilt.
    pub(super) fn right_request(&self, draw: &mut Draw) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        self.append(draw, &mut words);
        words
    }

    fn append(&self, draw: &mut Draw, out: &mut Vec<Vec<u8>>) {
        match self {
            Self::Word(word) => out.push(cased(word, draw)),
            Self::Kind(kind) => out.push(draw.word(*kind)),
            Self::Sequence(parts) => parts.iter().for_each(|part| part.append(draw, out)),
            Self::Choice(choices) => choices[draw.index(choices.len())].append(draw, out),
            Self::Maybe(form) => {
                if draw.once_in(2) {
                    form.append(draw, out);
                }
            }
            Self::Repeat { form, at_least } => {
                // Small counts are more likely than large ones.
                let more = draw.below(REPEATS_MAX + 1 - at_least);
                let count = at_least + draw.below(more + 1);
                for _ in 0..count {
                    form.append(draw, out);
                }
            }
        }
    }
}

fn cased(word: &str, draw: &mut Draw) -> Vec<u8> {
    match draw.below(16) {
        0 => word.to_ascii_lowercase().into_bytes(),
        1 => word
            .bytes()
            .enumerate()
            .map(|(index, byte)| match index % 2 {
                0 => byte,
                _ => byte.to_ascii_lowercase(),
            })
            .collect(),
        _ => word.as_bytes().to_vec(),
    }
}

/// Makes a request wrong in most cases. The command name stays.
fn spoil(words: &mut Vec<Vec<u8>>, draw: &mut Draw) {
    let at = 1 + draw.index(words.len());
    match draw.below(4) {
        0 if at < words.len() => {
            words.remove(at);
        }
        1 if at < words.len() => words[at] = draw.junk(),
        2 => words.truncate(at),
        _ => words.push(draw.junk()),
    }
}

struct FormParser {
    rest: &'static str,
}

impl FormParser {
    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, token: char) -> bool {
        self.skip_spaces();
        let after = self.rest.strip_prefix(token);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn choice(&mut self) -> Result<Form, String> {
        let mut choices = vec![self.sequence()?];
        while self.take('|') {
            choices.push(self.sequence()?);
        }
        match choices.len() {
            1 => Ok(choices.remove(0)),
            _ => Ok(Form::Choice(choices)),
        }
    }

    fn sequence(&mut self) -> Result<Form, String> {
        let mut parts = Vec::new();
        loop {
            self.skip_spaces();
            if self.rest.is_empty() || self.rest.starts_with(['|', ')', ']']) {
                break;
            }
            parts.push(self.repeated()?);
        }
        match parts.len() {
            1 => Ok(parts.remove(0)),
            _ => Ok(Form::Sequence(parts)),
        }
    }

    fn repeated(&mut self) -> Result<Form, String> {
        let form = self.part()?;
        // A suffix follows immediately. A star after a space is a word.
        let at_least = match self.rest.chars().next() {
            Some('*') => 0,
            Some('+') => 1,
            _ => return Ok(form),
        };
        self.rest = &self.rest[1..];
        Ok(Form::Repeat {
            form: Box::new(form),
            at_least,
        })
    }

    fn part(&mut self) -> Result<Form, String> {
        if self.take('(') {
            let form = self.choice()?;
            return self.closed(')', form);
        }
        if self.take('[') {
            let form = self.choice()?;
            return self.closed(']', Form::Maybe(Box::new(form)));
        }
        if self.take('<') {
            return self.kind();
        }
        let end = self.rest.find([' ', '|', ')', ']', '(', '[', '<']);
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        Ok(Form::Word(word))
    }

    fn kind(&mut self) -> Result<Form, String> {
        let unclosed = || "a kind is not closed".to_owned();
        let (name, rest) = self.rest.split_once('>').ok_or_else(unclosed)?;
        self.rest = rest;
        let found = KINDS.iter().find(|(known, _)| *known == name);
        let (_, kind) = found.ok_or_else(|| format!("no kind <{name}>"))?;
        Ok(Form::Kind(*kind))
    }

    fn closed(&mut self, bracket: char, form: Form) -> Result<Form, String> {
        match self.take(bracket) {
            true => Ok(form),
            false => Err(format!("{bracket} is missing before: {}", self.rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_give_what_they_say() {
        let form = Form::parse("SET <key> <value> [NX|XX] (GET | EX <s>)*").unwrap();
        assert_eq!(form.name(), Some("SET"));
        let mut draw = Draw::seeded(1);
        let requests: Vec<_> = (0..2000).map(|_| form.request(&mut draw)).collect();
        assert!(
            requests
                .iter()
                .all(|words| words[0].eq_ignore_ascii_case(b"SET"))
        );
        let has = |word: &[u8]| requests.iter().any(|words| words.contains(&word.to_vec()));
        assert!(has(b"NX") && has(b"XX") && has(b"GET") && has(b"EX"));
        assert!(requests.iter().any(|words| words.len() < 3));
        assert!(requests.iter().any(|words| words.len() > 8));
    }

    #[test]
    fn mistakes_are_found() {
        for text in ["GET <nothing>", "GET [a", "GET (a|b", "GET a)", "GET <key"] {
            assert!(Form::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_words() {
        let form = Form::parse("MSET (<key> <value>)+").unwrap();
        let words = |seed| form.request(&mut Draw::seeded(seed));
        assert_eq!(words(5), words(5));
    }
}
