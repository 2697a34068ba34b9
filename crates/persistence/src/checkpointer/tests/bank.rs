//! Money moves between accounts while checkpoints are made: in none of them is any created or lost.

use base::random::Prng;

use super::*;

const ACCOUNTS: usize = 2_000;
const START_BALANCE: i64 = 1_000;
const CHECKPOINTS: usize = 6;

fn account(number: usize) -> String {
    format!("account:{number}")
}

fn add(handle: &mut Handle, name: &str, amount: i64) {
    let key = handle.key(0, name.as_bytes());
    handle.modify(&key, |entry| {
        let balance = entry.record().and_then(|record| record.integer());
        let balance = balance.unwrap_or(0) + amount;
        entry.set_integer(balance, Deadline::Keep).unwrap();
    });
}

fn move_money(store: &Arc<Store>, seed: u64, done: &AtomicBool) {
    let mut handle = store.handle();
    let mut random = Prng::seeded(seed);
    while !done.load(Ordering::Relaxed) {
        let names = [0; 2].map(|_: usize| account(random.index(ACCOUNTS)));
        let keys = [&names[0], &names[1]].map(|name| handle.key(0, name.as_bytes()));
        handle.make_room(100).unwrap();
        handle.locked(&keys, |handle| {
            add(handle, &names[0], -1);
            add(handle, &names[1], 1);
        });
    }
}

/// Adds keys, removes them, and flushes another database.
fn make_weather(store: &Arc<Store>, done: &AtomicBool) {
    let mut handle = store.handle();
    let mut random = Prng::seeded(9);
    while !done.load(Ordering::Relaxed) {
        for _ in 0..300 {
            let name = format!("weather:{}", random.below(20_000));
            let database = u16::try_from(random.below(3)).unwrap();
            let key = handle.key(database, name.as_bytes());
            handle.make_room(400).unwrap();
            if random.below(3) == 0 {
                handle.delete(&key, |_| ());
            } else {
                let value = vec![b'w'; random.index(300)];
                handle
                    .upsert(&key, &value, Deadline::Never, |_| ())
                    .unwrap();
            }
        }
        match random.below(4) {
            0 => drop(handle.flush(Some(2))),
            1 => handle.swap(1, 2),
            _ => {}
        }
    }
}

fn balance(store: &Arc<Store>) -> (usize, i64) {
    let mut handle = store.handle();
    let balances = (0..ACCOUNTS).map(|number| {
        let name = account(number);
        let key = handle.key(0, name.as_bytes());
        handle.read(&key, |record| record.and_then(|record| record.integer()))
    });
    let balances: Vec<i64> = balances.flatten().collect();
    (balances.len(), balances.iter().sum())
}

/// Ends the threads beside a test, also when the test fails.
struct Until<'d>(&'d AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn every_checkpoint_is_balanced() {
    let (store, disk) = (store(), device(3));
    let mut handle = store.handle();
    (0..ACCOUNTS).for_each(|number| add(&mut handle, &account(number), START_BALANCE));
    let checkpointer = checkpointer(&store, disk.clone());
    let thread = CheckpointThread::start(&checkpointer).unwrap();
    let done = AtomicBool::new(false);
    let expected = START_BALANCE * i64::try_from(ACCOUNTS).unwrap();
    std::thread::scope(|scope| {
        let until = Until(&done);
        for seed in 0..2 {
            let (store, done) = (&store, &done);
            scope.spawn(move || move_money(store, seed, done));
        }
        scope.spawn(|| make_weather(&store, &done));
        let checked = (0..CHECKPOINTS).try_for_each(|number| {
            let ticket = checkpointer.request(Why::Asked).map_err(|_| "refused")?;
            let outcome = checkpointer.wait(ticket);
            outcome.result.map_err(|_| "failed")?;
            let (loaded, manifest) = load(&disk, 2).map_err(|_| "not loaded")?;
            assert_eq!(manifest.generation, number as u64 + 1);
            (balance(&loaded) == (ACCOUNTS, expected))
                .then_some(())
                .ok_or("not balanced")
        });
        drop(until);
        assert_eq!(checked, Ok(()));
    });
    thread.stop();
    assert_eq!(checkpointer.request(Why::Asked), Err(Refused::Stopping));
}
