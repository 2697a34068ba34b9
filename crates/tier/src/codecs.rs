//! Compression and decompression of bodies.
//!
//! ```text
//!   64 B – 4 KiB, and there is a dictionary ── zstd with it
//!   other bodies from 256 B on              ── LZ4, or zstd without a dictionary
//!   what is not a tenth shorter then        ── as it is
//! ```
//!
//! The state for decompression is created once and reused: dictionaries are prepared and shared,
//! and a reader takes a context that an earlier reader has returned.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base::sync::Mutex;
use base::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use lz4_flex::block;
use zstd::zstd_safe::{CCtx, CDict, DCtx, compress_bound};

use crate::dictionaries::Table;
use crate::dictionary::{Dictionary, LEVEL};
use crate::samples::Samples;
use crate::tier::lock;

/// Minimum length of a body that is compressed without a dictionary.
const COMPRESSED_BYTES_MIN: usize = 256;

/// Range of lengths of bodies that are compressed with a dictionary.
pub(crate) const SHORT_BYTES_MIN: usize = 64;
pub(crate) const SHORT_BYTES_MAX: usize = 4 << 10;

/// Which values are compressed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    No,
    /// LZ4.
    Lz4,
    /// zstd; short values with a dictionary if that helps.
    Zstd,
    /// LZ4; short values by zstd with a dictionary if that is a quarter shorter.
    Auto,
}

impl Compression {
    const ALL: [Self; 4] = [Self::No, Self::Lz4, Self::Zstd, Self::Auto];

    /// Whether dictionaries are trained and used.
    pub(crate) fn has_dictionaries(self) -> bool {
        matches!(self, Self::Zstd | Self::Auto)
    }
}

/// Encoding of a body in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    /// Uncompressed.
    Plain,
    /// A block of LZ4.
    Lz4,
    /// A frame of zstd, which may need a dictionary.
    Zstd(Option<Arc<Dictionary>>),
}

/// The dictionary with which values are written.
pub(crate) struct InUse {
    pub(crate) dictionary: Arc<Dictionary>,
    pub(crate) to_write: CDict<'static>,
    /// Bytes of bodies that were compressed with it since the last check, before and after
    /// compression.
    pub(crate) recent_raw_bytes: AtomicU64,
    pub(crate) recent_bytes: AtomicU64,
}

impl fmt::Debug for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dictionary.fmt(f)
    }
}

/// State that all segments of a tier share.
#[derive(Debug)]
pub(crate) struct Codecs {
    /// Position in [`Compression::ALL`].
    compression: AtomicU8,
    contexts: Contexts,
    pub(crate) table: Mutex<Table>,
    pub(crate) samples: Mutex<Samples>,
    /// Bytes of values that were written with dictionaries, before compression and as stored.
    pub(crate) packed_raw_bytes: AtomicU64,
    pub(crate) packed_bytes: AtomicU64,
}

/// Unused contexts of zstd: as many as were in use at the same time.
#[derive(Default)]
struct Contexts {
    idle: Mutex<Vec<DCtx<'static>>>,
    bytes: AtomicU64,
}

impl fmt::Debug for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contexts").finish_non_exhaustive()
    }
}

impl Contexts {
    fn with<T>(&self, body: impl FnOnce(&mut DCtx<'static>) -> T) -> Option<T> {
        let idle = lock(&self.idle).pop();
        let mut context = match idle {
            Some(context) => context,
            None => {
                let made = DCtx::try_create()?;
                self.bytes
                    .fetch_add(made.sizeof() as u64, Ordering::Relaxed);
                made
            }
        };
        let result = body(&mut context);
        lock(&self.idle).push(context);
        Some(result)
    }
}

impl Codecs {
    pub(crate) fn new(table: Table) -> Self {
        let codecs = Self {
            compression: AtomicU8::new(0),
            contexts: Contexts::default(),
            table: Mutex::new(table),
            samples: Mutex::default(),
            packed_raw_bytes: AtomicU64::new(0),
            packed_bytes: AtomicU64::new(0),
        };
        codecs.set_compression(Compression::Auto);
        codecs
    }

    pub(crate) fn compression(&self) -> Compression {
        let at = usize::from(self.compression.load(Ordering::Relaxed));
        Compression::ALL.get(at).copied().unwrap_or(Compression::No)
    }

    pub(crate) fn set_compression(&self, wanted: Compression) {
        let at = Compression::ALL.iter().position(|one| *one == wanted);
        let at = at.and_then(|at| u8::try_from(at).ok()).unwrap_or(0);
        self.compression.store(at, Ordering::Relaxed);
        if !wanted.has_dictionaries() {
            lock(&self.samples).give_up();
        }
    }

    /// Returns the memory of the contexts.
    pub(crate) fn context_bytes(&self) -> u64 {
        self.contexts.bytes.load(Ordering::Relaxed)
    }

    /// Returns a packer that compresses bodies by the present setting.
    pub(crate) fn packer(&self) -> Packer {
        let compression = self.compression();
        let in_use = lock(&self.table).in_use();
        Packer::new(
            compression,
            in_use.filter(|_| compression.has_dictionaries()),
        )
    }

    /// Decompresses a body of `raw_bytes`, which the caller has checked against the maximum.
    pub(crate) fn unpack<'b>(
        &self,
        stored: &'b [u8],
        codec: &Codec,
        raw_bytes: usize,
    ) -> Result<Cow<'b, [u8]>, &'static str> {
        let body = match codec {
            Codec::Plain => return Ok(Cow::Borrowed(stored)),
            Codec::Lz4 => block::decompress(stored, raw_bytes).ok(),
            Codec::Zstd(dictionary) => self.unpack_frame(stored, dictionary.as_deref(), raw_bytes),
        };
        let body = body.filter(|body| body.len() == raw_bytes);
        body.map(Cow::Owned)
            .ok_or("its body cannot be uncompressed")
    }

    fn unpack_frame(
        &self,
        stored: &[u8],
        dictionary: Option<&Dictionary>,
        raw_bytes: usize,
    ) -> Option<Vec<u8>> {
        let mut body = Vec::with_capacity(raw_bytes);
        let unpacked = self.contexts.with(|context| match dictionary {
            Some(dictionary) => {
                context.decompress_using_ddict(&mut body, stored, &dictionary.to_read)
            }
            None => context.decompress(&mut body, stored),
        })?;
        unpacked.ok().map(|_| body)
    }
}

/// Compresses bodies one after the other in the same way.
pub(crate) struct Packer {
    compression: Compression,
    in_use: Option<Arc<InUse>>,
    context: Option<CCtx<'static>>,
    /// Bytes of the bodies that were compressed with the dictionary, before and after compression.
    raw_bytes: u64,
    bytes: u64,
}

impl Packer {
    pub(crate) fn new(compression: Compression, in_use: Option<Arc<InUse>>) -> Self {
        Self {
            compression,
            in_use,
            context: None,
            raw_bytes: 0,
            bytes: 0,
        }
    }

    /// Returns the body as it will be stored: compressed if that makes it a tenth shorter.
    pub(crate) fn pack<'b>(&mut self, body: &'b [u8]) -> (Cow<'b, [u8]>, Codec) {
        let is_short = (SHORT_BYTES_MIN..=SHORT_BYTES_MAX).contains(&body.len());
        let in_use = self.in_use.clone().filter(|_| is_short);
        let packed = match (self.compression, &in_use) {
            (Compression::No, _) => None,
            (_, Some(in_use)) => self.frame(body, Some(in_use)),
            _ if body.len() < COMPRESSED_BYTES_MIN => None,
            (Compression::Zstd, None) => self.frame(body, None),
            _ => Some((block::compress(body), Codec::Lz4)),
        };
        let pays = |packed: &Vec<u8>| packed.len() <= body.len() - body.len() / 10;
        let packed = packed.filter(|(packed, _)| pays(packed));
        let (stored, codec) = match packed {
            Some((packed, codec)) => (Cow::Owned(packed), codec),
            None => (Cow::Borrowed(body), Codec::Plain),
        };
        if in_use.is_some() {
            self.raw_bytes += body.len() as u64;
            self.bytes += stored.len() as u64;
        }
        (stored, codec)
    }

    /// Returns a frame of zstd, or `None` if there is no memory for its compression.
    fn frame(&mut self, body: &[u8], in_use: Option<&Arc<InUse>>) -> Option<(Vec<u8>, Codec)> {
        let context = match &mut self.context {
            Some(context) => context,
            none => none.insert(CCtx::try_create()?),
        };
        let mut packed = Vec::with_capacity(compress_bound(body.len()));
        let written = match in_use {
            Some(one) => context.compress_using_cdict(&mut packed, body, &one.to_write),
            None => context.compress(&mut packed, body, LEVEL),
        };
        written.ok()?;
        let dictionary = in_use.map(|one| Arc::clone(&one.dictionary));
        Some((packed, Codec::Zstd(dictionary)))
    }

    /// Returns the dictionary with which short bodies are compressed.
    pub(crate) fn in_use(&self) -> Option<&InUse> {
        self.in_use.as_deref()
    }

    /// Returns the number of the dictionary with which short bodies are compressed.
    pub(crate) fn dictionary(&self) -> Option<u32> {
        Some(self.in_use()?.dictionary.name.number)
    }

    /// Adds the lengths of bodies for which a dictionary was tried to the counters.
    pub(crate) fn note(&self, codecs: &Codecs) {
        let Some(in_use) = self.in_use.as_ref().filter(|_| self.raw_bytes > 0) else {
            return;
        };
        for (counter, bytes) in [
            (&in_use.recent_raw_bytes, self.raw_bytes),
            (&in_use.recent_bytes, self.bytes),
            (&codecs.packed_raw_bytes, self.raw_bytes),
            (&codecs.packed_bytes, self.bytes),
        ] {
            counter.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}
