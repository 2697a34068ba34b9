//! The codes of the types of values.

pub(crate) const STRING: u8 = 0;
pub(crate) const LIST: u8 = 1;
pub(crate) const SET: u8 = 2;
pub(crate) const SORTED_SET_TEXT: u8 = 3;
pub(crate) const HASH: u8 = 4;
pub(crate) const SORTED_SET: u8 = 5;
pub(crate) const HASH_ZIPMAP: u8 = 9;
pub(crate) const LIST_ZIPLIST: u8 = 10;
pub(crate) const SET_INTSET: u8 = 11;
pub(crate) const SORTED_SET_ZIPLIST: u8 = 12;
pub(crate) const HASH_ZIPLIST: u8 = 13;
pub(crate) const LIST_ZIPLISTS: u8 = 14;
pub(crate) const STREAM_PLAIN: u8 = 15;
pub(crate) const HASH_LISTPACK: u8 = 16;
pub(crate) const SORTED_SET_LISTPACK: u8 = 17;
pub(crate) const LIST_LISTPACKS: u8 = 18;
pub(crate) const STREAM_COUNTERS: u8 = 19;
pub(crate) const SET_LISTPACK: u8 = 20;
pub(crate) const STREAM: u8 = 21;
/// Used by Valkey, and with another meaning by unpublished versions of Redis.
pub(crate) const HASH_DEADLINES_EARLY: u8 = 22;
pub(crate) const HASH_LISTPACK_DEADLINES_EARLY: u8 = 23;
pub(crate) const HASH_DEADLINES: u8 = 24;
pub(crate) const HASH_LISTPACK_DEADLINES: u8 = 25;
pub(crate) const STREAM_PRODUCERS: u8 = 26;
pub(crate) const STREAM_RELEASED: u8 = 27;
pub(crate) const ARRAY: u8 = 28;
pub(crate) const HASH_TEMPLATE_LISTPACK: u8 = 29;
pub(crate) const HASH_OF_TEMPLATE_LISTPACK: u8 = 30;
pub(crate) const HASH_TEMPLATE: u8 = 31;
pub(crate) const HASH_OF_TEMPLATE: u8 = 32;

/// Whether it is a hash, in any version.
pub(crate) fn is_hash(type_code: u8) -> bool {
    has_field_deadlines(type_code)
        || matches!(
            type_code,
            HASH | HASH_ZIPMAP | HASH_ZIPLIST | HASH_LISTPACK | HASH_TEMPLATE_LISTPACK
                ..=HASH_OF_TEMPLATE
        )
}

/// Whether it is a hash whose fields may have deadlines.
#[must_use]
pub fn has_field_deadlines(type_code: u8) -> bool {
    (HASH_DEADLINES_EARLY..=HASH_LISTPACK_DEADLINES).contains(&type_code)
}

/// Returns the name of a type of other servers that has no counterpart here, with the version that
/// added it.
#[must_use]
pub(crate) fn name_of_foreign(type_code: u8) -> Option<&'static str> {
    match type_code {
        STREAM_RELEASED => Some("a stream with entries released by XNACK, since Redis 8.8"),
        ARRAY => Some("an array, since Redis 8.8"),
        HASH_OF_TEMPLATE_LISTPACK | HASH_OF_TEMPLATE => {
            Some("a hash by a template that only its file has, since Redis 8.10")
        }
        _ => None,
    }
}
