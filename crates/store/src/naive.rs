//! The obvious store: ordered maps behind one lock.
//!
//! It exists to prove the waist: whatever command code does through the five operations has to work
//! here as well, with nothing shared but the surface. It is the twin that the real index is compared
//! with in property tests. Nothing about it is fast.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::value::{EMBEDDED_BYTES_MAX, Encoding};

pub(crate) type Map = BTreeMap<Vec<u8>, Cell>;

/// One value and what is known about it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) data: Data,
    pub(crate) deadline_unix_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    Integer(i64),
    Bytes {
        bytes: Vec<u8>,
        changed_in_place: bool,
    },
}

impl Data {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        match base::number::parse_i64(bytes) {
            Some(number) => Self::Integer(number),
            None => Self::Bytes {
                bytes: bytes.to_vec(),
                changed_in_place: false,
            },
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Integer(number) => number.to_string().into_bytes(),
            Self::Bytes { bytes, .. } => bytes.clone(),
        }
    }

    /// The bytes for a change in place; a number becomes its text first.
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        if let Self::Integer(number) = self {
            *self = Self::Bytes {
                bytes: number.to_string().into_bytes(),
                changed_in_place: false,
            };
        }
        match self {
            Self::Bytes {
                bytes,
                changed_in_place,
            } => {
                *changed_in_place = true;
                bytes
            }
            Self::Integer(_) => unreachable!("turned into bytes above"),
        }
    }

    pub(crate) fn encoding(&self) -> Encoding {
        match self {
            Self::Integer(_) => Encoding::Integer,
            Self::Bytes {
                bytes,
                changed_in_place,
            } if *changed_in_place || bytes.len() > EMBEDDED_BYTES_MAX => Encoding::Raw,
            Self::Bytes { .. } => Encoding::Embedded,
        }
    }
}

/// The databases of a naive store, shared by its handles.
#[derive(Clone, Debug)]
pub(crate) struct Databases {
    maps: Arc<Mutex<Vec<Map>>>,
}

impl Databases {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            maps: Arc::new(Mutex::new(vec![Map::new(); count])),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Map>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
