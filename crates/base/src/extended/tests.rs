//! Tests of 80-bit numbers against texts of the C library.

use super::*;
use crate::random::Prng;
use std::io::Write;
use std::process::{Command, Stdio};

fn parsed(text: &str) -> Extended {
    Extended::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text} is a number"))
}

fn sum(one: &str, other: &str) -> String {
    (parsed(one) + parsed(other)).to_string()
}

#[test]
fn sums_as_the_reference_server() {
    let cases = [
        ("0", "0", "0"),
        ("3", "1.1", "4.1"),
        ("0.1", "0.2", "0.3"),
        ("10.5", "0.1", "10.6"),
        ("-0", "-0", "0"),
        ("1", "-1", "0"),
        ("5.0e3", "200", "5200"),
        ("0", "5e-18", "0"),
        ("0", "-5e-18", "0"),
        ("0", "5.1e-18", "0.00000000000000001"),
        ("0", "1e17", "100000000000000000"),
        ("0", "0x1p-3", "0.125"),
        (
            "0",
            "1.23456789012345678901234567890",
            "1.23456789012345679",
        ),
        ("9223372036854775807", "1", "9223372036854775808"),
        ("18446744073709551615", "1", "18446744073709551616"),
        ("18446744073709551616", "1", "18446744073709551616"),
        ("18446744073709551616", "3", "18446744073709551620"),
        ("1e20", "-1e20", "0"),
        ("3e-4950", "-3e-4950", "0"),
        ("999999999999999999", "0.5", "999999999999999999.5"),
        ("1e30", "1", "1000000000000000000024696061952"),
        ("inf", "1", "inf"),
        ("-inf", "1e4932", "-inf"),
        ("1e4932", "1e4932", "inf"),
        ("inf", "-inf", "nan"),
    ];
    for (one, other, expected) in cases {
        assert_eq!(sum(one, other), expected, "{one} + {other}");
        assert_eq!(sum(other, one), expected, "{other} + {one}");
    }
}

#[test]
fn the_largest_number_is_printed_in_full() {
    let text = parsed("1e4932").to_string();
    assert_eq!(text.len(), 4933);
    assert!(text.starts_with("100000000000000000000601894938796389132383777425453311477378"));
}

#[test]
fn ends_of_the_range() {
    for text in [
        "1.18e4932",
        "1e-4950",
        "1.9e-4951",
        "0e99999999999999999999",
    ] {
        assert!(parsed(text).class != Class::Infinite, "{text}");
    }
    for text in [
        "1.19e4932",
        "1.8e-4951",
        "1e-4960",
        "1e99999999999999999999",
        "nan",
        "",
    ] {
        assert!(Extended::parse(text.as_bytes()).is_none(), "{text}");
    }
    assert!((parsed("inf") + parsed("-inf")).is_nan());
    assert!(parsed("-infinity").is_infinite());
}

#[test]
fn long_texts_are_cut_off_at_the_limit() {
    let longest = format!("1.{}", "0".repeat(TEXT_BYTES_MAX - 2));
    assert_eq!(parsed(&longest).to_string(), "1");
    assert!(Extended::parse(format!("{longest}0").as_bytes()).is_none());
}

#[test]
fn integers_are_exact() {
    for value in [0, 1, -1, i64::MAX, i64::MIN] {
        assert_eq!(Extended::from(value).to_string(), value.to_string());
    }
}

/// For two texts per line, prints what C makes of each and of their sum: the ten bytes and the
/// text.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <math.h>
static char line[16384];
static void show(long double value) {
    unsigned char bytes[16] = {0};
    char text[5200];
    memcpy(bytes, &value, 10);
    for (int i = 9; i >= 0; i--) printf("%02x", bytes[i]);
    int length = snprintf(text, sizeof text, "%.17Lf", value);
    if (strchr(text, '.')) {
        while (text[length - 1] == '0') length--;
        if (text[length - 1] == '.') length--;
    }
    if (length == 2 && !memcmp(text, "-0", 2)) { text[0] = '0'; length = 1; }
    printf(" %.*s ", length, text);
}
static int read_number(const char *text, long double *value) {
    char *end;
    errno = 0;
    *value = strtold(text, &end);
    return *end == 0 && end != text && !isnan(*value) &&
        !(errno == ERANGE && (isinf(*value) || *value == 0));
}
int main(void) {
    while (fgets(line, sizeof line, stdin)) {
        long double one, other;
        char *space = strchr(line, ' ');
        line[strcspn(line, "\n")] = 0;
        *space = 0;
        int known = read_number(line, &one), other_known = read_number(space + 1, &other);
        if (known) show(one); else printf("refused ");
        if (known && other_known) show(one + other);
        printf("\n");
    }
    return 0;
}
"#;

/// Returns what the C program prints, computed by this implementation.
fn described(one: &str, other: &str) -> String {
    let show = |value: Extended| format!("{} {value} ", hexadecimal(value));
    let (one, other) = (
        Extended::parse(one.as_bytes()),
        Extended::parse(other.as_bytes()),
    );
    let mut line = one.map_or_else(|| "refused ".to_owned(), show);
    if let (Some(one), Some(other)) = (one, other) {
        line.push_str(&show(one + other));
    }
    line
}

/// Returns the ten bytes of the hardware's format, highest first.
fn hexadecimal(value: Extended) -> String {
    let (field, mantissa) = match value.class {
        Class::Finite { mantissa, exponent } => {
            let is_normal = mantissa >> 63;
            let field = exponent - EXPONENT_MIN + i32::try_from(is_normal).unwrap();
            (u32::try_from(field).unwrap(), mantissa)
        }
        Class::Infinite => (0x7fff, 1 << 63),
        Class::NotANumber => (0x7fff, 3 << 62),
    };
    format!(
        "{:04x}{mantissa:016x}",
        field | u32::from(value.is_negative) << 15
    )
}

/// Returns texts of all kinds: short and long, near each other and near the ends of the range.
fn random_text(prng: &mut Prng) -> String {
    let sign = ["", "-", "+"][prng.index(3)];
    let digits = |prng: &mut Prng, count: u64| -> String {
        let style = prng.below(4);
        (0..count)
            .map(|_| match style {
                0 => '0',
                1 => '9',
                _ => char::from(b'0' + u8::try_from(prng.below(10)).unwrap()),
            })
            .collect()
    };
    match prng.below(12) {
        0..=2 => {
            let (whole, fraction) = (1 + prng.below(6), prng.below(6));
            format!("{sign}{}.{}", digits(prng, whole), digits(prng, fraction))
        }
        3..=5 => {
            let (whole, fraction) = (1 + prng.below(24), prng.below(24));
            format!("{sign}{}.{}", digits(prng, whole), digits(prng, fraction))
        }
        6 | 7 => {
            let (fraction, exponent) =
                (prng.below(30), i64::try_from(prng.below(80)).unwrap() - 40);
            format!(
                "{sign}{}.{}e{exponent}",
                digits(prng, 1),
                digits(prng, fraction)
            )
        }
        8 => {
            let (fraction, exponent) = (
                prng.below(40),
                i64::try_from(prng.below(10_000)).unwrap() - 5_000,
            );
            format!(
                "{sign}{}.{}e{exponent}",
                digits(prng, 2),
                digits(prng, fraction)
            )
        }
        9 => {
            let (fraction, exponent) = (prng.below(30), 4930 + prng.below(26));
            let exponent_sign = ["", "-"][prng.index(2)];
            format!(
                "{sign}{}.{}e{exponent_sign}{exponent}",
                digits(prng, 1),
                digits(prng, fraction)
            )
        }
        10 => {
            let (whole, fraction) = (1 + prng.below(900), prng.below(900));
            format!("{sign}{}.{}", digits(prng, whole), digits(prng, fraction))
        }
        _ => {
            let exponent = i64::try_from(prng.below(200)).unwrap() - 100;
            let (whole, fraction) = (prng.next_u64() >> prng.below(64), prng.next_u64());
            format!("{sign}0x{whole:x}.{fraction:x}p{exponent}")
        }
    }
}

/// Returns ties between two neighbours, exact and a little off to either side.
fn tie_text(prng: &mut Prng) -> String {
    let odd = u128::from(prng.next_u64() | 1 << 63) << 1 | 1;
    let shift = prng.below(60);
    let whole = odd << shift;
    let tail = ["", ".0000000000000000000000000000000001", "e0"][prng.index(3)];
    let nudged = if prng.below(3) == 0 { whole - 1 } else { whole };
    format!("{nudged}{tail}")
}

#[test]
fn as_the_c_compiler_and_library_have_it() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let Some(program) = compiled_program() else {
        eprintln!("skipped: there is no C compiler here");
        return;
    };
    let mut prng = Prng::seeded(80);
    let pairs: Vec<(String, String)> = (0..6_000)
        .map(|turn| match turn % 4 {
            0 => (tie_text(&mut prng), tie_text(&mut prng)),
            _ => (random_text(&mut prng), random_text(&mut prng)),
        })
        .collect();
    let mut input = String::new();
    for (one, other) in &pairs {
        input.push_str(&format!("{one} {other}\n"));
    }
    let output = piped(&program, input);
    assert_eq!(output.lines().count(), pairs.len());
    for (line, (one, other)) in output.lines().zip(&pairs) {
        assert_eq!(described(one, other), line, "{one} + {other}");
    }
}

/// Compiles the program in a directory of its own. Returns its path, or `None` if it cannot be
/// compiled.
fn compiled_program() -> Option<std::path::PathBuf> {
    let directory = std::env::temp_dir().join(format!("base-extended-{}", std::process::id()));
    std::fs::create_dir_all(&directory).ok()?;
    let (source, program) = (directory.join("oracle.c"), directory.join("oracle"));
    std::fs::write(&source, PROGRAM).ok()?;
    let status = Command::new("cc")
        .args(["-O1", "-o"])
        .args([&program, &source])
        .status()
        .ok()?;
    status.success().then_some(program)
}

fn piped(program: &std::path::Path, input: String) -> String {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let _removed = std::fs::remove_dir_all(program.parent().unwrap());
    String::from_utf8(output.stdout).unwrap()
}
