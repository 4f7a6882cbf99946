//! Folded stacks: `outermost;...;innermost microseconds`.

use std::io::Write;

use crate::{Export, ExportError, Format, stacks};

pub const FORMAT: Format = Format {
    name: "folded",
    read_by: "flamegraph.pl, inferno, speedscope",
    extension: "folded",
    is_of_stacks: true,
    write,
};

fn write(export: &Export<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    for line in stacks::folded(export)? {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
