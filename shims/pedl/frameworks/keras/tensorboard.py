"""`TFKerasTensorBoard`: the TensorBoard callback of `tf.keras`, in the folder of the trial."""
import importlib
import os

from pedl.trial import get_trial_id

# Below the model definition, like `TensorBoard("tensorboard")` of `pedl.frameworks.tensorflow`.
_DIRECTORY = "tensorboard"


def tensorboard_class():
    """The class `TFKerasTensorBoard`, derived from that of the installed TensorFlow."""
    base = importlib.import_module("tensorflow").keras.callbacks.TensorBoard

    class TFKerasTensorBoard(base):
        """`tf.keras.callbacks.TensorBoard` whose `log_dir` is `tensorboard/<trial_id>`, below the model definition.

        Args:
            update_freq: `"batch"`, `"epoch"`, or a number of batches.
            profile_batch: the batch to profile; 0 for none.
            histogram_freq: the number of epochs between histograms; 0 for none.
            further: other arguments of the callback in the installed TensorFlow.
        """

        def __init__(self, update_freq="batch", profile_batch=0, histogram_freq=1, **further):
            directory = os.path.join(_DIRECTORY, str(get_trial_id()))
            settings = {"update_freq": update_freq, "profile_batch": profile_batch, "histogram_freq": histogram_freq}
            super().__init__(log_dir=directory, **settings, **further)

    return TFKerasTensorBoard
