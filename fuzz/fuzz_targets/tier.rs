//! What a start and a read find of values that are out of memory: an entry of a segment with its
//! right checksum, the body of an object, the record of a checkpoint that locates a value, and a
//! dictionary that values need.
//!
//! What is accepted is exactly what was written there. What is refused leaves the store and the
//! segments unchanged.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use base::record_head::{COLD, RecordHead};
use durability::checksum::crc32c;
use durability::disk::Disk;
use durability::simulated::SimulatedDisk;
use libfuzzer_sys::fuzz_target;
use persistence::bodies::Existing;
use persistence::cold_bodies;
use persistence::places::{self, place_of};
use rdb::Limits;
use store::{ColdKind, ColdValue, ColdValues, Deadline, Locator, Options, Store};
use structures::{Element, End, List, Object};
use tier::{
    Compression, DictionaryName, Entry, Named, NamedSegment, SegmentName, Tier, TierOptions,
    UNIT_BYTES, dictionary_name, segment_name,
};

const HEAD_BYTES: u64 = 4096;

fuzz_target!(|input: &[u8]| {
    let Some((&mode, rest)) = input.split_first() else {
        return;
    };
    match mode % 4 {
        0 => an_entry(rest),
        1 => a_body(rest),
        2 => a_record(rest),
        _ => a_dictionary(rest),
    }
});

fn tier(disk: &SimulatedDisk) -> Tier {
    let options = TierOptions {
        directory: "/tier".into(),
        bytes_max: 1 << 30,
        segment_bytes: 1 << 20,
    };
    let tier = Tier::open(Arc::new(disk.clone()) as Arc<dyn Disk>, &options).expect("it works");
    tier.set_compression(Compression::No);
    tier
}

fn append(tier: &Tier, key: &[u8], kind: ColdKind, body: &[u8]) -> tier::Place {
    let entry = Entry {
        kind: kind.number(),
        keyspace: 0,
        key,
        body,
    };
    tier.append(&entry).expect("there is room")
}

/// Reads an entry that an attacker who can write files may have put into a segment.
fn an_entry(input: &[u8]) {
    if input.len() < 28 {
        return;
    }
    let disk = SimulatedDisk::new(0);
    let first = append(&tier(&disk), b"key", ColdKind::BYTES, &[1; 100]);
    let path = Path::new("/tier").join(segment_name(1));
    let file = disk.open_for_writing(&path).expect("it was made");
    let mut head = [0; 32];
    file.read_at(&mut head, 0).expect("it is there");
    let offset = HEAD_BYTES + u64::from(first.units) * UNIT_BYTES as u64;
    let mut entry = input.to_vec();
    // Without these lengths the entry would not be examined at all.
    let key_bytes = usize::from(u16::from_le_bytes([input[8], input[9]])) % (input.len() - 27);
    let body_bytes = input.len() - 28 - key_bytes;
    entry[..4].copy_from_slice(&u32::try_from(body_bytes).unwrap_or(0).to_le_bytes());
    entry[8..10].copy_from_slice(&u16::try_from(key_bytes).unwrap_or(0).to_le_bytes());
    if input[0] & 1 == 0 {
        entry[4..8].copy_from_slice(&u32::try_from(body_bytes).unwrap_or(0).to_le_bytes());
    }
    let place_words = [&head[24..32], &1_u64.to_le_bytes(), &offset.to_le_bytes()].concat();
    let sum = crc32c(&[&place_words[..], &entry].concat());
    let mut bytes = [&sum.to_le_bytes()[..], &entry].concat();
    bytes.resize(bytes.len().next_multiple_of(UNIT_BYTES), 0);
    file.write_at(&bytes, offset).expect("there is room");
    let tier = tier(&disk);
    let name = SegmentName {
        ordinal: 1,
        salt: u64::from_le_bytes(head[24..32].try_into().expect("eight bytes")),
        bytes: offset + bytes.len() as u64,
    };
    let named = Named {
        segments: vec![NamedSegment {
            name,
            records: 2,
            dictionaries: Vec::new(),
        }],
        dictionaries: Vec::new(),
    };
    tier.adopt(&named).expect("it is that segment");
    let units = |bytes: u64| u32::try_from(bytes / UNIT_BYTES as u64).unwrap_or(0);
    let place = tier.revive(1, units(offset), units(bytes.len() as u64));
    let place = place.expect("it is in the file");
    let key = &input[28..28 + key_bytes];
    if let Ok(read) = tier.read(place, key) {
        // The body is compressed, or is returned unchanged.
        assert!(input[13] > 0 || read.body == input[28 + key_bytes..]);
    }
    let (entries, faults) = tier.scrub();
    assert_eq!(entries + faults.len() as u64, 2);
    let live = tier.figures().live_bytes;
    if tier
        .compact(place.slot, |head, _| head.key != b"key", |_, _, _| true)
        .is_err()
    {
        assert_eq!(tier.figures().live_bytes, live, "what failed was not moved");
    }
}

/// Reads a dictionary's file, and an entry that needs it. Both have arbitrary content with the
/// right checksums, or the file is arbitrary as a whole.
fn a_dictionary(input: &[u8]) {
    let Some((&[raw, split_low, split_high], rest)) = input.split_first_chunk() else {
        return;
    };
    let split = usize::from(u16::from_le_bytes([split_low, split_high])).min(rest.len());
    let (content, frame) = rest.split_at(split);
    let disk = SimulatedDisk::new(0);
    append(&tier(&disk), b"key", ColdKind::BYTES, &[1; 100]);
    let (salt, end) = salt_and_end(&disk);
    let file = match raw & 1 {
        0 => content.to_vec(),
        _ => dictionary_file(content),
    };
    let path = Path::new("/tier").join(dictionary_name(1));
    let made = disk.create(&path).expect("there is room");
    made.write_at(&file, 0).expect("there is room");
    let raw_bytes = u32::from(raw);
    let mut entry = u32::try_from(frame.len())
        .unwrap_or(0)
        .to_le_bytes()
        .to_vec();
    entry.extend_from_slice(&raw_bytes.to_le_bytes());
    entry.extend_from_slice(&[3, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0]);
    entry.extend_from_slice(&[0; 8]);
    entry.extend_from_slice(b"key");
    entry.extend_from_slice(frame);
    let place_words = [salt, 1, end].map(u64::to_le_bytes).concat();
    let sum = crc32c(&[&place_words[..], &entry].concat());
    let mut bytes = [&sum.to_le_bytes()[..], &entry].concat();
    bytes.resize(bytes.len().next_multiple_of(UNIT_BYTES), 0);
    let segment = Path::new("/tier").join(segment_name(1));
    let segment = disk.open_for_writing(&segment).expect("it was made");
    segment.write_at(&bytes, end).expect("there is room");
    let named = naming(&file, (salt, end + bytes.len() as u64));
    let tier = tier(&disk);
    if tier.adopt(&named).is_err() {
        return;
    }
    let units = |bytes: u64| u32::try_from(bytes / UNIT_BYTES as u64).unwrap_or(0);
    let place = tier.revive(1, units(end), units(bytes.len() as u64));
    if let Ok(read) = tier.read(place.expect("it is in the file"), b"key") {
        assert_eq!(read.body.len() as u64, u64::from(raw_bytes));
    }
    // Values that are compressed with an accepted dictionary can be read again.
    tier.set_compression(Compression::Auto);
    let body = [content, frame, &[7; 64]].concat();
    let place = append(&tier, b"new", ColdKind::BYTES, &body);
    assert_eq!(tier.read(place, b"new").expect("it was written").body, body);
}

/// Returns what a checkpoint records about the first segment, which has this many bytes and needs
/// the dictionary of this file.
fn naming(file: &[u8], (salt, bytes): (u64, u64)) -> Named {
    let sum = file.get(28..32).map_or(0, |sum| {
        u32::from_le_bytes(sum.try_into().expect("four bytes"))
    });
    let name = SegmentName {
        ordinal: 1,
        salt,
        bytes,
    };
    Named {
        segments: vec![NamedSegment {
            name,
            records: 1,
            dictionaries: vec![1],
        }],
        dictionaries: vec![DictionaryName {
            number: 1,
            bytes: file.len() as u64,
            sum,
        }],
    }
}

/// Returns the salt of the first segment, and the end of its only entry.
fn salt_and_end(disk: &SimulatedDisk) -> (u64, u64) {
    let path = Path::new("/tier").join(segment_name(1));
    let file = disk.open(&path).expect("it was made");
    let mut head = [0; 32];
    file.read_at(&mut head, 0).expect("it is there");
    let salt = u64::from_le_bytes(head[24..32].try_into().expect("eight bytes"));
    (salt, file.size().expect("it is there"))
}

/// Returns a dictionary file with a valid head and checksum. Only its zstd content is arbitrary.
fn dictionary_file(content: &[u8]) -> Vec<u8> {
    let mut content = content.to_vec();
    let front = [&0xEC30_A437_u32.to_le_bytes()[..], &1_u32.to_le_bytes()].concat();
    for (byte, right) in content.iter_mut().zip(front) {
        *byte = right;
    }
    let mut file = b"IOLDICT\n".to_vec();
    file.extend_from_slice(&1_u64.to_le_bytes());
    for word in [1, 500, u32::try_from(content.len()).unwrap_or(0)] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    let sum = crc32c(&[&file[..], &content].concat());
    file.extend_from_slice(&sum.to_le_bytes());
    file.extend_from_slice(&content);
    file
}

/// Reads an object in the form that an entry holds.
fn a_body(input: &[u8]) {
    let limits = Limits::narrow(16);
    if let Some(object) = cold_bodies::decode(input, &limits) {
        let again = cold_bodies::decode(&cold_bodies::encode(&object), &limits);
        assert_eq!(again.as_ref(), Some(&object));
    }
}

/// Reads cold values for the store.
#[derive(Debug)]
struct Kept(Arc<Tier>);

impl ColdValues for Kept {
    fn load(&self, key: &[u8], locator: Locator) -> Option<Arc<ColdValue>> {
        let entry = self.0.read(place_of(locator), key).ok()?;
        if entry.kind != locator.kind().number() {
            return None;
        }
        if locator.kind().is_string() {
            return Some(Arc::new(ColdValue::Text(entry.body)));
        }
        let object = cold_bodies::decode(&entry.body, &Limits::narrow(16))?;
        Some(Arc::new(ColdValue::Object(object)))
    }

    fn encode(&self, object: &Object) -> Option<Vec<u8>> {
        Some(cold_bodies::encode(object))
    }

    fn forget(&self, locator: Locator) {
        self.0.forget(place_of(locator));
    }

    fn pin(&self, locator: Locator) {
        self.0.pin(locator.slot());
    }

    fn unpin(&self, locator: Locator) {
        self.0.unpin(locator.slot());
    }
}

/// Reads a changed record that names one of two entries.
fn a_record(input: &[u8]) {
    let Some((&seed, changes)) = input.split_first() else {
        return;
    };
    let disk = SimulatedDisk::new(0);
    let tier = Arc::new(tier(&disk));
    let mut list = List::default();
    let limits = Limits::narrow(16);
    list.push(End::Back, Element::Bytes(b"element"), limits.list_blocks);
    let list = Object::List(list);
    let kind = ColdKind::of_object(&list).expect("lists leave memory");
    let entries = [
        (&b"text"[..], ColdKind::BYTES, vec![7; 100], 100_u32),
        (b"list", kind, cold_bodies::encode(&list), 1),
    ];
    let at = usize::from(seed & 1);
    let places: Vec<_> = entries
        .iter()
        .map(|(key, kind, body, _)| append(&tier, key, *kind, body))
        .collect();
    for place in &places {
        tier.forget(*place);
    }
    let mut body = 1_u64.to_le_bytes().to_vec();
    for number in [places[at].offset_units, places[at].units, entries[at].3] {
        body.extend_from_slice(&number.to_le_bytes());
    }
    body.extend_from_slice(&[entries[at].1.number(), 0, 0, 0]);
    for change in changes.chunks_exact(2) {
        let at = usize::from(change[0]) % body.len();
        body[at] ^= change[1];
    }
    body.truncate(body.len() - usize::from(seed & 2) / 2);

    let store = Store::new(&Options::default()).expect("there is memory");
    assert!(store.set_cold_values(Arc::new(Kept(Arc::clone(&tier)))));
    let mut handle = store.handle();
    handle.begin(1);
    let key = handle.key(0, entries[at].0);
    let head = RecordHead {
        database: 0,
        type_code: COLD,
        deadline_unix_ms: (seed & 4 != 0).then_some(u64::from(seed)),
        etag: u64::from(seed & 8),
    };
    let is_there = seed & 16 != 0;
    if is_there {
        let set = handle.modify(&key, |entry| entry.set(b"before", Deadline::Never));
        set.expect("there is memory");
    }
    let put = places::put(
        Some(&tier),
        &mut handle,
        &key,
        (&head, &body),
        Existing::Refused,
    );
    if put.is_err() {
        assert_eq!((handle.stubs(), tier.figures().live_bytes), (0, 0));
        return;
    }
    assert!(!is_there);
    use_in_all_ways(&mut handle, &key);
    store::take_unreadable();
    assert_eq!((handle.stubs(), tier.figures().live_bytes), (0, 0));
}

/// Reads a key, changes it and removes it.
fn use_in_all_ways(handle: &mut store::Handle, key: &store::Key<'_>) {
    handle.inspect_expired(key, |record| {
        let Some(record) = record else {
            return;
        };
        let (_, _, _) = (record.kind(), record.encoding(), record.memory_bytes());
        if record.is_string() && record.len() < 1 << 20 {
            let _bytes = record.to_vec();
        }
        let _object = record.object().map(|object| object.len());
    });
    let _appended = handle.modify(key, |entry| entry.append(b"tail"));
    handle.modify(key, |entry| entry.remove());
}
