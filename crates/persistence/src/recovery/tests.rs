//! Which effects of a log are applied to a checkpoint, and the content of its controls.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use base::clock::ManualClock;
use durability::checkpoint::History;
use durability::log::{Control, Log, Options, SlotRanges, SourceFrame, TermFrame};
use durability::simulated::SimulatedDisk;
use store::Store;

use super::*;

const TERM: TermFrame = TermFrame {
    number: 7,
    id: [1; 20],
    previous: [2; 20],
    node: [3; 20],
    resp_offset: 4,
    flags: 0,
};
const SOURCE: SourceFrame = SourceFrame {
    replid: [b'a'; 40],
    offset: 5678,
    database: 3,
};

/// Writes a log of a term, an effect of generation 2 and, with a source, an effect of generation 9;
/// returns where the second effect begins.
fn logged(place: &Place, last: Option<Control<'_>>) -> u64 {
    let (disk, clock) = (
        Arc::clone(&place.disk),
        Arc::new(ManualClock::at_unix_ms(1)),
    );
    let log = Log::open(disk, clock, &place.log_directory, 0, Options::default()).unwrap();
    let mut appender = log.appender();
    appender.control(&Control::Term(TERM));
    appender.generation(2);
    appender.command(0, &[b"APPEND", b"key", b"old"]);
    appender.control(&Control::Ping);
    let source = log.tail();
    appender.group_begin();
    appender.generation(9);
    appender.command(0, &[b"APPEND", b"key", b"new"]);
    appender.control(&Control::Source(SOURCE));
    appender.group_end();
    if let Some(control) = last {
        appender.control(&control);
    }
    log.close().unwrap();
    source
}

fn place() -> Place {
    Place {
        disk: Arc::new(SimulatedDisk::new(1)),
        directory: PathBuf::from("data"),
        log_directory: PathBuf::from("data/log"),
    }
}

/// Returns a checkpoint without keys, of generation 5.
fn checkpoint(cut_sequence: Option<u64>) -> Manifest {
    Manifest {
        generation: 5,
        log_sequence: Some(0),
        history: History {
            cut_sequence,
            ..History::default()
        },
        ..Manifest::default()
    }
}

fn recovered(place: &Place, manifest: Manifest) -> (Result<Recovered, RecoveryError>, String) {
    let store = Store::new(&store::Options::default()).unwrap();
    let clock = Arc::new(ManualClock::at_unix_ms(1));
    let env = Environment::new(testkit::table(), Arc::clone(&store), clock);
    let recovered = recover(&env, place, manifest, (Target::End, Effects::Applied), 1);
    let mut handle = store.handle();
    handle.begin(1);
    let key = handle.key(0, b"key");
    let value = handle.read(&key, |record| record.map(store::Record::to_vec));
    let value = value.unwrap_or_default();
    (recovered, String::from_utf8(value).unwrap())
}

/// A replica's checkpoint is cut between batches, and generations in its log are those of its
/// primary. The same holds for what another primary wrote after the end of this server's log.
#[test]
fn effects_are_told_from_those_of_a_checkpoint_by_generation_or_by_the_cut() {
    let place = place();
    let source = logged(&place, None);
    for (cut_sequence, settled_sequence, expected) in [
        (None, None, "new"),
        (None, Some(source), "new"),
        (Some(0), None, "oldnew"),
        (None, Some(0), "oldnew"),
    ] {
        let mut manifest = checkpoint(cut_sequence);
        manifest.history.settled_sequence = settled_sequence;
        let (recovered, value) = recovered(&place, manifest);
        let recovered = recovered.unwrap();
        assert_eq!(value, expected);
        assert_eq!(recovered.generation(), 9);
        let term = TermEntry {
            number: TERM.number,
            id: TERM.id,
            start: 0,
        };
        assert_eq!(recovered.terms(), [term]);
        let stream = recovered.log.unwrap().controls.stream.unwrap();
        assert_eq!((stream.id, stream.offset), (SOURCE.replid, SOURCE.offset));
    }
}

#[test]
fn what_cannot_be_applied_is_refused_by_name() {
    let place = place();
    let ranges = SlotRanges::bytes_of(&[(1, 2)]);
    logged(&place, SlotRanges::new(&ranges).map(Control::Trim));
    let (recovered, _) = recovered(&place, checkpoint(None));
    let text = recovered.unwrap_err().to_string();
    assert!(
        text.ends_with("that this server cannot apply: trim"),
        "{text}"
    );
}
