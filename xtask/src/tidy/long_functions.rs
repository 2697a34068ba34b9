//! Long functions: no function may grow past 70 lines, and longer ones may not grow at all.
//!
//! `xtask/long-functions.txt` has the lengths of the long functions, one `LINES FILE NAME` per
//! line. `cargo xtask tidy --accept` writes it again. Lengths are those of formatted code, from the
//! line with `fn` to the closing brace in the same column.

use std::fmt::Write;
use std::io;
use std::path::Path;

use super::sources::Source;

/// Maximum number of lines of a function that is not recorded.
const LINES_MAX: usize = 70;
/// File that records the longer ones.
const ACCEPTED: &str = "xtask/long-functions.txt";

struct Function<'a> {
    path: &'a str,
    name: &'a str,
    line: usize,
    lines_count: usize,
}

pub(super) fn faults(root: &Path, sources: &[Source]) -> Vec<String> {
    let accepted = std::fs::read_to_string(root.join(ACCEPTED)).unwrap_or_default();
    let long = sources.iter().flat_map(functions);
    let long = long.filter(|function| function.lines_count > allowed(&accepted, function));
    long.map(|function| {
        let Function {
            path,
            name,
            line,
            lines_count,
        } = function;
        format!("{path}:{line}: {name} has grown to {lines_count} lines")
    })
    .collect()
}

pub(super) fn accept(root: &Path, sources: &[Source]) -> io::Result<()> {
    let mut text = String::new();
    let long = sources.iter().flat_map(functions);
    for function in long.filter(|function| function.lines_count > LINES_MAX) {
        let Function {
            path,
            name,
            lines_count,
            ..
        } = function;
        writeln!(text, "{lines_count} {path} {name}").map_err(io::Error::other)?;
    }
    std::fs::write(root.join(ACCEPTED), text)
}

/// Returns the number of lines that this function may have.
fn allowed(accepted: &str, function: &Function<'_>) -> usize {
    let lengths = accepted.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let lines_count: usize = words.next()?.parse().ok()?;
        let is_meant = words.next() == Some(function.path) && words.next() == Some(function.name);
        is_meant.then_some(lines_count)
    });
    lengths.max().unwrap_or(0).max(LINES_MAX)
}

fn functions(source: &Source) -> Vec<Function<'_>> {
    let mut functions = Vec::new();
    if !source.is_rust() {
        return functions;
    }
    // The functions that are still open: column, line and name.
    let mut open: Vec<(usize, usize, &str)> = Vec::new();
    for (number, line) in source.lines() {
        let column = line.len() - line.trim_start().len();
        let code = line.trim_start();
        if let Some(name) = function_name(code) {
            open.push((column, number, name));
        }
        // A function without a body ends where its declaration ends.
        let is_end = code.starts_with('}') || code.ends_with(';');
        if is_end
            && open.last().is_some_and(|(begin, ..)| *begin == column)
            && let Some((_, begin, name)) = open.pop()
        {
            functions.push(Function {
                path: &source.path,
                name,
                line: begin,
                lines_count: number - begin + 1,
            });
        }
    }
    functions
}

/// Returns the name if a line of formatted code begins a function.
fn function_name(code: &str) -> Option<&str> {
    const BEFORE: &[&str] = &["pub", "const", "async", "unsafe", "extern", "\"C\""];
    let (before, after) = code.split_once("fn ")?;
    let mut words = before.split_whitespace();
    let is_declaration = words.all(|word| BEFORE.contains(&word) || word.starts_with("pub("));
    let is_apart = before.is_empty() || before.ends_with(' ');
    // A function on one line has no length to measure.
    let is_short = code.ends_with('}');
    if !is_declaration || !is_apart || is_short {
        return None;
    }
    after.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(text: &str) -> Vec<(String, usize)> {
        let source = Source {
            path: "a.rs".to_owned(),
            text: text.to_owned(),
        };
        let found = functions(&source);
        found
            .iter()
            .map(|function| (function.name.to_owned(), function.lines_count))
            .collect()
    }

    #[test]
    fn functions_are_measured() {
        let text = "\
pub(crate) fn outer(a: u8) -> u8 {
    fn inner<T>(b: T) {
        b
    }
    if a {
        a
    }
}
trait T {
    fn declared(&self);
    fn short(&self) {}
    fn body(&self)
    where
        Self: Sized,
    {
        1
    }
}
";
        let expected = [("inner", 3), ("outer", 8), ("declared", 1), ("body", 6)];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(lengths(text), expected);
    }

    #[test]
    fn accepted_lengths_are_a_limit_too() {
        let function = Function {
            path: "a.rs",
            name: "f",
            line: 1,
            lines_count: 90,
        };
        assert_eq!(allowed("80 a.rs f\n", &function), 80);
        assert_eq!(allowed("80 a.rs g\n80 b.rs f\n", &function), LINES_MAX);
    }
}
