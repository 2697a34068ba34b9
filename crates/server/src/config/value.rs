//! Values of directives: their kinds, and how they are parsed and shown.
//!
//! The error texts are Redis'.

use base::{memory_size, words};

use super::fields::{OutputLimit, OutputLimits};
use crate::notifications::Notifications;

/// Whether `text` contains a character that makes it a pattern.
pub(super) fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|byte| b"*?[".contains(byte))
}

/// Kind of a directive's values.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// `yes` or `no`.
    Switch,
    /// A whole number.
    Integer { min: i128, max: i128 },
    /// Mode bits, in octal.
    Mode { max: i128 },
    /// A number of bytes, with a unit.
    Memory { min: i128, max: i128 },
    /// A number of bytes, or a percentage of another number.
    MemoryOrPercent,
    /// One of several names.
    Choice(&'static [&'static str]),
    /// Any subset of several names.
    Choices(&'static [&'static str]),
    /// Any bytes.
    Text,
    /// Up to `max` words; more is the error `excess`.
    Words { max: usize, excess: &'static str },
    /// Pairs of seconds and changes.
    SavePoints,
    /// Groups of class, hard limit, soft limit and seconds.
    OutputLimits,
    /// Letters for classes of events.
    Notifications,
}

/// The value of one directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Switch(bool),
    /// A number of any kind. Redis has both signed and unsigned 64-bit numbers.
    Integer(i128),
    Percent(u8),
    /// Position among the kind's names.
    Choice(usize),
    /// Positions among the kind's names, ascending.
    Choices(Vec<usize>),
    Text(Vec<u8>),
    Words(Vec<Vec<u8>>),
    SavePoints(Vec<(u64, u64)>),
    OutputLimits(OutputLimits),
    Notifications(Notifications),
}

/// Whether a list replaces earlier values or adds to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gathering {
    /// CONFIG SET: the value replaces the list.
    Anew,
    /// A line of a file: it adds to earlier lines if Redis does so.
    Onto,
}

impl Kind {
    /// Whether the value has several words, which a file may write without quotes.
    pub(super) fn takes_words(self) -> bool {
        matches!(
            self,
            Self::Choices(_) | Self::Words { .. } | Self::SavePoints | Self::OutputLimits
        )
    }

    /// Parses the value that `words` spell. Lists add to `current`.
    ///
    /// # Errors
    /// The reason, in Redis' words.
    pub(super) fn parse(
        self,
        words: &[Vec<u8>],
        current: &Value,
        gathering: Gathering,
    ) -> Result<Value, String> {
        match (self, words) {
            (Self::Words { max, excess }, _) => parse_words(words, max, excess),
            (Self::Choices(names), _) => parse_choices(words, names),
            (Self::SavePoints, _) => parse_save_points(words, current, gathering),
            (Self::OutputLimits, _) => parse_output_limits(words, current),
            (_, [word]) => self.parse_word(word),
            _ => Err("wrong number of arguments".to_owned()),
        }
    }

    fn parse_word(self, word: &[u8]) -> Result<Value, String> {
        match self {
            Self::Switch => parse_switch(word),
            Self::Integer { min, max } => decimal(word)
                .ok_or_else(|| "argument couldn't be parsed into an integer".to_owned())
                .and_then(|number| within(number, min, max)),
            Self::Mode { max } => octal(word)
                .ok_or_else(|| "argument couldn't be parsed as an octal number".to_owned())
                .and_then(|mode| {
                    let reason = format!("argument must be between 0 and {max:o} inclusive");
                    (0..=max)
                        .contains(&mode)
                        .then_some(Value::Integer(mode))
                        .ok_or(reason)
                }),
            Self::Memory { min, max } => memory(word)
                .ok_or_else(|| "argument must be a memory value".to_owned())
                .and_then(|bytes| within(bytes, min, max)),
            Self::MemoryOrPercent => parse_memory_or_percent(word),
            Self::Choice(names) => find_choice(word, names).map(Value::Choice),
            Self::Notifications => Notifications::parse(word).map(Value::Notifications),
            _ => Ok(Value::Text(word.to_vec())),
        }
    }

    /// Returns the value as CONFIG GET shows it.
    pub(super) fn show(self, value: &Value) -> Vec<u8> {
        match (self, value) {
            (_, Value::Switch(on)) => if *on { "yes" } else { "no" }.into(),
            (Self::Mode { .. }, Value::Integer(mode)) => format!("{mode:o}").into_bytes(),
            (_, Value::Integer(number)) => number.to_string().into_bytes(),
            (_, Value::Percent(percent)) => format!("{percent}%").into_bytes(),
            (Self::Choice(names), Value::Choice(at)) => names[*at].into(),
            (Self::Choices(names), Value::Choices(at)) => at
                .iter()
                .map(|&at| names[at])
                .collect::<Vec<_>>()
                .join(" ")
                .into_bytes(),
            (_, Value::Text(text)) => text.clone(),
            (_, Value::Words(words)) => words.join(&b' '),
            (_, Value::SavePoints(points)) => points
                .iter()
                .map(|(seconds, changes)| format!("{seconds} {changes}"))
                .collect::<Vec<_>>()
                .join(" ")
                .into_bytes(),
            (_, Value::OutputLimits(limits)) => show_output_limits(limits).into_bytes(),
            (_, Value::Notifications(asked)) => asked.show().into_bytes(),
            (_, Value::Choice(_) | Value::Choices(_)) => Vec::new(),
        }
    }

    /// Returns what follows the directive's name in a file, one element per line.
    pub(super) fn write(self, value: &Value) -> Vec<Vec<u8>> {
        match (self, value) {
            (Self::Memory { .. } | Self::MemoryOrPercent, Value::Integer(bytes)) => {
                vec![memory_text(*bytes).into_bytes()]
            }
            (_, Value::Text(text)) => vec![words::quote(text).into_bytes()],
            (_, Value::Notifications(asked)) => {
                vec![words::quote(asked.write().as_bytes()).into_bytes()]
            }
            (_, Value::Words(words)) if words.is_empty() => vec![b"\"\"".to_vec()],
            (_, Value::Words(words)) => {
                let words = words.iter().map(|word| words::quote_unless_plain(word));
                vec![words.collect::<Vec<_>>().join(" ").into_bytes()]
            }
            (_, Value::SavePoints(points)) if points.is_empty() => vec![b"\"\"".to_vec()],
            (_, Value::SavePoints(points)) => points
                .iter()
                .map(|(seconds, changes)| format!("{seconds} {changes}").into_bytes())
                .collect(),
            (_, Value::OutputLimits(limits)) => write_output_limits(limits),
            _ => vec![self.show(value)],
        }
    }
}

fn parse_switch(word: &[u8]) -> Result<Value, String> {
    if word.eq_ignore_ascii_case(b"yes") {
        Ok(Value::Switch(true))
    } else if word.eq_ignore_ascii_case(b"no") {
        Ok(Value::Switch(false))
    } else {
        Err("argument must be 'yes' or 'no'".to_owned())
    }
}

fn within(number: i128, min: i128, max: i128) -> Result<Value, String> {
    if (min..=max).contains(&number) {
        Ok(Value::Integer(number))
    } else {
        Err(format!(
            "argument must be between {min} and {max} inclusive"
        ))
    }
}

fn parse_memory_or_percent(word: &[u8]) -> Result<Value, String> {
    if let Some(bytes) = memory(word) {
        return Ok(Value::Integer(bytes));
    }
    let percent = word
        .strip_suffix(b"%")
        .and_then(decimal)
        .filter(|&number| number >= 0);
    let percent = percent.ok_or("argument must be a memory or percent value")?;
    match u8::try_from(percent) {
        Ok(percent) if percent <= 100 => Ok(Value::Percent(percent)),
        _ => Err("percentage argument must be less or equal to 100".to_owned()),
    }
}

fn find_choice(word: &[u8], names: &[&str]) -> Result<usize, String> {
    names
        .iter()
        .position(|name| word.eq_ignore_ascii_case(name.as_bytes()))
        .ok_or_else(|| {
            let names = names.join(", ");
            format!("argument(s) must be one of the following: {names}")
        })
}

fn parse_choices(words: &[Vec<u8>], names: &[&str]) -> Result<Value, String> {
    if words.is_empty() {
        return find_choice(b"", names).map(Value::Choice);
    }
    let mut chosen = Vec::new();
    for word in words {
        chosen.push(find_choice(word, names)?);
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(Value::Choices(chosen))
}

fn parse_words(words: &[Vec<u8>], max: usize, excess: &str) -> Result<Value, String> {
    if words.len() > max {
        return Err(excess.to_owned());
    }
    let nothing = matches!(words, [word] if word.is_empty());
    Ok(Value::Words(if nothing {
        Vec::new()
    } else {
        words.to_vec()
    }))
}

fn parse_save_points(
    words: &[Vec<u8>],
    current: &Value,
    gathering: Gathering,
) -> Result<Value, String> {
    let invalid = || "Invalid save parameters".to_owned();
    if matches!(words, [word] if word.is_empty()) {
        return Ok(Value::SavePoints(Vec::new()));
    }
    let mut points = match (gathering, current) {
        (Gathering::Onto, Value::SavePoints(points)) => points.clone(),
        _ => Vec::new(),
    };
    let (pairs, rest) = words.as_chunks::<2>();
    for [seconds, changes] in pairs {
        let seconds = unsigned(seconds)
            .filter(|&seconds| seconds > 0)
            .ok_or_else(invalid)?;
        points.push((seconds, unsigned(changes).ok_or_else(invalid)?));
    }
    if rest.is_empty() {
        Ok(Value::SavePoints(points))
    } else {
        Err(invalid())
    }
}

fn parse_output_limits(words: &[Vec<u8>], current: &Value) -> Result<Value, String> {
    let (groups, rest) = words.as_chunks::<4>();
    if !rest.is_empty() {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
    }
    let mut limits = match current {
        Value::OutputLimits(limits) => *limits,
        _ => OutputLimits::default(),
    };
    for [class, hard, soft, seconds] in groups {
        let limit = limit_of(&mut limits, class)
            .ok_or("Invalid client class specified in buffer limit configuration.")?;
        let number = |bytes: Option<i128>| bytes.and_then(|bytes| u64::try_from(bytes).ok());
        let (Some(hard_bytes), Some(soft_bytes), Some(soft_s)) = (
            number(memory(hard)),
            number(memory(soft)),
            unsigned(seconds),
        ) else {
            return Err(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration."
                    .to_owned(),
            );
        };
        *limit = OutputLimit {
            hard_bytes,
            soft_bytes,
            soft_s,
        };
    }
    Ok(Value::OutputLimits(limits))
}

fn limit_of<'a>(limits: &'a mut OutputLimits, class: &[u8]) -> Option<&'a mut OutputLimit> {
    match class.to_ascii_lowercase().as_slice() {
        b"normal" => Some(&mut limits.normal),
        b"slave" | b"replica" => Some(&mut limits.replica),
        b"pubsub" => Some(&mut limits.pubsub),
        _ => None,
    }
}

fn show_output_limits(limits: &OutputLimits) -> String {
    [
        ("normal", limits.normal),
        ("slave", limits.replica),
        ("pubsub", limits.pubsub),
    ]
    .map(|(class, limit)| {
        let OutputLimit {
            hard_bytes,
            soft_bytes,
            soft_s,
        } = limit;
        format!("{class} {hard_bytes} {soft_bytes} {soft_s}")
    })
    .join(" ")
}

fn write_output_limits(limits: &OutputLimits) -> Vec<Vec<u8>> {
    [
        ("normal", limits.normal),
        ("replica", limits.replica),
        ("pubsub", limits.pubsub),
    ]
    .map(|(class, limit)| {
        let hard = memory_text(i128::from(limit.hard_bytes));
        let soft = memory_text(i128::from(limit.soft_bytes));
        format!("{class} {hard} {soft} {}", limit.soft_s).into_bytes()
    })
    .to_vec()
}

/// Parses a decimal number without plus sign, leading zeros or blanks.
fn decimal(word: &[u8]) -> Option<i128> {
    base::number::parse_i64(word).map(i128::from)
}

fn unsigned(word: &[u8]) -> Option<u64> {
    let number: i64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    u64::try_from(number).ok()
}

fn octal(word: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(word).ok()?;
    i64::from_str_radix(text, 8).ok().map(i128::from)
}

/// Parses a number of bytes with an optional unit.
fn memory(word: &[u8]) -> Option<i128> {
    memory_size::parse(word).map(i128::from)
}

/// Writes a number of bytes in the largest unit that divides it.
fn memory_text(bytes: i128) -> String {
    for (unit, name) in [(1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")] {
        if bytes != 0 && bytes % unit == 0 {
            return format!("{}{name}", bytes / unit);
        }
    }
    bytes.to_string()
}
