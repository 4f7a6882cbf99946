//! Where what the host's calls tell of a GPU's time and what the GPU says of itself cannot both be true.

use gpuwhy_model::Contradiction;
use gpuwhy_window::GpuWord;

use super::{Gpu, Word};
use crate::situation::Situation;
use crate::words::rounded;

/// Less than this between two intervals is no contradiction: both are estimates.
const LEAST: f64 = 0.05;

/// A GPU that copied for more of its time was no less idle than it says.
const MUCH_COPYING: f64 = 0.02;

/// `own` processes of the trace use it. Asked before its word is believed.
pub(super) fn find(
    situation: &Situation<'_>,
    gpu: &Gpu,
    word: &Word,
    said: &GpuWord,
    own: u64,
) -> Option<Contradiction> {
    let (by_calls, by_itself) = (gpu.interval(), word.corrected_by(gpu.interval()[0]).interval());
    let (is_busier, is_idler) = (by_calls[0] - by_itself[1], by_itself[0] - by_calls[1]);
    let difference = is_busier.max(is_idler);
    (difference >= LEAST).then(|| Contradiction {
        by_calls: by_calls.map(rounded),
        by_itself: by_itself.map(rounded),
        difference: rounded(difference),
        because: if is_busier > is_idler { why_busier(situation, said, own) } else { why_idler(situation, word) },
    })
}

/// It works while nothing was asked of it.
fn why_busier(situation: &Situation<'_>, said: &GpuWord, own: u64) -> String {
    match said.processes {
        Some(all) if all > own => format!("{} of {all} processes on it are not traced", all - own),
        None => "others may use it: it does not say who does".to_owned(),
        Some(_) if launches_graphs(situation) => {
            "what graphs do goes on after the calls that wait, or it is asked for by calls that are not traced"
                .to_owned()
        }
        Some(_) => "some of its work is asked for by calls that are not traced, or was before".to_owned(),
    }
}

/// It runs no kernel while somebody waits for it.
fn why_idler(situation: &Situation<'_>, word: &Word) -> String {
    if word.copying >= MUCH_COPYING {
        return "copies are no kernels, and take longer than their bytes let expect".to_owned();
    }
    if launches_graphs(situation) {
        return "graphs hold copies and waits that calls do not show, and that are no kernels".to_owned();
    }
    "what the host waits for is no kernel: copies between GPUs, functions of the host, work of other processes"
        .to_owned()
}

fn launches_graphs(situation: &Situation<'_>) -> bool {
    let is_graph = |op| situation.op(op).is_some_and(|op| op.meaning.is_graph_launch());
    situation.window.call_sums.iter().any(|sum| is_graph(sum.op))
}
