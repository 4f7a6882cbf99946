//! The functions that the vendor's headers declare, every version of them.

use gpuwhy_testbed::CudaRuntime;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The wheels lack this file of the compiler's package; nothing in it changes how arguments travel.
const HOST_DEFINES: &str = "
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __host__
#define __device__
#define __global__
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
";

/// Makes the headers declare the old versions of functions and the per-thread-stream ones too.
pub const INCLUDES: &str = "
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cuda_runtime_api.h>
";

#[derive(Clone, Debug)]
pub struct Parameter {
    /// Without `const`, with pointer stars at the end: `CUdeviceptr*`.
    pub kind: String,
    pub name: String,
}

pub type Prototypes = BTreeMap<String, Vec<Parameter>>;

/// A compiler that finds the release's headers.
pub fn compiler(release: CudaRuntime, dir: &Path) -> Command {
    let shim = dir.join("crt");
    std::fs::create_dir_all(&shim).unwrap();
    std::fs::write(shim.join("host_defines.h"), HOST_DEFINES).unwrap();
    let mut command = Command::new("cc");
    command.arg("-I").arg(dir).arg("-I").arg(release.include().unwrap()).current_dir(dir);
    command
}

pub fn declared_by(release: CudaRuntime, dir: &Path) -> Prototypes {
    std::fs::write(dir.join("headers.c"), INCLUDES).unwrap();
    let output = compiler(release, dir).args(["-E", "-P", "headers.c"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split(';').filter_map(prototype).collect()
}

/// `extern cudaError_t cudaFree(void *devPtr)`, or nothing for any other declaration.
fn prototype(declaration: &str) -> Option<(String, Vec<Parameter>)> {
    let declaration = declaration.split_whitespace().collect::<Vec<_>>().join(" ");
    let returns = ["CUresult ", "cudaError_t "].into_iter().find(|kind| declaration.contains(kind))?;
    let (before, after) = declaration.split_once(returns)?;
    let (name, parameters) = after.split_once('(')?;
    if before.contains("typedef") {
        return None;
    }
    let parameters = parameters.trim_end().strip_suffix(')')?;
    Some((name.trim().to_owned(), parameters.split(',').filter_map(parameter).collect()))
}

fn parameter(text: &str) -> Option<Parameter> {
    let text = text.trim().replace("const ", "");
    let name_at = text.rfind(|c: char| !c.is_alphanumeric() && c != '_')? + 1;
    let kind = text[..name_at].trim().replace(" *", "*");
    Some(Parameter { kind, name: text[name_at..].to_owned() })
}

#[test]
fn prototypes_are_read_as_c_means_them() {
    let declaration = "extern __attribute__((x)) cudaError_t f(const void *const *a, struct cudaExtent b, size_t c )";
    let (name, parameters) = prototype(declaration).unwrap();
    let read: Vec<_> = parameters.iter().map(|p| (p.kind.as_str(), p.name.as_str())).collect();
    assert_eq!(name, "f");
    assert_eq!(read, [("void**", "a"), ("struct cudaExtent", "b"), ("size_t", "c")]);
    assert!(prototype("CUresult g(void)").unwrap().1.is_empty());
    assert!(prototype("typedef CUresult h(int a)").is_none());
}
