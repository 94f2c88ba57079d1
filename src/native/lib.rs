//! The extension module `_pedl`, which the hooks call. It converts values, and calls `pedl-core`.
//!
//! One binary serves CPython 3.7 and all later versions (abi3). It links no libpython; the process
//! that loads it has one. numpy is imported when the first array occurs, never before, because
//! every process that the script starts loads this module.
//!
//! No function of core is called while a lock is held that Python code could need: values are first
//! converted, in memory of the caller, and core receives bytes.

mod array;
mod batch;
mod convert;
mod error;
mod in_place;
mod live;
mod log;
mod numpy;
mod numpy_c;
mod pool;
mod preemption;
mod replay;
mod trial;
mod types;

use pyo3::prelude::*;

#[pymodule]
fn _pedl(module: &Bound<'_, PyModule>) -> PyResult<()> {
    error::register(module)?;
    replay::register(module)?;
    module.add_class::<trial::Due>()?;
    module.add_class::<trial::Trial>()?;
    module.add_class::<in_place::InPlace>()?;
    module.add_class::<pool::Pool>()?;
    module.add_class::<pool::PoolWorker>()?;
    module.add_class::<pool::Ahead>()?;
    module.add_class::<pool::ThreadTasks>()?;
    module.add_class::<pool::ThreadTask>()?;
    module.add_function(wrap_pyfunction!(types::type_modified, module)?)?;
    module.add(
        "Panic",
        module.py().get_type::<pyo3::panic::PanicException>(),
    )?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
