//! Checkpoints beside workers who want the cores. How long anything takes is not looked at: that is the machine's.

use base::clock::SystemClock;
use base::courtesy::Host;

use super::*;

#[test]
fn a_checkpoint_ends_beside_workers_who_are_always_busy() {
    let (store, disk) = (store(), device(1));
    fill(&store);
    let expected = contents(&store).len() as u64;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let courtesy = Arc::new(Courtesy::of_machine(Arc::clone(&clock)));
    let checkpointer = Arc::new(Checkpointer::new(Setup {
        clock,
        courtesy: Arc::clone(&courtesy),
        ..setup(&store, disk.clone())
    }));
    let thread = CheckpointThread::start(&checkpointer).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (mut handle, mut host) = (store.handle(), Host::new(Arc::clone(&courtesy)));
                while !is_over.load(Ordering::Relaxed) {
                    for number in 0..300 {
                        let name = format!("text:{number}");
                        let key = handle.key(number % 4, name.as_bytes());
                        let set = handle.upsert(&key, b"value:999", Deadline::Never, |_| ());
                        set.unwrap();
                    }
                    host.turn_ended();
                }
            });
        }
        for _ in 0..3 {
            let ticket = checkpointer.request(Why::LongLog).unwrap();
            let outcome = loop {
                match checkpointer.outcome(ticket) {
                    Some(outcome) => break outcome,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(outcome.result.unwrap().records(), expected);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    thread.stop();
    assert_eq!(load(&disk, 2).unwrap().1.records(), expected);
    assert!(!courtesy.is_wanted(), "nobody is left to give way to");
}

/// Notes whether a checkpoint begins in a hurry, or waits until it is.
struct Noted {
    courtesy: Arc<Courtesy>,
    waits: AtomicBool,
    was_in_hurry: AtomicBool,
}

impl Surroundings for Noted {
    fn prepare(&self) -> Result<(), String> {
        while self.waits.load(Ordering::Relaxed) && !self.courtesy.is_in_hurry() {
            std::thread::yield_now();
        }
        let in_hurry = self.courtesy.is_in_hurry();
        self.was_in_hurry.store(in_hurry, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn who_waits_for_a_checkpoint_has_it_made_in_a_hurry() {
    let store = store();
    let mut setup = setup(&store, device(1));
    let noted = Arc::new(Noted {
        courtesy: Arc::clone(&setup.courtesy),
        waits: AtomicBool::new(false),
        was_in_hurry: AtomicBool::new(false),
    });
    setup.surroundings = Arc::<Noted>::clone(&noted);
    let checkpointer = Arc::new(Checkpointer::new(setup));
    let was_in_hurry = || noted.was_in_hurry.load(Ordering::Relaxed);
    make(&checkpointer).unwrap();
    assert!(was_in_hurry() && !noted.courtesy.is_in_hurry());

    let thread = CheckpointThread::start(&checkpointer).unwrap();
    let ticket = checkpointer.request(Why::SavePoint).unwrap();
    while checkpointer.outcome(ticket).is_none() {
        std::thread::yield_now();
    }
    assert!(!was_in_hurry());

    noted.waits.store(true, Ordering::Relaxed);
    let ticket = checkpointer.request(Why::SavePoint).unwrap();
    checkpointer.wait(ticket).result.unwrap();
    assert!(was_in_hurry() && !noted.courtesy.is_in_hurry());
    thread.stop();
}
