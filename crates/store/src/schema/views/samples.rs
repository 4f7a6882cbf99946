//! Views of what is told beside the calls.

use super::{View, declared_views};

pub(super) const VIEWS: &[View] = declared_views! {
    sample_values "What was measured again and again beside the calls: metrics of devices, counters of links, pressure." {
        at_ns: samples.at_ns;
        name: sample_series.name;
        device: sample_series.device;
        value: samples.value;
        unit: sample_series.unit;
        session_id: sample_series.session_id;
    } from "samples
            CROSS JOIN sample_series ON sample_series.id = samples.series_id";

    labels "What processes belong to, as their surroundings name it: one row per process and key." {
        pid: processes.pid;
        comm: processes.comm;
        key: process_labels.key;
        value: process_labels.value;
        process_id: process_labels.process_id;
        session_id: processes.session_id;
    } from "process_labels
            CROSS JOIN processes ON processes.id = process_labels.process_id";
};
