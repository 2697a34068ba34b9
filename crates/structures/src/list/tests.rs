//! A list against its naive twin, a vector of texts, with blocks of a few elements.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Push(End, Vec<u8>),
    Pop(End, usize),
    Set(usize, Vec<u8>),
    InsertBeside(Vec<u8>, bool, Vec<u8>),
    Remove(usize, usize),
    RemoveEqual(Vec<u8>, usize, End),
    Copy,
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0..12_i64).prop_map(|number| number.to_string().into_bytes()),
        4 => proptest::collection::vec(b'a'..b'd', 0..3),
        1 => (0..3_000_usize).prop_map(|len| vec![b'x'; len]),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Front), Just(End::Back)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        14 => (end(), text()).prop_map(|(end, text)| Step::Push(end, text)),
        3 => (end(), 0..5_usize).prop_map(|(end, count)| Step::Pop(end, count)),
        4 => (0..60_usize, text()).prop_map(|(at, text)| Step::Set(at, text)),
        5 => (text(), any::<bool>(), text())
            .prop_map(|(pivot, before, text)| Step::InsertBeside(pivot, before, text)),
        2 => (0..60_usize, 0..20_usize).prop_map(|(at, count)| Step::Remove(at, count)),
        2 => (text(), 0..4_usize, end())
            .prop_map(|(text, count, from)| Step::RemoveEqual(text, count, from)),
        1 => Just(Step::Copy),
    ]
}

fn run(list: &mut List, naive: &mut Vec<Vec<u8>>, step: &Step, limit: BlockLimit) {
    match step {
        Step::Push(end, text) => {
            list.push(*end, Element::parse(text), limit);
            let at = if *end == End::Front { 0 } else { naive.len() };
            naive.insert(at, text.clone());
        }
        Step::Pop(end, count) => {
            list.pop(*end, *count, limit);
            let count = (*count).min(naive.len());
            let start = if *end == End::Front {
                0
            } else {
                naive.len() - count
            };
            naive.drain(start..start + count);
        }
        Step::Set(at, text) => {
            let is_there = list.set(*at, Element::parse(text), limit);
            assert_eq!(is_there, *at < naive.len());
            if let Some(old) = naive.get_mut(*at) {
                old.clone_from(text);
            }
        }
        Step::InsertBeside(pivot, before, text) => {
            let found = naive.iter().position(|other| other == pivot);
            let (pivot, element) = (Element::parse(pivot), Element::parse(text));
            let inserted = list.insert_beside(pivot, *before, element, limit);
            assert_eq!(inserted, found.is_some());
            if let Some(at) = found {
                naive.insert(at + usize::from(!before), text.clone());
            }
        }
        Step::Remove(at, count) => {
            list.remove(*at..at + count, limit);
            let end = (at + count).min(naive.len());
            naive.drain((*at).min(end)..end);
        }
        Step::RemoveEqual(text, count, from) => {
            let removed = list.remove_equal(Element::parse(text), *count, *from, limit);
            let mut places: Vec<_> = (0..naive.len()).filter(|at| naive[*at] == *text).collect();
            if *from == End::Back {
                places.reverse();
            }
            places.truncate(*count);
            assert_eq!(removed, places.len());
            places.sort_unstable();
            for at in places.into_iter().rev() {
                naive.remove(at);
            }
        }
        Step::Copy => {
            // The copy shares blocks with the list, which then changes; both stay intact.
            let copy = list.clone();
            list.push(End::Back, Element::Integer(7), limit);
            list.set(0, Element::Integer(8), limit);
            compare(&copy, naive);
            *list = copy;
        }
    }
}

fn compare(list: &List, naive: &[Vec<u8>]) {
    let forwards: Vec<_> = list.iter().map(|element| element.to_vec()).collect();
    assert_eq!(forwards, naive);
    let mut backwards: Vec<_> = list.iter().rev().map(|element| element.to_vec()).collect();
    backwards.reverse();
    assert_eq!(backwards, naive);
    assert_eq!(list.len(), naive.len());
    for (index, wanted) in naive.iter().enumerate() {
        assert_eq!(list.get(index), Some(Element::parse(wanted)));
        let mut part = Vec::new();
        list.for_each(index..index + 7, |element| part.push(element.to_vec()));
        assert_eq!(part, naive[index..(index + 7).min(naive.len())]);
    }
    assert_eq!(list.get(naive.len()), None);
    if let Some(wanted) = naive.last() {
        let mut found = Vec::new();
        list.for_each_equal(Element::parse(wanted), naive.len(), |number| {
            found.push(number);
            found.len() < 3
        });
        let places = (0..naive.len()).filter(|at| naive[*at] == *wanted);
        assert!(places.take(3).eq(found));
    }
    assert_eq!(list.peek(End::Front), list.get(0));
    assert_eq!(list.peek(End::Back), list.iter().next_back());
    check_sums(list);
}

/// Checks that the sums match the blocks, and that no block is empty.
fn check_sums(list: &List) {
    if let Repr::Large(blocks) = &list.form {
        let all = || list.packed_blocks();
        let buffers: usize = all().map(Packed::memory_bytes).sum();
        let whole = blocks.memory_bytes();
        assert!(whole > buffers && whole < buffers + 1024 + 256 * blocks.count());
        assert_eq!(blocks.len(), all().map(Packed::len).sum::<usize>());
        assert!(all().all(|block| !block.is_empty()) || list.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 128 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_list_does_what_a_vector_does(
        directive in prop_oneof![Just(-2_i64), Just(-1), 0..9_i64],
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let limit = BlockLimit::from_directive(directive);
        let (mut list, mut naive) = (List::new(), Vec::new());
        for step in &steps {
            run(&mut list, &mut naive, step, limit);
            check_sums(&list);
        }
        compare(&list, &naive);
    }
}

#[test]
fn it_leaves_its_block_at_the_limit_and_returns_at_half_of_it() {
    let limit = BlockLimit::default();
    let mut list = List::new();
    let text = [b'x'; 98];
    for _ in 0..81 {
        list.push(End::Back, Element::Bytes(&text), limit);
    }
    assert_eq!(list.encoding(), Encoding::Listpack);
    list.push(End::Back, Element::Bytes(&text), limit);
    assert_eq!(list.encoding(), Encoding::Quicklist);
    list.pop(End::Front, 41, limit);
    assert_eq!((list.len(), list.encoding()), (41, Encoding::Quicklist));
    list.pop(End::Back, 1, limit);
    assert_eq!((list.len(), list.encoding()), (40, Encoding::Listpack));
}

#[test]
fn what_is_added_at_once_decides_at_once() {
    let limit = BlockLimit::default();
    let mut list = List::new();
    list.expect(9000, 2, limit);
    assert_eq!(list.encoding(), Encoding::Quicklist);
    list.push(End::Back, Element::Integer(1), limit);
    list.push(End::Front, Element::Integer(0), limit);
    compare(&list, &[b"0".to_vec(), b"1".to_vec()]);
}

#[test]
fn room_for_a_whole_block_is_asked_for_at_either_end_of_a_long_list() {
    let limit = BlockLimit::default();
    for end in [End::Front, End::Back] {
        let (mut list, mut naive) = (List::new(), Vec::new());
        for number in 0..3_000 {
            let text = format!("element {number} of a list that has many blocks").into_bytes();
            run(&mut list, &mut naive, &Step::Push(end, text), limit);
            check_sums(&list);
        }
        // Capacity that is not needed is freed: only one block has unused capacity.
        let content: usize = list.packed_blocks().map(Packed::content_bytes).sum();
        assert!(list.blocks() > 8 && list.memory_bytes() < content + 16_384);
        // Longer than any block's capacity: it is alone in its block.
        let long = Step::Push(end, vec![b'x'; 20_000]);
        run(&mut list, &mut naive, &long, limit);
        compare(&list, &naive);
    }
}

#[test]
fn a_long_list_is_found_by_number() {
    let limit = BlockLimit::default();
    let mut list = List::new();
    for number in 0..50_000 {
        list.push(End::Back, Element::Integer(number), limit);
    }
    for number in [0, 1, 24_999, 25_000, 25_001, 49_999] {
        let index = usize::try_from(number).unwrap();
        assert_eq!(list.get(index), Some(Element::Integer(number)));
    }
    assert!(list.blocks() > 10);
    // Four or five bytes each, capacity for one block, and almost nothing else.
    assert!(list.memory_bytes() < 220_000 + 8_192);
    list.remove(10..49_990, limit);
    let left: Vec<_> = list.iter().collect();
    assert_eq!(left.len(), 20);
    assert_eq!(left[10], Element::Integer(49_990));
    assert_eq!(list.encoding(), Encoding::Listpack);
}
