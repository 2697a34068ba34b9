//! `--latency-dist`: the latency of PING as a spectrum. Each line is a second. Each sign in it is a
//! span of latencies, and its colour shows how many of the second's PINGs fell into it.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};

use super::options::Options;
use super::out::written;
use crate::error::BenchError;

/// Duration of a line without `-i`.
const LINE_SPAN: Duration = Duration::from_secs(1);
/// Number of lines between two legends.
const LINES_PER_LEGEND: u32 = 36;

/// Signs, and the longest latency of each, in microseconds. The last has no limit.
const SPANS: [(char, u64); 30] = [
    ('.', 10),
    ('-', 125),
    ('*', 250),
    ('#', 500),
    ('1', 1_000),
    ('2', 2_000),
    ('3', 3_000),
    ('4', 4_000),
    ('5', 5_000),
    ('6', 6_000),
    ('7', 7_000),
    ('8', 8_000),
    ('9', 9_000),
    ('A', 10_000),
    ('B', 20_000),
    ('C', 30_000),
    ('D', 40_000),
    ('E', 50_000),
    ('F', 100_000),
    ('G', 200_000),
    ('H', 300_000),
    ('I', 400_000),
    ('J', 500_000),
    ('K', 1_000_000),
    ('L', 2_000_000),
    ('M', 4_000_000),
    ('N', 8_000_000),
    ('O', 16_000_000),
    ('P', 30_000_000),
    ('Q', 60_000_000),
];
const BEYOND: char = '?';

/// From none to all of a line, in the 256 colours of a terminal: greys, yellows, red.
const COLOURS: [u8; 19] = [
    0, 233, 234, 235, 237, 239, 241, 243, 245, 247, 144, 143, 142, 184, 226, 214, 208, 202, 196,
];

const RULE: &str = "---------------------------------------------\n";
const LEGEND: &str = "\
. - * #          .01 .125 .25 .5 milliseconds
1,2,3,...,9      from 1 to 9     milliseconds
A,B,C,D,E        10,20,30,40,50  milliseconds
F,G,H,I,J        .1,.2,.3,.4,.5       seconds
K,L,M,N,O,P,Q,?  1,2,4,8,16,30,60,>60 seconds
From 0 to 100%: ";

/// Shows lines until the process ends.
pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), BenchError> {
    let span = match options.pause {
        Duration::ZERO => LINE_SPAN,
        pause => pause,
    };
    let mut session = options.endpoint.connect()?;
    let clock = SystemClock::new();
    let mut lines = 0;
    loop {
        if lines % LINES_PER_LEGEND == 0 {
            written(out.write_all(legend().as_bytes()))?;
        }
        let begin_ns = clock.monotonic_ns();
        let mut counts = [0_u64; SPANS.len() + 1];
        loop {
            let sent_ns = clock.monotonic_ns();
            session.demand("PING", &["PING"])?;
            let now_ns = clock.monotonic_ns();
            counts[span_of((now_ns - sent_ns) / 1_000)] += 1;
            if Duration::from_nanos(now_ns - begin_ns) >= span {
                break;
            }
            std::thread::sleep(super::watch::PING_PAUSE);
        }
        let line = line(&counts);
        written(out.write_all(line.as_bytes()).and_then(|()| out.flush()))?;
        lines += 1;
    }
}

/// Returns the index of a latency's sign.
fn span_of(latency_us: u64) -> usize {
    SPANS.partition_point(|(_, longest_us)| *longest_us < latency_us)
}

/// Returns the colour of a part of the whole.
fn colour(count: u64, total: u64) -> u8 {
    let last = COLOURS.len() as u64 - 1;
    // Any count at all differs from zero.
    let at = (count * last).div_ceil(total.max(1)).min(last);
    COLOURS[usize::try_from(at).unwrap_or(0)]
}

fn line(counts: &[u64; SPANS.len() + 1]) -> String {
    let total = counts.iter().sum();
    // Signs are black, so that signs without counts are invisible.
    let mut text = "\x1b[38;5;0m".to_owned();
    let signs = SPANS.iter().map(|(sign, _)| *sign).chain([BEYOND]);
    for (sign, count) in signs.zip(counts) {
        // Writing to a string does not fail.
        let _written = write!(text, "\x1b[48;5;{}m{sign}", colour(*count, total));
    }
    text.push_str("\x1b[0m\n");
    text
}

fn legend() -> String {
    let colours: String = COLOURS
        .iter()
        .map(|colour| format!("\x1b[48;5;{colour}m "))
        .collect();
    format!("{RULE}{LEGEND}{colours}\x1b[0m\n{RULE}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_counted_at_the_first_sign_that_is_long_enough() {
        let sign = |latency_us| match SPANS.get(span_of(latency_us)) {
            Some((sign, _)) => *sign,
            None => BEYOND,
        };
        let signs = [0, 10, 11, 125, 900, 1_001, 9_500, 60_000_000, 60_000_001].map(sign);
        assert_eq!(signs, ['.', '.', '-', '-', '1', '2', 'A', 'Q', '?']);
    }

    #[test]
    fn colours_tell_how_many() {
        assert_eq!(colour(0, 100), 0);
        assert_eq!(colour(1, 1_000_000), 233);
        assert_eq!(colour(100, 100), 196);
        assert_eq!(colour(0, 0), 0);
    }
}
