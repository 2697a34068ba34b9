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

/// The function that executes a command.
pub type Handler = fn(&mut Context<'_>, &mut Args<'_>, &mut Reply<'_>) -> CommandResult;

/// Returns the indexes of the arguments that are keys, and the access to each.
pub type KeyFinder = fn(&Table, &Request<'_>) -> Vec<(usize, KeyAccess)>;

/// Number of arguments that a command takes, its name included.
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

    /// Returns the number that `COMMAND` shows: negative for a minimum.
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
    /// After this word, searched from the given argument on (negative: from the end).
    Keyword(&'static str, i16),
    /// At a position that the arguments before do not determine, or not among the arguments.
    Unknown,
}

/// How the keys continue from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// Up to `last` (relative to the first; negative: from the end), every `step`; `limit` as in
    /// `COMMAND INFO`.
    Range {
        /// Last key, relative to the first; -1 is the last argument.
        last: i16,
        /// Distance between keys.
        step: u16,
        /// 0, or the divisor of the remaining arguments that gives the number of keys.
        limit: u16,
    },
    /// The number of keys is at `count`, the first key at `first`, both relative to the start.
    Count {
        /// Position of the number of keys.
        count: u16,
        /// Position of the first key.
        first: u16,
        /// Distance between keys.
        step: u16,
    },
    /// Cannot be specified.
    Unknown,
}

/// One group of keys among the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// Where the group starts.
    pub begin: Begin,
    /// How the group continues.
    pub find: Find,
    /// What the command does to these keys.
    pub access: KeyAccess,
    /// A remark for `COMMAND INFO`.
    pub notes: &'static str,
}

impl KeySpec {
    /// Returns a specification of one key at argument `at`.
    #[must_use]
    pub const fn one(at: u16, access: KeyAccess) -> Self {
        Self::range(at, 0, 1, access)
    }

    /// Returns a specification of keys from argument `at` to `last` (relative to `at`; -1: to the
    /// end), every `step`.
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

/// Which arguments of a command are channels to publish or subscribe to. The user needs permission
/// for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// None.
    None,
    /// The first.
    First,
    /// All.
    All,
    /// All, as patterns.
    Patterns,
}

/// Family of a command as in the documentation. It determines the data-type category.
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
    /// Whether its commands only use keys: they change neither the session nor the server, and
    /// reply once.
    #[must_use]
    pub const fn is_data(self) -> bool {
        !matches!(
            self,
            Self::Connection | Self::Server | Self::Cluster | Self::Transactions | Self::PubSub
        )
    }

    /// Whether its commands use values other than strings.
    #[must_use]
    pub(crate) const fn is_about_structures(self) -> bool {
        matches!(
            self,
            Self::List | Self::Hash | Self::Set | Self::SortedSet | Self::Stream | Self::Geo
        )
    }

    /// Returns the name that `COMMAND DOCS` shows.
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

/// How a command's first argument identifies the script or function that it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// The script itself.
    Script,
    /// The digest of a script.
    Digest,
    /// The name of a function.
    Function,
}

/// How a command behaves inside one that runs it on a condition about the value (EXECIFMATCH and
/// similar).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCondition {
    /// It has no reply of its own if it does not run.
    Plain,
    /// It stores a string, and returns the existing one if it does not run.
    Stores,
    /// It returns the number of deleted keys.
    Deletes,
    /// It changes a deadline but no value.
    ChangesDeadline,
}

/// Returns the arguments of a request that name a key in another database: indexes of the key and
/// of the database number.
pub type OtherDatabases = fn(&Request<'_>) -> Vec<(usize, usize)>;

/// Marks a command as deprecated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deprecation {
    /// From this version on.
    pub since: &'static str,
    /// What to use instead, as in `COMMAND DOCS`.
    pub replaced_by: &'static str,
}

/// Everything about a command.
#[derive(Clone, Copy)]
pub struct CommandSpec {
    /// Name in capitals. A subcommand's name is only its own word.
    pub name: &'static str,
    /// Number of arguments, including the name (and the container's).
    pub arity: Arity,
    /// What the command may do and where it may run.
    pub flags: Flags,
    /// Positions of its keys.
    pub keys: &'static [KeySpec],
    /// For keys with [`KeyAccess::VARIABLE_FLAGS`]: returns what a request does to them.
    pub access_of: Option<fn(&Request<'_>) -> KeyAccess>,
    /// Index of the argument, if any, that it looks up in the structure at its first key. A batch
    /// prefetches that, too.
    pub element: Option<u16>,
    /// Number of arguments, name included, with which it only stores a string at its key. The plan
    /// of a batch relies on it. 0 if there is no such form.
    pub sets_with: u16,
    /// For keys at [`Begin::Unknown`]: returns the argument indexes of a request's keys.
    pub keys_of: Option<KeyFinder>,
    /// For commands that use other databases than the client's.
    pub other_databases: Option<OtherDatabases>,
    /// For commands that can follow elements of values to further keys: returns whether a request
    /// does.
    pub looks_up: Option<fn(&Request<'_>) -> bool>,
    /// Whether it needs the values of the keys that it reads. If not, what memory holds about a
    /// cold value (its type, length, deadline) suffices, and the request does not wait for the
    /// rest.
    pub needs_values: bool,
    /// Returns whether an argument must not be shown: names and passwords.
    pub secrets: Option<fn(&Request<'_>, usize) -> bool>,
    /// For commands that send keys to another server: returns whether a request sends them to this
    /// address and port. If that server already serves the slot, it already has the keys, nothing
    /// is left to send, and the request is not at fault.
    pub sends_to: Option<fn(&Request<'_>, &str, u16) -> bool>,
    /// Its role in a transaction.
    pub in_transaction: InTransaction,
    /// How replies are combined if it is forwarded to several nodes.
    pub scatter: Scatter,
    /// The script or function that it runs, if any.
    pub runs: Option<Runs>,
    /// Its behaviour inside a conditional command.
    pub on_condition: OnCondition,
    /// Which arguments are channels to publish or subscribe to.
    pub channels: Channels,
    /// Family.
    pub group: Group,
    /// Categories besides those from flags and group, without `@` ("dangerous", "keyspace" …).
    pub categories: &'static [&'static str],
    /// First version of Redis that had it (or of another product, if `newer`).
    pub since: &'static str,
    /// Changes in later versions: version and change.
    pub history: &'static [(&'static str, &'static str)],
    /// Set if it is deprecated.
    pub deprecated: Option<Deprecation>,
    /// Summary in one sentence.
    pub summary: &'static str,
    /// Complexity, as in the documentation.
    pub complexity: &'static str,
    /// Arguments after the name in the notation of the documentation, for example `key value [NX |
    /// XX] [GET] [EX seconds | PX milliseconds | KEEPTTL]`. The argument tree of `COMMAND DOCS` is
    /// derived from it.
    pub syntax: &'static str,
    /// Hints for clients and proxies (`nondeterministic_output`, `request_policy:all_shards` …).
    pub tips: &'static [&'static str],
    /// The function that executes it; for a container, without a known subcommand.
    pub handler: Handler,
    /// For the most frequent commands: `handler` compiled into its own loop (see
    /// [`Series`](crate::Series)), as `|series| series.each(handler)`.
    pub series: Option<SeriesLoop>,
    /// The handler for a long argument that is received separately (see [`crate::arrival`]). A
    /// command without it gets all its arguments together.
    pub long_value: Option<LongValue>,
    /// Its subcommands.
    pub subcommands: &'static [CommandSpec],
}

/// An argument that may be received separately.
#[derive(Clone, Copy)]
pub struct LongValue {
    /// Its index; the name has index 0.
    pub argument: usize,
    /// The handler. It finds the value in the session if the argument was received separately.
    pub handler: Handler,
}

impl CommandSpec {
    /// The row that all others are based on.
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

    /// Returns the row of a container's HELP. Its handler writes the lines.
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

/// The handler of a container. It never runs, because the subcommands have their own handlers.
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

/// Categories that a user may be granted or denied, in the order in which they are shown.
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

/// Returns the categories of a command: those of its row, and those derived from its flags and
/// group.
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
        // For containers, only their subcommands have the category.
        "stream" => spec.group == Group::Stream && spec.subcommands.is_empty(),
        "hyperloglog" => spec.group == Group::HyperLogLog,
        "geo" => spec.group == Group::Geo,
        _ => false,
    };
    let is_in = |category: &&&str| spec.categories.contains(*category) || derived(category);
    CATEGORIES.iter().filter(is_in).copied().collect()
}
