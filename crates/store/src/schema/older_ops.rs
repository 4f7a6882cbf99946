//! What functions mean in files of versions 1 to 4, which have only their names and classes. It is the one place that
//! knows functions by name; since version 5, files say what they mean.

use rusqlite::Connection;

/// Columns of `ops` that came with version 5, and what they are in older files.
const COLUMNS: &[(&str, &str)] = &[
    ("is_launch", "(class = 'launch' OR name GLOB '*GraphLaunch')"),
    (
        "is_async",
        "(class IN ('launch', 'event') OR name GLOB '*Async*' OR name GLOB '*GraphLaunch' OR name GLOB '*GraphUpload')",
    ),
    ("is_wait", "(class = 'sync')"),
    (
        "is_followed",
        "CASE class
           WHEN 'alloc' THEN NOT (name GLOB 'cuMemCreate*' OR name GLOB 'cuMemMap*' OR name GLOB 'cuMemAddressReserve*'
             OR name GLOB 'cuArray*' OR name GLOB '*Array')
           WHEN 'free' THEN (name GLOB 'cuMemFree*' OR name GLOB 'cudaFree*' OR name GLOB '*HostUnregister*')
             AND name NOT GLOB '*Array'
           ELSE 0 END",
    ),
    (
        "memory",
        "CASE WHEN name GLOB '*Managed*' OR name GLOB '*Prefetch*' THEN 'managed'
           WHEN class <> 'alloc' THEN NULL WHEN name GLOB '*Host*' THEN 'host' ELSE 'device' END",
    ),
    (
        "graph_step",
        "CASE WHEN name GLOB '*BeginCapture*' THEN 'capture'
           WHEN name GLOB '*GraphInstantiate*' THEN 'instantiate' END",
    ),
];

/// An expression for a column of `ops` that older files do not have.
pub(crate) fn expression(column: &str) -> Option<&'static str> {
    COLUMNS.iter().find(|(name, _)| *name == column).map(|(_, expression)| *expression)
}

/// Fills the columns of a file that has just got them.
pub(super) fn fill(connection: &Connection) -> rusqlite::Result<()> {
    let columns: Vec<String> = COLUMNS.iter().map(|(name, expression)| format!("{name} = {expression}")).collect();
    connection.execute_batch(&format!("UPDATE ops SET {}", columns.join(", ")))
}
