//! Trial classes: each is compared with the loop that a user would write for the same training
//! (`tests/bench/measured`).

use std::fs;

use super::report::print_pairs;
use super::{Answer, Bench, PARTS, ROWS_OF_A_TRIAL, part};
use crate::failure::{At as _, Result};
use crate::process::{Output, Running};

/// Trial classes that are measured, with their modules in the definition.
pub(super) const TRIALS: [(&str, &str); 4] = [
    ("KerasTrial", "keras_trial"),
    ("TensorFlowTrial", "tensorflow_trial"),
    ("EstimatorTrial", "estimator_trial"),
    ("PyTorchTrial", "pytorch_trial"),
];

/// The definition, and the script with the loops to compare with.
const DEFINITION: &str = "tests/bench";
const PLAIN_LOOP: &str = "tests/bench/plain_loop.py";

/// A batch of a trial class takes this many times as long as one of the other loops.
const SHARE_OF_A_TRIAL: u64 = 5;

impl Bench<'_> {
    pub(super) fn measure_trials(&mut self, names: &[&str]) -> Result<()> {
        let batches = (self.plan.batches / SHARE_OF_A_TRIAL / PARTS).max(1);
        println!(
            "  {} pairs of {} batches of {ROWS_OF_A_TRIAL} rows, a perceptron, in {PARTS} turns: trial classes, and plain loops in \
             python; µs a batch",
            self.plan.pairs,
            batches * PARTS
        );
        let mut pairs = Vec::new();
        for _ in 0..self.plan.pairs {
            let (mut plain, mut ours) = (Answer::new(), Answer::new());
            for (name, module) in TRIALS.iter().filter(|(name, _)| names.contains(name)) {
                let (theirs, trial) = self.pair_of_trial(module, batches)?;
                plain.insert((*name).to_owned(), part(&theirs, "trial"));
                ours.insert((*name).to_owned(), part(&trial, "trial"));
            }
            pairs.push((plain, ours));
        }
        print_pairs(&pairs, names);
        Ok(())
    }

    /// Runs a plain loop by Python and a trial class by `pedl-run`, in turns.
    fn pair_of_trial(&mut self, module: &str, batches: u64) -> Result<(Answer, Answer)> {
        let turns = self.turns()?;
        let mut python = self.environment.command();
        python.arg(self.repository.root().join(PLAIN_LOOP));
        python.args([
            module,
            &batches.to_string(),
            &turns.of_python,
            &turns.of_ours,
        ]);
        // The modules name the base classes of `pedl`; the loops use none.
        python.env("PYTHONPATH", self.repository.root().join("shims"));
        python.current_dir(&turns.directory);
        let python = Running::start(python, Output::Keep)?;

        let steps = PARTS + 1;
        let configuration = serde_json::json!({
            "entrypoint": format!("measured.{module}:Trial"),
            "hyperparameters": {"mine": turns.of_ours, "other": turns.of_python, "batches": batches},
            "batches_per_step": batches,
            "min_validation_period": steps,
            "searcher": {
                "name": "single", "metric": "loss", "smaller_is_better": true, "max_steps": steps,
            },
            "max_restarts": 0,
        });
        let file = turns.directory.join("measured.yaml");
        fs::write(&file, configuration.to_string()).at("write", &file)?;
        let mut ours = self.command(&[]);
        ours.arg("--trial-dir").arg(turns.directory.join("trial"));
        ours.arg("--config").arg(&file);
        ours.arg(self.repository.root().join(DEFINITION));
        ours.current_dir(&turns.directory);
        let ours = Running::start(ours, Output::Keep)?;
        Ok((self.answer(python)?, self.answer(ours)?))
    }
}
