//! What the row of a command says in flags: what the command may do and where it may run, what it does to its
//! keys, and what it is in a transaction. Sessions and queues know commands by these.

macro_rules! flag_set {
    ($(#[$doc:meta])* $name:ident : $repr:ty { $($(#[$flag_doc:meta])* $flag:ident = $bit:expr, $text:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name($repr);

        impl $name {
            /// No flag.
            pub const NONE: Self = Self(0);
            $($(#[$flag_doc])* pub const $flag: Self = Self(1 << $bit);)*

            /// Every flag with its name, in the order they are shown.
            pub const NAMES: &'static [(Self, &'static str)] = &[$((Self::$flag, $text)),*];

            /// Both sets together.
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

            /// Names of the flags that are set; those without a name are not told.
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
        /// Not from scripts.
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
        /// ASKING is implied.
        ASKING = 11, "asking";
        /// Constant or logarithmic time.
        FAST = 12, "fast";
        /// Runs before authentication.
        NO_AUTH = 13, "no_auth";
        /// Not inside MULTI.
        NO_MULTI = 14, "no_multi";
        /// It may be given no key.
        NO_MANDATORY_KEYS = 19, "no_mandatory_keys";
        /// Its keys depend on its arguments.
        MOVABLE_KEYS = 15, "movablekeys";
        /// Runs while a script is over its time.
        ALLOW_BUSY = 16, "allow_busy";
        /// Its subcommands may touch keys.
        NO_ASYNC_LOADING = 17, "no_async_loading";
        /// Changes no data, but something that replicas would be told: it waits where writes do.
        MAY_REPLICATE = 18, "";
        /// Runs for a client of RESP2 that is subscribed to something, as what is about subscriptions does.
        FOR_SUBSCRIBERS = 20, "";
        /// What comes after it in a transaction is about the database whose number is its argument.
        SELECTS_DATABASE = 21, "";
        /// Comes to keys that its arguments do not name, though it says neither that it reads nor that it writes.
        REACHES_ANY_KEY = 22, "";
        /// Has the store alone, however quick it is.
        HAS_STORE_ALONE = 23, "";
        /// Asks whether the server is well: it is refused when nothing can be written, and waits for a script that
        /// takes too long, so that whoever watches over the server sees it.
        PROBES = 24, "";
        /// What the client said of the tracking of its next command (CLIENT CACHING) holds on after it.
        KEEPS_TRACKING = 25, "";
        /// Changes libraries of functions alone: where they are those of a control group, any of its nodes takes it.
        CHANGES_LIBRARIES = 26, "";
        /// Is done about as soon as what is FAST, whatever Redis calls it.
        BRIEF = 27, "";
        /// A primary may send it with one argument more than a client may.
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

/// What is made of a request of a forwarding client whose keys no one node serves, out of the replies of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scatter {
    /// Nothing: it is about the keys of one slot, or about this node.
    Never,
    /// The values of its keys, in their order.
    Values,
    /// The sum of the numbers that are answered about its keys.
    Sum,
    /// OK, where all that is done to its keys is done.
    Done,
    /// The sum of what all nodes answer.
    SumOfAll,
    /// All elements of what all nodes answer.
    ElementsOfAll,
    /// OK, where all nodes say so.
    DoneByAll,
    /// What this node answers, once all have been asked.
    OwnOfAll,
    /// What one of them answers that has something.
    AnyOfAll,
    /// One node after the other, as its cursor says.
    Cursor,
}

/// What a command does where its client has begun a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTransaction {
    /// It waits for EXEC.
    Queued,
    /// It begins one, and so runs at once.
    Begins,
    /// It runs at once, whether there is memory or not.
    AtOnce,
    /// It runs at once where there is memory: WATCH, which refuses.
    Refuses,
    /// It ends the transaction and runs what was queued, also where there is none.
    Runs,
}
