"""`tf_keras`: reports at the first training call of a model that nothing is intercepted.

Source: tf_keras 2.21.0, tf_keras/src/engine/training.py, `Model.fit` and `Model.train_on_batch`.
"""
import functools

from py_hooks.recording import forks, loops


def watch(process, module):
    """`tf_keras.src.engine.training` was imported: reports the first training call of a model."""
    for name in ("fit", "train_on_batch"):
        setattr(module.Model, name, _telling(process, getattr(module.Model, name)))


def _telling(process, original):
    @functools.wraps(original)
    def train(*args, **kwargs):
        if process.trial.is_child:
            forks.trains(process.trial)
        else:
            loops.tell(process, "`tf_keras` is not intercepted", "run it without `--exact`, or train with `keras`")
        return original(*args, **kwargs)

    return train
