//! Python's and native frames in one order.

/// A native frame and what it is to the interpreter, see [`super::Interpreter::roles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeFrame<N> {
    pub frame: N,
    pub role: NativeRole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeRole {
    Other,
    /// The evaluation loop, which runs one or more of Python's frames.
    EvalLoop,
    /// What the evaluation loop calls for each instruction, where that is a function of its own. It says no more than
    /// the loop.
    EvalStep,
}

/// A frame of Python and whether C code called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonFrame<P> {
    pub frame: P,
    pub is_entry: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergedFrame<N, P> {
    Native(N),
    Python(P),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged<N, P> {
    /// From the innermost outwards.
    pub frames: Vec<MergedFrame<N, P>>,
    pub alignment: Alignment,
}

/// Whether both lists tell of the same evaluation loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    Exact,
    /// Evaluation loops were left over, or Python's last frame was called by another one that is missing.
    PythonEndsFirst,
    /// Python's frames were left over.
    NativeEndsFirst,
}

/// Replaces each evaluation loop by the Python frames that it runs: those up to and including the next entry. Both lists
/// go from the innermost frame outwards.
///
/// A walk that fails does so at the outer end, so loops and runs are matched from the innermost on. Loops that are left
/// over stay native frames where they are; Python's frames that are left over follow after all native ones. No frame is
/// lost but the loops that were replaced, with their steps.
pub fn merge<N, P>(native: Vec<NativeFrame<N>>, python: Vec<PythonFrame<P>>) -> Merged<N, P> {
    let is_cut_off = python.last().is_some_and(|frame| !frame.is_entry);
    let mut loops_left_over = false;
    let mut python = python.into_iter().peekable();
    let mut frames = Vec::with_capacity(native.len() + python.len());
    for native in native {
        if native.role != NativeRole::EvalLoop {
            frames.push((native.role, MergedFrame::Native(native.frame)));
        } else if python.peek().is_none() {
            loops_left_over = true;
            frames.push((NativeRole::Other, MergedFrame::Native(native.frame)));
        } else {
            frames.pop_if(|(role, _)| *role == NativeRole::EvalStep);
            push_run(&mut frames, &mut python);
        }
    }
    let alignment = match python.peek() {
        Some(_) => Alignment::NativeEndsFirst,
        None if loops_left_over || is_cut_off => Alignment::PythonEndsFirst,
        None => Alignment::Exact,
    };
    let rest = python.map(|python| MergedFrame::Python(python.frame));
    Merged { frames: frames.into_iter().map(|(_, frame)| frame).chain(rest).collect(), alignment }
}

fn push_run<N, P>(
    frames: &mut Vec<(NativeRole, MergedFrame<N, P>)>,
    python: &mut impl Iterator<Item = PythonFrame<P>>,
) {
    for python in python {
        frames.push((NativeRole::Other, MergedFrame::Python(python.frame)));
        if python.is_entry {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Native frames by a letter: `E` is a loop, `S` a step. Python's by a digit, an entry with a star behind it.
    fn merged(native: &str, python: &str) -> (String, Alignment) {
        let native = native.chars().map(|name| NativeFrame { frame: name, role: role(name) }).collect();
        let next = python.chars().skip(1).chain([' ']);
        let python = python.chars().zip(next).filter(|(name, _)| *name != '*');
        let python = python.map(|(name, next)| PythonFrame { frame: name, is_entry: next == '*' }).collect();
        let merged = merge(native, python);
        (merged.frames.into_iter().map(name).collect(), merged.alignment)
    }

    fn role(name: char) -> NativeRole {
        match name {
            'E' => NativeRole::EvalLoop,
            'S' => NativeRole::EvalStep,
            _ => NativeRole::Other,
        }
    }

    fn name(frame: MergedFrame<char, char>) -> char {
        match frame {
            MergedFrame::Native(name) | MergedFrame::Python(name) => name,
        }
    }

    #[test]
    fn each_loop_is_replaced_by_the_frames_it_runs() {
        assert_eq!(merged("rcEsEm", "12*3*"), ("rc12s3m".to_owned(), Alignment::Exact));
        assert_eq!(merged("EEE", "1*2*3*"), ("123".to_owned(), Alignment::Exact));
    }

    #[test]
    fn the_step_of_a_loop_goes_with_it() {
        assert_eq!(merged("rSEm", "12*"), ("r12m".to_owned(), Alignment::Exact));
        assert_eq!(merged("rSm", ""), ("rSm".to_owned(), Alignment::Exact));
        assert_eq!(merged("SE", ""), ("SE".to_owned(), Alignment::PythonEndsFirst));
    }

    #[test]
    fn a_stack_without_python_stays_as_it_is() {
        assert_eq!(merged("abc", ""), ("abc".to_owned(), Alignment::Exact));
    }

    #[test]
    fn loops_without_frames_stay_native() {
        assert_eq!(merged("aEbEcEm", "1*2"), ("a1b2cEm".to_owned(), Alignment::PythonEndsFirst));
        assert_eq!(merged("aEm", "12"), ("a12m".to_owned(), Alignment::PythonEndsFirst));
    }

    #[test]
    fn frames_without_loops_follow_at_the_end() {
        assert_eq!(merged("aEb", "1*2*3*"), ("a1b23".to_owned(), Alignment::NativeEndsFirst));
        assert_eq!(merged("a", "12*"), ("a12".to_owned(), Alignment::NativeEndsFirst));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_order_is_kept(roles in prop::collection::vec(0u8..4, 0..40),
                                             entries in prop::collection::vec(any::<bool>(), 0..40)) {
            let roles: Vec<_> = roles.iter().map(|role| match role {
                0 => NativeRole::EvalLoop,
                1 => NativeRole::EvalStep,
                _ => NativeRole::Other,
            }).collect();
            let native = roles.iter().enumerate().map(|(frame, role)| NativeFrame { frame, role: *role }).collect();
            let python = entries.iter().enumerate();
            let python = python.map(|(frame, is_entry)| PythonFrame { frame, is_entry: *is_entry }).collect();
            let merged = merge(native, python);
            let (mut kept_native, mut kept_python) = (Vec::new(), Vec::new());
            for frame in &merged.frames {
                match frame {
                    MergedFrame::Native(frame) => kept_native.push(*frame),
                    MergedFrame::Python(frame) => kept_python.push(*frame),
                }
            }
            prop_assert_eq!(kept_python, (0..entries.len()).collect::<Vec<_>>());
            prop_assert!(kept_native.is_sorted());
            let others = |frames: &[usize]| frames.iter().filter(|frame| roles[**frame] == NativeRole::Other).count();
            prop_assert_eq!(others(&kept_native), others(&(0..roles.len()).collect::<Vec<_>>()));
            let runs = entries.iter().filter(|is_entry| **is_entry).count()
                + usize::from(entries.last() == Some(&false));
            let loops = roles.iter().filter(|role| **role == NativeRole::EvalLoop).count();
            let kept_loops = kept_native.iter().filter(|frame| roles[**frame] == NativeRole::EvalLoop).count();
            prop_assert_eq!(kept_loops, loops.saturating_sub(runs));
            prop_assert_eq!(merged.alignment == Alignment::NativeEndsFirst, runs > loops);
        }
    }
}
