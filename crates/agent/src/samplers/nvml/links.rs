//! The links of a GPU: to its host, and to other GPUs.

use gpuwhy_model::Sample;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::error::NvmlError;

use super::Told;

/// More links to other GPUs than one has.
const MOST_LINKS: u32 = 36;

/// What each kind of error is the sum of, in the order of [`Sample::GPU_NVLINK_ERRORS`].
const COUNTERS: [&[ErrorCounter]; Sample::GPU_NVLINK_ERRORS.len()] =
    [&[ErrorCounter::DlReplay], &[ErrorCounter::DlRecovery], &[ErrorCounter::DlCrcFlit, ErrorCounter::DlCrcData]];

/// The link to the host. What it could do changes hardly ever.
pub fn to_host(device: &Device<'_>, is_working: bool, is_full: bool, told: &mut Told) {
    let whole = |value: Result<u32, NvmlError>| value.ok().map(f64::from);
    let generation = whole(device.current_pcie_link_gen());
    told.add_known("gpu.pcie.generation", "", generation);
    told.add_known(Sample::GPU_WORKING_LINK, "", generation.filter(|_| is_working));
    told.add_known(Sample::GPU_LINK_WIDTH, "", whole(device.current_pcie_link_width()));
    if is_full {
        told.add_known(Sample::GPU_MOST_LINK, "", whole(device.max_pcie_link_gen()));
        told.add_known(Sample::GPU_MOST_LINK_WIDTH, "", whole(device.max_pcie_link_width()));
    }
}

/// What is known of the links to other GPUs from the last time.
#[derive(Default)]
pub struct Known {
    /// `None` before the first look.
    links: Option<Vec<Link>>,
}

#[derive(Clone, Copy, Default)]
struct Link {
    was_up: bool,
    errors: [Option<u64>; COUNTERS.len()],
}

/// One that never was up has nobody at its other end.
pub fn to_gpus(device: &Device<'_>, known: &mut Known, told: &mut Told) {
    let links = known.links.get_or_insert_with(|| vec![Link::default(); count(device)]);
    let mut up = 0;
    for (number, link) in (0..).zip(links.iter_mut()) {
        let name = format!("{}/{number}", told.gpu);
        match device.link_wrapper_for(number).is_active() {
            Ok(true) => {
                (up, link.was_up) = (up + 1, true);
                errors(device, number, link, &name, told);
            }
            Ok(false) if link.was_up => told.add_of(name, Sample::GPU_NVLINK_DOWN, "", 1.0),
            _ => {}
        }
    }
    if links.iter().any(|link| link.was_up) {
        told.add("gpu.nvlink.links", "", f64::from(up));
    }
}

fn count(device: &Device<'_>) -> usize {
    (0..MOST_LINKS).take_while(|&link| device.link_wrapper_for(link).is_active().is_ok()).count()
}

/// Those that are new. Nobody knows when the ones before the first look were.
fn errors(device: &Device<'_>, number: u32, link: &mut Link, name: &str, told: &mut Told) {
    for ((counters, kind), known) in COUNTERS.iter().zip(Sample::GPU_NVLINK_ERRORS).zip(&mut link.errors) {
        let counted = |&counter| device.link_wrapper_for(number).error_counter(counter).ok();
        let Some(all) = counters.iter().map(counted).sum::<Option<u64>>() else { continue };
        let new = known.replace(all).map_or(0, |before| all.saturating_sub(before));
        if new > 0 {
            told.add_of(name.to_owned(), kind, "", new as f64);
        }
    }
}
