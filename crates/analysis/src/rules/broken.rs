//! What of a GPU is broken by its own word: the GPU itself, its links, its memory.

use gpuwhy_model::Severity;
use gpuwhy_window::{GpuFaults, GpuLinkFault, LinkSlowed};

/// A fault of a device, as its finding tells it.
pub struct Fault {
    /// What the GPU does or did: `GPU 0 ...`.
    pub what: String,
    /// What is to blame, of the GPU.
    pub part: &'static str,
    pub severity: Severity,
    pub fix: &'static [&'static str],
    /// It is a fault also where nobody is known to use that GPU.
    pub concerns_host: bool,
}

/// A link is slow when it was at the last looks, or at many. Once may be by chance.
const LAST_LOOKS: u64 = 2;
const LEAST_LOOKS: u64 = 3;
const LEAST_PART: f64 = 0.1;

/// With this part of what it can carry, whatever is copied takes several times as long.
const MUCH_SLOWER: f64 = 0.25;

const FIX_LOST: &[&str] = &[
    "Look at the kernel's log (dmesg) and at the power and the seating of that GPU; only a restart of the host brings it back.",
    "Take it out of service if it happens again.",
];
const FIX_HOST_LINK: &[&str] = &[
    "Look at the seating of that GPU, its riser and its slot: nvidia-smi -q -d PCIE, lspci -vv (LnkSta, LnkCap).",
    "A restart of the host trains the link anew; if it comes back slow, the GPU or the slot is to be replaced.",
];
const FIX_GPU_LINKS: &[&str] = &[
    "Look at nvidia-smi nvlink -s and -e, and at the bridge, the baseboard or the switch between these GPUs.",
    "A link that fails again after a reset of its GPUs is to be repaired.",
];
const FIX_REPAIR: &[&str] =
    &["Let the job end and reset the GPU (nvidia-smi --gpu-reset): the memory is replaced then."];
const FIX_NO_REPAIR: &[&str] = &["Take the GPU out of service: there is no spare memory left where it has errors."];

pub fn faults(of: &GpuFaults) -> Vec<Fault> {
    let one = |what: String, part, severity, fix| Fault { what, part, severity, fix, concerns_host: false };
    let lost = of.lost.map(|lost| {
        let what = if lost.had_answered { "fell off the bus: it does not answer any more" } else { "does not answer" };
        Fault {
            concerns_host: lost.had_answered,
            ..one(what.to_owned(), ", gone from its bus", Severity::High, FIX_LOST)
        }
    });
    let width = of.link_width.filter(is_slow).map(|link| {
        let what = format!("reaches the host over {} lanes of {} ({})", link.least, link.most, looks(&link));
        one(what, "'s lanes to the host", severity(f64::from(link.least) / f64::from(link.most)), FIX_HOST_LINK)
    });
    let generation = of.link_generation.filter(is_slow).map(|link| {
        let (is, can) = (link.least, link.most);
        let what = format!("reaches the host over a link of generation {is}, and could at {can} ({})", looks(&link));
        one(what, "'s link to the host", severity(0.5f64.powi((can - is) as i32)), FIX_HOST_LINK)
    });
    let links = (!of.links.is_empty()).then(|| {
        let told: Vec<String> = of.links.iter().map(link_in_words).collect();
        let what = format!("has trouble with links to other GPUs ({})", told.join("; "));
        one(what, "'s links to other GPUs", of.links.iter().map(gravity).max().unwrap_or(Severity::Low), FIX_GPU_LINKS)
    });
    let failed = of.repair_failed.then(|| {
        let what = "could not replace a part of its memory that has errors".to_owned();
        one(what, "'s memory", Severity::High, FIX_NO_REPAIR)
    });
    let pending = (of.repair_pending && !of.repair_failed).then(|| {
        let what = "waits for a reset to replace a part of its memory that has errors".to_owned();
        let severity = if of.repair_is_new { Severity::Medium } else { Severity::Low };
        one(what, "'s memory", severity, FIX_REPAIR)
    });
    // Of one that is gone, nothing else is worth a word.
    match lost {
        Some(lost) => vec![lost],
        None => [width, generation, links, failed, pending].into_iter().flatten().collect(),
    }
}

fn is_slow(link: &LinkSlowed) -> bool {
    let is_often = link.slow >= LEAST_LOOKS && link.slow as f64 >= LEAST_PART * link.moments as f64;
    link.last_slow >= LAST_LOOKS || is_often
}

fn looks(link: &LinkSlowed) -> String {
    format!("at {} of {} looks", link.slow, link.moments)
}

fn severity(speed: f64) -> Severity {
    if speed <= MUCH_SLOWER { Severity::High } else { Severity::Medium }
}

/// Packets that are sent again cost little as long as they arrive.
fn gravity(link: &GpuLinkFault) -> Severity {
    match link {
        _ if link.is_down => Severity::High,
        _ if link.recoveries > 0 => Severity::Medium,
        _ => Severity::Low,
    }
}

fn link_in_words(link: &GpuLinkFault) -> String {
    let counted = [
        (link.replays, "packets sent again"),
        (link.recoveries, "times set up anew"),
        (link.damaged, "damaged packets"),
    ];
    let counted = counted.iter().filter(|(count, _)| *count > 0).map(|(count, words)| format!("{count} {words}"));
    let all: Vec<String> = link.is_down.then(|| "down".to_owned()).into_iter().chain(counted).collect();
    format!("link {}: {}", link.number, all.join(", "))
}
