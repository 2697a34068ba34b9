//! Etags: what raises them, and what clears them.

use crate::entry::Entry;
use crate::handle::Handle;
use crate::store::{Options, Store};
use crate::value::{Deadline, ETAG_MAX};

fn change(handle: &mut Handle, name: &[u8], change: impl FnOnce(&mut Entry<'_>)) -> u64 {
    let key = handle.key(0, name);
    handle.modify(&key, change);
    handle.read(&key, |record| record.map_or(0, |record| record.etag()))
}

#[test]
fn changes_of_a_value_count_up_and_other_values_clear() {
    let options = Options { databases: 1 };
    for store in [Store::new(&options).unwrap(), Store::naive(&options)] {
        let mut handle = store.handle();
        handle.begin(1_000);
        let with = |entry: &mut Entry<'_>, etag| entry.set_with_etag(b"v", Deadline::Never, etag);
        assert_eq!(
            change(&mut handle, b"a", |entry| with(entry, 5).unwrap()),
            5
        );
        let append = |entry: &mut Entry<'_>| {
            entry.append(b"x").unwrap();
            entry.append(&[b'y'; 40_000]).unwrap();
        };
        assert_eq!(change(&mut handle, b"a", append), 6, "one change, one step");
        let expire = |entry: &mut Entry<'_>| entry.set_deadline(Some(9_000)).unwrap();
        assert_eq!(change(&mut handle, b"a", expire), 6);
        let count = |entry: &mut Entry<'_>| entry.set_integer(1, Deadline::Keep).unwrap();
        assert_eq!(change(&mut handle, b"a", count), 7);
        let put = |entry: &mut Entry<'_>| {
            let value = entry.take().unwrap();
            entry.put(value).unwrap();
        };
        assert_eq!(change(&mut handle, b"a", put), 0);
        assert_eq!(change(&mut handle, b"a", count), 0);
        assert_eq!(
            change(&mut handle, b"a", |entry| with(entry, ETAG_MAX).unwrap()),
            ETAG_MAX
        );
        assert_eq!(change(&mut handle, b"a", count), ETAG_MAX);
        let set = |entry: &mut Entry<'_>| entry.set(b"w", Deadline::At(5_000)).unwrap();
        assert_eq!(change(&mut handle, b"a", set), 0);
    }
}
