//! The text of `--help`.

use crate::catalogue;

/// What `--help` prints.
#[must_use]
pub fn usage() -> String {
    format!("{USAGE}\nTests: {}\n", catalogue::names())
}

const USAGE: &str = "\
Usage: iolite bench [OPTIONS] [COMMAND ARGS...]     measure a server
       iolite bench --compare A=host:port B=host:port [OPTIONS]
       iolite bench suite [OPTIONS]                 the published workloads, (a) to (m) and more
       iolite bench report FILES... [-o PAGE.html]  a page of what --json wrote

The server
  -h HOST  -p PORT  -s SOCKET  -u URI     where it is (127.0.0.1:6379)
  -a PASSWORD  --user NAME  --dbnum N  -3 how to enter; -3 for RESP3
  --tls  --cacert FILE  --cacertdir DIR  --insecure  --sni NAME  --cert FILE  --key FILE
  --tls-ciphers LIST  --tls-ciphersuites LIST     encrypted connections, as redis-benchmark has them
  --server-pid PID     its process, for processor time and memory; found by itself on this machine
  --compare NAME=ADDRESS ...   several in turns; ratios are to the first
  --start NAME='COMMAND' ...   as --compare, with servers started for the run ({port} is replaced)
  --server-cpus LIST   where started servers run, as taskset takes it
  --rounds N           turns of each server in a comparison (5)
  --flush              allow what deletes the server's data

The load
  -c N  -P N  --threads N   connections (50), requests sent at once (1), threads (1); lists such as
                       -P 1,16,100 measure each
  --cpus LIST          processors the threads are pinned to
  -t NAMES             tests, each measured alone
  --ratio S:G          SET and GET together
  --mix get=8,set=2    tests together, by their shares
  COMMAND ARGS...      one request; __key__, __rand_int__ and __data__ are replaced
  -d BYTES             length of values (3); 50-149 for any between
  -I                   open connections, send nothing

The keys
  -r N                 how many (1)
  --key-bytes N        their length (16)
  --zipf S  --sequential    how they are chosen, if not all with the same chance
  --preload            set all keys before measuring
  --seed N             what random choices follow from

The time
  -n N                 requests (100000); K, M and G are understood
  --duration S         seconds, instead of a count
  --warmup S           seconds before measuring
  --rate N             requests a second whatever the server does; latencies count from when a
                       request was due (no coordinated omission); 50% of the first server's most
  --poisson            with --rate, pauses are random
  -l                   start over at the end

The output
  -q  --csv            as redis-benchmark prints it
  --precision N        digits of -q's latencies (3)
  --json FILE          all measurements, for report; - for standard output
  --no-progress        no line that shows how it goes

The suite
  --only a,b,...       some of the workloads; 'types' for those of lists, hashes, sets and so on
  --keys-max N         no key space above this
";
