//! The encoded forms that members of a control group send and keep: entries, messages, snapshots,
//! records.
//!
//! Accepted bytes are exactly those that would be written. If an entry is applied to a state that
//! was read, the resulting state can be read.
#![no_main]

use cluster::bytes::{record, take_record};
use cluster::message::Message;
use cluster::{ControlState, Proposal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else {
        return;
    };
    match first % 4 {
        0 => {
            if let Ok(message) = Message::decode(rest) {
                assert_eq!(message.encode(), rest);
            }
        }
        1 => {
            if let Ok(proposal) = Proposal::decode(rest) {
                assert_eq!(proposal.encode(), rest);
                apply(ControlState::default(), &proposal);
            }
        }
        2 => {
            let at = rest.len() / 2;
            if let (Ok(state), Ok(proposal)) = (
                ControlState::decode(&rest[at..]),
                Proposal::decode(&rest[..at]),
            ) {
                apply(state, &proposal);
            }
        }
        _ => {
            let mut left = rest;
            while let Ok(body) = take_record(&mut left) {
                assert!(
                    rest.windows(record(body).len())
                        .any(|part| part == record(body))
                );
            }
        }
    }
});

fn apply(mut state: ControlState, proposal: &Proposal) {
    let _applied = state.apply(state.index.saturating_add(1), proposal);
    let bytes = state.encode();
    assert_eq!(ControlState::decode(&bytes).as_ref(), Ok(&state));
}
