//! Folded stacks: `outermost;...;innermost microseconds`.

use crate::{Export, ExportError, Format, Holds, Out, stacks};

pub const FORMAT: Format = Format {
    name: "folded",
    read_by: "flamegraph.pl, inferno, speedscope",
    extension: "folded",
    holds: Holds::OneKindOfStacks,
    write,
};

fn write(export: &Export<'_>, out: &mut Out<'_>) -> Result<(), ExportError> {
    for line in stacks::folded(export)? {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
