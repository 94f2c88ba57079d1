"""The differences between generations of Keras that need code, each with a name and its evidence."""


class KerasFacts:
    """Facts of one generation.

    Args:
        fit_forwards_generators: `Model.fit` calls `self.fit_generator` for a generator or Sequence
            (keras 2.2.5, keras/engine/training.py, `fit`, "Case 1").
        backend_module: module whose `backend()` names the backend in use, or None where there is only one
            (keras 3, keras/src/backend/config.py).
        metrics_are_variables: epoch logs are read from metric variables, not from the last call's result
            (keras 3, keras/src/trainers/trainer.py, `_get_metrics_result_or_logs`).
    """

    def __init__(self, fit_forwards_generators, backend_module, metrics_are_variables):
        self.fit_forwards_generators = fit_forwards_generators
        self.backend_module = backend_module
        self.metrics_are_variables = metrics_are_variables
