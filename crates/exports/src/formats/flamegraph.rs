//! A flame graph that any browser shows, in one file.

use std::io::Write;

use gpuwhy_questions::questions::stacks::Of;
use inferno::flamegraph::{Options, from_lines};

use crate::{Export, ExportError, Format, stacks};

pub const FORMAT: Format =
    Format { name: "flamegraph", read_by: "any browser", extension: "svg", is_of_stacks: true, write };

fn write(export: &Export<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let lines = stacks::folded(export)?;
    let mut options = Options::default();
    options.title = format!("gpuwhy: stacks of {}", stacks::named(export.stacks_of));
    options.count_name = if export.stacks_of == Of::Running { "samples" } else { "us" }.to_owned();
    options.deterministic = true;
    from_lines(&mut options, lines.iter().map(String::as_str), out)
        .map_err(|error| ExportError::Failed { message: format!("draw the flame graph: {error}") })
}
