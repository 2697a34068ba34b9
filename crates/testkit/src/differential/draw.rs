//! Random words: keys from a small pool, values of every kind, numbers at their limits.
//!
//! A word must mean the same on two servers whose clocks differ slightly, and must not make them
//! allocate much memory. Therefore:
//!
//! * A relative time is at least [`TTL_SECONDS_MIN`], or not positive, so that nothing expires
//!   during a round. Relative times are spread so widely that no clock difference can reorder two
//!   of them.
//! * An absolute time is in the past or after the year 2095.
//! * An offset is small, or so large that it is refused. None lies between ten thousand and the
//!   limit of 512 MB.

use base::random::Prng;

/// The shortest positive time to live, in seconds.
const TTL_SECONDS_MIN: u64 = 100_000;
/// The longest time to live, well below [`FAR_UNIX_SECONDS`].
const TTL_SECONDS_MAX: u64 = 1_000_000_000;
/// Lower bound of the absolute times drawn, in the year 2096.
const FAR_UNIX_SECONDS: u64 = 4_000_000_000;

/// A kind of word. A form names it as `<name>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Key,
    BigKey,
    Sketch,
    BrokenSketch,
    Member,
    ZsetKey,
    GeoKey,
    Longitude,
    Latitude,
    Length,
    LexKey,
    Score,
    ScoreBound,
    LexBound,
    Value,
    BigValue,
    Text,
    Integer,
    Float,
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
    Index,
    Offset,
    BitOffset,
    Bit,
    FieldType,
    FieldOffset,
    Database,
    Glob,
    Count,
    Cursor,
    Word,
    Script,
    SortedList,
    SortedSet,
    SortedZset,
    SortElement,
    SortNumber,
    WeightKey,
    WeightHash,
    WeightPattern,
    GetPattern,
    Payload,
    StreamKey,
    NewId,
    EntryId,
    IdBound,
    ConsumerGroup,
    Consumer,
    IdleMilliseconds,
    SharedKey,
    BriefKey,
    Queue,
    Ranked,
    Log,
    Channel,
    ChannelPattern,
    Item,
    SmallScore,
    SessionId,
}

/// The kinds with the names that forms use for them.
pub(super) const KINDS: &[(&str, Kind)] = &[
    ("key", Kind::Key),
    ("bigkey", Kind::BigKey),
    ("sketch", Kind::Sketch),
    ("broken", Kind::BrokenSketch),
    ("member", Kind::Member),
    ("zkey", Kind::ZsetKey),
    ("geokey", Kind::GeoKey),
    ("longitude", Kind::Longitude),
    ("latitude", Kind::Latitude),
    ("length", Kind::Length),
    ("lexkey", Kind::LexKey),
    ("score", Kind::Score),
    ("scorebound", Kind::ScoreBound),
    ("lexbound", Kind::LexBound),
    ("value", Kind::Value),
    ("bigvalue", Kind::BigValue),
    ("text", Kind::Text),
    ("int", Kind::Integer),
    ("float", Kind::Float),
    ("s", Kind::Seconds),
    ("ms", Kind::Milliseconds),
    ("unix-s", Kind::UnixSeconds),
    ("unix-ms", Kind::UnixMilliseconds),
    ("index", Kind::Index),
    ("offset", Kind::Offset),
    ("bitoffset", Kind::BitOffset),
    ("bit", Kind::Bit),
    ("fieldtype", Kind::FieldType),
    ("fieldoffset", Kind::FieldOffset),
    ("db", Kind::Database),
    ("glob", Kind::Glob),
    ("count", Kind::Count),
    ("cursor", Kind::Cursor),
    ("word", Kind::Word),
    ("script", Kind::Script),
    ("sortlist", Kind::SortedList),
    ("sortset", Kind::SortedSet),
    ("sortzset", Kind::SortedZset),
    ("element", Kind::SortElement),
    ("sortnumber", Kind::SortNumber),
    ("weight", Kind::WeightKey),
    ("weights", Kind::WeightHash),
    ("by", Kind::WeightPattern),
    ("get", Kind::GetPattern),
    ("stream", Kind::StreamKey),
    ("newid", Kind::NewId),
    ("id", Kind::EntryId),
    ("idbound", Kind::IdBound),
    ("group", Kind::ConsumerGroup),
    ("consumer", Kind::Consumer),
    ("idle", Kind::IdleMilliseconds),
    ("payload", Kind::Payload),
    ("shared", Kind::SharedKey),
    ("brief", Kind::BriefKey),
    ("queue", Kind::Queue),
    ("ranked", Kind::Ranked),
    ("log", Kind::Log),
    ("channel", Kind::Channel),
    ("chpattern", Kind::ChannelPattern),
    ("item", Kind::Item),
    ("small", Kind::SmallScore),
    ("session", Kind::SessionId),
];

/// Most stream entries have ids of this time or of a lower one.
const STREAM_IDS: u64 = 24;

const KEYS: &[&[u8]] = &[
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"f",
    b"g",
    b"h",
    b"key:1",
    b"key:2",
    b"10",
    b"",
    b"a*b",
    b"\x00\xff\r\n",
];

/// Whole numbers at which behaviour changes: widths, signs, the pool of shared small numbers.
const LIMITS: &[&str] = &[
    "0",
    "-1",
    "1",
    "9",
    "10",
    "-10",
    "99",
    "9999",
    "10000",
    "127",
    "128",
    "255",
    "-128",
    "32767",
    "-32768",
    "65536",
    "-2147483648",
    "4294967296",
    "9223372036854775807",
    "9223372036854775806",
    "-9223372036854775808",
    "-9223372036854775807",
];

/// Texts that are not whole numbers, or not in range.
const BAD_INTEGERS: &[&str] = &[
    "",
    " 1",
    "1 ",
    "+1",
    "01",
    "-0",
    "0x10",
    "1e3",
    "abc",
    "1.0",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "--1",
    "nan",
];

const FLOATS: &[&str] = &[
    "0",
    "1",
    "-1",
    "0.1",
    "0.5",
    "-0.25",
    "1.5e3",
    "3.0",
    "1e-5",
    "123456.789",
    "-0",
    "100",
    ".5",
    "5.",
    "1e17",
    "12345678901234567",
    "0.30000000000000004",
    "-1e-9",
];

const BAD_FLOATS: &[&str] = &[
    "", "abc", " 1", "1 ", "nan", "inf", "-inf", "+1.5", "0x10", "1e", "1e5000", "1,5",
];

/// Type and body of values of every kind, in the forms of DUMP and of older versions.
const BODIES: &[&[u8]] = &[
    b"\x00\x04text",
    b"\x00\xc1\x39\x30",
    b"\x00\xc3\x05\x1e\x00a\xe0\x14\x00",
    b"\x01\x03\x01a\xc0\x05\x01b",
    b"\x02\x02\x02m1\x02m2",
    b"\x03\x02\x02m1\x031.5\x02m2\xfe",
    b"\x04\x01\x02m1\x01v",
    b"\x05\x01\x02m1\x00\x00\x00\x00\x00\x00\x04\x40",
    b"\x09\x07\x01\x01f\x01\x00v\xff",
    b"\x0a\x10\x10\x00\x00\x00\x0d\x00\x00\x00\x02\x00\x00\x01a\x03\xf6\xff",
    b"\x0b\x0c\x02\x00\x00\x00\x02\x00\x00\x00\x01\x00\x07\x00",
    b"\x0d\x10\x10\x00\x00\x00\x0d\x00\x00\x00\x02\x00\x00\x01f\x03\xf6\xff",
    b"\x10\x0c\x0c\x00\x00\x00\x02\x00\x81f\x02\x05\x01\xff",
    b"\x11\x0c\x0c\x00\x00\x00\x02\x00\x81m\x02\x05\x01\xff",
    b"\x12\x01\x02\x0c\x0c\x00\x00\x00\x02\x00\x81a\x02\x05\x01\xff",
    // Not values.
    b"\x02\x00",
    b"\x05\x01\x02m1\x00\x00\x00\x00\x00\x00\xf8\x7f",
    b"\x63\x00",
];

/// Words that fit nowhere, or anywhere. None is a small positive number, because a server might
/// take that for a time.
const JUNK: &[&[u8]] = &[
    b"",
    b"abc",
    b"-1",
    b"0",
    b"1.5",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b" ",
    b"NX",
    b"XX",
    b"GET",
    b"KEEPTTL",
    b"EX",
    b"\xff\xfe",
    b"*",
    b"\r\n",
    b"+OK",
    b"0x1",
    b"LIMIT",
    b"ANY",
];

/// The source of all randomness in a sequence.
pub(super) struct Draw {
    prng: Prng,
}

/// Scripts with one key and one argument. They test what a script can reach, and how values change
/// on their way to the script and back.
const SCRIPTS: &[&str] = &[
    "return redis.call('SET', KEYS[1], ARGV[1])",
    "return redis.call('GET', KEYS[1])",
    "return redis.pcall('INCR', KEYS[1])",
    "return redis.call('INCR', KEYS[1]) + 0.9",
    "redis.call('APPEND', KEYS[1], ARGV[1]) return redis.call('STRLEN', KEYS[1])",
    "return redis.call('LRANGE', KEYS[1], 0, -1)",
    "return redis.call('RPUSH', KEYS[1], ARGV[1], 1, 2.5)",
    "return redis.call('ZADD', KEYS[1], 1.5, ARGV[1])",
    "return redis.call('ZSCORE', KEYS[1], ARGV[1])",
    "redis.setresp(3) return redis.call('ZSCORE', KEYS[1], ARGV[1])",
    "return redis.call('HGET', KEYS[1], ARGV[1])",
    "return redis.call('EXISTS', KEYS[1], ARGV[1])",
    "redis.call('SET', ARGV[1], 'undeclared') return redis.call('GET', ARGV[1])",
    "local kind = redis.call('TYPE', KEYS[1]) return kind.ok",
    "return {KEYS[1], ARGV[1], #KEYS, #ARGV}",
    "return {1, 2.9, -2.9, 'text', false, true, {3, {}}, nil, 4}",
    "return {1, nil, 3}",
    "return redis.sha1hex(ARGV[1])",
    "return redis.error_reply('MY ' .. #ARGV[1])",
    "return redis.status_reply('GOOD ' .. #ARGV[1])",
    "return {err = 'ERR of a table'}",
    "return {double = 1.5}",
    "redis.setresp(3) return {map = {a = 1}}",
    "return #redis.call('KEYS', '*')",
    "return redis.call('NONSENSE')",
    "return redis.call('GET')",
    "for _ = 1, 10 do redis.call('LPUSH', KEYS[1], ARGV[1]) end return redis.call('LLEN', KEYS[1])",
];

impl Draw {
    pub(super) fn seeded(seed: u64) -> Self {
        Self {
            prng: Prng::seeded(seed),
        }
    }

    /// Returns `true` once in `times` calls on average.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.prng.below(times) == 0
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.prng.below(bound)
    }

    pub(super) fn index(&mut self, length: usize) -> usize {
        self.prng.index(length)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    fn pick_text(&mut self, from: &[&str]) -> Vec<u8> {
        self.pick(from).as_bytes().to_vec()
    }

    /// Returns a payload of DUMP, occasionally with a wrong checksum.
    fn payload(&mut self) -> Vec<u8> {
        let mut payload = self.pick(BODIES).to_vec();
        payload.extend_from_slice(&[10, 0]);
        let wrong = u64::from(self.once_in(16));
        let sum = base::crc::crc64(0, &payload) ^ wrong;
        payload.extend_from_slice(&sum.to_le_bytes());
        payload
    }

    pub(super) fn junk(&mut self) -> Vec<u8> {
        self.pick(JUNK).to_vec()
    }

    /// Returns a word of a kind.
    pub(super) fn word(&mut self, kind: Kind) -> Vec<u8> {
        match kind {
            Kind::Key => self.key(),
            Kind::Payload => self.payload(),
            Kind::BigKey => format!("big:{}", self.below(2)).into_bytes(),
            // No request adds elements to these sketches, because Redis adds some elements before
            // it finds that it cannot add all.
            Kind::BrokenSketch => format!("broken:{}", self.below(2)).into_bytes(),
            Kind::Sketch => format!("sketch:{}", self.below(4)).into_bytes(),
            Kind::Member => self.member(),
            Kind::ZsetKey => self.key_of("z", 4),
            Kind::GeoKey => self.key_of("geo", 3),
            // Sets whose members all have the same score. In other sets, ranges of members are
            // undefined.
            Kind::LexKey => format!("lex:{}", self.below(3)).into_bytes(),
            Kind::Longitude => self.coordinate(180, &["180", "-180", "180.0001", "1e400", "x"]),
            Kind::Latitude => self.coordinate(85, &["85.05112878", "-85.05112878", "85.06", "90"]),
            Kind::Length => self.length(),
            Kind::Score => self.score(),
            Kind::ScoreBound => self.score_bound(),
            Kind::LexBound => self.lex_bound(),
            Kind::Value => self.value(),
            Kind::BigValue => self.big_value(),
            Kind::Text => self.text(),
            Kind::Integer => self.integer(),
            Kind::Float => self.float(),
            Kind::Seconds => self.time(0, 1),
            Kind::Milliseconds => self.time(0, 1000),
            Kind::UnixSeconds => self.time(FAR_UNIX_SECONDS, 1),
            Kind::UnixMilliseconds => self.time(FAR_UNIX_SECONDS, 1000),
            Kind::Index => self.small_integer(40),
            Kind::Offset => self.offset(300, &["536870912", "536870911999", "-1"]),
            Kind::BitOffset => self.offset(2000, &["4294967296", "99999999999", "-1"]),
            Kind::Bit => self.pick_text(&["0", "1", "0", "1", "0", "1", "2", "-1", "x"]),
            Kind::FieldType => self.field_type(),
            Kind::FieldOffset => self.field_offset(),
            Kind::Database => {
                self.pick_text(&["0", "1", "2", "0", "1", "15", "16", "-1", "x", "1.5"])
            }
            Kind::Glob => self.pick_text(&[
                "*", "a*", "key:?", "[a-d]", "[^a-d]", "\\*", "a\\*b", "??", "", "*[", "[z-a]", "a",
            ]),
            Kind::Count => {
                self.pick_text(&["1", "2", "1000000", "1000000", "1000000", "0", "-1", "x"])
            }
            Kind::Cursor => self.pick_text(&[
                "0",
                "0",
                "0",
                "0",
                "0",
                "3",
                "-1",
                "x",
                "18446744073709551616",
                "",
            ]),
            Kind::Word => {
                self.pick_text(&["hello", "x", "", "a b", "na\u{ef}ve", "line\nline", "ab"])
            }
            Kind::Script => self.pick_text(SCRIPTS),
            kind => self.sorting_word(kind),
        }
    }

    /// Returns a number that overflows nowhere. It is never a negative zero, whose text changes
    /// with the encoding.
    fn sort_number(&mut self) -> Vec<u8> {
        match self.below(8) {
            0 => self.pick_text(&[
                "inf", "-inf", "1e15", "0x10", "+3", "007", "1e3", ".5", "2.",
            ]),
            1 | 2 => format!("-{}.5", self.below(10)).into_bytes(),
            3 => format!("{}.25", self.below(10)).into_bytes(),
            _ => self.below(12).to_string().into_bytes(),
        }
    }

    /// Returns a word for SORT: a key, an element, or a key that elements lead to. Sorted keys have
    /// no other use, because Redis changes the encoding of a sorted set that it sorts.
    fn sorting_word(&mut self, kind: Kind) -> Vec<u8> {
        match kind {
            Kind::SortedList => format!("sort:l{}", self.below(3)).into_bytes(),
            Kind::SortedSet => format!("sort:s{}", self.below(3)).into_bytes(),
            Kind::SortedZset => format!("sort:z{}", self.below(3)).into_bytes(),
            Kind::SortElement => match self.below(48) {
                0 => self.pick_text(&["", "abc", " 7", "7 ", "nan", "\u{e4}"]),
                1..6 => self.sort_number(),
                _ => self.below(24).to_string().into_bytes(),
            },
            Kind::SortNumber => self.sort_number(),
            Kind::WeightKey => format!("w:{}", self.below(24)).into_bytes(),
            Kind::WeightHash => format!("o:{}", self.below(24)).into_bytes(),
            Kind::WeightPattern => {
                self.pick_text(&["w:*", "w:*", "o:*->f", "o:*->g", "*", "w:*->f", "none:*"])
            }
            Kind::GetPattern => self.pick_text(&[
                "#", "#", "w:*", "o:*->f", "o:*->g", "o:*->", "*", "w:1", "sort:l*", "w*->x", "",
            ]),
            kind => self.stream_word(kind),
        }
    }

    /// Returns a word for streams. Ids are small and idle times are far apart, so that clocks
    /// decide nothing.
    fn stream_word(&mut self, kind: Kind) -> Vec<u8> {
        match kind {
            Kind::StreamKey => self.key_of("stream", 3),
            Kind::NewId => match self.below(12) {
                0 => self.stream_word(Kind::EntryId),
                1..4 => format!("{}-*", self.below(STREAM_IDS)).into_bytes(),
                _ => format!("{STREAM_IDS}-*").into_bytes(),
            },
            Kind::EntryId => match self.below(32) {
                0 => self.pick_text(&["x", "-", "+", "1-", "18446744073709551616", "0-0", "07"]),
                1..6 => self.below(STREAM_IDS).to_string().into_bytes(),
                6..12 => format!("{}-0", self.below(STREAM_IDS)).into_bytes(),
                _ => format!("{STREAM_IDS}-{}", self.below(24)).into_bytes(),
            },
            Kind::IdBound => match self.below(6) {
                0 => b"-".to_vec(),
                1 => b"+".to_vec(),
                2 => [b"(", &self.stream_word(Kind::EntryId)[..]].concat(),
                _ => self.stream_word(Kind::EntryId),
            },
            Kind::ConsumerGroup => self.pick_text(&["g", "g", "g", "h", "none"]),
            Kind::Consumer => self.pick_text(&["alice", "bob", "carol", ""]),
            Kind::IdleMilliseconds => {
                self.pick_text(&["0", "0", "0", "-1", "40000000", "9999999999", "x"])
            }
            kind => self.schedule_word(kind),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        match self.below(64) {
            0 => vec![b'k'; 300],
            1..8 => self.pick(KEYS).to_vec(),
            _ => KEYS[self.index(8)].to_vec(),
        }
    }

    /// Returns one of few keys of a kind of value, or any key.
    fn key_of(&mut self, kind: &str, count: u64) -> Vec<u8> {
        match self.below(12) {
            0 => self.key(),
            _ => format!("{kind}:{}", self.below(count)).into_bytes(),
        }
    }

    fn length(&mut self) -> Vec<u8> {
        match self.below(24) {
            0 => self.pick_text(&["0", "-1", "x", "nan", "inf", "1e300", ""]),
            1..4 => format!("0.{}", self.below(1000)).into_bytes(),
            4..8 => self.below(20_000).to_string().into_bytes(),
            _ => self.below(800).to_string().into_bytes(),
        }
    }

    fn score_bound(&mut self) -> Vec<u8> {
        match self.below(24) {
            0 => self.pick_text(&["", "(", "((1", "x", "nan", " 1", "1 ", "1e5000", "(-inf"]),
            1..5 => self.pick_text(&["-inf", "+inf", "inf", "(inf"]),
            5..9 => [b"(".to_vec(), self.score()].concat(),
            _ => self.score(),
        }
    }

    fn lex_bound(&mut self) -> Vec<u8> {
        match self.below(24) {
            0 => self.pick_text(&["", "a", "-a", "++", "[", "("]),
            1..6 => b"-".to_vec(),
            6..11 => b"+".to_vec(),
            11..15 => [b"(".to_vec(), self.member()].concat(),
            _ => [b"[".to_vec(), self.member()].concat(),
        }
    }

    /// Returns degrees, mostly of one region, so that places are close together.
    fn coordinate(&mut self, most: u64, limits: &[&str]) -> Vec<u8> {
        let fraction = self.below(10_000);
        match self.below(24) {
            0 => self.pick_text(limits),
            1..4 => format!("-{}.{fraction:04}", self.below(most)).into_bytes(),
            4..7 => format!("{}.{fraction:04}", self.below(most)).into_bytes(),
            _ => format!("1{}.{fraction:04}", self.below(5)).into_bytes(),
        }
    }

    /// Returns a score. Scores are often equal, and their sums and products are mostly exact.
    fn score(&mut self) -> Vec<u8> {
        match self.below(20) {
            0 => self.pick_text(BAD_FLOATS),
            1 => self.pick_text(&["inf", "-inf", "+inf", "1e15", "-0", "0x10", "1e-300"]),
            2 => self.pick_text(FLOATS),
            3..7 => format!("-{}", self.below(10)).into_bytes(),
            7..10 => format!("{}.25", self.below(10)).into_bytes(),
            _ => self.below(20).to_string().into_bytes(),
        }
    }

    fn member(&mut self) -> Vec<u8> {
        match self.below(8) {
            0 => self.value(),
            1 => self.below(40).to_string().into_bytes(),
            2 => format!("member:{}", self.below(200)).into_bytes(),
            _ => format!("m{}", self.below(8)).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.below(16) {
            0..4 => self.pick_text(LIMITS),
            4 => format!("{}", self.below(20_000)).into_bytes(),
            5 => self.pick_text(BAD_INTEGERS),
            6 => self.pick_text(FLOATS),
            7 => self.pick_text(BAD_FLOATS),
            8 | 9 => self.text(),
            10 => self.binary(),
            11 => Vec::new(),
            // Around 44 bytes, the length at which Redis changes the encoding.
            12 => vec![b'v'; 43 + self.index(4)],
            13 => self.junk(),
            14 if self.once_in(8) => vec![b'w'; self.index(3000)],
            _ => vec![b'x'; self.index(120)],
        }
    }

    fn big_value(&mut self) -> Vec<u8> {
        let length = self.pick(&[16_383, 16_384, 40_000, 65_535, 65_536, 70_000, 200_000]);
        let mut value = vec![0; length];
        self.prng.fill(&mut value);
        value
    }

    /// Returns letters of a small alphabet, so that two texts have common parts.
    fn text(&mut self) -> Vec<u8> {
        let length = self.index(24);
        (0..length).map(|_| self.pick(b"abcdx")).collect()
    }

    fn binary(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.index(33)];
        self.prng.fill(&mut bytes);
        bytes
    }

    fn integer(&mut self) -> Vec<u8> {
        match self.below(8) {
            0 => self.pick_text(BAD_INTEGERS),
            1..4 => self.pick_text(LIMITS),
            _ => self.small_integer(1000),
        }
    }

    /// Returns a number from minus a quarter of `bound` up to `bound`, occasionally a word that is
    /// not a number.
    fn small_integer(&mut self, bound: u64) -> Vec<u8> {
        match self.below(24) {
            0 => self.pick_text(BAD_INTEGERS),
            1 => self.pick_text(&[
                "9223372036854775807",
                "-9223372036854775808",
                "-9223372036854775807",
            ]),
            2..7 => format!("-{}", self.below(bound / 4)).into_bytes(),
            _ => format!("{}", self.below(bound)).into_bytes(),
        }
    }

    fn float(&mut self) -> Vec<u8> {
        match self.below(6) {
            0 => self.pick_text(BAD_FLOATS),
            1 => self.pick_text(LIMITS),
            _ => self.pick_text(FLOATS),
        }
    }

    /// Returns a time after `base_seconds`, in units of which `scale` make a second.
    fn time(&mut self, base_seconds: u64, scale: u64) -> Vec<u8> {
        match self.below(24) {
            0 => self.pick_text(&["0", "-1", "-1000", "-9223372036854775808"]),
            1 => self.pick_text(&[
                "9223372036854775807",
                "9223372036854775808",
                "9223372036854775",
                "9223372036854770000",
            ]),
            2 => self.pick_text(&["", "abc", "1.5", " 1"]),
            _ => {
                let spread = TTL_SECONDS_MAX - TTL_SECONDS_MIN;
                // Only a few absolute times are drawn, so that some are equal.
                let seconds = match base_seconds {
                    0 => TTL_SECONDS_MIN + self.below(spread),
                    _ => base_seconds + self.below(6),
                };
                format!("{}", seconds * scale).into_bytes()
            }
        }
    }

    fn offset(&mut self, bound: u64, refused: &[&str]) -> Vec<u8> {
        match self.below(20) {
            0 => self.pick_text(BAD_INTEGERS),
            1 => self.pick_text(refused),
            2 => format!("{}", self.below(bound * 10)).into_bytes(),
            _ => format!("{}", self.below(bound)).into_bytes(),
        }
    }

    fn field_type(&mut self) -> Vec<u8> {
        let sign = self.pick(&['i', 'u']);
        match self.below(16) {
            0 => self.pick_text(&[
                "u64", "i65", "u0", "i0", "x8", "8", "", "u", "i-1", "I8", "U8", "u08",
            ]),
            1..4 => format!("{sign}{}", self.pick(&[1, 63, 62, 33, 32, 31])).into_bytes(),
            4 => b"i64".to_vec(),
            _ => format!("{sign}{}", 1 + self.below(20)).into_bytes(),
        }
    }

    fn field_offset(&mut self) -> Vec<u8> {
        match self.below(16) {
            0 => self.pick_text(&[
                "#",
                "-1",
                "#-1",
                "x",
                "",
                "4294967296",
                "#4294967296",
                "9223372036854775807",
                "##1",
            ]),
            1..6 => format!("#{}", self.below(12)).into_bytes(),
            _ => format!("{}", self.below(200)).into_bytes(),
        }
    }
}
