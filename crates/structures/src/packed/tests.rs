//! A block against its naive twin, a vector of texts.

use proptest::prelude::*;

use super::*;
use crate::memory::SPARE_BYTES_MAX;

#[derive(Clone, Debug)]
enum Step {
    PushBack(Vec<u8>),
    PushFront(Vec<u8>),
    Insert(usize, Vec<u8>),
    Replace(usize, Vec<u8>),
    Remove(usize, usize),
    PopFront(usize),
    PopBack(usize),
    SplitOff(usize),
    Append(Vec<Vec<u8>>),
    Fit,
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        4 => (-300..5000_i64).prop_map(|number| number.to_string().into_bytes()),
        4 => proptest::collection::vec(any::<u8>(), 0..8),
        2 => (0..300_usize).prop_map(|len| vec![b'x'; len]),
        1 => (4_000..17_000_usize).prop_map(|len| vec![b'y'; len]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => text().prop_map(Step::PushBack),
        6 => text().prop_map(Step::PushFront),
        4 => (0..40_usize, text()).prop_map(|(at, text)| Step::Insert(at, text)),
        4 => (0..40_usize, text()).prop_map(|(at, text)| Step::Replace(at, text)),
        3 => (0..40_usize, 0..5_usize).prop_map(|(at, count)| Step::Remove(at, count)),
        3 => (0..4_usize).prop_map(Step::PopFront),
        3 => (0..4_usize).prop_map(Step::PopBack),
        1 => (0..40_usize).prop_map(Step::SplitOff),
        1 => proptest::collection::vec(text(), 0..5).prop_map(Step::Append),
        1 => Just(Step::Fit),
    ]
}

fn packed_of(texts: &[Vec<u8>]) -> Packed {
    let mut packed = Packed::new();
    for text in texts {
        packed.push_back(Element::parse(text));
    }
    packed
}

fn run(packed: &mut Packed, naive: &mut Vec<Vec<u8>>, step: &Step) {
    match step {
        Step::PushBack(text) => {
            packed.push_back(Element::parse(text));
            naive.push(text.clone());
        }
        Step::PushFront(text) => {
            packed.push_front(Element::parse(text));
            naive.insert(0, text.clone());
        }
        Step::Insert(at, text) => {
            packed.insert(packed.seek(*at), Element::parse(text));
            naive.insert((*at).min(naive.len()), text.clone());
        }
        Step::Replace(at, text) => {
            if let Some(old) = naive.get_mut(*at) {
                packed.replace(packed.seek(*at), Element::parse(text));
                old.clone_from(text);
            }
        }
        Step::Remove(at, count) => {
            let end = at.saturating_add(*count).min(naive.len());
            let start = (*at).min(end);
            assert_eq!(packed.remove(packed.seek(*at), *count), end - start);
            naive.drain(start..end);
        }
        Step::PopFront(count) => {
            let count = (*count).min(naive.len());
            assert_eq!(packed.pop_front(count), count);
            naive.drain(..count);
        }
        Step::PopBack(count) => {
            let count = (*count).min(naive.len());
            assert_eq!(packed.pop_back(count), count);
            naive.truncate(naive.len() - count);
        }
        Step::SplitOff(at) => {
            let tail = packed.split_off(packed.seek(*at));
            let naive_tail = naive.split_off((*at).min(naive.len()));
            compare(&tail, &naive_tail);
        }
        Step::Append(texts) => {
            packed.append(&packed_of(texts));
            naive.extend_from_slice(texts);
        }
        Step::Fit => packed.shrink_to_fit(),
    }
}

fn compare(packed: &Packed, naive: &[Vec<u8>]) {
    let forwards: Vec<_> = packed.iter().map(|element| element.to_vec()).collect();
    assert_eq!(forwards, naive);
    let mut backwards: Vec<_> = packed
        .iter()
        .rev()
        .map(|element| element.to_vec())
        .collect();
    backwards.reverse();
    assert_eq!(backwards, naive);
    assert_eq!(packed.len(), naive.len());
    assert_eq!(packed.is_empty(), naive.is_empty());
    let text = |element: Option<Element<'_>>| element.map(|element| element.to_vec());
    assert_eq!(text(packed.front()).as_ref(), naive.first());
    assert_eq!(text(packed.back()).as_ref(), naive.last());
    for (number, wanted) in naive.iter().enumerate() {
        let place = packed.seek(number);
        assert_eq!(packed.get(place), Some(Element::parse(wanted)));
        let first = naive.iter().position(|other| other == wanted).unwrap();
        let found = packed.find(Element::parse(wanted), packed.first(), 1);
        assert_eq!(found, Some(packed.seek(first)));
        if number + 1 == naive.len() {
            assert_eq!(packed.after(place), packed.end());
            assert_eq!(packed.last(), Some(place));
        }
    }
    assert_eq!(*packed, packed_of(naive));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_block_does_what_a_vector_does(steps in proptest::collection::vec(step(), 1..80)) {
        let (mut packed, mut naive) = (Packed::new(), Vec::new());
        for step in &steps {
            run(&mut packed, &mut naive, step);
        }
        compare(&packed, &naive);
    }
}

#[test]
fn fields_are_found_and_values_are_not() {
    let texts = ["a", "b", "b", "c", "7", "a"].map(|text| text.as_bytes().to_vec());
    let packed = packed_of(&texts);
    let find = |text: &[u8]| packed.find(Element::parse(text), packed.first(), 2);
    assert_eq!(find(b"a"), Some(packed.seek(0)));
    assert_eq!(find(b"b"), Some(packed.seek(2)));
    assert_eq!(find(b"7"), Some(packed.seek(4)));
    assert_eq!(find(b"c"), None);
}

#[test]
fn a_queue_in_one_block_allocates_seldom() {
    let mut packed = Packed::new();
    for number in 0..200 {
        packed.push_back(Element::Integer(number));
    }
    // The content stays in place unless it is moved, whichever address an allocator then returns.
    let (mut end, mut moves) = (packed.content().as_ptr_range().end, 0);
    let capacity = packed.memory_bytes();
    for number in 0..10_000 {
        let length = packed.content().len();
        packed.push_back(Element::Integer(200 + number % 50));
        let pushed = packed.content().len() - length;
        let now = packed.content().as_ptr_range().end;
        moves += usize::from(now != end.wrapping_add(pushed));
        end = now;
        packed.pop_front(1);
    }
    assert!(moves < 800, "moved {moves} times");
    assert!(packed.memory_bytes() <= capacity * 2);
    for _ in 0..10_000 {
        packed.push_front(Element::Bytes(b"some text"));
        packed.pop_back(1);
    }
    assert_eq!(packed.len(), 200);
    assert!(packed.memory_bytes() <= 200 * 11 * 2);
}

#[test]
fn memory_follows_what_is_kept() {
    let mut packed = Packed::new();
    assert_eq!(packed.memory_bytes(), 0);
    for _ in 0..1000 {
        packed.push_back(Element::Bytes(b"0123456789"));
    }
    assert!(packed.memory_bytes() < 12_000 + SPARE_BYTES_MAX + 64);
    packed.pop_front(990);
    assert!(packed.memory_bytes() < 300, "{}", packed.memory_bytes());
    packed.shrink_to_fit();
    assert!(packed.memory_bytes() <= 160);
}
