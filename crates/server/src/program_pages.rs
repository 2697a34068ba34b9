//! Release of program pages that only the start needed.
//!
//! The system maps sixteen pages around each place of the program that is executed or read. So
//! after a start two thirds of the program count as memory of the process, more than an empty store
//! has. The loader's list of relocations, a megabyte, is read only once. These pages are released
//! once. Pages that are used again come back from the system's cache with a fault of some tenths of
//! a microsecond each, and the rest stays released.

/// Releases all pages of code and constants. Breakpoints that a debugger has set before are lost.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn let_go() {
    // SAFETY: the function has the type that is called, and takes no data. The loader keeps its
    // list of libraries during the call.
    unsafe { libc::dl_iterate_phdr(Some(let_go_of), std::ptr::null_mut()) };
}

/// Does nothing: other systems do not release pages that way.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub(crate) fn let_go() {}

/// Releases the code and the constants of the program or of one library.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe extern "C" fn let_go_of(
    info: *mut libc::dl_phdr_info,
    _bytes: usize,
    _data: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: `dl_iterate_phdr` passes a valid description with as many segments as it says; the
    // size of a page is a constant. A segment that is not writable has the file's contents (nothing
    // is relocated in one on 64-bit systems: what the loader relocates and protects afterwards lies
    // in a writable segment). So released pages are read again unchanged, whichever thread uses
    // them meanwhile. Only whole pages of the segment are named.
    unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE);
        let page = usize::try_from(page).unwrap_or(1 << 16);
        let (info, count) = (&*info, usize::from((*info).dlpi_phnum));
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        for segment in std::slice::from_raw_parts(info.dlpi_phdr, count) {
            let is_as_in_file =
                segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_W == 0;
            let start = bytes(info.dlpi_addr).wrapping_add(bytes(segment.p_vaddr));
            let end = start.wrapping_add(bytes(segment.p_filesz)) / page * page;
            let start = start.next_multiple_of(page);
            if is_as_in_file && start < end {
                let start = std::ptr::with_exposed_provenance_mut(start);
                libc::madvise(start, end - start.addr(), libc::MADV_DONTNEED);
            }
        }
    }
    0
}

#[cfg(all(target_os = "linux", not(miri)))]
fn bytes(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the resident bytes of mapped files.
    fn of_files() -> u64 {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("RssFile:"));
        let number = line.unwrap().split_whitespace().next().unwrap();
        number.parse::<u64>().unwrap() << 10
    }

    #[test]
    #[cfg_attr(any(miri, not(target_os = "linux")), ignore = "nothing is let go")]
    fn code_and_constants_are_let_go_and_are_there_all_the_same() {
        let before = of_files();
        let_go();
        let after = of_files();
        assert!(after < before, "{before} before, {after} after");
    }
}
