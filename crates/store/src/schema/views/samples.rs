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

    annotations "What programs and people have put on the timeline (`gpuwhy annotate`). It holds until the next row with the same key about the same process." {
        timestamp_ns: marks.at_ns "When it was told.";
        duration_ns = "marks.until_ns - marks.at_ns" INTEGER "ns" "How long it held; empty where it holds until the end of the process, or of the trace.";
        pid: marks.pid;
        comm: processes.comm "Name of that process, if calls of it were traced by then.";
        key: marks.key;
        value: marks.value "What is told.";
        process_id: marks.process_id;
        session_id: marks.session_id;
    } from "(
              SELECT *, lead(at_ns) OVER (PARTITION BY session_id, pid, key ORDER BY at_ns) AS until_ns FROM marks
            ) AS marks
            LEFT JOIN processes ON processes.id = marks.process_id
            WHERE marks.value <> ''";
};
