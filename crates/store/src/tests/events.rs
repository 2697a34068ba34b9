//! Events: which are stated, to which sink, in which order.

use std::sync::{Arc, Mutex};

use structures::{BlockLimit, Element, End, FieldDeadline, Hash, HashLimits, List};

use super::Force;
use crate::event::{Event, EventClass, EventSink};
use crate::handle::Handle;
use crate::store::{Options, Store};
use crate::value::Deadline;

const START: u64 = 1_000_000;

/// All classes.
const ALL: EventClass = EventClass::GENERIC
    .and(EventClass::STRING)
    .and(EventClass::LIST)
    .and(EventClass::HASH)
    .and(EventClass::EXPIRED)
    .and(EventClass::EVICTED)
    .and(EventClass::KEY_MISS)
    .and(EventClass::NEW);

/// A sink that records events, as `name database key`.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl EventSink for Heard {
    fn event(&mut self, event: &Event<'_>) {
        let key = String::from_utf8_lossy(event.key);
        let line = format!("{} {} {key}", event.name, event.database);
        self.0.lock().unwrap().push(line);
    }
}

fn listen(store: &Arc<Store>, classes: EventClass) -> (Handle, Heard) {
    let mut handle = store.handle();
    let heard = Heard::default();
    store.set_wanted_events(classes);
    handle.set_event_sink(Some(Box::new(heard.clone())));
    handle.begin(START);
    (handle, heard)
}

/// The real and the naive store.
fn stores() -> [Arc<Store>; 2] {
    [
        Force::TINY.store(2),
        Store::naive(&Options { databases: 2 }),
    ]
}

fn set(handle: &mut Handle, name: &str, deadline: Deadline) {
    let key = handle.key(1, name.as_bytes());
    handle.modify(&key, |entry| {
        entry.set(b"value", deadline).unwrap();
        entry.event(EventClass::STRING, "set");
    });
}

fn push(handle: &mut Handle, name: &str) {
    let key = handle.key(1, name.as_bytes());
    handle.modify(&key, |entry| {
        let push = |list: &mut List| {
            list.push(End::Back, Element::Integer(1), BlockLimit::default());
        };
        entry.change_or_create(push).unwrap();
        entry.event(EventClass::LIST, "push");
    });
}

fn pop(handle: &mut Handle, name: &str) {
    let key = handle.key(1, name.as_bytes());
    handle.modify(&key, |entry| {
        let pop = |list: &mut List| {
            list.pop(End::Back, 1, BlockLimit::default());
        };
        entry.change(pop).unwrap();
        entry.event_of_taking(EventClass::LIST, "pop");
    });
}

#[test]
fn new_keys_misses_and_expiry_state_their_own() {
    for store in stores() {
        let (mut handle, heard) = listen(&store, ALL);
        set(&mut handle, "s", Deadline::At(START + 10));
        set(&mut handle, "s", Deadline::Keep);
        let absent = handle.key(1, b"absent");
        handle.read(&absent, |record| assert!(record.is_none()));
        let present = handle.key(1, b"s");
        handle.read(&present, |record| assert!(record.is_some()));
        assert_eq!(
            heard.take(),
            ["new 1 s", "set 1 s", "set 1 s", "keymiss 1 absent"]
        );
        handle.begin(START + 10);
        set(&mut handle, "s", Deadline::Never);
        assert_eq!(heard.take(), ["expired 1 s", "new 1 s", "set 1 s"]);
    }
}

#[test]
fn the_last_element_goes_with_a_word() {
    for store in stores() {
        let (mut handle, heard) = listen(&store, ALL);
        push(&mut handle, "l");
        push(&mut handle, "l");
        pop(&mut handle, "l");
        assert_eq!(heard.take(), ["new 1 l", "push 1 l", "push 1 l", "pop 1 l"]);
        pop(&mut handle, "l");
        assert_eq!(heard.take(), ["pop 1 l", "del 1 l"]);
    }
}

#[test]
fn only_what_is_wanted_is_heard_and_by_the_thread_that_did_it() {
    for store in stores() {
        let (mut handle, heard) = listen(&store, EventClass::LIST);
        let (mut other, heard_by_other) = listen(&store, EventClass::LIST);
        set(&mut handle, "s", Deadline::Never);
        push(&mut handle, "l");
        pop(&mut other, "l");
        assert_eq!(heard.take(), ["push 1 l"]);
        assert_eq!(heard_by_other.take(), ["pop 1 l"]);
        store.set_wanted_events(EventClass::NONE);
        push(&mut handle, "l");
        assert!(heard.take().is_empty());
        store.set_wanted_events(EventClass::GENERIC);
        let key = handle.key(0, b"named");
        handle.event(&key, EventClass::GENERIC, "renamed");
        assert_eq!(heard.take(), ["renamed 0 named"]);
        handle.set_event_sink(None);
        handle.event(&key, EventClass::GENERIC, "renamed");
        assert!(heard.take().is_empty());
    }
}

#[test]
fn the_clock_states_what_it_removes() {
    let store = Force::TINY.store(2);
    let (mut handle, heard) = listen(&store, ALL);
    set(&mut handle, "s", Deadline::At(START + 10));
    let key = handle.key(1, b"h");
    handle.modify(&key, |entry| {
        let limits = HashLimits {
            listpack_entries: 128,
            listpack_value_bytes: 64,
        };
        let fill = |hash: &mut Hash| {
            for (field, at) in [(b"a", START + 10), (b"b", START + 10), (b"c", START + 20)] {
                hash.set(field, b"v", FieldDeadline::At(at), START, &limits)
                    .unwrap();
            }
        };
        entry.change_or_create(fill).unwrap();
    });
    assert_eq!(heard.take(), ["new 1 s", "set 1 s", "new 1 h"]);
    let mut at = |now| {
        while handle.tick(now) {}
        let mut lines = heard.take();
        lines.sort();
        lines
    };
    assert!(at(START + 9).is_empty());
    assert_eq!(at(START + 10), ["expired 1 s", "hexpired 1 h"]);
    assert_eq!(at(START + 20), ["del 1 h", "hexpired 1 h"]);
}
