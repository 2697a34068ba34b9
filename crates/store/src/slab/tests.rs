//! Slots as one and as several threads see them.

use super::*;
use crate::arena::HugePages;

#[test]
fn classes_cover_all_sizes_with_little_loss() {
    for bytes in 1..=SLOT_BYTES_MAX {
        let class = class_for(bytes).unwrap();
        assert!(class_bytes(class) >= bytes, "{bytes}");
        if let Some(smaller) = class.number().checked_sub(1) {
            assert!(class_bytes(SizeClass(smaller)) < bytes, "{bytes}");
        }
    }
    assert_eq!(class_for(0), Some(SizeClass(0)));
    assert_eq!(class_for(SLOT_BYTES_MAX + 1), None);
    assert_eq!(class_bytes(SizeClass(51)), SLOT_BYTES_MAX);
    assert_eq!(SizeClass::from_number(52), None);
}

#[test]
fn allocates_and_frees() {
    let arena = Arc::new(Arena::new(HugePages::default()).unwrap());
    let slab = Slab::new(arena, Arc::default());
    let mut cache = slab.cache();
    let class = class_for(100).unwrap();
    let first = cache.allocate(class).unwrap();
    let second = cache.allocate(class).unwrap();
    assert_ne!(first, second);
    cache.free(first, class);
    assert_eq!(
        cache.allocate(class).unwrap(),
        first,
        "the last freed is the first reused"
    );
}
