//! jemalloc as the binary's allocator, and the server's use of it.
//!
//! It groups allocations of one size, and returns free pages to the system by itself. So memory
//! returns after a flush, and `maxmemory` bounds what the process holds
//! (docs/decisions/2026-11-24-an-allocator-that-returns-memory.md).

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::OnceLock;

use server::allocator::{Allocator, AllocatorMemory, SmallAllocations};
use tikv_jemalloc_sys as sys;

#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Options of jemalloc, which it reads from this symbol when it starts. Free pages are returned at
/// once: with a delay of even a tenth of a second, writes at full speed exceed `maxmemory` by more
/// than 5 %. A core has one arena, however many threads there are, because each arena keeps memory
/// of its own: 170 kB in an idle server. One thread returns pages. Pieces of 1 to 4 KiB, such as
/// nodes of large collections, share slabs of eight pages. With a slab per page of 4 KiB, jemalloc
/// kept 128 bytes of metadata per page for the lifetime of the process. Allocations from 16 KiB on
/// begin at a page boundary. jemalloc would begin them anywhere in a page, to spread them over the
/// sets of the processor's caches, and take one more page for each: a sixth of the memory of values
/// of 20 kB, without saving processor time.
// SAFETY: jemalloc looks for a `const char *` of this name, and no other symbol has it.
#[unsafe(export_name = "_rjem_malloc_conf")]
static OPTIONS: Option<&'static c_char> = Some({
    let options = c"background_thread:false,max_background_threads:1,percpu_arena:percpu,dirty_decay_ms:0,muzzy_decay_ms:0,slab_sizes:1024-4096:8,cache_oblivious:false";
    // SAFETY: the pointer is to the first byte of a constant, and the rest of the constant follows
    // it.
    unsafe { &*options.as_ptr() }
});

/// Installs [`message`] before jemalloc starts, which happens among the constructors without a
/// priority.
// SAFETY: the loader calls each entry of this section once, before `main` and before other threads
// exist, as a function of this type. The function ignores its arguments.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array.00099")]
static BEFORE_THE_ALLOCATOR: extern "C" fn() = {
    extern "C" fn set() {
        // SAFETY: no other thread exists yet, and jemalloc has not begun to read it.
        unsafe { sys::malloc_message = Some(message) };
    }
    set
};

/// Writes jemalloc's messages to standard error, except the line that a process bound to some
/// processors lacks an arena for each: that costs only the memory of a few more arenas.
#[cfg(target_os = "linux")]
unsafe extern "C" fn message(_opaque: *mut c_void, text: *const c_char) {
    // SAFETY: jemalloc passes a text that ends with a zero.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    let is_about_processors = bytes.starts_with(b"<jemalloc>: Number of CPUs detected");
    if !is_about_processors {
        // SAFETY: `bytes` is valid for its length, and `write` may be called where nothing can be
        // allocated. What cannot be written is lost, as with jemalloc's own function.
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
        // For all arenas: `MALLCTL_ARENAS_ALL`.
        run(c"arena.4096.purge");
    }

    fn statistics(&self) -> String {
        let mut text = Vec::<u8>::new();
        // SAFETY: `append` gets the pointer passed beside it, which is to `text`, and is called
        // only before this returns. The options are a string.
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

/// Index that stands for all arenas in the names of their numbers.
const ALL_ARENAS: u32 = 4096;

/// The small allocations of one size.
#[derive(Clone, Copy)]
struct Bin {
    slot_bytes: u64,
    /// Number of slots of a slab.
    slots: u64,
}

/// Returns all sizes of small allocations; empty if jemalloc does not report them.
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

/// jemalloc's report about a slab and the others of its size, in the order of its own structure.
#[derive(Default)]
#[repr(C)]
struct Slab {
    /// Address of the slab that the next allocation comes from.
    current: usize,
    free_slots: usize,
    slots: usize,
    bytes: usize,
    /// Totals over all slabs of its size in its arena.
    all_free_slots: usize,
    all_slots: usize,
    /// Not part of jemalloc's structure: the address that was asked for.
    address: usize,
}

/// Length of the part that jemalloc fills in.
const SLAB_BYTES: usize = std::mem::offset_of!(Slab, address);

/// A slab is sparse if its use is at most nine eighths of the average: if all slabs are alike, some
/// must be emptied first.
const SPARSE_TIMES: usize = 9;
const SPARSE_PARTS: usize = 8;

impl Slab {
    /// Returns the slab of a small allocation, or `None` if jemalloc did not make it.
    fn around(address: *const u8) -> Option<Self> {
        const NAME_PARTS: usize = 3;
        static NAME: OnceLock<Option<[usize; NAME_PARTS]>> = OnceLock::new();
        let name = NAME.get_or_init(|| {
            let (mut name, mut parts) = ([0; NAME_PARTS], NAME_PARTS);
            // SAFETY: the buffer holds as many parts as the call states.
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
        // SAFETY: the name is a query about the given address, which jemalloc looks up and does not
        // dereference. The answer is as long as `size` says, which jemalloc checks.
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

/// Appends jemalloc's text to a vector of bytes.
unsafe extern "C" fn append(text: *mut c_void, piece: *const c_char) {
    // SAFETY: `statistics` passes its own vector, and jemalloc passes a string that lives through
    // this call.
    unsafe {
        let text = &mut *text.cast::<Vec<u8>>();
        text.extend_from_slice(CStr::from_ptr(piece).to_bytes());
    }
}

/// Begins a new epoch: jemalloc's numbers are those of the last one.
fn refresh() {
    let mut epoch = 1_u64;
    let mut size = size_of::<u64>();
    let epoch_pointer = ptr::from_mut(&mut epoch).cast();
    // SAFETY: `epoch` is read and written as its 64 bits.
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

/// Returns a number of jemalloc by its name, or `None` if there is no such number.
fn number(name: &CStr) -> Option<u64> {
    read::<u64>(name)
}

/// As [`number`], for other types and for a name that is composed at run time.
fn number_of<T: Copy + Default>(name: &str) -> Option<T> {
    read(&CString::new(name).ok()?)
}

/// Runs a command of jemalloc.
fn run(name: &CStr) {
    // SAFETY: the name is a command, which takes no data and returns none.
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
    // SAFETY: the name is a flag, which is read as its one byte. The former value is not requested.
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

/// Returns a number of type `T` by its name, or `None` if it has another length.
fn read<T: Copy + Default>(name: &CStr) -> Option<T> {
    let mut value = T::default();
    let mut size = size_of::<T>();
    // SAFETY: all names passed here are integers, as `T` is, and jemalloc writes nothing longer
    // than `T`.
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
