//! What a test needs of the machine: root, or something that is not there.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

/// A file for what is left out, which `./dev test` reads at its end.
const LEFT_OUT: &str = "GPUWHY_LEFT_OUT";

/// Begins every test whose name starts with `root_`. The runner gives such a test the machine for itself.
///
/// # Panics
///
/// Without root: a test that did not run must not look like one that passed.
pub fn needs_root() {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    assert!(is_root, "this test needs root; -E 'not test(root_)' leaves out all that do");
}

/// Says what of a test this machine cannot run.
pub fn left_out(what: &str) {
    eprintln!("left out: {what}");
    let Some(path) = std::env::var_os(LEFT_OUT) else { return };
    let file = std::fs::File::options().append(true).create(true).open(path);
    if let Err(error) = file.and_then(|mut file| file.write_all(format!("{what}\n").as_bytes())) {
        eprintln!("note what was left out: {error}");
    }
}

/// What the hypervisor has taken from all CPUs so far, in nanoseconds. The kernel counts in hundredths of a second.
pub fn stolen_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let steal = stat.lines().next().and_then(|all| all.split_whitespace().nth(8));
    steal.and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0) * 1e7
}

/// What the host of a virtual machine may take of a CPU before nobody can say whom a program waits for.
const MOST_STOLEN: f64 = 0.1;

/// From when on a test looks at what the host takes from it.
pub struct Undisturbed {
    stolen_ns: f64,
    since: Instant,
}

impl Undisturbed {
    pub fn since_now() -> Self {
        Self { stolen_ns: stolen_ns(), since: Instant::now() }
    }

    /// Of one CPU.
    pub fn stolen_share(&self) -> f64 {
        (stolen_ns() - self.stolen_ns) / self.since.elapsed().as_nanos().max(1) as f64
    }

    /// Where the host has taken much meanwhile, what is not so is left out.
    ///
    /// # Panics
    ///
    /// With the reason if something is not so otherwise.
    #[track_caller]
    pub fn expect(&self, what: &str, is_so: Result<(), String>) {
        let Err(why) = is_so else { return };
        let share = self.stolen_share();
        assert!(share > MOST_STOLEN, "{what}: {why}");
        left_out(&format!("{what}: the host of this machine takes {:.0} % of a CPU from it", share * 100.0));
    }
}
