//! Which frame of a stack a person wants to see first: the line of their own program.

use gpuwhy_model::{Frame, FrameKind};

/// Folders of packages that somebody else wrote.
const PACKAGE_FOLDERS: &[&str] = &["site-packages", "dist-packages"];

/// Files whose functions say nothing about the program that calls them: the beginnings of their names.
const SYSTEM_MODULES: &[&str] = &[
    "ld-linux",
    "ld-musl",
    "libc-",
    "libc.",
    "libcuda.",
    "libcuda-",
    "libcudart",
    "libgcc_s",
    "libm.",
    "libpthread",
    "libstdc++",
    "linux-vdso",
    "[vdso]",
];

/// The position of the innermost Python frame outside of the standard library and of installed packages; where there is
/// none, of the innermost Python frame; else of the innermost native frame outside of `SYSTEM_MODULES`, or 0.
pub fn site_position<'f>(frames: impl Iterator<Item = &'f Frame>) -> Option<usize> {
    let ranked = frames.enumerate().map(|(position, frame)| (rank(frame), position));
    ranked.min().map(|(_, position)| position)
}

/// Whether both are lines of the program itself, or both of what others wrote, in the same language.
pub fn is_same_origin(one: &Frame, other: &Frame) -> bool {
    one.kind == other.kind && rank(one) == rank(other)
}

/// Whether it is Python of the program itself, not of the standard library or an installed package.
pub fn is_own_python(frame: &Frame) -> bool {
    rank(frame) == 0
}

fn rank(frame: &Frame) -> u8 {
    match frame.kind {
        FrameKind::Python if !frame.file.as_deref().is_some_and(is_library) => 0,
        FrameKind::Python => 1,
        FrameKind::Native if is_named(frame) && !frame.module.as_deref().is_some_and(is_system) => 2,
        _ => 3,
    }
}

fn is_named(frame: &Frame) -> bool {
    !frame.function.is_empty()
}

/// Whether a Python file belongs to the standard library or to an installed package.
fn is_library(file: &str) -> bool {
    if file.starts_with("<frozen ") {
        return true;
    }
    let folders = || file.split('/').rev().skip(1);
    folders().any(|folder| PACKAGE_FOLDERS.contains(&folder))
        || folders().zip(folders().skip(1)).any(|(folder, parent)| is_standard_library(parent, folder))
}

/// `lib/python3.11`, `lib64/python3.12`, `lib/python311.zip`.
fn is_standard_library(parent: &str, folder: &str) -> bool {
    let version = folder.strip_prefix("python").unwrap_or_default();
    matches!(parent, "lib" | "lib64") && version.starts_with(|first: char| first.is_ascii_digit())
}

fn is_system(module: &str) -> bool {
    let name = module.rsplit('/').next().unwrap_or_default();
    SYSTEM_MODULES.iter().any(|system| name.starts_with(system))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(file: &str) -> Frame {
        Frame { kind: FrameKind::Python, function: "f".into(), file: Some(file.into()), ..Frame::default() }
    }

    fn native(function: &str, module: &str) -> Frame {
        Frame { function: function.into(), module: Some(module.into()), ..Frame::default() }
    }

    fn check(frames: &[Frame], expected: Option<usize>) {
        assert_eq!(site_position(frames.iter()), expected, "{frames:#?}");
    }

    #[test]
    fn the_innermost_line_of_the_program_itself_comes_first() {
        let launch = native("cuLaunchKernel", "/usr/lib/libcuda.so.1");
        let torch = python("/opt/conda/lib/python3.10/site-packages/torch/nn/modules/module.py");
        let queue = python("/usr/lib/python3.11/queue.py");
        let own = [python("/home/me/model.py"), python("train.py")];
        let [inner, outer] = own;
        check(&[launch, torch, queue, inner, outer], Some(3));
    }

    #[test]
    fn what_others_wrote_is_told_by_where_it_is_installed() {
        let others = [
            "/usr/lib/python3/dist-packages/numpy/core.py",
            "/home/me/.local/lib/python3.10/site-packages/x.py",
            "/usr/lib64/python3.12/threading.py",
            "/usr/local/lib/python311.zip/queue.py",
            "<frozen importlib._bootstrap>",
        ];
        assert!(others.iter().all(|file| is_library(file)));
        let own = ["train.py", "/home/me/python3.11/train.py", "<string>", "/lib/train.py", "/srv/lib/python/x.py", ""];
        assert!(!own.iter().any(|file| is_library(file)));
    }

    #[test]
    fn frames_of_the_program_and_of_libraries_are_told_apart() {
        let (own, library) = (python("train.py"), python("/usr/lib/python3.11/threading.py"));
        assert!(is_same_origin(&own, &python("model.py")) && !is_same_origin(&own, &library));
        let (serve, start) = (native("serve", "/srv/server"), native("start_thread", "/usr/lib/libc.so.6"));
        assert!(is_same_origin(&serve, &native("run", "/srv/server")) && !is_same_origin(&serve, &start));
        assert!(!is_same_origin(&own, &serve));
    }

    #[test]
    fn without_a_line_of_the_program_the_innermost_python_frame_is_shown() {
        let worker = python("/usr/lib/python3/dist-packages/torch/utils/data/worker.py");
        check(&[native("poll", "/usr/lib/libc.so.6"), worker, python("/usr/lib/python3.11/threading.py")], Some(1));
    }

    #[test]
    fn without_python_the_innermost_function_outside_of_system_libraries_is_shown() {
        let wait = [native("futex_wait", "/usr/lib/libc.so.6"), native("", "/srv/server")];
        let [futex, unnamed] = wait;
        check(&[futex.clone(), unnamed.clone(), native("serve", "/srv/server")], Some(2));
        check(&[futex, unnamed], Some(0));
        check(&[], None);
    }
}
