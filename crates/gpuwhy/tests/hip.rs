//! AMD's library: its calls are seen like those of CUDA, with the same columns.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use support::{Finished, Place, compiled, compiled_library, gpuwhy, needs_root, output};

/// As the public header declares them.
const HEADER: &str = "
    #include <stddef.h>
    typedef struct { unsigned x, y, z; } dim3;
    typedef void *hipStream_t;
    int hipRuntimeGetVersion(int *version);
    int hipSetDevice(int device);
    int hipMalloc(void **memory, size_t bytes);
    int hipFree(void *memory);
    int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, hipStream_t stream);
    int hipMemsetD32(void *memory, int value, size_t count);
    int hipLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared, hipStream_t stream);
    int hipModuleLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
        unsigned block_y, unsigned block_z, unsigned shared, hipStream_t stream, void **params, void **extra);
    int hipStreamSynchronize(hipStream_t stream);
";

/// Each does next to nothing.
const LIBRARY: &str = "
    int hipRuntimeGetVersion(int *version) { *version = 50200000; return 0; }
    int hipSetDevice(int device) { return device < 0; }
    int hipMalloc(void **memory, size_t bytes) { *memory = (void *)0x7f0000001000; return bytes == 0; }
    int hipFree(void *memory) { return !memory; }
    int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, hipStream_t stream) { return kind > 4; }
    int hipMemsetD32(void *memory, int value, size_t count) { return !memory; }
    int hipLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared, hipStream_t stream)
    { return grid.x == 0; }
    int hipModuleLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
        unsigned block_y, unsigned block_z, unsigned shared, hipStream_t stream, void **params, void **extra)
    { return grid_x == 0; }
    int hipStreamSynchronize(hipStream_t stream) { return 0; }
";

const PROGRAM: &str = "
    int main(void)
    {
        dim3 grid = {7, 1, 1}, block = {256, 1, 1};
        hipStream_t stream = (void *)0x5eed;
        char host[64];
        void *memory;

        hipSetDevice(3);
        hipMalloc(&memory, 1 << 20);
        for (int step = 0; step < 100; step++) {
            hipMemcpyAsync(memory, host, 4096, 1, stream);
            hipLaunchKernel((void *)0xabc, grid, block, NULL, 0, stream);
            hipModuleLaunchKernel((void *)0xdef, 7, 1, 1, 256, 1, 1, 0, stream, NULL, NULL);
            hipMemcpyAsync(host, memory, 4, 2, stream);
            hipStreamSynchronize(stream);
        }
        hipMemsetD32(memory, 0, 1000);
        hipFree(memory);
        return 0;
    }
";

#[test]
fn root_calls_into_hip_are_seen_with_all_that_they_say() {
    needs_root();
    let place = Place::new();
    let folder = place.dir.path();
    let library = compiled_library(folder, "libamdhip64.so.5", &[HEADER, LIBRARY].concat());
    let program = compiled(folder, "program", &[HEADER, PROGRAM].concat(), &[library.to_str().unwrap()]);
    let file = place.file();
    let mut command = gpuwhy(&["trace", "--budget", "0", "--out", file.to_str().unwrap(), "--"]);
    command.arg(program).env("LD_LIBRARY_PATH", folder);
    let (code, _, log) = output(command);
    assert_eq!(code, 0, "{log}");

    let finished = Finished::open(&file, vec![log]);
    finished.check();
    let count = |condition: &str| finished.number(&format!("SELECT count(*) FROM cuda_events WHERE {condition}"));
    assert_eq!(count("op = 'hipLaunchKernel' AND stream = 0x5eed AND handle = 0xabc AND class = 'launch'"), 100);
    assert_eq!(count("op = 'hipModuleLaunchKernel' AND stream = 0x5eed AND handle = 0xdef"), 100);
    assert_eq!(count("op = 'hipMemcpyAsync' AND bytes = 4096 AND direction = 'HtoD' AND stream = 0x5eed"), 100);
    assert_eq!(count("op = 'hipMemcpyAsync' AND bytes = 4 AND direction = 'DtoH'"), 100);
    assert_eq!(count("op = 'hipStreamSynchronize' AND stream = 0x5eed AND class = 'sync'"), 100);
    assert_eq!(count("op = 'hipMalloc' AND bytes = 1048576 AND address = 0x7f0000001000"), 1);
    assert_eq!(count("op = 'hipFree' AND address = 0x7f0000001000"), 1);
    assert_eq!(count("op = 'hipMemsetD32' AND bytes = 4000"), 1);
    assert_eq!(count("device = 3 AND op <> 'hipSetDevice'"), 503);
    assert_eq!(count("layer = 'driver' AND ret_code = 0"), 504);
}
