use super::*;

/// A kernel that has everything but what is named here.
struct Lacking(Vec<Need>);

impl Kernel for Lacking {
    fn has(&self, need: Need) -> Result<bool, String> {
        Ok(!self.0.contains(&need))
    }
}

/// One on which nothing may be tried.
struct Silent;

impl Kernel for Silent {
    fn has(&self, _: Need) -> Result<bool, String> {
        Err("no privilege".to_owned())
    }
}

/// What is off on a kernel that lacks all that one feature needs.
fn without(feature: &Feature) -> Vec<FeatureState> {
    features(&Lacking(feature.needs.to_vec()))
}

#[test]
fn each_feature_that_is_missing_is_off_and_no_other() {
    for feature in FEATURES {
        let off: Vec<&str> =
            without(feature).iter().filter(|state| state.found == Found::Off).map(|state| state.feature.name).collect();
        assert_eq!(off, [feature.name]);
    }
}

#[test]
fn a_required_feature_that_is_missing_is_refused_by_name_with_what_it_needs_and_why() {
    let mut required = 0;
    for feature in FEATURES {
        let states = without(feature);
        let Without::Impossible(why) = feature.without else {
            assert!(refusal(&states).is_ok(), "{} is not needed", feature.name);
            continue;
        };
        required += 1;
        let problem = refusal(&states).unwrap_err();
        let need = feature.needs[0].to_string();
        for part in [feature.name, why, &need] {
            assert!(problem.what.contains(part), "{part}: {}", problem.what);
        }
        assert!(problem.hint.contains(&format!("Linux {} or later", feature.since)), "{}", problem.hint);
    }
    assert!(required > 3);
}

#[test]
fn the_hint_names_the_release_that_has_all_that_is_missing() {
    let needs = FEATURES.iter().filter(|feature| ["5.8", "5.15"].contains(&feature.since));
    let problem = refusal(&features(&Lacking(needs.flat_map(|feature| feature.needs.to_vec()).collect()))).unwrap_err();
    assert!(problem.hint.contains("Linux 5.15 "), "5.15 is later than 5.8: {}", problem.hint);
    assert!(problem.what.contains("ring buffers") && problem.what.contains("attach cookies"), "{}", problem.what);
}

#[test]
fn only_what_answers_depend_on_is_a_warning_of_a_trace() {
    for feature in FEATURES {
        let warnings: Vec<String> = without(feature).iter().filter_map(FeatureState::warning).collect();
        match feature.without {
            Without::Less(what) => assert!(warnings[0].contains(feature.name) && warnings[0].contains(what)),
            _ => assert!(warnings.is_empty(), "{}", feature.name),
        }
    }
}

#[test]
fn any_one_of_several_needs_will_do() {
    let several = FEATURES.iter().find(|feature| feature.needs.len() > 1).unwrap();
    for &kept in several.needs {
        let others = several.needs.iter().copied().filter(|&need| need != kept).collect();
        assert_eq!(try_feature(&Lacking(others), *several).found, Found::On);
    }
}

#[test]
fn what_could_not_be_tried_is_neither_on_nor_off() {
    let states = features(&Silent);
    assert!(states.iter().all(|state| state.found == Found::NotTried("no privilege".to_owned())));
    let told = refusal(&states).expect("the privilege is what is missing");
    assert!(told.contains("could not be tried"), "{told}");
    assert!(states.iter().all(|state| state.warning().is_none()));
}

#[test]
fn the_types_of_this_kernel_answer_for_what_is_there_and_what_is_not() {
    let kernel = RunningKernel { untried: None, ..RunningKernel::look() };
    if kernel.types.is_none() {
        eprintln!("this kernel does not describe its types");
        return;
    }
    assert_eq!(kernel.has(Need::Tracepoint("sched_switch")), Ok(true));
    assert_eq!(kernel.has(Need::Tracepoint("sched_nothing")), Ok(false));
    assert_eq!(kernel.has(Need::KernelFunction("do_exit")), Ok(true));
    assert_eq!(kernel.has(Need::KernelFunction("exit_nothing")), Ok(false));
    assert_eq!(kernel.has(Need::KernelMember("task_struct", "pid")), Ok(true));
    assert_eq!(kernel.has(Need::KernelMember("task_struct", "nothing")), Ok(false));
    assert_eq!(kernel.has(Need::KernelStruct("nothing")), Ok(false));
    assert_eq!(kernel.has(Need::KernelMember("nothing", "pid")), Ok(false));
    for feature in FEATURES.iter().filter(|feature| feature.without.is_impossible()) {
        for &need in feature.needs.iter().filter(|need| matches!(need, Need::Tracepoint(_) | Need::KernelStruct(_))) {
            assert_eq!(kernel.has(need), Ok(true), "gpuwhy runs here: {need}");
        }
    }
    assert_eq!(kernel.arguments_of("sched_waking"), Some(1));
    assert_eq!(kernel.arguments_of("nothing"), None);
}

#[test]
fn root_a_helper_that_no_kernel_has_is_not_found_and_what_this_kernel_traces_with_is() {
    let kernel = RunningKernel::look();
    assert_eq!(kernel.has(Need::Helper(100_000, "none")), Ok(false));
    let required = required_features(&kernel);
    assert!(required.iter().all(FeatureState::is_required) && !required.is_empty());
    assert!(required.iter().all(|state| state.found == Found::On), "{required:?}");
}
