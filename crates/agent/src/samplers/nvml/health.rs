//! What a GPU says of its speed and of its troubles. Not every one knows all of it.

use gpuwhy_model::Sample;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_REMAPPED_FAILURE, NVML_FI_DEV_REMAPPED_PENDING, NVML_FI_DEV_REMAPPED_UNC, NVML_FI_DEV_RETIRED_PENDING,
};

use super::{Told, number};

/// What is done about memory with errors: newer GPUs replace rows, older ones take pages out of use.
const REPAIRS: [(u32, &str); 4] = [
    (NVML_FI_DEV_REMAPPED_PENDING, Sample::GPU_ROWS_PENDING),
    (NVML_FI_DEV_REMAPPED_FAILURE, Sample::GPU_ROWS_FAILED),
    (NVML_FI_DEV_REMAPPED_UNC, "gpu.memory.rows.remapped"),
    (NVML_FI_DEV_RETIRED_PENDING, Sample::GPU_PAGES_PENDING),
];

pub fn tell(device: &Device<'_>, told: &mut Told) {
    let whole = |value: Result<u32, NvmlError>| value.ok().map(f64::from);
    let reasons = device.current_throttle_reasons().ok().map(|reasons| reasons.bits() as f64);
    let errors = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
    let energy = device.total_energy_consumption().ok().map(|millijoules| millijoules as f64 / 1000.0);
    told.add_known(Sample::GPU_THROTTLE, "", reasons);
    told.add_known(Sample::GPU_CLOCK, "MHz", whole(device.clock_info(Clock::SM)));
    told.add_known(Sample::GPU_MOST_CLOCK, "MHz", whole(device.max_clock_info(Clock::SM)));
    told.add_known(Sample::GPU_MEMORY_ERRORS, "", errors.ok().map(|count| count as f64));
    told.add_known("gpu.temperature", "C", whole(device.temperature(TemperatureSensor::Gpu)));
    told.add_known("gpu.power", "W", whole(device.power_usage()).map(|milliwatts| milliwatts / 1000.0));
    told.add_known("gpu.energy", "J", energy);
    repairs(device, told);
}

fn repairs(device: &Device<'_>, told: &mut Told) {
    let Ok(values) = device.field_values_for(&REPAIRS.map(|(field, _)| FieldId(field))) else { return };
    for ((_, name), value) in REPAIRS.into_iter().zip(values) {
        let value = value.ok().and_then(|field| field.value.ok());
        told.add_known(name, "", value.as_ref().map(number));
    }
}
