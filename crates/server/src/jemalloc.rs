//! jemalloc as the allocator of the binary, and what the server asks of it.
//!
//! It keeps allocations of one size together and gives free pages back by itself, so that memory returns
//! after a flush and `maxmemory` bounds what the process holds
//! (docs/decisions/2026-11-24-an-allocator-that-returns-memory.md).

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use server::allocator::{Allocator, AllocatorMemory};
use tikv_jemalloc_sys as sys;

#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Options of jemalloc, which it reads from this symbol when it starts. Free pages are given back at once: with even a
/// tenth of a second in between, writes at full speed pass `maxmemory` by more than 5 %.
// SAFETY: jemalloc looks for a `const char *` of this name, and nothing else has it.
#[unsafe(export_name = "_rjem_malloc_conf")]
static OPTIONS: Option<&'static c_char> = Some({
    let options = c"background_thread:false,dirty_decay_ms:0,muzzy_decay_ms:0";
    // SAFETY: the first byte of a constant, the rest of which stands after it.
    unsafe { &*options.as_ptr() }
});

/// jemalloc, for [`server::allocator::install`].
pub(crate) struct Jemalloc;

impl Allocator for Jemalloc {
    fn name(&self) -> &'static str {
        "jemalloc-5.3.1"
    }

    fn memory(&self) -> Option<AllocatorMemory> {
        refresh();
        Some(AllocatorMemory {
            allocated: number(c"stats.allocated")?,
            active: number(c"stats.active")?,
            resident: number(c"stats.resident")?,
            muzzy: 0,
        })
    }

    fn begin(&self) {
        let mut on = true;
        let on_pointer = ptr::from_mut(&mut on).cast();
        // SAFETY: the name is a flag, which is read as the one byte that it is. What it was is not asked for.
        let _result = unsafe {
            sys::mallctl(
                c"background_thread".as_ptr(),
                ptr::null_mut(),
                ptr::null_mut(),
                on_pointer,
                size_of::<bool>(),
            )
        };
    }

    fn purge(&self) {
        // SAFETY: the name is a command without arguments: `MALLCTL_ARENAS_ALL` of them.
        let _result = unsafe {
            sys::mallctl(
                c"arena.4096.purge".as_ptr(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                0,
            )
        };
    }

    fn statistics(&self) -> String {
        let mut text = Vec::<u8>::new();
        // SAFETY: `append` gets the pointer that stands beside it, which is to `text`, and is called only
        // before this returns. The options are a string.
        unsafe {
            sys::malloc_stats_print(
                Some(append),
                ptr::from_mut(&mut text).cast(),
                c"xlbhm".as_ptr(),
            );
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Adds text of jemalloc to a vector of bytes.
unsafe extern "C" fn append(text: *mut c_void, piece: *const c_char) {
    // SAFETY: `statistics` passes its own vector, and jemalloc a string that lives through this call.
    unsafe {
        let text = &mut *text.cast::<Vec<u8>>();
        text.extend_from_slice(CStr::from_ptr(piece).to_bytes());
    }
}

/// jemalloc's numbers are those of the last epoch that somebody began.
fn refresh() {
    let mut epoch = 1_u64;
    let mut size = size_of::<u64>();
    let epoch_pointer = ptr::from_mut(&mut epoch).cast();
    // SAFETY: `epoch` is read and written as the 64 bits that it is.
    let _result = unsafe {
        sys::mallctl(
            c"epoch".as_ptr(),
            epoch_pointer,
            &raw mut size,
            epoch_pointer,
            size,
        )
    };
}

/// A number of jemalloc by its name; none where there is no such number.
fn number(name: &CStr) -> Option<u64> {
    let mut value = 0_usize;
    let mut size = size_of::<usize>();
    // SAFETY: all names asked for are numbers of the size of a pointer, and nothing longer is written.
    let result = unsafe {
        sys::mallctl(
            name.as_ptr(),
            ptr::from_mut(&mut value).cast(),
            &raw mut size,
            ptr::null_mut(),
            0,
        )
    };
    (result == 0).then_some(value as u64)
}
