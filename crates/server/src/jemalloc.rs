//! jemalloc as the allocator of the binary, and what the server asks of it.
//!
//! It keeps allocations of one size together and gives free pages back by itself, so that memory returns
//! after a flush and `maxmemory` bounds what the process holds
//! (docs/decisions/2026-11-24-an-allocator-that-returns-memory.md).

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::OnceLock;

use server::allocator::{Allocator, AllocatorMemory, SmallAllocations};
use tikv_jemalloc_sys as sys;

#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Options of jemalloc, which it reads from this symbol when it starts. Free pages are given back at once: with even a
/// tenth of a second in between, writes at full speed pass `maxmemory` by more than 5 %. A core has one arena, however
/// many threads there are: each arena keeps memory of its own, 170 kB in an idle server. One thread gives pages back.
/// Pieces of 1 to 4 KiB, as nodes of large collections are, share slabs of eight pages. With a slab for each page of 4 KiB
/// jemalloc kept 128 bytes to know every page by, for as long as the process lived. Allocations from 16 KiB on begin where a
/// page does. jemalloc would begin them anywhere in a page, to spread them over the sets of the processor's caches, and
/// take a page more for each: a sixth of the memory of values of 20 kB, and no processor time was saved.
// SAFETY: jemalloc looks for a `const char *` of this name, and nothing else has it.
#[unsafe(export_name = "_rjem_malloc_conf")]
static OPTIONS: Option<&'static c_char> = Some({
    let options = c"background_thread:false,max_background_threads:1,percpu_arena:percpu,dirty_decay_ms:0,muzzy_decay_ms:0,slab_sizes:1024-4096:8,cache_oblivious:false";
    // SAFETY: the first byte of a constant, the rest of which stands after it.
    unsafe { &*options.as_ptr() }
});

/// Puts [`message`] in its place before jemalloc starts, which it does among the constructors without a priority.
// SAFETY: the loader calls each entry of this section once, before `main` and before other threads, as a function of
// this type; it takes no argument that is looked at.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array.00099")]
static BEFORE_THE_ALLOCATOR: extern "C" fn() = {
    extern "C" fn set() {
        // SAFETY: no other thread is there yet, and jemalloc has not begun to read it.
        unsafe { sys::malloc_message = Some(message) };
    }
    set
};

/// What jemalloc has to say goes to standard error, but for the line that a process bound to some processors has no arena
/// for each: memory of a few more arenas is all that follows.
#[cfg(target_os = "linux")]
unsafe extern "C" fn message(_opaque: *mut c_void, text: *const c_char) {
    // SAFETY: jemalloc passes a text that ends with a zero.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    let is_about_processors = bytes.starts_with(b"<jemalloc>: Number of CPUs detected");
    if !is_about_processors {
        // SAFETY: the bytes are there for as many as are named. It may be called where nothing can be allocated. What
        // cannot be written is lost, as with jemalloc's own function.
        unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
    }
}

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
        set_flag(c"background_thread", true);
    }

    fn small(&self) -> Option<SmallAllocations> {
        refresh();
        let mut sum = SmallAllocations::default();
        for (number, bin) in bins().iter().enumerate() {
            let of_bin =
                |name| number_of::<u64>(&format!("stats.arenas.{ALL_ARENAS}.bins.{number}.{name}"));
            let used = of_bin("curregs")?.saturating_mul(bin.slot_bytes);
            let held = of_bin("curslabs")?.saturating_mul(bin.slots * bin.slot_bytes);
            sum.used_bytes += used;
            sum.idle_bytes += held.saturating_sub(used);
        }
        Some(sum)
    }

    fn begin_moving(&self) {
        set_flag(c"thread.tcache.enabled", false);
    }

    fn settle(&self) {
        run(c"thread.tcache.flush");
    }

    fn lies_sparsely(&self, address: *const u8) -> bool {
        Slab::around(address).is_some_and(|slab| slab.is_sparse())
    }

    fn purge(&self) {
        // Of all arenas: `MALLCTL_ARENAS_ALL`.
        run(c"arena.4096.purge");
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

/// What stands for all arenas together in the names of their numbers.
const ALL_ARENAS: u32 = 4096;

/// The small allocations of one size.
#[derive(Clone, Copy)]
struct Bin {
    slot_bytes: u64,
    /// Slots of a slab.
    slots: u64,
}

/// All sizes of small allocations; none where jemalloc does not say.
fn bins() -> &'static [Bin] {
    static BINS: OnceLock<Vec<Bin>> = OnceLock::new();
    BINS.get_or_init(|| {
        let count = number_of::<u32>("arenas.nbins").unwrap_or(0);
        let bin = |number| {
            Some(Bin {
                slot_bytes: number_of(&format!("arenas.bin.{number}.size"))?,
                slots: number_of::<u32>(&format!("arenas.bin.{number}.nregs"))?.into(),
            })
        };
        (0..count).map_while(bin).collect()
    })
}

/// What jemalloc says of a slab and the others of its size, in the order of its own structure.
#[derive(Default)]
#[repr(C)]
struct Slab {
    /// Where the slab is that the next allocation comes from.
    current: usize,
    free_slots: usize,
    slots: usize,
    bytes: usize,
    /// Of all slabs of its size in its arena.
    all_free_slots: usize,
    all_slots: usize,
    /// Not jemalloc's: what was asked for.
    address: usize,
}

/// How much of it jemalloc fills in.
const SLAB_BYTES: usize = std::mem::offset_of!(Slab, address);

/// A slab is sparse that has no more than nine eighths of the average in use: where all are alike, some have to begin.
const SPARSE_TIMES: usize = 9;
const SPARSE_PARTS: usize = 8;

impl Slab {
    /// That of a small allocation; none of one that was not made by jemalloc.
    fn around(address: *const u8) -> Option<Self> {
        const NAME_PARTS: usize = 3;
        static NAME: OnceLock<Option<[usize; NAME_PARTS]>> = OnceLock::new();
        let name = NAME.get_or_init(|| {
            let (mut name, mut parts) = ([0; NAME_PARTS], NAME_PARTS);
            // SAFETY: there is room for as many parts as is said.
            let result = unsafe {
                sys::mallctlnametomib(
                    c"experimental.utilization.query".as_ptr(),
                    name.as_mut_ptr(),
                    &raw mut parts,
                )
            };
            (result == 0 && parts == NAME_PARTS).then_some(name)
        });
        let name = (*name)?;
        let mut slab = Self {
            address: address.addr(),
            ..Self::default()
        };
        let mut size = SLAB_BYTES;
        let mut asked = address;
        // SAFETY: the name is a question about the address that is given, which is looked up and not followed; the
        // answer is as long as `size` says, which is what jemalloc insists on.
        let result = unsafe {
            sys::mallctlbymib(
                name.as_ptr(),
                name.len(),
                ptr::from_mut(&mut slab).cast(),
                &raw mut size,
                ptr::from_mut(&mut asked).cast(),
                size_of::<*const u8>(),
            )
        };
        (result == 0).then_some(slab)
    }

    fn is_sparse(&self) -> bool {
        let is_current = (self.current..self.current + self.bytes).contains(&self.address);
        if self.free_slots == 0 || is_current {
            return false;
        }
        let used = (self.slots - self.free_slots) * self.all_slots;
        let all_used = self.all_slots.saturating_sub(self.all_free_slots) * self.slots;
        used * SPARSE_PARTS <= all_used * SPARSE_TIMES
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
    read::<u64>(name)
}

/// The same of so many bits, by a name that was put together.
fn number_of<T: Copy + Default>(name: &str) -> Option<T> {
    read(&CString::new(name).ok()?)
}

/// Has jemalloc do what a name stands for.
fn run(name: &CStr) {
    // SAFETY: the name is a command, which takes no data and gives none.
    let _result = unsafe {
        sys::mallctl(
            name.as_ptr(),
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            0,
        )
    };
}

/// Sets a flag of jemalloc.
fn set_flag(name: &CStr, mut on: bool) {
    let on_pointer = ptr::from_mut(&mut on).cast();
    // SAFETY: the name is a flag, which is read as the one byte that it is. What it was is not asked for.
    let _result = unsafe {
        sys::mallctl(
            name.as_ptr(),
            ptr::null_mut(),
            ptr::null_mut(),
            on_pointer,
            size_of::<bool>(),
        )
    };
}

/// A number of so many bits by its name; none where it has others.
fn read<T: Copy + Default>(name: &CStr) -> Option<T> {
    let mut value = T::default();
    let mut size = size_of::<T>();
    // SAFETY: all names asked for are whole numbers, as `T` is, and nothing longer than it is written.
    let result = unsafe {
        sys::mallctl(
            name.as_ptr(),
            ptr::from_mut(&mut value).cast(),
            &raw mut size,
            ptr::null_mut(),
            0,
        )
    };
    (result == 0).then_some(value)
}
