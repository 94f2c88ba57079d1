"""`TFKerasTensorBoard`: the TensorBoard callback of `tf.keras`, in the folder of the trial."""
from __future__ import annotations

import importlib
import os

from pedl.trial import get_trial_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Below the model definition, like `TensorBoard("tensorboard")` of `pedl.frameworks.tensorflow`.
_DIRECTORY = "tensorboard"


def tensorboard_class() -> type[Any]:
    """The class `TFKerasTensorBoard`, derived from that of the installed TensorFlow."""
    base: Any = importlib.import_module("tensorflow").keras.callbacks.TensorBoard

    class TFKerasTensorBoard(base):
        """`tf.keras.callbacks.TensorBoard` whose `log_dir` is `tensorboard/<trial_id>`, below the model definition.

        Args:
            update_freq: `"batch"`, `"epoch"`, or a number of batches.
            profile_batch: the batch to profile; 0 for none.
            histogram_freq: the number of epochs between histograms; 0 for none.
            further: other arguments of the callback in the installed TensorFlow.
        """

        def __init__(
            self, update_freq: int | str = "batch", profile_batch: Any = 0, histogram_freq: int = 1, **further: Any
        ) -> None:
            directory = os.path.join(_DIRECTORY, str(get_trial_id()))
            settings = {"update_freq": update_freq, "profile_batch": profile_batch, "histogram_freq": histogram_freq}
            super().__init__(log_dir=directory, **settings, **further)

    return TFKerasTensorBoard
