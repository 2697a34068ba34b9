//! Power cuts on a real file system: ext4 on a loop device, shut down under the server.
//!
//! ```text
//!   clients ──► server ──► ext4 ──► loop device          EXT4_IOC_SHUTDOWN: from now on nothing reaches the
//!      │ ledger                                          device, and what the system had not written is lost
//!      └──── compared with ◄── server ◄── ext4, mounted again
//! ```
//!
//! With NOLOGFLUSH the file system's journal is not written either, as in a power cut. Unlike the
//! simulated device, it tears no writes. At `always` no acknowledged write may be lost; at
//! `everysec` those acknowledged in the last second may be.
//!
//! The test needs root and loop devices. Without them it prints a message and does nothing.
//! [`soak`] writes a record:
//!
//! ```text
//! RECORD=target/power-cuts-ext4.md \
//!     cargo test --release -p server --test it power_cuts::soak -- --ignored
//! ```

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};
use base::random::Prng;
use testkit::patience::Patience;
use testkit::process::temporary_directory;

use crate::ledger::{self, Ledger, number_from};

const WRITERS_COUNT: u64 = 4;
/// Size of the file, which is sparse: unwritten parts take no space.
const IMAGE_MIB: u64 = 1024;
/// Long enough that `everysec` has synced some of the writes.
const LIFE_MS_MAX: u64 = 1_500;

/// An ext4 file system of its own, in a file.
pub(crate) struct Device {
    directory: PathBuf,
    node: String,
}

impl Device {
    /// Makes and mounts a new file system of this many MiB, with these arguments for the program
    /// that makes it. Returns the reason if that is impossible here.
    pub(crate) fn new(mib: u64, words: &[&str]) -> Result<Self, String> {
        let directory = temporary_directory("power").unwrap();
        let image = directory.join("image");
        let made = || -> Result<String, String> {
            let file = File::create(&image).map_err(|error| error.to_string())?;
            file.set_len(mib << 20).map_err(|error| error.to_string())?;
            let image = image.to_str().unwrap();
            run("mkfs.ext4", &[words, &["-q", "-F", image]].concat())?;
            run("losetup", &["-f", "--show", image])
        };
        let node = made().inspect_err(|_| {
            let _removed = fs::remove_dir_all(&directory);
        })?;
        let device = Self { directory, node };
        fs::create_dir(device.path()).unwrap();
        device.mount()?;
        Ok(device)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("mounted")
    }

    pub(crate) fn mount(&self) -> Result<(), String> {
        run("mount", &[&self.node, self.path().to_str().unwrap()]).map(drop)
    }

    pub(crate) fn unmount(&self) {
        let patience = Patience::of(Duration::from_secs(120));
        while let Err(reason) = run("umount", &[self.path().to_str().unwrap()]) {
            assert!(patience.lasts(), "{reason}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Cuts the power: from now on nothing reaches the device.
    pub(crate) fn cut_power(&self) {
        /// `_IOR('X', 125, u32)`.
        const EXT4_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
        let no_log_flush: u32 = 2;
        let directory = File::open(self.path()).unwrap();
        // SAFETY: the descriptor is open, and this request reads one u32 at the given address.
        let done = unsafe {
            libc::ioctl(
                directory.as_raw_fd(),
                EXT4_IOC_SHUTDOWN,
                &raw const no_log_flush,
            )
        };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _unmounted = run("umount", &[self.path().to_str().unwrap()]);
        let _detached = run("losetup", &["-d", &self.node]);
        let _removed = fs::remove_dir_all(&self.directory);
    }
}

/// Runs a program and returns its output, or the reason of its failure.
fn run(program: &str, words: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(words).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{program}: {}", text(&output.stderr))),
    }
}

#[derive(Debug, Default)]
struct Figures {
    cycles: u64,
    acknowledged: u64,
    checkpoints: u64,
    /// Acknowledged writes that were lost.
    lost: u64,
    /// Number of lost writes that were acknowledged during the shutdown of the file system. The
    /// shutdown takes a moment in which a pending sync may return as if it had succeeded.
    in_between: u64,
    /// Maximum time from the acknowledgement of the oldest lost write to the power cut.
    window_ms: u64,
    /// Maximum time from the oldest lost write to the newest: while the device is late, no client
    /// may write, however late it is.
    span_ms: u64,
    /// Maximum time for which the system did not run a thread that only reads the clock.
    pause_ms: u64,
}

/// Measures how long the machine keeps threads from running.
struct Watch {
    is_over: Arc<AtomicBool>,
    looking: Option<JoinHandle<u64>>,
}

impl Watch {
    fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let looking = std::thread::spawn(move || {
            let clock = SystemClock::new();
            let (mut before_ns, mut longest_ns) = (clock.monotonic_ns(), 0);
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                let now_ns = clock.monotonic_ns();
                longest_ns = longest_ns.max(now_ns - before_ns);
                before_ns = now_ns;
            }
            longest_ns
        });
        Self {
            is_over,
            looking: Some(looking),
        }
    }

    /// Returns the longest pause so far, in milliseconds.
    fn end(mut self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        let looking = self.looking.take().map(JoinHandle::join);
        looking.map_or(0, |longest_ns| longest_ns.unwrap() / 1_000_000)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Makes this many power cuts at a level.
fn cut(device: &Device, level: &str, cycles: u64, seed: u64) -> Figures {
    let dir = device.path().join(level);
    fs::create_dir(&dir).unwrap();
    let mut random = Prng::seeded(seed);
    let mut ledgers: Vec<_> = (0..WRITERS_COUNT)
        .map(|writer| Ledger::new(writer, seed).on_a_device())
        .collect();
    let mut figures = Figures::default();
    let watch = Watch::start();
    let (clock, mut cut_ns) = (SystemClock::new(), 0);
    for _ in 0..cycles {
        check(
            &dir,
            level,
            &mut ledgers,
            cut_ns,
            &mut figures,
            |server, ledgers| {
                let life_ms_max = if level == "always" { 300 } else { LIFE_MS_MAX };
                let kill = |server: &testkit::process::Server| {
                    cut_ns = clock.monotonic_ns();
                    device.cut_power();
                    ledger::kill(server);
                };
                ledger::live(server, ledgers, &mut random, life_ms_max, kill)
            },
        );
        device.unmount();
        device.mount().unwrap();
        figures.cycles += 1;
    }
    check(&dir, level, &mut ledgers, cut_ns, &mut figures, |_, _| 0);
    figures.pause_ms = watch.end();
    figures
}

/// Starts a server, compares its data with the ledgers, and lets it run.
fn check(
    dir: &Path,
    level: &str,
    ledgers: &mut [Ledger],
    cut_ns: u64,
    figures: &mut Figures,
    live: impl FnOnce(&testkit::process::Server, &mut [Ledger]) -> u64,
) {
    let server = ledger::start(dir, level);
    let mut client = server.client().unwrap();
    let (mut oldest_ns, mut newest_ns) = (cut_ns, 0);
    for ledger in &mut *ledgers {
        figures.acknowledged += ledger.acknowledged_since_start();
        for at_ns in ledger.compare_with_window(&mut client) {
            if at_ns > cut_ns {
                figures.in_between += 1;
            } else {
                figures.lost += 1;
                (oldest_ns, newest_ns) = (oldest_ns.min(at_ns), newest_ns.max(at_ns));
            }
        }
    }
    let ms_since_oldest = |ns: u64| ns.saturating_sub(oldest_ns) / 1_000_000;
    figures.window_ms = figures.window_ms.max(ms_since_oldest(cut_ns));
    figures.span_ms = figures.span_ms.max(ms_since_oldest(newest_ns));
    figures.checkpoints += live(&server, ledgers);
}

/// Returns the figures of these numbers of power cuts at `always` and at `everysec`, or `None` if
/// there can be no device.
#[allow(clippy::print_stdout, reason = "figures for who reads the run")]
fn both(at_always: u64, at_every_second: u64) -> Option<[Figures; 2]> {
    let device = match Device::new(IMAGE_MIB, &[]) {
        Ok(device) => device,
        Err(reason) => {
            println!("skipped: power cuts need root, ext4 and loop devices ({reason})");
            return None;
        }
    };
    let seed = number_from("LEDGER_SEED", 2026);
    let always = cut(&device, "always", at_always, seed);
    println!("{always:?}");
    assert_eq!(always.lost, 0, "acknowledged at always");
    let every_second = cut(&device, "everysec", at_every_second, seed);
    println!("{every_second:?}");
    // After a second without a sync, writing must stop. The time for which the machine ran no
    // threads is added.
    let allowed_ms = 1_000 + every_second.pause_ms;
    assert!(every_second.span_ms <= allowed_ms, "{every_second:?}");
    Some([always, every_second])
}

#[test]
fn a_power_cut_takes_nothing_that_was_promised() {
    let cuts = number_from("POWER_CUTS", 8);
    let at_every_second = cuts / 4;
    both(cuts - at_every_second, at_every_second);
}

#[test]
#[ignore = "takes minutes; writes a record"]
fn soak() {
    let cuts = number_from("POWER_CUTS", 200);
    let [always, every_second] = both(cuts / 2, cuts - cuts / 2).expect("a loop device");
    let row = |level: &str, figures: &Figures| {
        let Figures {
            cycles,
            acknowledged,
            checkpoints,
            lost,
            in_between,
            window_ms,
            ..
        } = figures;
        format!(
            "| `{level}` | {cycles} | {checkpoints} | {acknowledged} | {lost} | {window_ms} ms | {in_between} |"
        )
    };
    ledger::record(&format!(
        "# Power cuts on ext4

`RECORD=FILE POWER_CUTS={cuts} cargo test --release -p server --test it power_cuts::soak -- --ignored`
wrote this. A server on ext4 on a loop device, {WRITERS_COUNT} clients that write in pipelines (as in the ledger of kills);
at a random moment the file system is shut down with `EXT4_IOC_SHUTDOWN` (NOLOGFLUSH: what the system had not written,
its journal included, is lost), the server killed, the file system mounted again and the server started. What is
there must be what the first so-and-so many writes of each client made. The device has {IMAGE_MIB} MiB, a file of the log
256 kB. This tears nothing; the simulated device does.

| level | power cuts | checkpoints asked for | acknowledged writes checked | of them lost | oldest of these, before the cut | lost that were acknowledged in the call |
|---|---|---|---|---|---|---|
{}
{}

The call that shuts the file system down takes a moment, and a sync that is under way in it may come back as if it had
succeeded; presumably an error on the way of an extent that could not be marked as written is not told. What was
acknowledged while the call was running, on the word of such a sync as far as is known, is in the last column.

Nothing was wrong, half applied or come back, and no start was refused. At `everysec` a loss of up to 1,000 ms is allowed.
",
        row("always", &always),
        row("everysec", &every_second),
    ));
}
