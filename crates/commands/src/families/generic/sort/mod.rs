//! SORT and SORT_RO: the sorted elements of a list, set or sorted set, or the values that they lead
//! to.
//!
//! # One moment
//! BY and GET read keys that the arguments do not name: their names are made from the elements. The
//! result must be consistent. So the command reads the elements, and locks the keys that they lead
//! to together with the source and the destination. If the elements are still the same, it does
//! everything under these locks. If they changed in between, or lead to more than
//! [`LOCKED_KEYS_MAX`] keys, it does so while no other thread is in the store: that many locks
//! would also delay the other threads, and cost more. A sort without patterns locks only the keys
//! that it names.
//!
//! # Effects
//! A stored result is stated as `DEL` of the previous value, and `RPUSH` of the elements.

use std::ops::Range;

use base::hash_slot;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, Begin, CommandSpec, Find, Flags, Group, KeyAccess, KeySpec};
use engine::table::Table;
use protocol::{Reply, Request};
use store::{DatabaseId, Event, EventClass, Handle, Key, Owned, Record};
use structures::{BlockLimit, End, Hash, Kept, List};

use self::elements::{Elements, Weights, score};
use self::pattern::Pattern;
use crate::families::strings::shared::write_string;
use crate::structure;

mod elements;
mod pattern;

/// Maximum number of pattern keys that are locked individually. For more, the store is taken
/// exclusively.
const LOCKED_KEYS_MAX: usize = 1024;

/// Maximum number of elements in one command of an effect. Longer results take several commands.
const STATED_ELEMENTS_MAX: usize = 512;

const NOT_SCORES: CommandError =
    CommandError::fixed("ERR One or more scores can't be converted into double");

const SOURCE: KeySpec = KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS));
const DESTINATION_ACCESS: KeyAccess = KeyAccess::OW.with(KeyAccess::UPDATE);

/// The keys that elements lead to.
const LOOKED_UP: KeySpec = KeySpec {
    begin: Begin::Unknown,
    find: Find::Unknown,
    access: KeyAccess::RO.with(KeyAccess::ACCESS),
    notes: "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive \
            from the content of the key we sort",
};

/// The key of STORE.
const STORED: KeySpec = KeySpec {
    access: DESTINATION_ACCESS,
    notes: "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear \
            anywhere in the argument array",
    ..LOOKED_UP
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "SORT",
        looks_up: Some(looks_up),
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLE_KEYS),
        keys: &[SOURCE, LOOKED_UP, STORED],
        keys_of: Some(keys_of),
        syntax: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] \
                 [ASC | DESC] [ALPHA:sorting] [STORE destination]",
        handler: |context, args, reply| sort(context, args, reply, true),
        ..SORTER
    },
    CommandSpec {
        name: "SORT_RO",
        looks_up: Some(looks_up),
        flags: Flags::READONLY.with(Flags::MOVABLE_KEYS),
        keys: &[SOURCE, LOOKED_UP],
        since: "7.0.0",
        syntax: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] \
                 [ASC | DESC] [ALPHA:sorting]",
        handler: |context, args, reply| sort(context, args, reply, false),
        ..SORTER
    },
];

const SORTER: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(2),
    group: Group::Generic,
    categories: &["set", "sortedset", "list", "dangerous"],
    summary: "Gives the elements of a list, set or sorted set in order, or what they lead to.",
    complexity: "O(N log N) where N is the number of elements; O(M) of M elements asked for when \
                 nothing is sorted.",
    ..CommandSpec::BLANK
};

const BY_DENIED: &str = "ERR BY option of SORT denied due to insufficient ACL permissions.";
const GET_DENIED: &str = "ERR GET option of SORT denied due to insufficient ACL permissions.";

/// The parsed request.
struct Options<'a> {
    source: &'a [u8],
    order: Order<'a>,
    gets: Vec<Get<'a>>,
    offset: i64,
    /// Negative for all.
    count: i64,
    is_descending: bool,
    is_alphabetic: bool,
    destination: Option<&'a [u8]>,
}

/// What determines the order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order<'a> {
    Elements,
    /// A BY without a star: the elements keep their order.
    Found,
    Keys(Pattern<'a>),
}

/// What is returned for an element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Get<'a> {
    /// The element itself.
    Element,
    /// Nothing, for a GET without a star.
    Nothing,
    Key(Pattern<'a>),
}

impl<'a> Options<'a> {
    /// Parses a request. `may_follow` says whether the client may read the keys that patterns lead
    /// to.
    fn parse(args: &mut Args<'a>, may_store: bool, may_follow: bool) -> Result<Self, CommandError> {
        let mut options = Self {
            source: args.bytes()?,
            order: Order::Elements,
            gets: Vec::new(),
            offset: 0,
            count: -1,
            is_descending: false,
            is_alphabetic: false,
            destination: None,
        };
        while let Some(word) = args.option_word() {
            match (word.as_bytes(), args.remaining()) {
                (b"ASC", _) => options.is_descending = false,
                (b"DESC", _) => options.is_descending = true,
                (b"ALPHA", _) => options.is_alphabetic = true,
                (b"LIMIT", 2..) => {
                    options.offset = args.integer()?;
                    options.count = args.integer()?;
                }
                (b"STORE", 1..) if may_store => options.destination = Some(args.bytes()?),
                (b"BY", 1..) => {
                    options.order = Order::parse(args.bytes()?);
                    if !may_follow && options.sorts() {
                        return Err(CommandError::fixed(BY_DENIED));
                    }
                }
                (b"GET", 1..) if !may_follow => return Err(CommandError::fixed(GET_DENIED)),
                (b"GET", 1..) => options.gets.push(Get::parse(args.bytes()?)),
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(options)
    }

    /// Whether anything is sorted.
    fn sorts(&self) -> bool {
        self.order != Order::Found
    }

    /// Returns the patterns that are applied to every element.
    fn patterns(&self) -> impl Iterator<Item = &Pattern<'a>> {
        let by = match &self.order {
            Order::Keys(pattern) => Some(pattern),
            _ => None,
        };
        let gets = self.gets.iter().filter_map(|get| match get {
            Get::Key(pattern) => Some(pattern),
            _ => None,
        });
        by.into_iter().chain(gets)
    }

    /// Returns the range of `len` sorted elements that LIMIT selects.
    fn window(&self, len: usize) -> Range<usize> {
        let clamp = |number: i64| usize::try_from(number).unwrap_or(usize::MAX).min(len);
        let start = clamp(self.offset.max(0));
        let count = if self.count < 0 {
            len
        } else {
            clamp(self.count)
        };
        start..start.saturating_add(count).min(len)
    }
}

impl<'a> Order<'a> {
    fn parse(text: &'a [u8]) -> Self {
        Pattern::parse(text).map_or(Self::Found, Self::Keys)
    }
}

impl<'a> Get<'a> {
    fn parse(text: &'a [u8]) -> Self {
        if text == b"#" {
            return Self::Element;
        }
        Pattern::parse(text).map_or(Self::Nothing, Self::Key)
    }
}

fn sort(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    may_store: bool,
) -> CommandResult {
    let name = if may_store { "SORT" } else { "SORT_RO" };
    let may_follow = match context.table.original().find(name.as_bytes()) {
        Some(row) => context.reads_all_keys((row.index, row.spec), args.request()),
        None => false,
    };
    let request = args.request();
    let options = Options::parse(args, may_store, may_follow)?;
    if context.shared.hash_slots.is_on() {
        stays_in_slot(&request)?;
    }
    let sorting = Sorting {
        source: context.key(options.source),
        destination: options.destination.map(|name| context.key(name)),
        is_kept: options.destination.is_some() || context.session.in_script,
        database: context.session.database,
        block_limit: context.shared.settings.thresholds.list_blocks(),
        now_unix_ms: context.now_unix_ms,
        options,
    };
    if sorting.options.patterns().next().is_some() {
        return match sorting.run_locked(context.store, reply) {
            Some(result) => result,
            None => context.store.exclusive(|store| sorting.run(store, reply)),
        };
    }
    match sorting.destination {
        Some(destination) => context
            .store
            .locked(&[sorting.source, destination], |store| {
                sorting.run(store, reply)
            }),
        None => sorting.run(context.store, reply),
    }
}

/// A request with its context.
struct Sorting<'a> {
    options: Options<'a>,
    source: Key<'a>,
    destination: Option<Key<'a>>,
    /// Whether the result must be deterministic.
    is_kept: bool,
    database: DatabaseId,
    block_limit: BlockLimit,
    now_unix_ms: u64,
}

impl Sorting<'_> {
    /// Does everything with the keys locked that the elements lead to. Returns `None`, with nothing
    /// done, if these keys are too many or changed meanwhile.
    fn run_locked(&self, store: &mut Handle, reply: &mut Reply<'_>) -> Option<CommandResult> {
        let before = match self.elements(store) {
            Ok(elements) => elements,
            Err(error) => return Some(Err(error)),
        };
        let patterns_count = self.options.patterns().count();
        if before.len().saturating_mul(patterns_count) > LOCKED_KEYS_MAX {
            return None;
        }
        let names: Vec<Vec<u8>> = self
            .options
            .patterns()
            .flat_map(|pattern| before.iter().map(|element| pattern.key_for(element)))
            .collect();
        let looked_up = names.iter().map(|name| store.key(self.database, name));
        let named = [Some(self.source), self.destination];
        let keys: Vec<Key<'_>> = looked_up.chain(named.into_iter().flatten()).collect();
        let source = &self.source;
        let look_again =
            |store: &mut Handle| store.inspect(source, |found| Elements::of(found, &self.options));
        store.locked(&keys, |store| match look_again(store) {
            Ok(elements) if elements == before => Some(self.finish(store, &elements, reply)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
    }

    fn run(&self, store: &mut Handle, reply: &mut Reply<'_>) -> CommandResult {
        let elements = self.elements(store)?;
        self.finish(store, &elements, reply)
    }

    fn elements(&self, store: &mut Handle) -> Result<Elements, CommandError> {
        store.read(&self.source, |record| Elements::of(record, &self.options))
    }

    fn finish(
        &self,
        store: &mut Handle,
        elements: &Elements,
        reply: &mut Reply<'_>,
    ) -> CommandResult {
        let weights = self.weights(store, elements)?;
        let sorted = elements.sorted(&weights, self.options.is_descending);
        match &self.destination {
            Some(destination) => self.keep(store, destination, &sorted, reply),
            None => {
                self.write(store, &sorted, reply);
                Ok(())
            }
        }
    }

    fn weights(&self, store: &mut Handle, elements: &Elements) -> Result<Weights, CommandError> {
        let is_alphabetic = self.options.is_alphabetic;
        Ok(match self.options.order {
            // Storing members of a set requires a deterministic order, and so do scripts.
            Order::Found if self.is_kept && elements.is_set() => Weights::Elements,
            Order::Found => Weights::None,
            Order::Elements if is_alphabetic => Weights::Elements,
            Order::Elements => {
                let scores: Option<Vec<f64>> = elements.iter().map(score).collect();
                Weights::Scores(scores.ok_or(NOT_SCORES)?)
            }
            Order::Keys(pattern) => {
                let texts = elements
                    .iter()
                    .map(|element| self.look_up(store, &pattern, element, |found| found.to_vec()));
                if is_alphabetic {
                    Weights::Texts(texts.collect())
                } else {
                    let scores: Option<Vec<f64>> = texts
                        .map(|text| text.map_or(Some(0.0), |text| score(&text)))
                        .collect();
                    Weights::Scores(scores.ok_or(NOT_SCORES)?)
                }
            }
        })
    }

    /// Shows `visit` the value that a pattern leads to for an element.
    fn look_up<R>(
        &self,
        store: &mut Handle,
        pattern: &Pattern<'_>,
        element: &[u8],
        mut visit: impl FnMut(Found<'_>) -> R,
    ) -> R {
        let name = pattern.key_for(element);
        let key = store.key(self.database, &name);
        store.read(&key, |record| match (pattern.field(), record) {
            (None, Some(record)) if record.is_string() => visit(Found::String(record)),
            (Some(field), Some(record)) => {
                let hash = record.structure::<Hash>().ok();
                let found = hash
                    .as_deref()
                    .and_then(|hash| hash.get(field, self.now_unix_ms));
                match found {
                    Some(field) => visit(Found::Field(field.value.as_bytes())),
                    None => visit(Found::Nothing),
                }
            }
            _ => visit(Found::Nothing),
        })
    }

    fn write(&self, store: &mut Handle, sorted: &[&[u8]], reply: &mut Reply<'_>) {
        let gets = &self.options.gets;
        reply.array(sorted.len().saturating_mul(gets.len().max(1)));
        for element in sorted {
            if gets.is_empty() {
                reply.bulk(element);
            }
            for get in gets {
                match get {
                    Get::Element => reply.bulk(element),
                    Get::Nothing => reply.null(),
                    Get::Key(pattern) => {
                        let mark = reply.mark();
                        self.look_up(store, pattern, element, |found| {
                            reply.rollback(mark);
                            found.write(reply);
                        });
                    }
                }
            }
        }
    }

    /// Stores the result as a list at `destination`. A missing value becomes an empty element.
    fn keep(
        &self,
        store: &mut Handle,
        destination: &Key<'_>,
        sorted: &[&[u8]],
        reply: &mut Reply<'_>,
    ) -> CommandResult {
        let mut list = List::new();
        let mut push = |bytes: &[u8]| {
            list.push(End::Back, structure::element(bytes)?, self.block_limit);
            Ok::<_, CommandError>(())
        };
        for element in sorted {
            if self.options.gets.is_empty() {
                push(element)?;
            }
            for get in &self.options.gets {
                match get {
                    Get::Element => push(element)?,
                    Get::Nothing => push(b"")?,
                    Get::Key(pattern) => {
                        let text = self.look_up(store, pattern, element, |found| found.to_vec());
                        push(&text.unwrap_or_default())?;
                    }
                }
            }
        }
        let len = list.len();
        put(store, destination, list)?;
        reply.count(len);
        Ok(())
    }
}

/// The value that BY or GET leads to.
enum Found<'f> {
    Nothing,
    String(&'f Record<'f>),
    Field(&'f [u8]),
}

impl Found<'_> {
    fn to_vec(&self) -> Option<Vec<u8>> {
        match self {
            Self::Nothing => None,
            Self::String(record) => Some(record.to_vec()),
            Self::Field(value) => Some(value.to_vec()),
        }
    }

    fn write(&self, reply: &mut Reply<'_>) {
        match self {
            Self::Nothing => reply.null(),
            Self::String(record) => write_string(Some(record), reply),
            Self::Field(value) => reply.bulk(value),
        }
    }
}

/// Stores a list at a key, or deletes the key if the list is empty, and states the effect.
fn put(store: &mut Handle, key: &Key<'_>, list: List) -> CommandResult {
    store.modify(key, |entry| {
        let existed = entry.is_present();
        let elements: Vec<_> = list.iter().map(|element| element.to_vec()).collect();
        if list.is_empty() {
            entry.remove();
        } else {
            entry.put(Owned::of_object(list.into_object(), None))?;
        }
        if existed {
            entry.effect(|effect| effect.command(&[b"DEL", key.bytes()]));
        }
        if !elements.is_empty() {
            entry.event(EventClass::LIST, "sortstore");
        } else if existed {
            entry.event(EventClass::GENERIC, Event::DELETED);
        }
        for some in elements.chunks(STATED_ELEMENTS_MAX) {
            entry.effect(|effect| {
                let mut parts: Vec<&[u8]> = vec![b"RPUSH", key.bytes()];
                parts.extend(some.iter().map(Vec::as_slice));
                effect.command(&parts);
            });
        }
        Ok(())
    })
}

/// Whether the elements lead to further keys.
fn looks_up(request: &Request<'_>) -> bool {
    let is = |at: usize, word: &[u8]| {
        let argument = request.arg(at).unwrap_or_default();
        argument.eq_ignore_ascii_case(word)
    };
    (2..request.len()).any(|at| is(at, b"BY") || is(at, b"GET"))
}

/// In cluster mode, patterns may lead only to keys in the source's hash slot, with the hash tag in
/// the pattern.
fn stays_in_slot(request: &Request<'_>) -> CommandResult {
    let source = request.arg(1).map(hash_slot::of);
    let stays = |pattern: &[u8]| {
        let star = pattern.iter().position(|byte| *byte == b'*');
        let close = pattern.iter().position(|byte| *byte == b'}');
        let has_tag = pattern.contains(&b'{') && close.is_some();
        let is_fixed = star.is_none_or(|star| close.is_some_and(|close| close < star));
        has_tag && is_fixed && Some(hash_slot::of(pattern)) == source
    };
    let mut at = 2;
    while let Some(word) = request.arg(at) {
        let is = |option: &[u8]| word.eq_ignore_ascii_case(option);
        let pattern = request.arg(at + 1).unwrap_or_default();
        if is(b"BY") && pattern.contains(&b'*') && !stays(pattern) {
            return Err(CommandError::fixed(
                "ERR BY option of SORT denied in Cluster mode.",
            ));
        }
        if is(b"GET") && pattern != b"#" && !stays(pattern) {
            return Err(CommandError::fixed(
                "ERR GET option of SORT denied in Cluster mode.",
            ));
        }
        at += match () {
            () if is(b"LIMIT") => 3,
            () if is(b"GET") || is(b"BY") || is(b"STORE") => 2,
            () => 1,
        };
    }
    Ok(())
}

/// Returns the keys that a SORT names: the source, and the last STORE's.
fn keys_of(_table: &Table, request: &Request<'_>) -> Vec<(usize, KeyAccess)> {
    let mut keys = vec![(1, SOURCE.access)];
    let mut stored = None;
    let mut at = 2;
    while let Some(word) = request.arg(at) {
        let is = |option: &[u8]| word.eq_ignore_ascii_case(option);
        if is(b"STORE") && at + 1 < request.len() {
            stored = Some(at + 1);
        }
        at += match () {
            () if is(b"LIMIT") => 3,
            () if is(b"GET") || is(b"BY") || is(b"STORE") => 2,
            () => 1,
        };
    }
    keys.extend(stored.map(|at| (at, DESTINATION_ACCESS)));
    keys
}

#[cfg(test)]
mod tests;
