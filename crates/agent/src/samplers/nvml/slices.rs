//! The slices of a GPU that is divided (MIG): each has memory and processes of its own. A slice is known by its UUID, and by the
//! instances that it is: of the GPU, and of its multiprocessors.

use gpuwhy_model::Sample;
use nvml_wrapper::Device;

use super::{Told, memory_of};

/// Who the slices are is told so often, and whenever they are others.
const TELL_EVERY: u64 = 60;

/// What is known of the slices from the last time.
#[derive(Default)]
pub struct Known {
    uuids: Vec<String>,
    looks: u64,
}

/// Returns whether the GPU is divided: its processes are those of its slices then.
pub fn tell(gpu: &Device<'_>, known: &mut Known, told: &mut Told) -> bool {
    const ON: u32 = 1;
    if !gpu.mig_mode().is_ok_and(|mode| mode.current == ON) {
        return false;
    }
    let slices: Vec<(String, Device<'_>)> = (0..gpu.mig_device_count().unwrap_or(0))
        .filter_map(|index| gpu.mig_device_by_index(index).ok())
        .filter_map(|slice| Some((slice.uuid().ok()?, slice)))
        .collect();
    let uuids: Vec<String> = slices.iter().map(|(uuid, _)| uuid.clone()).collect();
    if known.uuids != uuids || known.looks.is_multiple_of(TELL_EVERY) {
        let parent = gpu.uuid().unwrap_or_else(|_| told.gpu.clone());
        slices.iter().for_each(|(uuid, slice)| instances(&parent, uuid, slice, told));
        (known.uuids, known.looks) = (uuids, 0);
    }
    known.looks += 1;
    slices.iter().for_each(|(uuid, slice)| in_use(uuid, slice, told));
    true
}

/// `GPU-.../MIG-...`: the slice and the GPU that it is a part of.
fn instances(parent: &str, uuid: &str, slice: &Device<'_>, told: &mut Told) {
    let library = slice.nvml().lib();
    let mut ids = [("gpu.slice.gpu_instance", None), ("gpu.slice.compute_instance", None)];
    let asks = [library.nvmlDeviceGetGpuInstanceId.as_ref(), library.nvmlDeviceGetComputeInstanceId.as_ref()];
    for ((_, id), ask) in ids.iter_mut().zip(asks) {
        let (Ok(ask), mut number) = (ask, 0) else { continue };
        // SAFETY: the handle is that of a device of this library, which is never shut down, and the function writes one
        // number to where it is told.
        let result = unsafe { ask(slice.handle(), &raw mut number) };
        *id = (result == 0).then_some(f64::from(number));
    }
    for (name, id) in ids {
        if let Some(id) = id {
            told.add_of(format!("{parent}/{uuid}"), name, "", id);
        }
    }
}

fn in_use(uuid: &str, slice: &Device<'_>, told: &mut Told) {
    if let Ok(memory) = slice.memory_info() {
        told.add_of(uuid.to_owned(), "gpu.slice.memory.used", "bytes", memory.used as f64);
        told.add_of(uuid.to_owned(), "gpu.slice.memory.total", "bytes", memory.total as f64);
    }
    if let Ok(processes) = slice.running_compute_processes() {
        told.add_of(uuid.to_owned(), Sample::GPU_SLICE_PROCESSES, "", processes.len() as f64);
        processes.iter().for_each(|process| memory_of(process, uuid, told));
    }
}
