//! Collections of every kind while they grow and shrink: in parts, in a box, and between keys.

use proptest::prelude::*;
use structures::{
    FieldDeadline, Full, Hash, HashLimits, Set, SetLimits, SortedSet, SortedSetLimits,
};

use super::Force;
use super::twin::{Name, Step, Value, cases, compare, end, etag, run, when};
use crate::entry::Entry;
use crate::handle::Handle;
use crate::key::DatabaseId;
use crate::value::{Deadline, StoreError};

/// A change of a member of a collection, which is created if need be.
#[derive(Clone, Debug)]
pub(super) struct Collect {
    kind: Kind,
    member: Vec<u8>,
    /// Adds the member with this value; `None` removes it.
    value: Option<Vec<u8>>,
    /// Maximum number of members in one buffer.
    entries: usize,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Hash,
    /// A hash whose field gets a deadline far ahead.
    Expiring,
    Set,
    SortedSet,
}

const BUFFER_VALUE_BYTES: usize = 64;
const FAR_UNIX_MS: u64 = 1 << 45;

pub(super) fn collect() -> impl Strategy<Value = Collect> {
    let kind = prop_oneof![
        6 => Just(Kind::Hash),
        1 => Just(Kind::Expiring),
        8 => Just(Kind::Set),
        6 => Just(Kind::SortedSet),
    ];
    let member = prop_oneof![
        6 => (-12..12_i64).prop_map(|number| number.to_string().into_bytes()),
        1 => (-3..3_i64).prop_map(|number| (number << 40).to_string().into_bytes()),
        3 => (0..12_u32).prop_map(|number| format!("member:{number}").into_bytes()),
        1 => Just(vec![b'm'; BUFFER_VALUE_BYTES + 1]),
    ];
    let value = prop_oneof![
        9 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => Just(vec![b'v'; BUFFER_VALUE_BYTES + 1]),
        // One buffer that is too long for a record to keep it in parts.
        1 => Just(vec![b'w'; 66_000]),
    ];
    let value = proptest::option::weighted(0.7, value);
    // As if the configuration changed each time.
    let entries = prop_oneof![Just(4), Just(16), Just(1 << 20)];
    (kind, member, value, entries).prop_map(|(kind, member, value, entries)| Collect {
        kind,
        member,
        value,
        entries,
    })
}

impl Collect {
    /// Runs the change. Returns the number of members afterwards.
    pub(super) fn run(&self, entry: &mut Entry<'_>) -> Result<usize, StoreError> {
        match self.kind {
            Kind::Hash | Kind::Expiring => entry.change_or_create(|hash| self.change_hash(hash)),
            Kind::Set => entry.change_or_create(|set| self.change_set(set)),
            Kind::SortedSet => entry.change_or_create(|set| self.change_sorted_set(set)),
        }?
        .map_err(|_| StoreError::TooLarge)
    }

    /// A long value counts as short if one buffer may have any number of members.
    fn value_bytes(&self) -> usize {
        if self.entries == 1 << 20 {
            1 << 20
        } else {
            BUFFER_VALUE_BYTES
        }
    }

    fn change_hash(&self, hash: &mut Hash) -> Result<usize, Full> {
        let limits = HashLimits {
            listpack_entries: self.entries,
            listpack_value_bytes: self.value_bytes(),
        };
        let deadline = match self.kind {
            Kind::Expiring => FieldDeadline::At(FAR_UNIX_MS),
            _ => FieldDeadline::Never,
        };
        match &self.value {
            Some(value) => {
                hash.set(&self.member, value, deadline, 0, &limits)?;
            }
            None => {
                hash.remove(&self.member);
            }
        }
        Ok(hash.len())
    }

    fn change_set(&self, set: &mut Set) -> Result<usize, Full> {
        let limits = SetLimits {
            intset_entries: self.entries,
            listpack_entries: self.entries,
            listpack_value_bytes: self.value_bytes(),
        };
        match &self.value {
            Some(_) => set.insert(&self.member, &limits)?,
            None => set.remove(&self.member),
        };
        Ok(set.len())
    }

    fn change_sorted_set(&self, set: &mut SortedSet) -> Result<usize, Full> {
        let limits = SortedSetLimits {
            listpack_entries: self.entries,
            listpack_value_bytes: self.value_bytes(),
        };
        match &self.value {
            Some(value) => {
                let score = value.iter().map(|byte| f64::from(*byte) / 2.0).sum();
                set.insert(&self.member, score, &limits)?;
            }
            None => {
                set.remove(&self.member);
            }
        }
        Ok(set.len())
    }
}

/// Few keys, so that many steps change each.
fn name() -> impl Strategy<Value = Name> {
    (0..6_u32).prop_map(|number| Name {
        database: 0,
        bytes: format!("key:{number}").into_bytes(),
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (name(), collect()).prop_map(|(n, c)| Step::Collect(n, c)),
        4 => (name(), proptest::collection::vec(any::<u8>(), 0..40), end())
            .prop_map(|(n, v, end)| Step::Push(n, Value(v), end)),
        2 => (name(), 0..4_usize).prop_map(|(n, count)| Step::Pop(n, count)),
        4 => name().prop_map(Step::Read),
        6 => (name(), name()).prop_map(|(a, b)| Step::Rename(a, b)),
        6 => (name(), name()).prop_map(|(a, b)| Step::Copy(a, b)),
        3 => name().prop_map(Step::Delete),
        1 => (name(), when()).prop_map(|(n, w)| Step::Set(n, Value(b"text".to_vec()), w)),
        2 => (name(), proptest::option::of(0..200_u64)).prop_map(|(n, d)| Step::SetDeadline(n, d)),
        2 => (name(), etag()).prop_map(|(n, e)| Step::SetEtag(n, e)),
        1 => name().prop_map(Step::Touch),
        1 => Just(Step::Swap),
        1 => (0..60_u64).prop_map(Step::Pass),
    ]
}

/// Returns the exact sum of all counted bytes: advances time far enough that the thread reports its
/// counts.
fn used_bytes(handle: &mut Handle, now_unix_ms: &mut u64) -> u64 {
    *now_unix_ms += 10_000;
    handle.begin(*now_unix_ms);
    while handle.tick(*now_unix_ms) {}
    handle.statistics().used_bytes
}

/// Runs the steps, removes all keys, and checks that no counted bytes are left.
fn leaves_nothing(steps: &[Step]) {
    let store = Force::TINY.store(2);
    let mut handle = store.handle();
    let mut now = 1_000_000;
    let bytes = |number: DatabaseId| format!("key:{number}").into_bytes();
    let all = (0..12).map(|number| (number / 6, bytes(number % 6)));
    let remove_all = |handle: &mut Handle| {
        for (database, bytes) in all.clone() {
            handle.delete(&handle.key(database, &bytes), |_| ());
        }
    };
    handle.begin(now);
    // So that both databases have a table.
    for (database, bytes) in all.clone() {
        let key = handle.key(database, &bytes);
        handle.upsert(&key, b"x", Deadline::Never, |_| ()).unwrap();
    }
    remove_all(&mut handle);
    let before = used_bytes(&mut handle, &mut now);
    for step in steps {
        // The wheels of deadlines take memory of their own.
        let arms = match step {
            Step::SetDeadline(..) | Step::Set(..) => true,
            Step::Collect(_, collect) => matches!(collect.kind, Kind::Expiring),
            _ => false,
        };
        if !arms {
            run(&mut handle, step, &mut now);
        }
    }
    remove_all(&mut handle);
    assert_eq!(used_bytes(&mut handle, &mut now), before);
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn collections_change_their_form_as_they_do_in_the_twin(
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        compare(Force::TINY, &steps);
    }

    #[test]
    fn what_collections_took_is_given_back(steps in proptest::collection::vec(step(), 1..300)) {
        leaves_nothing(&steps);
    }
}
