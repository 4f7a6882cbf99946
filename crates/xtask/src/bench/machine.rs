//! What the figures were measured on.

use serde_json::{Value, json};

pub fn facts() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':')).map_or("", |(_, name)| name);
    let is_virtual = cpu.lines().any(|line| line.starts_with("flags") && line.contains(" hypervisor"));
    json!({
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "cpu": model.trim(),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "virtual_machine": is_virtual,
        "load_before": read("/proc/loadavg").split(' ').next().unwrap_or(""),
    })
}
