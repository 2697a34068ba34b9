//! The row of a command: the one place where it is described.
//!
//! Name lookup, arity checks, key extraction, categories, `COMMAND` and its documentation are all
//! derived from the row; nothing else in the project repeats them.

use protocol::{Reply, Request};

use crate::args::Args;
use crate::context::Context;
use crate::engine::series::SeriesLoop;
use crate::error::{CommandResult, unknown_subcommand};
pub use crate::flags::{Flags, InTransaction, KeyAccess, Scatter};
use crate::table::Table;

/// What a command does.
pub type Handler = fn(&mut Context<'_>, &mut Args<'_>, &mut Reply<'_>) -> CommandResult;

/// Which arguments of a request are keys, by their indexes, and what happens to each.
pub type KeyFinder = fn(&Table, &Request<'_>) -> Vec<(usize, KeyAccess)>;

/// How many arguments a command takes, its name included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// This many.
    Exactly(u16),
    /// This many or more.
    AtLeast(u16),
}

impl Arity {
    /// Whether `count` arguments (name included) are acceptable.
    #[inline]
    #[must_use]
    pub fn accepts(self, count: usize) -> bool {
        match self {
            Self::Exactly(wanted) => count == usize::from(wanted),
            Self::AtLeast(least) => count >= usize::from(least),
        }
    }

    /// The number `COMMAND` shows: negative for a minimum.
    #[must_use]
    pub fn number(self) -> i64 {
        match self {
            Self::Exactly(wanted) => i64::from(wanted),
            Self::AtLeast(least) => -i64::from(least),
        }
    }
}

/// Where the keys of a command start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At this argument.
    Index(u16),
    /// After this word, looked for from the given argument on (negative: from the end).
    Keyword(&'static str, i16),
    /// Somewhere that the arguments before do not tell, or not among the arguments at all.
    Unknown,
}

/// How the keys go on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// Up to `last` (relative to the first; negative: from the end), every `step`; `limit` as in
    /// `COMMAND INFO`.
    Range {
        /// Last key, relative to the first; -1 is the last argument.
        last: i16,
        /// Distance between keys.
        step: u16,
        /// 0 or the part of the remaining arguments that are keys.
        limit: u16,
    },
    /// A count of keys stands at `count`, the first key at `first`, both relative to the start.
    Count {
        /// Where the count stands.
        count: u16,
        /// Where the first key stands.
        first: u16,
        /// Distance between keys.
        step: u16,
    },
    /// In no way that could be stated.
    Unknown,
}

/// One group of keys among the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// Where it starts.
    pub begin: Begin,
    /// How it goes on.
    pub find: Find,
    /// What happens to these keys.
    pub access: KeyAccess,
    /// A remark for `COMMAND INFO`.
    pub notes: &'static str,
}

impl KeySpec {
    /// One key at argument `at`.
    #[must_use]
    pub const fn one(at: u16, access: KeyAccess) -> Self {
        Self::range(at, 0, 1, access)
    }

    /// Keys from argument `at`, `last` relative to it (-1: to the end), every `step`.
    #[must_use]
    pub const fn range(at: u16, last: i16, step: u16, access: KeyAccess) -> Self {
        Self {
            begin: Begin::Index(at),
            find: Find::Range {
                last,
                step,
                limit: 0,
            },
            access,
            notes: "",
        }
    }
}

/// Which arguments of a command are channels that it sends to or hears; a user must be allowed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// None.
    None,
    /// The first.
    First,
    /// All.
    All,
    /// All, and they are patterns.
    Patterns,
}

/// Family of a command, as the documentation groups it; gives its data-type category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Keys of any type.
    Generic,
    /// Strings.
    String,
    /// Bits of strings.
    Bitmap,
    /// Lists.
    List,
    /// Hashes.
    Hash,
    /// Sets.
    Set,
    /// Sorted sets.
    SortedSet,
    /// Streams.
    Stream,
    /// Counts of distinct elements.
    HyperLogLog,
    /// Places on earth.
    Geo,
    /// The connection itself.
    Connection,
    /// The server itself.
    Server,
    /// Cluster.
    Cluster,
    /// Several commands as one step.
    Transactions,
    /// Publish/subscribe.
    PubSub,
    /// Scripts and functions.
    Scripting,
}

impl Group {
    /// Whether its commands are about keys and nothing else: they change neither the session nor
    /// the server, and answer with one reply.
    #[must_use]
    pub const fn is_data(self) -> bool {
        !matches!(
            self,
            Self::Connection | Self::Server | Self::Cluster | Self::Transactions | Self::PubSub
        )
    }

    /// Whether its commands are about values that are no strings.
    #[must_use]
    pub(crate) const fn is_about_structures(self) -> bool {
        matches!(
            self,
            Self::List | Self::Hash | Self::Set | Self::SortedSet | Self::Stream | Self::Geo
        )
    }

    /// The name `COMMAND DOCS` shows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::String => "string",
            Self::Bitmap => "bitmap",
            Self::List => "list",
            Self::Hash => "hash",
            Self::Set => "set",
            Self::SortedSet => "sorted-set",
            Self::Stream => "stream",
            Self::HyperLogLog => "hyperloglog",
            Self::Geo => "geo",
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Cluster => "cluster",
            Self::Transactions => "transactions",
            Self::PubSub => "pubsub",
            Self::Scripting => "scripting",
        }
    }
}

/// What names the script or function that a command runs: its first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// The script itself.
    Script,
    /// The digest of a script.
    Digest,
    /// The name of a function.
    Function,
}

/// What a command is to one that runs it on a condition about the value (EXECIFMATCH and its kin).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCondition {
    /// It answers nothing when it does not run.
    Plain,
    /// It makes its key hold a string, and gives the one there is when it does not run.
    Stores,
    /// It counts what it deletes.
    Deletes,
    /// It changes a deadline and no value.
    ChangesDeadline,
}

/// Which arguments of a request name a key in another database: the key's and the number's.
pub type OtherDatabases = fn(&Request<'_>) -> Vec<(usize, usize)>;

/// That the use of a command is discouraged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deprecation {
    /// From this version on.
    pub since: &'static str,
    /// What to use instead, as `COMMAND DOCS` says it.
    pub replaced_by: &'static str,
}

/// Everything there is to know about a command.
#[derive(Clone, Copy)]
pub struct CommandSpec {
    /// Name in capitals; of a subcommand, only its own word.
    pub name: &'static str,
    /// Arguments, the name (and the container's) included.
    pub arity: Arity,
    /// What it may do and where it may run.
    pub flags: Flags,
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// For keys with [`KeyAccess::VARIABLE_FLAGS`]: what one request does to them.
    pub access_of: Option<fn(&Request<'_>) -> KeyAccess>,
    /// Which argument, if any, it looks for in the structure at its first key: a batch asks the cache
    /// for that, too.
    pub element: Option<u16>,
    /// With so many arguments, the name included, it does nothing but make its key hold a string: the plan
    /// of a batch relies on it. 0 when it never does.
    pub sets_with: u16,
    /// For keys at [`Begin::Unknown`]: those that one request names, by their arguments' indexes.
    pub keys_of: Option<KeyFinder>,
    /// For what goes to other databases than the client's.
    pub other_databases: Option<OtherDatabases>,
    /// For what follows elements of values to further keys: whether one request does.
    pub looks_up: Option<fn(&Request<'_>) -> bool>,
    /// Whether it needs the values of the keys that it reads. Without, what is in memory of a value that is not (its
    /// type, length, deadline) is enough, and nobody waits for the rest.
    pub needs_values: bool,
    /// Which arguments nobody else may see: names and passwords.
    pub secrets: Option<fn(&Request<'_>, usize) -> bool>,
    /// For what sends its keys to another server: whether a request sends them to this host and port. Who serves their slot
    /// there already has them: there is nothing left to send, which is no fault of the request.
    pub sends_to: Option<fn(&Request<'_>, &str, u16) -> bool>,
    /// What it does in a transaction.
    pub in_transaction: InTransaction,
    /// What is made of it where it is forwarded to several nodes.
    pub scatter: Scatter,
    /// The script or function that it runs, if it runs one.
    pub runs: Option<Runs>,
    /// What it is where it runs on a condition.
    pub on_condition: OnCondition,
    /// Which arguments are channels to send to or to hear.
    pub channels: Channels,
    /// Family.
    pub group: Group,
    /// Categories beyond those that flags and group give, without `@` ("dangerous", "keyspace" …).
    pub categories: &'static [&'static str],
    /// First version of Redis (or, where `newer`, of whom) that had it.
    pub since: &'static str,
    /// What changed in which later version.
    pub history: &'static [(&'static str, &'static str)],
    /// Set when its use is discouraged.
    pub deprecated: Option<Deprecation>,
    /// One sentence.
    pub summary: &'static str,
    /// Cost, as the documentation states it.
    pub complexity: &'static str,
    /// Arguments after the name in the notation of the documentation, for example
    /// `key value [NX | XX] [GET] [EX seconds | PX milliseconds | KEEPTTL]`; the argument tree of
    /// `COMMAND DOCS` is derived from it.
    pub syntax: &'static str,
    /// Hints for clients and proxies (`nondeterministic_output`, `request_policy:all_shards` …).
    pub tips: &'static [&'static str],
    /// What it does; for a container, what it does without a known subcommand.
    pub handler: Handler,
    /// For what is asked for most: `handler` compiled into a loop of its own (see [`Series`](crate::Series)), as
    /// `|series| series.each(handler)`.
    pub series: Option<SeriesLoop>,
    /// What is done when an argument is long and arrived on its own (see [`crate::arrival`]); a command
    /// without it gets all its arguments together.
    pub long_value: Option<LongValue>,
    /// Its subcommands.
    pub subcommands: &'static [CommandSpec],
}

/// An argument that may arrive on its own.
#[derive(Clone, Copy)]
pub struct LongValue {
    /// Which one; the name is number 0.
    pub argument: usize,
    /// The handler, which finds the value in the session if it did.
    pub handler: Handler,
}

impl CommandSpec {
    /// The row that others are written on top of.
    pub const BLANK: Self = Self {
        name: "",
        arity: Arity::Exactly(1),
        flags: Flags::NONE,
        keys: &[],
        access_of: None,
        element: None,
        sets_with: 0,
        keys_of: None,
        other_databases: None,
        looks_up: None,
        needs_values: true,
        secrets: None,
        sends_to: None,
        in_transaction: InTransaction::Queued,
        scatter: Scatter::Never,
        runs: None,
        on_condition: OnCondition::Plain,
        channels: Channels::None,
        group: Group::Generic,
        categories: &[],
        since: "1.0.0",
        history: &[],
        deprecated: None,
        summary: "",
        complexity: "O(1)",
        syntax: "",
        tips: &[],
        handler: container,
        series: None,
        long_value: None,
        subcommands: &[],
    };

    /// The row of a container's HELP; its handler writes the lines.
    pub const fn help(group: Group, since: &'static str, handler: Handler) -> Self {
        Self {
            name: "HELP",
            arity: Arity::Exactly(2),
            flags: Flags::LOADING.with(Flags::STALE),
            group,
            since,
            summary: "Lists the subcommands.",
            handler,
            ..Self::BLANK
        }
    }
}

/// The handler of a container, whose subcommands have their own: it is never the row that runs.
///
/// # Errors
/// Always.
pub fn container(
    _context: &mut Context<'_>,
    args: &mut Args<'_>,
    _reply: &mut Reply<'_>,
) -> CommandResult {
    Err(unknown_subcommand(args.request()))
}

/// Categories a user may be given or denied, in the order they are shown.
pub const CATEGORIES: &[&str] = &[
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// The categories of a command: those of its row, and those that its flags and group give.
#[must_use]
pub fn categories_of(spec: &CommandSpec) -> Vec<&'static str> {
    let derived = |category: &str| match category {
        "read" => {
            let is_of_keys = !matches!(spec.group, Group::Connection | Group::Scripting);
            spec.flags.has(Flags::READONLY) && is_of_keys
        }
        "write" => spec.flags.has(Flags::WRITE),
        "admin" | "dangerous" => spec.flags.has(Flags::ADMIN),
        "pubsub" => spec.flags.has(Flags::PUBSUB),
        "blocking" => spec.flags.has(Flags::BLOCKING),
        "fast" => spec.flags.has(Flags::FAST),
        "slow" => !spec.flags.has(Flags::FAST),
        "string" => spec.group == Group::String,
        "bitmap" => spec.group == Group::Bitmap,
        "list" => spec.group == Group::List,
        "hash" => spec.group == Group::Hash,
        "set" => spec.group == Group::Set,
        "sortedset" => spec.group == Group::SortedSet,
        // Of containers, only what is in them.
        "stream" => spec.group == Group::Stream && spec.subcommands.is_empty(),
        "hyperloglog" => spec.group == Group::HyperLogLog,
        "geo" => spec.group == Group::Geo,
        _ => false,
    };
    let is_in = |category: &&&str| spec.categories.contains(*category) || derived(category);
    CATEGORIES.iter().filter(is_in).copied().collect()
}
