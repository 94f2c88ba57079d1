"""Trial classes and data sets for models of Keras and `tf.keras`."""
from __future__ import annotations

from pedl.frameworks.keras import data as data
from pedl.frameworks.keras.keras_trial import KerasFunctionalTrial as KerasFunctionalTrial
from pedl.frameworks.keras.keras_trial import KerasTrial as KerasTrial
from pedl.frameworks.keras.tf_keras_trial import TFKerasTrial as TFKerasTrial
from pedl.frameworks.wrapping import wrap_dataset as wrap_dataset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    class TFKerasTensorBoard(Any):
        """`tf.keras.callbacks.TensorBoard`, in the folder of the trial: the class that `tensorboard_class` makes."""

        def __init__(
            self, update_freq: int | str = "batch", profile_batch: Any = 0, histogram_freq: int = 1, **further: Any
        ) -> None: ...


def __getattr__(name: str) -> Any:
    """`TFKerasTensorBoard` is derived from a class of TensorFlow, which is imported at its first use."""
    if name != "TFKerasTensorBoard":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pedl.frameworks.keras.tensorboard import tensorboard_class

    globals()[name] = tensorboard_class()
    return globals()[name]
