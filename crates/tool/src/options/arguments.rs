//! The words of a command line, taken one by one.

use std::collections::VecDeque;
use std::str::FromStr;
use std::time::Duration;

use crate::error::BenchError;

/// Words not yet taken.
#[derive(Debug)]
pub(super) struct Arguments {
    words: VecDeque<String>,
}

impl Arguments {
    /// `--flag=value` becomes two words; a value of `-` stands for itself.
    pub(super) fn new(words: Vec<String>) -> Self {
        Self {
            words: words.into(),
        }
    }

    pub(super) fn peek(&self) -> Option<&str> {
        self.words.front().map(String::as_str)
    }

    pub(super) fn skip(&mut self) {
        self.words.pop_front();
    }

    /// The next word; of `--flag=value` the flag, and its value after that.
    pub(super) fn next(&mut self) -> Option<String> {
        let word = self.words.pop_front()?;
        if word.starts_with("--")
            && let Some((flag, value)) = word.split_once('=')
        {
            self.words.push_front(value.to_owned());
            return Some(flag.to_owned());
        }
        Some(word)
    }

    /// `first` and all words that are left.
    pub(super) fn rest(&mut self, first: String) -> Vec<String> {
        let mut words = vec![first];
        words.extend(self.words.drain(..));
        words
    }

    /// The value of `flag`.
    pub(super) fn value(&mut self, flag: &str) -> Result<String, BenchError> {
        self.words
            .pop_front()
            .ok_or_else(|| BenchError::Usage(format!("{flag} needs a value")))
    }

    pub(super) fn number<N: FromStr>(&mut self, flag: &str) -> Result<N, BenchError> {
        let text = self.value(flag)?;
        text.parse()
            .map_err(|_| BenchError::Usage(format!("{flag}: '{text}' is not a number")))
    }

    /// A whole number above 0.
    pub(super) fn positive(&mut self, flag: &str) -> Result<usize, BenchError> {
        let text = self.value(flag)?;
        positive(flag, &text)
    }

    /// `1,10,100`.
    pub(super) fn positive_list(&mut self, flag: &str) -> Result<Vec<usize>, BenchError> {
        let text = self.value(flag)?;
        text.split(',').map(|part| positive(flag, part)).collect()
    }

    /// A number not below 0.
    pub(super) fn amount(&mut self, flag: &str) -> Result<f64, BenchError> {
        let text = self.value(flag)?;
        let number = text
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| BenchError::Usage(format!("{flag}: '{text}' is not an amount")))
    }

    pub(super) fn seconds(&mut self, flag: &str) -> Result<Duration, BenchError> {
        let seconds = self.amount(flag)?;
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| BenchError::Usage(format!("{flag}: {seconds} is too long")))
    }

    /// `NAME=VALUE` words up to the next that is none, one at least.
    pub(super) fn pairs(&mut self, flag: &str) -> Result<Vec<(String, String)>, BenchError> {
        let mut pairs = Vec::new();
        while let Some(word) = self.peek()
            && !word.starts_with('-')
            && let Some((name, value)) = word.split_once('=')
        {
            pairs.push((name.to_owned(), value.to_owned()));
            self.skip();
        }
        match pairs.is_empty() {
            true => Err(BenchError::Usage(format!("{flag} needs NAME=VALUE"))),
            false => Ok(pairs),
        }
    }
}

fn positive(flag: &str, text: &str) -> Result<usize, BenchError> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| BenchError::Usage(format!("{flag}: '{text}' is not a number above 0")))
}
