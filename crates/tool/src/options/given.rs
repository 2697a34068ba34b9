//! The given options and their parsed values. An option is identified by its name on the command
//! line, so that messages can name it.

use std::str::FromStr;
use std::time::Duration;

use clap::ArgMatches;

use crate::error::BenchError;

/// See the module.
pub(crate) struct Given<'m>(pub(crate) &'m ArgMatches);

/// Names with their values.
type Pairs = Vec<(String, String)>;

impl Given<'_> {
    /// Whether a flag was given.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.0.get_flag(flag)
    }

    /// Returns the value of an option.
    pub(crate) fn text(&self, flag: &str) -> Option<&str> {
        self.0.get_one::<String>(flag).map(String::as_str)
    }

    /// Returns all values of an option.
    pub(crate) fn all(&self, flag: &str) -> impl Iterator<Item = &str> {
        let values = self.0.try_get_many::<String>(flag).ok().flatten();
        values.unwrap_or_default().map(String::as_str)
    }

    pub(crate) fn number<N: FromStr>(&self, flag: &str) -> Result<Option<N>, BenchError> {
        let read = |text: &str| {
            text.parse()
                .map_err(|_| BenchError::Usage(format!("{flag}: '{text}' is not a number")))
        };
        self.text(flag).map(read).transpose()
    }

    /// Parses an integer above 0.
    pub(crate) fn positive(&self, flag: &str) -> Result<Option<usize>, BenchError> {
        self.text(flag).map(|text| positive(flag, text)).transpose()
    }

    /// Parses a list such as `1,10,100`.
    pub(crate) fn positive_list(&self, flag: &str) -> Result<Option<Vec<usize>>, BenchError> {
        let list = |text: &str| text.split(',').map(|part| positive(flag, part)).collect();
        self.text(flag).map(list).transpose()
    }

    /// Parses a number that is not negative.
    pub(crate) fn amount(&self, flag: &str) -> Result<Option<f64>, BenchError> {
        let read = |text: &str| {
            let number = text.parse().ok();
            let number = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
            number.ok_or_else(|| BenchError::Usage(format!("{flag}: '{text}' is not an amount")))
        };
        self.text(flag).map(read).transpose()
    }

    pub(crate) fn seconds(&self, flag: &str) -> Result<Option<Duration>, BenchError> {
        let time = |seconds| {
            Duration::try_from_secs_f64(seconds)
                .map_err(|_| BenchError::Usage(format!("{flag}: {seconds} is too long")))
        };
        self.amount(flag)?.map(time).transpose()
    }

    /// Parses `NAME=VALUE` words, at least one, up to the first other word. Also returns the words
    /// from there on: they are the request that is measured.
    pub(crate) fn pairs(&self, flag: &str) -> Result<(Pairs, Vec<String>), BenchError> {
        let mut words = self.all(flag).peekable();
        let is_given = words.peek().is_some();
        let mut pairs = Vec::new();
        while let Some((name, value)) = words.peek().and_then(|word| word.split_once('=')) {
            pairs.push((name.to_owned(), value.to_owned()));
            words.next();
        }
        if is_given && pairs.is_empty() {
            return Err(BenchError::Usage(format!("{flag} needs NAME=VALUE")));
        }
        Ok((pairs, words.map(str::to_owned).collect()))
    }
}

fn positive(flag: &str, text: &str) -> Result<usize, BenchError> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| BenchError::Usage(format!("{flag}: '{text}' is not a number above 0")))
}
