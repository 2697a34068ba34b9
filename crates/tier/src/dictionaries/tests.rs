//! Dictionaries on a simulated device: an entry that needs a dictionary has it, or is refused with
//! the dictionary's name.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;

use base::random::Prng;
use durability::disk::Disk;
use durability::simulated::{Fault, SimulatedDisk};
use proptest::prelude::*;
use zstd::dict::from_continuous;

use super::*;
use crate::codecs::{Codecs, Packer};
use crate::dictionary::encode;
use crate::entry::{self, StoredEntry, Whereabouts};
use crate::{Compression, Entry, Hold, Named, Place, TierOptions};

/// Returns a value that has much in common with others, and little redundancy of its own.
fn value(random: &mut Prng) -> Vec<u8> {
    let words = ["river", "stone", "market", "garden", "window", "silver"];
    let mut word = || words[random.index(words.len())];
    let (first, second, third) = (word(), word(), word());
    format!(
        "{{\"id\":{},\"name\":\"{first} {second}\",\"email\":\"{first}.{third}@example.com\",\"created_at\":\"2026-01-{:02}\",\
         \"status\":\"active\",\"score\":{},\"session\":\"{:016x}\"}}",
        random.index(1 << 30),
        random.index(28) + 1,
        random.index(1_000),
        random.next_u64(),
    )
    .into_bytes()
}

/// Returns a dictionary that zstd trains from some values. Trained only once, because it takes
/// long.
fn content() -> Vec<u8> {
    static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
    let made = CONTENT.get_or_init(|| {
        let mut random = Prng::seeded(1);
        let samples: Vec<_> = (0..1_000).map(|_| value(&mut random)).collect();
        let lens: Vec<_> = samples.iter().map(Vec::len).collect();
        from_continuous(&samples.concat(), &lens, 4 << 10).unwrap()
    });
    made.clone()
}

fn file(number: u32) -> Vec<u8> {
    encode(number, 400, content()).unwrap()
}

fn device(seed: u64) -> Arc<SimulatedDisk> {
    let disk = SimulatedDisk::new(seed);
    disk.create_directory(Path::new("disk")).unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    Arc::new(disk)
}

fn tier(disk: &Arc<SimulatedDisk>) -> Result<Tier, TierFault> {
    let options = TierOptions {
        directory: "disk/tier".into(),
        bytes_max: 1 << 30,
        segment_bytes: 16 << 10,
    };
    Tier::open(Arc::clone(disk) as Arc<dyn Disk>, &options)
}

fn dictionaries(disk: &SimulatedDisk) -> Vec<String> {
    let names = disk.list(Path::new("disk/tier")).unwrap();
    let mut names: Vec<_> = names
        .into_iter()
        .filter(|name| name.contains(".dict"))
        .collect();
    names.sort();
    names
}

/// The keys and values of a tier, as the store would know them.
#[derive(Default)]
struct Model(HashMap<Vec<u8>, (Place, Vec<u8>)>);

impl Model {
    /// Writes values, several at once. A write that fails keeps the values written before.
    fn write(&mut self, tier: &Tier, random: &mut Prng, count: usize) {
        for _ in 0..count / 4 {
            let new: Vec<_> = (0..4)
                .map(|_| (vec![u8::try_from(random.index(40)).unwrap()], value(random)))
                .collect();
            let entries: Vec<_> = new.iter().map(|(key, body)| entry(key, body)).collect();
            let places = tier.append_all(&entries).unwrap_or_default();
            for ((key, body), place) in new.into_iter().zip(places) {
                if let Some((old, _)) = self.0.insert(key, (place, body)) {
                    tier.forget(old);
                }
            }
        }
    }

    fn tidy(&mut self, tier: &Tier, percent: u64) {
        if let Some(slot) = tier.next_to_compact(percent) {
            let named = RefCell::new(&mut self.0);
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

    fn check(&self, tier: &Tier, what: &str) {
        for (key, (place, body)) in &self.0 {
            let read = tier.read(*place, key);
            let read = read.unwrap_or_else(|fault| panic!("{what}: {fault}"));
            assert_eq!(&read.body, body, "{what}");
        }
    }

    /// Makes a checkpoint. Returns what it names, and the place of each value.
    fn keep(&self, tier: &Tier) -> Option<Checkpoint> {
        let mut hold = Hold::default();
        let places = self.0.iter().map(|(key, (place, body))| {
            let ordinal = tier.hold(&mut hold, place.slot)?;
            Some((key.clone(), ordinal, *place, body.clone()))
        });
        let places = places.collect::<Option<Vec<_>>>()?;
        let named = tier.make_durable(&hold).ok()?;
        tier.about_to_be_in_force(&hold);
        let ordinals = named.segments.iter().map(|one| one.name.ordinal).collect();
        tier.in_force(&ordinals);
        Some(Checkpoint { named, places })
    }
}

struct Checkpoint {
    named: Named,
    places: Vec<(Vec<u8>, u64, Place, Vec<u8>)>,
}

impl Checkpoint {
    fn check(&self, tier: &Tier, what: &str) {
        let adopted = tier.adopt(&self.named);
        adopted.unwrap_or_else(|fault| panic!("{what}: {fault}"));
        for (key, ordinal, place, body) in &self.places {
            let revived = tier.revive(*ordinal, place.offset_units, place.units);
            let read = tier.read(revived.unwrap(), key).unwrap();
            assert_eq!(&read.body, body, "{what}");
        }
    }
}

/// Writes values without a dictionary, with one and with the next, and makes checkpoints. Returns
/// the tier, the values, and what the last checkpoint named.
fn work(disk: &Arc<SimulatedDisk>) -> (Option<Tier>, Model, Option<Checkpoint>) {
    let mut model = Model::default();
    let Ok(tier) = tier(disk) else {
        return (None, model, None);
    };
    let mut random = Prng::seeded(5);
    let mut kept = None;
    model.write(&tier, &mut random, 20);
    for number in 1..=2 {
        // Without the dictionary, writing continues as before.
        let _put = tier.put_in_use(number, &file(number));
        model.write(&tier, &mut random, 60);
        kept = model.keep(&tier).or(kept);
        model.write(&tier, &mut random, 60);
        model.tidy(&tier, 80);
        model.tidy(&tier, 80);
    }
    kept = model.keep(&tier).or(kept);
    tier.remove_dead();
    (Some(tier), model, kept)
}

#[test]
fn values_with_a_dictionary_are_shorter_and_come_back_over_a_start() {
    let disk = device(1);
    let (first, model, kept) = work(&disk);
    let first = first.unwrap();
    model.check(&first, "before");
    let figures = first.figures();
    assert!(
        figures.packed_bytes * 2 < figures.packed_raw_bytes,
        "{figures:?}"
    );
    let kept = kept.unwrap();
    assert!(!kept.named.dictionaries.is_empty());
    assert!(first.memory_bytes() > 4 << 10);
    drop(first);
    let again = tier(&disk).unwrap();
    kept.check(&again, "again");
    again.remove_leftovers().unwrap();
    assert_eq!(again.scrub().1.len(), 0);
    // It continues with the newest.
    let newest = kept.named.dictionaries.last().unwrap().number;
    assert_eq!(again.codecs.packer().dictionary(), Some(newest));
    let mut other = Model::default();
    other.write(&again, &mut Prng::seeded(8), 20);
    other.check(&again, "new ones");
    let needed = other.keep(&again).unwrap().named.dictionaries;
    assert_eq!(
        needed.iter().map(|one| one.number).collect::<Vec<_>>(),
        [newest]
    );
}

#[test]
fn a_dictionary_goes_with_the_last_segment_that_needs_it() {
    let disk = device(2);
    let tier = tier(&disk).unwrap();
    let mut model = Model::default();
    let mut random = Prng::seeded(3);
    tier.put_in_use(1, &file(1)).unwrap();
    model.write(&tier, &mut random, 200);
    let kept = model.keep(&tier);
    assert!(kept.is_some());
    tier.put_in_use(2, &file(2)).unwrap();
    tier.remove_dead();
    assert_eq!(dictionaries(&disk), ["00000001.dict", "00000002.dict"]);
    // Compaction moves values to the dictionary in use. A checkpoint needs the first dictionary
    // while it is in force.
    model.write(&tier, &mut random, 300);
    while tier.next_to_compact(101).is_some_and(|slot| {
        let segment = tier.segment(slot).unwrap();
        segment.needed().iter().any(|one| one.name.number == 1)
    }) {
        model.tidy(&tier, 101);
    }
    model.check(&tier, "moved");
    tier.remove_dead();
    assert_eq!(dictionaries(&disk), ["00000001.dict", "00000002.dict"]);
    let next = model.keep(&tier).unwrap();
    let named: Vec<_> = next
        .named
        .dictionaries
        .iter()
        .map(|one| one.number)
        .collect();
    assert_eq!(named, [2]);
    tier.remove_dead();
    assert_eq!(dictionaries(&disk), ["00000002.dict"]);
    assert_eq!(tier.figures().dictionaries, 1);
    // The dictionary in use stays even if no value needs it.
    for (_, (place, _)) in model.0.drain() {
        tier.forget(place);
    }
    tier.in_force(&BTreeSet::new());
    tier.remove_dead();
    assert_eq!(dictionaries(&disk), ["00000002.dict"]);
}

#[test]
fn whatever_operation_fails_each_value_comes_back() {
    let healthy = device(3);
    let _worked = work(&healthy);
    let operations = healthy.operations();
    let mut struck = 0;
    for fault in Fault::ALL {
        for at in 0..operations {
            let disk = device(at);
            disk.fail(at..at + 1, fault);
            let (worked, model, kept) = work(&disk);
            struck += disk.faults_struck();
            disk.heal();
            let what = format!("{fault:?} at {at}");
            if let Some(worked) = worked {
                model.check(&worked, &what);
            }
            if let Some(kept) = kept {
                kept.check(&tier(&disk).unwrap(), &what);
            }
        }
    }
    assert!(struck > 50, "{struck}");
}

#[test]
fn after_a_power_cut_at_any_operation_a_checkpoint_in_force_has_its_dictionaries() {
    let healthy = device(4);
    let _worked = work(&healthy);
    let mut with_dictionaries = 0;
    for at in 0..healthy.operations() {
        let disk = device(at);
        disk.cut_power_at(at);
        let (_, _, kept) = work(&disk);
        for seed in 0..2 {
            let disk = Arc::new(disk.crash(seed));
            let Ok(again) = tier(&disk) else {
                continue;
            };
            let what = format!("power cut at {at}");
            let mut named = Vec::new();
            if let Some(kept) = &kept {
                kept.check(&again, &what);
                named.extend(kept.named.dictionaries.iter().map(|one| one.number));
                with_dictionaries += usize::from(!named.is_empty());
            }
            again.remove_leftovers().unwrap();
            assert_eq!(again.scrub().1.len(), 0, "{what}");
            let names: Vec<_> = named.into_iter().map(dictionary_name).collect();
            assert_eq!(dictionaries(&disk), names, "{what}");
        }
    }
    assert!(with_dictionaries > 10, "{with_dictionaries}");
}

#[test]
fn a_dictionary_that_is_missing_torn_or_another_is_refused_by_its_name() {
    let disk = device(5);
    let (first, _, kept) = work(&disk);
    drop(first);
    let kept = kept.unwrap();
    let number = kept.named.dictionaries[0].number;
    let path = Path::new("disk/tier").join(dictionary_name(number));
    let whole = whole_file::read(&*disk, &path, FILE_BYTES_MAX)
        .unwrap()
        .unwrap();
    let refused = |bytes: &[u8], what: &str| {
        let file = disk.open_for_writing(&path).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        file.write_at(bytes, 0).unwrap();
        let again = tier(&disk).unwrap();
        let fault = again.adopt(&kept.named).unwrap_err();
        let named = fault.to_string().contains(&dictionary_name(number)[..8]);
        assert!(named, "{what}: {fault}");
    };
    for bit in (0..32 * 8).chain((32 * 8..whole.len() * 8).step_by(1_001)) {
        let mut other = whole.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        refused(&other, &format!("bit {bit}"));
    }
    for len in [0, 7, 31, 32, 40, 512, whole.len() - 1] {
        refused(&whole[..len], &format!("{len} bytes"));
    }
    // A whole file with the same number, but not the dictionary with which the values were written.
    let another = encode(number, 401, content()).unwrap();
    refused(&another, "another");
    let long = [&whole[..], &[0]].concat();
    refused(&long, "longer");
    disk.remove(&path).unwrap();
    let fault = tier(&disk).unwrap().adopt(&kept.named).unwrap_err();
    assert_eq!(
        fault.to_string(),
        format!("dictionary {number:08x}: it is not there")
    );
}

#[test]
fn damage_of_a_file_is_found_before_the_next_start_needs_it() {
    let disk = device(6);
    let (tier, ..) = work(&disk);
    let tier = tier.unwrap();
    assert_eq!(tier.scrub().1.len(), 0);
    let path = Path::new("disk/tier").join(dictionary_name(2));
    let file = disk.open_for_writing(&path).unwrap();
    file.write_at(b"!", 100).unwrap();
    let (_, faults) = tier.scrub();
    assert_eq!(faults.len(), 1);
    assert_eq!(
        faults[0].to_string(),
        "dictionary 00000002: its sum is wrong"
    );
}

/// The bytes that this and later versions have to read. `WRITE_VECTORS` writes them again, which is
/// for a new format.
#[test]
fn golden_dictionary_and_entry() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let at = Whereabouts {
        salt: 0x0102_0304_0506_0708,
        ordinal: 9,
        offset_bytes: 4096,
    };
    let body = b"{\"id\":17,\"name\":\"river stone\",\"email\":\"river.garden@example.com\",\"created_at\":\"2026-01-07\",\"status\":\"active\"}";
    if std::env::var_os("WRITE_VECTORS").is_some() {
        let file = file(7);
        let dictionary = Dictionary::decode(&file).unwrap();
        let in_use = in_use_of(&file, Arc::new(dictionary)).unwrap();
        let mut packer = Packer::new(Compression::Auto, Some(in_use));
        let mut bytes = Vec::new();
        let stored = StoredEntry::new(&entry(b"key", body), &mut packer);
        entry::encode(&stored, at, &mut bytes).unwrap();
        std::fs::write(vectors.join("00000007.dict"), file).unwrap();
        std::fs::write(vectors.join("entry"), bytes).unwrap();
    }
    let file = std::fs::read(vectors.join("00000007.dict")).unwrap();
    let dictionary = Arc::new(Dictionary::decode(&file).unwrap());
    assert_eq!(
        (dictionary.name.number, dictionary.expected_per_mille),
        (7, 400)
    );
    assert_eq!(encode(7, 400, file[32..].to_vec()).as_ref(), Some(&file));
    let bytes = std::fs::read(vectors.join("entry")).unwrap();
    assert!(bytes.len() < 32 + 3 + body.len());
    let stored = entry::decode(&bytes, at, |number| {
        (number == 7).then(|| Arc::clone(&dictionary))
    });
    let codecs = Codecs::new(Table::default());
    assert_eq!(stored.unwrap().body(&codecs).unwrap().as_ref(), body);
    let without = entry::decode(&bytes, at, |_| None);
    assert_eq!(without.unwrap_err(), "its dictionary is not there");
    // Another dictionary that claims this number.
    let mut random = Prng::seeded(77);
    let samples: Vec<_> = (0..1_000)
        .map(|_| format!("{:x} {:x}", random.next_u64(), random.index(7)).repeat(3))
        .collect();
    let lens: Vec<_> = samples.iter().map(String::len).collect();
    let other = from_continuous(samples.concat().as_bytes(), &lens, 4 << 10).unwrap();
    let other = encode(7, 400, other).unwrap();
    let other = Arc::new(Dictionary::decode(&other).unwrap());
    let stored = entry::decode(&bytes, at, |_| Some(other)).unwrap();
    assert!(
        stored
            .body(&codecs)
            .map_or(true, |read| read.as_ref() != body)
    );
}

/// Collects samples until there are enough, and trains. Returns the result.
fn trained(tier: &Tier, mut body: impl FnMut() -> Vec<u8>) -> crate::Trained {
    while !tier.wants_training() {
        let bodies: Vec<_> = (0..1_000).map(|_| body()).collect();
        let entries: Vec<_> = bodies.iter().map(|body| entry(b"key", body)).collect();
        for place in tier.append_all(&entries).unwrap() {
            tier.forget(place);
        }
        tier.remove_dead();
    }
    tier.train(&|| true).unwrap().unwrap()
}

fn entry<'e>(key: &'e [u8], body: &'e [u8]) -> Entry<'e> {
    Entry {
        kind: 0,
        keyspace: 0,
        key,
        body,
    }
}

#[test]
fn training_pays_for_values_that_have_much_in_common_and_is_given_up_for_noise() {
    let disk = device(7);
    let tier = tier(&disk).unwrap();
    tier.set_sample_bytes_max(1 << 20);
    let mut random = Prng::seeded(9);
    let idle_bytes = tier.memory_bytes();
    let noise = |random: &mut Prng| {
        let mut noise = vec![0; 300];
        random.fill(&mut noise);
        noise
    };
    let came = trained(&tier, || noise(&mut random));
    assert_eq!((came.new, came.has_dictionary), (None, false));
    // Nothing is left of the samples, and no more are collected for a while.
    assert_eq!(tier.memory_bytes(), idle_bytes);
    for _ in 0..8_000 {
        let place = tier.append(&entry(b"key", &noise(&mut random))).unwrap();
        tier.forget(place);
    }
    assert_eq!(tier.memory_bytes(), idle_bytes);
    assert!(!tier.wants_training());
    assert_eq!(dictionaries(&disk).len(), 0);

    // As in a new process, which does not know about the failed training.
    lock(&tier.codecs.samples).give_up();
    let came = trained(&tier, || value(&mut random));
    assert!(came.with_bytes * 4 < came.without_bytes * 3, "{came:?}");
    assert!(came.new.is_some() && came.has_dictionary);
    assert_eq!(dictionaries(&disk).len(), 1);
    let body = value(&mut random);
    let place = tier.append(&entry(b"key", &body)).unwrap();
    assert!(place.units as usize * 16 < body.len() * 3 / 4);
    assert_eq!(tier.read(place, b"key").unwrap().body, body);
    // Values of another kind do not stay badly compressed.
    let before = tier.codecs.packer().dictionary();
    while !tier.wants_training() {
        let bodies: Vec<_> = (0..1_000).map(|_| noise(&mut random)).collect();
        let entries: Vec<_> = bodies.iter().map(|body| entry(b"key", body)).collect();
        for place in tier.append_all(&entries).unwrap() {
            tier.forget(place);
        }
        tier.remove_dead();
    }
    let came = tier.train(&|| true).unwrap().unwrap();
    assert_eq!((came.new, came.has_dictionary), (None, false));
    assert!(before.is_some() && tier.codecs.packer().dictionary().is_none());
    assert_eq!(tier.read(place, b"key").unwrap().body, body);
}

#[test]
fn training_that_is_over_or_cannot_write_changes_nothing() {
    let disk = device(8);
    let tier = tier(&disk).unwrap();
    tier.set_sample_bytes_max(1 << 20);
    let mut random = Prng::seeded(9);
    let bodies: Vec<_> = (0..8_000).map(|_| value(&mut random)).collect();
    let entries: Vec<_> = bodies.iter().map(|body| entry(b"key", body)).collect();
    tier.append_all(&entries).unwrap();
    assert!(tier.wants_training());
    assert_eq!(tier.train(&|| false).unwrap(), None);
    assert_eq!(
        (dictionaries(&disk).len(), tier.codecs.packer().dictionary()),
        (0, None)
    );
    lock(&tier.codecs.samples).give_up();
    tier.append_all(&entries).unwrap();
    let now = disk.operations();
    disk.fail(now..now + 20, Fault::Full);
    assert!(tier.train(&|| true).is_err());
    assert_eq!(tier.codecs.packer().dictionary(), None);
    // With LZ4 only, no samples are collected.
    disk.heal();
    tier.set_compression(Compression::Lz4);
    tier.append_all(&entries).unwrap();
    assert!(!tier.wants_training());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_compressed_comes_back(
        bodies in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..5_000),
                (any::<u64>(), 1_usize..20).prop_map(|(seed, times)| {
                    let mut random = Prng::seeded(seed);
                    (0..times).flat_map(|_| value(&mut random)).collect()
                }),
            ],
            1..12,
        ),
        compression in prop::sample::select(vec![Compression::No, Compression::Lz4, Compression::Zstd, Compression::Auto]),
        has_dictionary: bool,
    ) {
        let disk = device(9);
        let tier = tier(&disk).unwrap();
        tier.set_compression(compression);
        if has_dictionary {
            tier.put_in_use(300, &file(300)).unwrap();
        }
        let entries: Vec<_> = bodies.iter().map(|body| entry(b"key", body)).collect();
        let places = tier.append_all(&entries).unwrap();
        for (place, body) in places.iter().zip(&bodies) {
            prop_assert_eq!(&tier.read(*place, b"key").unwrap().body, body);
            let plain = 32 + 3 + body.len();
            prop_assert!(place.units as usize * 16 <= plain.next_multiple_of(16), "never longer");
        }
        // First as they were written, then moved with the present setting.
        tier.set_compression(Compression::Lz4);
        let slot = places[0].slot;
        let mut moved = Vec::new();
        tier.compact(slot, |_, _| true, |_, old, new| {
            moved.push((old, new));
            true
        }).unwrap();
        for (old, new) in moved {
            let at = places.iter().position(|place| *place == old).unwrap();
            prop_assert_eq!(&tier.read(new, b"key").unwrap().body, &bodies[at]);
        }
    }
}
