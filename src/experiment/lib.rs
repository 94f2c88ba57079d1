//! Experiment configurations: what a YAML file specifies, and which trials result from it.
//!
//! ```text
//! text ── yaml ──> nodes with positions ── check (by the table in fields) ──> JSON, complete
//!                                                                               │
//!                              hyperparameter, searcher, random  <── Experiment ┘
//! ```
//!
//! - `yaml`: YAML 1.2 to a tree in which every key and value has its line and column.
//! - `fields`: THE table of fields: names, types, ranges, defaults. Checks, schema and defaults
//!   come from it.
//! - `check`: compares a tree with the table, and fills in the defaults.
//! - `schema`: the table as a JSON Schema, for editors.
//! - `reference`: the table as a page of the documentation.
//! - `experiment`: the configuration in the form that this program uses, and the trials of its
//!   search.
//! - `hyperparameter`, `searcher`: how values are drawn, and how long trials train.
//! - `random`: the generator of numpy, from which everything is drawn.
//! - `problem`: what is wrong with a file, and where.
//!
//! Nothing here accesses a disk, prints, or knows Python. Field names, defaults and the order in
//! which random numbers are drawn are those of PEDL, so that its configurations have the same
//! meaning here, bit for bit.

mod check;
mod experiment;
mod fields;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hyperparameter;
mod problem;
mod random;
mod reference;
mod schema;
mod searcher;
mod yaml;

pub use experiment::{CheckpointPolicy, Entrypoint, Experiment, Trial};
pub use hyperparameter::Hyperparameter;
pub use problem::Problem;
pub use random::RandomState;
pub use reference::reference;
pub use schema::schema;
pub use searcher::{Bracket, Mode, Searcher};
