//! The C library that a program needs: the newest version that one of its symbols names.

use std::path::Path;
use std::process::Command;

use super::files::{Outcome, output};
use super::target::Target;

/// Returns the version.
pub(super) fn needed(target: Target, program: &Path) -> Outcome<(u32, u32)> {
    let symbols = output(Command::new(target.tool("objdump")).arg("-T").arg(program))?;
    newest(&symbols).ok_or_else(|| format!("{}: no symbol of the C library", program.display()))
}

/// Returns the version as text.
pub(super) fn needed_text(target: Target, program: &Path) -> Outcome<String> {
    needed(target, program).map(|(major, minor)| format!("{major}.{minor}"))
}

/// Returns the newest version in a list of symbols.
fn newest(symbols: &str) -> Option<(u32, u32)> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|one: char| !one.is_ascii_digit() && one != '.');
        let mut numbers = rest[..end.unwrap_or(rest.len())].split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    });
    versions.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_counts_as_numbers_do() {
        let symbols = "0 DF *UND* 0 (GLIBC_2.9) open\n0 DF *UND* 0 (GLIBC_2.34) read\n\
            0 DF *UND* 0 (GLIBC_2.2.5) write\n0 DF *UND* 0 (GCC_3.0) unwind\n";
        assert_eq!(newest(symbols), Some((2, 34)));
        assert_eq!(newest("0 DF *UND* 0 (GLIBC_PRIVATE) other\n"), None);
    }
}
