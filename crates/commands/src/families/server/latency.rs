//! LATENCY: slow events and when they happened (the latency monitor), and run times of commands
//! (HISTOGRAM).

use std::fmt::Write as _;

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::histogram::Histogram;
use engine::observer::{Sample, Series};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use engine::table::{CommandIndex, Table};
use protocol::Reply;

use crate::help;

const MEMBER: CommandSpec = CommandSpec {
    arity: Arity::Exactly(2),
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE),
    group: Group::Server,
    since: "2.8.13",
    complexity: "O(1)",
    tips: &[
        "nondeterministic_output",
        "request_policy:all_nodes",
        "response_policy:special",
    ],
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "LATENCY",
    arity: Arity::AtLeast(2),
    group: Group::Server,
    since: "2.8.13",
    summary: "Shows what took long, and how long commands take.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        CommandSpec {
            name: "DOCTOR",
            summary: "Says in words what took long and what may help.",
            handler: |context, _args, reply| {
                reply.verbatim("txt", diagnosis(context).as_bytes());
                Ok(())
            },
            ..MEMBER
        },
        CommandSpec {
            name: "GRAPH",
            arity: Arity::Exactly(3),
            summary: "Draws how long an event took over time.",
            syntax: "event",
            handler: graph,
            ..MEMBER
        },
        CommandSpec {
            name: "HISTOGRAM",
            arity: Arity::AtLeast(2),
            since: "7.0.0",
            summary: "Gives how many calls of a command took how long.",
            complexity: "O(N) where N is the number of commands with latency information being \
                         retrieved.",
            syntax: "[command [command ...]]",
            handler: histogram,
            ..MEMBER
        },
        CommandSpec {
            name: "HISTORY",
            arity: Arity::Exactly(3),
            summary: "Gives when an event took long, and how long.",
            syntax: "event",
            handler: history,
            ..MEMBER
        },
        CommandSpec {
            name: "LATEST",
            summary: "Gives the latest time that each event took long.",
            handler: latest,
            ..MEMBER
        },
        CommandSpec {
            name: "RESET",
            arity: Arity::AtLeast(2),
            summary: "Forgets events, all or some.",
            syntax: "[event [event ...]]",
            tips: &["request_policy:all_nodes", "response_policy:agg_sum"],
            handler: |context, args, reply| {
                let names: Vec<&[u8]> = args.collect();
                reply.count(context.shared.observer.events().reset(&names));
                Ok(())
            },
            ..MEMBER
        },
        CommandSpec::help(Group::Server, "2.8.13", |_context, _args, reply| {
            help::write(reply, "LATENCY", HELP)
        }),
    ],
    ..CommandSpec::BLANK
}];

const HELP: &[&str] = &[
    "DOCTOR",
    "    Return a human readable latency analysis report.",
    "GRAPH <event>",
    "    Return an ASCII latency graph for the <event> class.",
    "HISTORY <event>",
    "    Return time-latency samples for the <event> class.",
    "LATEST",
    "    Return the latest latency samples for all events.",
    "RESET [<event> ...]",
    "    Reset latency data of one or more <event> classes.",
    "    (default: reset all data for all event classes)",
    "HISTOGRAM [COMMAND ...]",
    "    Return a cumulative distribution of latencies in the format of a histogram for the \
     specified command names.",
    "    If no commands are specified then all histograms are replied.",
];

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn history(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let event = args.bytes()?;
    let events = context.shared.observer.events();
    let Some((_, series)) = events.named(event) else {
        reply.array(0);
        return Ok(());
    };
    reply.array(series.samples.len());
    for sample in &series.samples {
        reply.array(2);
        reply.integer(integer(sample.unix_s));
        reply.integer(integer(sample.ms));
    }
    Ok(())
}

fn latest(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let events = context.shared.observer.events();
    let latest = events.latest();
    reply.array(latest.len());
    for (name, last, series) in latest {
        reply.array(4);
        reply.bulk_str(name);
        reply.integer(integer(last.unix_s));
        reply.integer(integer(last.ms));
        reply.integer(integer(series.worst_ms));
    }
    Ok(())
}

/// Maximum number of columns of a graph.
const COLUMNS_MAX: usize = 80;
/// Number of rows of a graph.
const ROWS: u64 = 4;

fn graph(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let event = args.bytes()?;
    let events = context.shared.observer.events();
    let Some((name, series)) = events.named(event) else {
        let mut text = b"ERR No samples available for event '".to_vec();
        text.extend_from_slice(event);
        text.push(b'\'');
        return Err(CommandError::Bytes(text));
    };
    let text = drawn(name, series, context.now_unix_ms / 1000);
    reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// Draws one column per sample, the newest on the right: a bar with the height of its time, and
/// below it the sample's age.
fn drawn(name: &str, series: &Series, now_unix_s: u64) -> String {
    let skipped = series.samples.len().saturating_sub(COLUMNS_MAX);
    let samples: Vec<Sample> = series.samples.iter().skip(skipped).copied().collect();
    let high_ms = samples.iter().map(|sample| sample.ms).max().unwrap_or(0);
    let low_ms = samples.iter().map(|sample| sample.ms).min().unwrap_or(0);
    let mut text = format!(
        "{name} - high {high_ms} ms, low {low_ms} ms (all time high {} ms)\n",
        series.worst_ms
    );
    text.push_str(&"-".repeat(COLUMNS_MAX));
    text.push('\n');
    let span_ms = (high_ms - low_ms).max(1);
    for row in (0..ROWS).rev() {
        let bar = |sample: &Sample| {
            let height = (sample.ms - low_ms).saturating_mul(ROWS - 1) / span_ms;
            match height.cmp(&row) {
                std::cmp::Ordering::Greater => '|',
                std::cmp::Ordering::Equal if row == 0 => '_',
                std::cmp::Ordering::Equal => '#',
                std::cmp::Ordering::Less => ' ',
            }
        };
        text.extend(samples.iter().map(bar));
        text.push('\n');
    }
    text.push('\n');
    let ages: Vec<Vec<u8>> = samples
        .iter()
        .map(|sample| age(now_unix_s.saturating_sub(sample.unix_s)).into_bytes())
        .collect();
    let longest = ages.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..longest {
        let letter = |age: &Vec<u8>| char::from(age.get(line).copied().unwrap_or(b' '));
        text.extend(ages.iter().map(letter));
        text.push('\n');
    }
    text
}

/// Returns a time span in its largest unit.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns the text of LATENCY DOCTOR.
fn diagnosis(context: &Context<'_>) -> String {
    let observer = &context.shared.observer;
    let events = observer.events();
    let latest = events.latest();
    if latest.is_empty() && observer.event_ms() == 0 {
        return "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this server. \
                You may use \"CONFIG SET latency-monitor-threshold <milliseconds>.\" in order to \
                enable it.\n"
            .to_owned();
    }
    if latest.is_empty() {
        return "Dave, no latency spike was observed during the lifetime of this server, not in \
                the slightest bit. Nothing has to be done.\n"
            .to_owned();
    }
    let mut text =
        "Dave, I have observed latency spikes in this server. Their worst, by event:\n\n"
            .to_owned();
    for (number, (name, _, series)) in latest.iter().enumerate() {
        let count = series.samples.len() as u64;
        let sum_ms: u64 = series.samples.iter().map(|sample| sample.ms).sum();
        let average_ms = sum_ms.checked_div(count).unwrap_or(0);
        let worst_ms = series.worst_ms;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{}. {name}: {count} latency spikes (average {average_ms}ms). Worst all time event \
             {worst_ms}ms.",
            number + 1
        );
    }
    text.push_str(ADVICE);
    text
}

const ADVICE: &str = "
I have a few advices for you:

- Check which commands took long with SLOWLOG GET; CONFIG SET slowlog-log-slower-than <microseconds> says from when on they are kept.
- Deleting, expiring or evicting large values takes time; HOTKEYS BIG shows which ones there are.
- Commands called fast that took long were kept from running: look for other programs on this machine, or for a lack of memory.
";

fn histogram(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let latencies = context.server.latencies();
    let mut wanted: Vec<(CommandIndex, &Histogram)> = Vec::new();
    if args.remaining() == 0 {
        wanted.extend(
            latencies
                .0
                .iter()
                .map(|(index, histogram)| (*index, histogram)),
        );
    }
    for name in args {
        for index in indexes_of(context.table, name) {
            if let Some(histogram) = latencies.0.get(&index) {
                wanted.push((index, histogram));
            }
        }
    }
    reply.map(wanted.len());
    for (index, histogram) in wanted {
        reply.bulk_str(context.table.full_name(index).unwrap_or_default());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(integer(histogram.count()));
        reply.bulk(b"histogram_usec");
        write_distribution(reply, histogram);
    }
    Ok(())
}

/// Returns the rows that a name means: one, or a container's row with its subcommands.
fn indexes_of(table: &Table, name: &[u8]) -> Vec<CommandIndex> {
    let mut parts = name.splitn(2, |byte| *byte == b'|');
    let Some(found) = parts.next().and_then(|name| table.find(name)) else {
        return Vec::new();
    };
    let container = (found.index, found.spec);
    let subcommand = |word: &[u8]| Some(table.find_subcommand(container, word)?.0);
    if let Some(word) = parts.next() {
        return subcommand(word).into_iter().collect();
    }
    let subcommands = found.spec.subcommands.iter();
    let subcommands = subcommands.filter_map(|spec| subcommand(spec.name.as_bytes()));
    [found.index].into_iter().chain(subcommands).collect()
}

/// Exponent of the first limit of a distribution: a power of two of nanoseconds.
const FIRST_BITS: u32 = 10;
/// Exponent of the last limit: half a minute.
const LAST_BITS: u32 = 35;

/// Writes how many commands took at most a number of microseconds, from the first limit with any
/// commands to the first limit with all of them.
fn write_distribution(reply: &mut Reply<'_>, histogram: &Histogram) {
    let slot = reply.begin_map();
    let (mut limits, mut before) = (0, 0);
    let all = histogram.count();
    for bits in FIRST_BITS..=LAST_BITS {
        let count = if bits == LAST_BITS {
            all
        } else {
            histogram.shorter_than(bits)
        };
        if count > before {
            // As wide as the cells of Redis' histograms: a 128th part.
            let us = ((1_u64 << bits) + (1_u64 << (bits - 7)) - 1) / 1000;
            reply.integer(integer(us));
            reply.integer(integer(count));
            limits += 1;
        }
        before = count;
        if count == all {
            break;
        }
    }
    reply.end_map(slot, limits);
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use engine::observer::Thresholds;
    use testkit::engine_server::{START_UNIX_MS, TestServer};

    fn watched() -> TestServer {
        let server = TestServer::with_debug();
        server.shared.observer.set_thresholds(&Thresholds {
            event_ms: 20,
            ..Thresholds::default()
        });
        server
    }

    #[test]
    fn events_are_kept_by_the_second() {
        let mut server = watched();
        assert!(server.text("LATENCY DOCTOR").contains("no latency spike"));
        for seconds in ["0.019", "0.02", "0.5", "0.7"] {
            server.run(&format!("DEBUG SLEEP {seconds}"));
        }
        let start = i64::try_from(START_UNIX_MS / 1000).unwrap();
        let pair = |at: i64, ms| Value::Array(vec![Value::Integer(start + at), Value::Integer(ms)]);
        let history = server.run("LATENCY HISTORY command");
        assert_eq!(history, Value::Array(vec![pair(0, 500), pair(1, 700)]));
        let Value::Array(latest) = server.run("LATENCY LATEST") else {
            panic!();
        };
        assert_eq!(latest.len(), 1);
        assert_eq!(server.run("LATENCY HISTORY nothing"), Value::Array(vec![]));
        let graph = server.text("LATENCY GRAPH command");
        assert!(graph.starts_with("command - high 700 ms, low 500 ms (all time high 700 ms)\n"));
        assert!(server.text("LATENCY DOCTOR").contains("command: 2 latency"));
        assert_eq!(server.integer("LATENCY RESET fast-command"), 0);
        assert_eq!(server.integer("LATENCY RESET"), 1);
        assert!(server.error("LATENCY GRAPH command").contains("No samples"));
    }

    #[test]
    fn without_a_threshold_nothing_is_kept() {
        let mut server = TestServer::with_debug();
        server.run("DEBUG SLEEP 5");
        assert_eq!(server.run("LATENCY LATEST"), Value::Array(vec![]));
        assert!(server.text("LATENCY DOCTOR").contains("is disabled"));
    }
}
