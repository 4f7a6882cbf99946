//! What functions mean in files of versions 1 to 4, which have only their names and classes. It is the one place that
//! knows functions by name; since version 5, files say what they mean.

pub const IS_LAUNCH: &str = "(class = 'launch' OR name GLOB '*GraphLaunch')";

pub const IS_ASYNC: &str =
    "(class IN ('launch', 'event') OR name GLOB '*Async*' OR name GLOB '*GraphLaunch' OR name GLOB '*GraphUpload')";

pub const IS_WAIT: &str = "(class = 'sync')";

pub const IS_FOLLOWED: &str = "CASE class
   WHEN 'alloc' THEN NOT (name GLOB 'cuMemCreate*' OR name GLOB 'cuMemMap*' OR name GLOB 'cuMemAddressReserve*'
     OR name GLOB 'cuArray*' OR name GLOB '*Array')
   WHEN 'free' THEN (name GLOB 'cuMemFree*' OR name GLOB 'cudaFree*' OR name GLOB '*HostUnregister*')
     AND name NOT GLOB '*Array'
   ELSE 0 END";

pub const MEMORY: &str = "CASE WHEN name GLOB '*Managed*' OR name GLOB '*Prefetch*' THEN 'managed'
   WHEN class <> 'alloc' THEN NULL WHEN name GLOB '*Host*' THEN 'host' ELSE 'device' END";

pub const GRAPH_STEP: &str = "CASE WHEN name GLOB '*BeginCapture*' THEN 'capture' WHEN name GLOB '*EndCapture*' THEN 'captured' WHEN name GLOB '*GraphInstantiate*' THEN 'instantiate' END";
