//! Devices that fail, lose power, or return other bytes than were written: each read returns the
//! exact value, or an error that names the cause, and never another key's value.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use base::random::Prng;
use durability::disk::Disk;
use durability::simulated::{Fault, SimulatedDisk};
use tier::{Compression, Entry, Hold, Named, Place, Tier, TierFault, TierOptions, segment_name};

const SEGMENT_BYTES: u64 = 64 << 10;

fn tier(disk: &Arc<SimulatedDisk>) -> Result<Tier, TierFault> {
    let options = TierOptions {
        directory: "disk/tier".into(),
        bytes_max: 1 << 30,
        segment_bytes: SEGMENT_BYTES,
    };
    let tier = Tier::open(Arc::clone(disk) as Arc<dyn Disk>, &options)?;
    tier.set_compression(Compression::No);
    Ok(tier)
}

fn device(seed: u64) -> Arc<SimulatedDisk> {
    let disk = SimulatedDisk::new(seed);
    disk.create_directory(Path::new("disk")).unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    Arc::new(disk)
}

fn entry<'e>(key: &'e [u8], body: &'e [u8]) -> Entry<'e> {
    Entry {
        kind: 0,
        keyspace: 0,
        key,
        body,
    }
}

/// The keys and values of a tier, as the store would know them.
#[derive(Default)]
struct Model {
    named: HashMap<Vec<u8>, (Place, Vec<u8>)>,
}

impl Model {
    /// Writes a new value of a key. A write that fails keeps the former value.
    fn write(&mut self, tier: &Tier, random: &mut Prng) {
        let key = vec![u8::try_from(random.index(20)).unwrap()];
        let fill = u8::try_from(random.index(256)).unwrap();
        let body = vec![fill; 200 + random.index(9_000)];
        if let Ok(place) = tier.append(&entry(&key, &body))
            && let Some((old, _)) = self.named.insert(key, (place, body))
        {
            tier.forget(old);
        }
    }

    fn tidy(&mut self, tier: &Tier) {
        if let Some(slot) = tier.next_to_compact(60) {
            let named = RefCell::new(&mut self.named);
            // A compaction that fails is tried again later.
            let _tried = tier.compact(
                slot,
                |head, place| named.borrow().get(head.key).is_some_and(|it| it.0 == place),
                |head, old, new| match named.borrow_mut().get_mut(head.key) {
                    Some(it) if it.0 == old => {
                        it.0 = new;
                        true
                    }
                    _ => false,
                },
            );
        }
        tier.remove_dead();
    }

    fn work(&mut self, tier: &Tier, random: &mut Prng, steps: usize) {
        for step in 0..steps {
            self.write(tier, random);
            if step % 8 == 0 {
                self.tidy(tier);
            }
        }
    }

    fn check(&self, tier: &Tier, what: &str) {
        for (key, (place, body)) in &self.named {
            let read = tier.read(*place, key);
            let read = read.unwrap_or_else(|fault| panic!("{what}: {fault}"));
            assert_eq!(&read.body, body, "{what}");
        }
    }
}

#[test]
fn whatever_operation_fails_each_value_is_the_one_that_is_named() {
    let healthy = device(1);
    Model::default().work(&tier(&healthy).unwrap(), &mut Prng::seeded(2), 60);
    let operations = healthy.operations();
    assert!(operations > 80);
    let mut struck = 0;
    for fault in Fault::ALL {
        for at in 0..operations {
            let disk = device(at);
            disk.fail(at..at + 1, fault);
            let Ok(tier) = tier(&disk) else {
                continue;
            };
            let mut model = Model::default();
            model.work(&tier, &mut Prng::seeded(2), 60);
            struck += disk.faults_struck();
            disk.heal();
            model.check(&tier, &format!("{fault:?} at {at}"));
            // The tier also continues to work.
            let before = tier.figures().written_bytes;
            model.work(&tier, &mut Prng::seeded(3), 20);
            assert!(tier.figures().written_bytes > before, "{fault:?} at {at}");
            model.check(&tier, &format!("after {fault:?} at {at}"));
        }
    }
    assert!(struck > 100, "{struck}");
}

#[test]
fn after_a_power_cut_at_any_operation_a_checkpoint_in_force_has_its_values() {
    let healthy = device(4);
    let operations = run_until_off(&healthy).0;
    for at in 0..operations {
        let disk = device(at);
        disk.cut_power_at(at);
        let (_, kept) = run_until_off(&disk);
        let Some((names, model)) = kept else {
            continue;
        };
        for seed in 0..3 {
            let disk = Arc::new(disk.crash(seed));
            let again = tier(&disk).unwrap();
            again.adopt(&names).unwrap();
            for (key, (ordinal, place, body)) in &model {
                let revived = again.revive(*ordinal, place.offset_units, place.units);
                let read = again.read(revived.unwrap(), key).unwrap();
                assert_eq!(&read.body, body, "power cut at {at}");
            }
            again.remove_leftovers().unwrap();
            assert_eq!(again.scrub().1.len(), 0, "power cut at {at}");
        }
    }
}

type Kept = HashMap<Vec<u8>, (u64, Place, Vec<u8>)>;

/// Writes, makes checkpoints, and writes on. Returns the number of operations, and the checkpoint
/// in force.
fn run_until_off(disk: &Arc<SimulatedDisk>) -> (u64, Option<(Named, Kept)>) {
    let Ok(tier) = tier(disk) else {
        return (disk.operations(), None);
    };
    let mut random = Prng::seeded(5);
    let mut model = Model::default();
    let mut kept = None;
    for _ in 0..4 {
        model.work(&tier, &mut random, 12);
        let mut hold = Hold::default();
        let held: Option<Kept> = model
            .named
            .iter()
            .map(|(key, (place, body))| {
                let ordinal = tier.hold(&mut hold, place.slot)?;
                Some((key.clone(), (ordinal, *place, body.clone())))
            })
            .collect();
        let Some((held, names)) = held.zip(tier.make_durable(&hold).ok()) else {
            continue;
        };
        let ordinals = names.segments.iter().map(|one| one.name.ordinal).collect();
        tier.in_force(&ordinals);
        kept = Some((names, held));
    }
    (disk.operations(), kept)
}

type KeyPlace = (Vec<u8>, Place);

/// Returns a device with two segments of entries, and their places.
fn filled() -> (Arc<SimulatedDisk>, Tier, Vec<KeyPlace>) {
    let disk = device(7);
    let tier = tier(&disk).unwrap();
    let places = (0..20_u8).map(|number| {
        let place = tier.append(&entry(&[number], &vec![number; 5_000]));
        (vec![number], place.unwrap())
    });
    let places: Vec<_> = places.collect();
    assert!(tier.figures().segments >= 2);
    (disk, tier, places)
}

fn bytes_of(disk: &SimulatedDisk, tier: &Tier, place: Place) -> Vec<u8> {
    let ordinal = tier.ordinal(place.slot).unwrap();
    let path = tier.directory().join(segment_name(ordinal));
    let mut bytes = vec![0; place.units as usize * tier::UNIT_BYTES];
    let offset = u64::from(place.offset_units) * tier::UNIT_BYTES as u64;
    disk.open(&path)
        .unwrap()
        .read_at(&mut bytes, offset)
        .unwrap();
    bytes
}

fn write_over(disk: &SimulatedDisk, tier: &Tier, place: Place, bytes: &[u8]) {
    let ordinal = tier.ordinal(place.slot).unwrap();
    let path = tier.directory().join(segment_name(ordinal));
    let file = disk.open_for_writing(&path).unwrap();
    let offset = u64::from(place.offset_units) * tier::UNIT_BYTES as u64;
    file.write_at(bytes, offset).unwrap();
}

#[test]
fn what_is_read_from_another_place_is_found() {
    let (disk, tier, places) = filled();
    // All entries have the same length, so each would fit in each place.
    let first = bytes_of(&disk, &tier, places[0].1);
    for (key, place) in &places[1..] {
        write_over(&disk, &tier, *place, &first);
        for asked in [key, &places[0].0] {
            let fault = tier.read(*place, asked).unwrap_err();
            assert!(fault.is_damage(), "{fault}");
        }
    }
    assert_eq!(
        tier.read(places[0].1, &places[0].0).unwrap().body,
        vec![0; 5_000]
    );
}

#[test]
fn what_was_written_by_half_is_found_at_every_sector() {
    let (disk, tier, places) = filled();
    let (key, place) = &places[3];
    let whole = bytes_of(&disk, &tier, *place);
    for sector in [512, 4096] {
        for end in (0..whole.len()).step_by(sector) {
            // Another entry of the same length was there before.
            let mut torn = bytes_of(&disk, &tier, places[4].1);
            torn[..end].copy_from_slice(&whole[..end]);
            write_over(&disk, &tier, *place, &torn);
            let read = tier.read(*place, key);
            assert!(read.is_err_and(|fault| fault.is_damage()), "{end}");
        }
    }
    write_over(&disk, &tier, *place, &whole);
    assert!(tier.read(*place, key).is_ok());
}

#[test]
fn what_another_file_of_the_same_name_left_is_found() {
    let (disk, tier, places) = filled();
    let stale: Vec<_> = places
        .iter()
        .map(|(_, place)| bytes_of(&disk, &tier, *place))
        .collect();
    drop(tier);
    // Names are reused if nothing was durable; the files have other salts.
    let again = device(8);
    let tier = {
        let tier = self::tier(&again).unwrap();
        for (number, old) in (0..20_u8).zip(&stale) {
            let place = tier
                .append(&entry(&[number], &vec![number; 5_000]))
                .unwrap();
            assert_eq!(place, places[usize::from(number)].1);
            write_over(&again, &tier, place, old);
        }
        tier
    };
    for (key, place) in &places {
        let read = tier.read(*place, key);
        assert!(read.is_err_and(|fault| fault.is_damage()));
    }
}
