//! The function for the fuzz target `yaml` of `tests/fuzz`: any text gives a configuration or a
//! problem, soon and without much memory.

#![allow(clippy::missing_panics_doc, reason = "for tests alone")]

use crate::Experiment;

/// A configuration, and its first trials.
pub fn yaml(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Experiment::read("const.yaml", &text) {
        Ok(experiment) => drop(experiment.trials(0).take(3).count()),
        Err(problem) => assert!(!problem.what.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn corpus_of_configurations() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/yaml");
        for seed in fs::read_dir(corpus).expect("it is in the repository") {
            let seed = fs::read(seed.expect("a name").path()).expect("it is there");
            // Each prefix of it, and each variant without one byte.
            for place in 0..seed.len() {
                super::yaml(&seed[..place]);
                super::yaml(&[&seed[..place], &seed[place + 1..]].concat());
            }
            super::yaml(&seed);
        }
    }
}
