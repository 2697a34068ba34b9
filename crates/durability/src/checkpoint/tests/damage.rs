//! Every byte of small files changed, and every end cut off: all of it is detected.

use super::*;

/// A part of several blocks and a long record, small enough to change every byte of it.
fn small_part(place: &TestDirectory) -> (PathBuf, PartEntry, Vec<u8>) {
    let path = place.path().join("0000.part");
    let records: Vec<Kept> = (0..12).map(record).collect();
    let (entry, _) = write(&path, head(0), &records);
    let bytes = std::fs::read(&path).unwrap();
    (path, entry, bytes)
}

/// Returns the result of a reader, which returns records or only checks them.
fn refusal(path: &Path) -> Result<usize, CheckpointFault> {
    let open = || PartReader::open(&SystemDisk, path);
    let records = open().and_then(|mut reader| read(&mut reader));
    let checked = open().and_then(|mut reader| check(&mut reader));
    let told = |fault: &CheckpointFault| fault.to_string();
    assert_eq!(
        records.as_ref().err().map(told),
        checked.as_ref().err().map(told)
    );
    records.map(|records| records.len())
}

#[test]
fn every_changed_byte_of_a_part_is_found() {
    let place = TestDirectory::new();
    let (_, _, bytes) = small_part(&place);
    let changes = [0x01, 0x20, 0x80, 0xff];
    let changed = place.path().join("changed");
    for at in 0..bytes.len() {
        for change in changes {
            let mut other = bytes.clone();
            other[at] ^= change;
            std::fs::write(&changed, &other).unwrap();
            let fault = refusal(&changed).expect_err("found without the manifest");
            let CheckpointFault::Damaged { offset, .. } = fault else {
                unreachable!("{fault}");
            };
            assert!(offset <= at as u64, "{offset} is not behind {at}");
        }
    }
}

#[test]
fn every_cut_of_a_part_is_found() {
    let place = TestDirectory::new();
    let (_, entry, bytes) = small_part(&place);
    let changed = place.path().join("changed");
    for len in 0..bytes.len() {
        std::fs::write(&changed, &bytes[..len]).unwrap();
        assert!(refusal(&changed).is_err(), "cut at {len}");
        assert!(open(&changed, &entry).is_err());
        let zeroed = [&bytes[..len], &vec![0; bytes.len() - len]].concat();
        if zeroed != bytes {
            std::fs::write(&changed, &zeroed).unwrap();
            assert!(refusal(&changed).is_err(), "zeroes from {len} on");
        }
    }
    for more in [&b"\0"[..], b"BLCK", &bytes] {
        std::fs::write(&changed, [&bytes, more].concat()).unwrap();
        assert!(refusal(&changed).is_err(), "{} bytes more", more.len());
    }
}

#[test]
fn a_block_left_out_or_moved_is_found() {
    let place = TestDirectory::new();
    let path = place.path().join("0000.part");
    let records: Vec<Kept> = (0..16_000).map(record).collect();
    let (entry, _) = write(&path, head(0), &records);
    let bytes = std::fs::read(&path).unwrap();
    let starts: Vec<usize> = (0..bytes.len() - 4)
        .filter(|at| bytes[*at..].starts_with(b"BLCK"))
        .collect();
    assert!(starts.len() >= 3, "{starts:?}");
    let foot = bytes.len() - 56;
    let mut blocks: Vec<&[u8]> = starts
        .iter()
        .zip(starts[1..].iter().chain([&foot]))
        .map(|(from, to)| &bytes[*from..*to])
        .collect();
    let changed = place.path().join("changed");
    let flaw = |blocks: &[&[u8]]| {
        let whole = [&[&bytes[..64]], blocks, &[&bytes[foot..]]]
            .concat()
            .concat();
        std::fs::write(&changed, whole).unwrap();
        match refusal(&changed) {
            Err(CheckpointFault::Damaged { flaw, .. }) => Some(flaw),
            _ => None,
        }
    };
    assert_eq!(flaw(&blocks[1..]), Some(Flaw::Order));
    assert_eq!(flaw(&blocks[..blocks.len() - 1]), Some(Flaw::Counts));
    blocks.swap(0, 1);
    assert_eq!(flaw(&blocks), Some(Flaw::Order));
    blocks.swap(0, 1);
    assert_eq!(flaw(&blocks), None);
    assert_eq!(entry.records, 16_000);
}

#[test]
fn every_changed_byte_of_a_manifest_is_found() {
    let place = TestDirectory::new();
    let text = checkpoint(&place, 7).encode().into_bytes();
    for at in 0..text.len() {
        for change in 1..=u8::MAX {
            let mut other = text.clone();
            other[at] ^= change;
            assert!(Manifest::decode(&other).is_err(), "{change} at {at}");
        }
    }
    for len in 0..text.len() {
        assert!(Manifest::decode(&text[..len]).is_err(), "cut at {len}");
        place.write(MANIFEST_NAME, &text[..len]);
        let fault = read_manifest(&SystemDisk, place.path()).unwrap_err();
        assert!(fault.path().ends_with(MANIFEST_NAME));
    }
    let twice = [&text[..], &text].concat();
    assert!(Manifest::decode(&twice).is_err());
}

#[test]
fn a_manifest_has_one_spelling() {
    let place = TestDirectory::new();
    let text = checkpoint(&place, 7).encode();
    let content = &text[..text.len() - "end 0123456789abcdef\n".len()];
    let spelled = |from: &str, to: &str| {
        let changed = content.replacen(from, to, 1);
        assert_ne!(changed, content, "{from}");
        let sum = base::crc::crc64(0, changed.as_bytes());
        Manifest::decode(format!("{changed}end {sum:016x}\n").as_bytes()).map(drop)
    };
    let line = Err(ManifestFlaw::Line);
    assert_eq!(spelled("generation 7", "generation 07"), line);
    assert_eq!(spelled("generation 7", "generation +7"), line);
    assert_eq!(spelled("generation 7\n", ""), line);
    assert_eq!(spelled("created", "made"), line);
    assert_eq!(spelled("0000.part", "../0000.part"), line);
    assert_eq!(spelled("0000.part", ".part"), line);
    assert_eq!(spelled("checkpoint-7-1", "checkpoint-7/1"), line);
    assert_eq!(spelled("database 0", "database 2"), line);
    assert_eq!(
        spelled("database 0 ", "database 0 1"),
        Err(ManifestFlaw::Counts)
    );
    let title = |to: &str| spelled("iolite-manifest 1", to);
    assert_eq!(title("iolite-manifest 5"), Err(ManifestFlaw::Version(5)));
    assert_eq!(
        title("iolite-manifest 4"),
        line,
        "there are no dictionaries"
    );
    assert_eq!(title("iolite-manifest 2"), line, "there is no history");
    assert_eq!(title("other-manifest 1"), Err(ManifestFlaw::NoManifest));
}

#[test]
fn a_history_has_one_spelling_and_fits() {
    let place = TestDirectory::new();
    let mut manifest = checkpoint(&place, 7);
    manifest.log_sequence = Some(41_943_040);
    manifest.history = history();
    let text = manifest.encode();
    assert!(text.starts_with("iolite-manifest 2\n"));
    let content = &text[..text.len() - "end 0123456789abcdef\n".len()];
    let spelled = |from: &str, to: &str| {
        let changed = content.replacen(from, to, 1);
        assert_ne!(changed, content, "{from}");
        let sum = base::crc::crc64(0, changed.as_bytes());
        Manifest::decode(format!("{changed}end {sum:016x}\n").as_bytes()).map(drop)
    };
    let (line, history) = (Err(ManifestFlaw::Line), Err(ManifestFlaw::History));
    assert_eq!(spelled("iolite-manifest 2", "iolite-manifest 1"), line);
    assert_eq!(spelled("term 6", "term 06"), line);
    assert_eq!(spelled("term 6 74", "term 6 7"), line);
    assert_eq!(spelled("resp 41943000", "resp"), line);
    assert_eq!(spelled("123456 3\n", "123456 70000\n"), line);
    assert_eq!(spelled("cut 41943040", "cut 41943040\ncut 41943040"), line);
    assert_eq!(spelled("cut 41943040", "cut 41943048"), history);
    assert_eq!(spelled("term 6", "term 7"), history);
    assert_eq!(spelled(" 4096\n", " 0\n"), history);
    assert_eq!(spelled("log-from 41943040", "log-from none"), history);
    let settled = "settled 41943048";
    assert_eq!(spelled("cut 41943040", settled), Ok(()));
    assert_eq!(spelled("cut 41943040", "settled 41943039"), history);
    let both = format!("cut 41943040\n{settled}");
    assert_eq!(spelled("cut 41943040", &both), history);
    let term = manifest.history.terms[0];
    manifest.history.terms = (0..=TERMS_MAX as u64)
        .map(|at| TermEntry {
            number: at,
            start: at * 8,
            ..term
        })
        .collect();
    let flaw = Manifest::decode(manifest.encode().as_bytes());
    assert_eq!(flaw, Err(ManifestFlaw::History));
    manifest.history.terms.pop();
    let decoded = Manifest::decode(manifest.encode().as_bytes());
    assert_eq!(decoded, Ok(manifest));
}
