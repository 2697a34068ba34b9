//! The flags in a command's row: what the command may do and where it may run, what it does to its
//! keys, and its role in a transaction. Sessions and queues use them too.

macro_rules! flag_set {
    ($(#[$doc:meta])* $name:ident : $repr:ty { $($(#[$flag_doc:meta])* $flag:ident = $bit:expr, $text:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name($repr);

        impl $name {
            /// No flag.
            pub const NONE: Self = Self(0);
            $($(#[$flag_doc])* pub const $flag: Self = Self(1 << $bit);)*

            /// Every flag with its name, in the order in which they are shown.
            pub const NAMES: &'static [(Self, &'static str)] = &[$((Self::$flag, $text)),*];

            /// Returns the union of both sets.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Whether all flags of `other` are set.
            #[inline]
            #[must_use]
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns the names of the flags that are set, without flags that have no name.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                let told = Self::NAMES.iter().filter(|(_, name)| !name.is_empty());
                told.filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| *name)
            }
        }
    };
}

flag_set! {
    /// What a command may do and where it may run (`COMMAND INFO`, third field).
    Flags: u32 {
        /// Changes data.
        WRITE = 0, "write";
        /// Only reads data.
        READONLY = 1, "readonly";
        /// Refused when memory is full.
        DENYOOM = 2, "denyoom";
        /// An operator's command.
        ADMIN = 3, "admin";
        /// Publish/subscribe.
        PUBSUB = 4, "pubsub";
        /// Not allowed in scripts.
        NOSCRIPT = 5, "noscript";
        /// May block its client.
        BLOCKING = 6, "blocking";
        /// Runs while data is loading.
        LOADING = 7, "loading";
        /// Runs on a replica with stale data.
        STALE = 8, "stale";
        /// Not shown to MONITOR.
        SKIP_MONITOR = 9, "skip_monitor";
        /// Not in the slow log.
        SKIP_SLOWLOG = 10, "skip_slowlog";
        /// Implies ASKING.
        ASKING = 11, "asking";
        /// Constant or logarithmic time.
        FAST = 12, "fast";
        /// Runs before authentication.
        NO_AUTH = 13, "no_auth";
        /// Not allowed inside MULTI.
        NO_MULTI = 14, "no_multi";
        /// May be called without a key.
        NO_MANDATORY_KEYS = 19, "no_mandatory_keys";
        /// Its keys depend on its arguments.
        MOVABLE_KEYS = 15, "movablekeys";
        /// Runs while a script exceeds its time limit.
        ALLOW_BUSY = 16, "allow_busy";
        /// Its subcommands may touch keys.
        NO_ASYNC_LOADING = 17, "no_async_loading";
        /// Changes no data, but something that is replicated: it waits where writes wait.
        MAY_REPLICATE = 18, "";
        /// Runs for a RESP2 client that has subscriptions, like the subscription commands.
        FOR_SUBSCRIBERS = 20, "";
        /// Selects the database of the following commands in a transaction by its argument.
        SELECTS_DATABASE = 21, "";
        /// Reaches keys that its arguments do not name, though it is flagged neither as reading nor
        /// as writing.
        REACHES_ANY_KEY = 22, "";
        /// Runs with the store exclusively, however quick it is.
        HAS_STORE_ALONE = 23, "";
        /// Probes the server's health: it is refused when nothing can be written, and waits for a
        /// script that takes too long, so that the monitoring client notices.
        PROBES = 24, "";
        /// Keeps what the client said about tracking of its next command (CLIENT CACHING).
        KEEPS_TRACKING = 25, "";
        /// Changes only libraries of functions: if a control group shares them, any of its nodes
        /// accepts the command.
        CHANGES_LIBRARIES = 26, "";
        /// Takes about as little time as a FAST command, though Redis does not flag it so.
        BRIEF = 27, "";
        /// May have one more argument when a primary sends it.
        MORE_FROM_PRIMARY = 28, "";
    }
}

flag_set! {
    /// What a command does to a key (flags of a key specification, in `COMMAND INFO`'s order).
    KeyAccess: u16 {
        /// Reads and writes it.
        RW = 0, "RW";
        /// Reads it.
        RO = 1, "RO";
        /// Overwrites it.
        OW = 2, "OW";
        /// Removes it.
        RM = 3, "RM";
        /// Returns its data.
        ACCESS = 4, "access";
        /// Changes its data.
        UPDATE = 5, "update";
        /// Adds data.
        INSERT = 6, "insert";
        /// Deletes data.
        DELETE = 7, "delete";
        /// Not really a key.
        NOT_KEY = 8, "not_key";
        /// May not find all keys.
        INCOMPLETE = 9, "incomplete";
        /// Flags depend on arguments.
        VARIABLE_FLAGS = 10, "variable_flags";
    }
}

/// How the replies of several nodes are combined for a request of a forwarding client whose keys no
/// single node serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scatter {
    /// Not at all: the request is about the keys of one slot, or about this node.
    Never,
    /// The values of the keys, in their order.
    Values,
    /// The sum of the numbers in the replies for its keys.
    Sum,
    /// OK, if everything was done to all keys.
    Done,
    /// The sum of all nodes' replies.
    SumOfAll,
    /// All elements of all nodes' replies.
    ElementsOfAll,
    /// OK, if all nodes reply so.
    DoneByAll,
    /// This node's reply, after all nodes were asked.
    OwnOfAll,
    /// The reply of a node that has something.
    AnyOfAll,
    /// One node after the other, as the cursor says.
    Cursor,
}

/// What a command does after its client has begun a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTransaction {
    /// It waits for EXEC.
    Queued,
    /// It begins a transaction, and so runs at once.
    Begins,
    /// It runs at once, whether memory is full or not.
    AtOnce,
    /// It runs at once, unless memory is full: WATCH, which refuses.
    Refuses,
    /// It ends the transaction and runs the queued requests. It applies without a transaction too.
    Runs,
}
