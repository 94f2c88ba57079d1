"""A small regression for `KerasTrial`, `KerasFunctionalTrial` and `TFKerasTrial`; hyperparameters say which, and how."""
import hashlib
import io
import os
import threading

import numpy as np
import pedl
from pedl.callback import Callback

FRAMEWORK = pedl.get_hyperparameter("framework")
if FRAMEWORK == "tensorflow":
    import tensorflow as tf

    keras = tf.keras
    from pedl.frameworks.keras import TFKerasTensorBoard
else:
    import keras
from pedl.frameworks.tensorflow import TensorBoard  # noqa: E402
from pedl.frameworks.keras import KerasFunctionalTrial, KerasTrial, TFKerasTrial, data, wrap_dataset  # noqa: E402

IS_KERAS_3 = hasattr(keras.utils, "PyDataset")
Base = keras.utils.PyDataset if IS_KERAS_3 else keras.utils.Sequence
BATCHES, SIZE = 7, 8


def note(text):
    """Writes a line where checkpoints know nothing of it."""
    with io.FileIO(os.environ["NOTES"], "a") as file:
        file.write((text + "\n").encode())


class Rows(Base):
    """Batches of a regression, with noise, in an order that it shuffles itself."""

    def __init__(self, kind):
        if IS_KERAS_3:
            super().__init__()
        self.kind = kind
        self.order = np.arange(BATCHES * SIZE)
        self.weighted = pedl.get_hyperparameter("weighted")

    def __len__(self):
        return BATCHES

    def __getitem__(self, index):
        if self.kind == "training":
            note(f"built {os.getpid()} {threading.current_thread() is threading.main_thread()}")
        rows = self.order[index * SIZE:(index + 1) * SIZE, None]
        x = np.sin(rows * [[1.0, 2.0, 3.0]]).astype("float32") + np.random.rand(SIZE, 3).astype("float32") * 0.1
        y = x.sum(1, keepdims=True)
        if pedl.get_hyperparameter("trial") == "functional":
            return {"rows": x}, {"sum": y, "sign": (y > 0).astype("float32")}
        if not self.weighted:
            return x, y
        # Every other row is nothing that could be learned, and has no weight.
        weights = np.arange(SIZE) % 2
        return x, np.where(weights[:, None] > 0, y, 1e6).astype("float32"), weights.astype("float32")

    def on_epoch_end(self):
        if self.kind == "training":
            note("epoch")
        np.random.shuffle(self.order)


class Items:
    """What has items and a length as a `Sequence` has."""

    def __init__(self, rows):
        self.rows = rows
        self.on_epoch_end = rows.on_epoch_end

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def dataset_of(rows):
    """The same batches as a `tf.data.Dataset`."""
    x, y = zip(*(rows[index] for index in range(BATCHES)))
    return wrap_dataset(tf.data.Dataset.from_tensor_slices((np.concatenate(x), np.concatenate(y)))).batch(SIZE)


def download_data(experiment_config, hparams):
    """Makes a folder where it runs."""
    note("download")
    os.makedirs("downloaded", exist_ok=True)
    return "downloaded"


def make_data_loaders(experiment_config, hparams):
    """As the hyperparameter `loaders` has it."""
    note("loaders in " + os.path.basename(pedl.get_download_data_dir()))
    assert experiment_config["searcher"]["name"] == "single"
    training, validation = Rows("training"), Rows("validation")
    loaders = hparams["loaders"]
    if loaders == "three":
        return training, validation, None
    if loaders == "arrays":
        return np.zeros((8, 3)), validation
    if loaders in ("threads", "processes", "main"):
        workers = {"workers": 0 if loaders == "main" else 2, "use_multiprocessing": loaders == "processes"}
        return data.KerasDataAdapter(training, max_queue_size=4, **workers), validation
    if loaders == "datasets":
        return dataset_of(training), dataset_of(validation)
    if loaders == "dataset and sequence":
        return dataset_of(training), validation
    if loaders == "sequence and dataset":
        return training, dataset_of(validation)
    if loaders == "items":
        return Items(training), Items(validation)
    return training, validation


class Noting(Callback):
    """Writes down what it is told, in a file of the script's."""

    def write(self, text):
        with open("callbacks.txt", "a") as file:
            file.write(text + "\n")

    def on_trial_begin(self):
        self.write("trial")

    def on_train_step_begin(self, step_id):
        self.write(f"begin {step_id}")

    def on_train_step_end(self, step_id, metrics):
        self.write(f"end {step_id} {len(metrics)} {sorted(metrics[0])}")

    def on_validation_step_begin(self, step_id):
        self.write(f"validation {step_id}")

    def on_validation_step_end(self, step_id, metrics):
        self.write(f"validated {step_id} {sorted(metrics)}")


class Common:
    """What all have."""

    def callbacks(self, hparams):
        return [Noting(), TensorBoard("logs")]

    def session_config(self, hparams):
        config = super().session_config(hparams)
        if hparams["own_session"]:
            config.intra_op_parallelism_threads = 3
        return config

    def keras_callbacks(self, hparams):
        class Hash(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                with open("epochs.txt", "a") as file:
                    file.write(f"{epoch}\n")

            def on_train_end(self, logs=None):
                weights = b"".join(np.asarray(one).tobytes() for one in self.model.get_weights())
                if hasattr(keras.backend, "get_session"):
                    config = keras.backend.get_session()._config
                    print("SESSION soft", config.allow_soft_placement, "threads", config.intra_op_parallelism_threads)
                print("HASH", hashlib.sha256(weights).hexdigest())

        callbacks = [Hash()]
        if hparams["trial"] == "tf":
            callbacks.append(TFKerasTensorBoard(histogram_freq=0))
        if hparams["stops"]:
            callbacks.append(keras.callbacks.EarlyStopping(monitor="loss", patience=0, min_delta=1e9))
        return callbacks


def layers():
    """A small model."""
    print("HPARAMS", sorted(pedl.util.get_hyperparameters()))
    inputs = keras.layers.Input(shape=(3,), name="rows")
    return inputs, keras.layers.Dropout(0.2)(keras.layers.Dense(4, activation="tanh")(inputs))


def absolute(y_true, y_pred):
    """A metric of the user's."""
    return abs(y_true - y_pred)


def constant(y_true, y_pred):
    """Another."""
    return absolute(y_true, y_pred) * 0 + 5


if pedl.get_hyperparameter("trial") in ("plain", "prefixed"):

    class Trained(Common, KerasTrial):
        def build_model(self, hparams):
            inputs, hidden = layers()
            return keras.models.Model(inputs, keras.layers.Dense(1)(hidden))

        def optimizer(self):
            return keras.optimizers.SGD(0.05)

        def loss(self):
            return "mse"

        def batch_size(self):
            return SIZE

        def training_metrics(self):
            return {"distance": absolute}

        def validation_metrics(self):
            if pedl.get_hyperparameter("trial") == "prefixed":
                return {"val_distance": constant}
            return {"validation_error": absolute, "spread": "mae", "squared": keras.metrics.MeanSquaredError()}

elif pedl.get_hyperparameter("trial") == "functional":

    class Trained(Common, KerasFunctionalTrial):
        def build_model(self, hparams):
            inputs, hidden = layers()
            sign = keras.layers.Dense(1, activation="sigmoid", name="sign")(hidden)
            return keras.models.Model(inputs, [keras.layers.Dense(1, name="sum")(hidden), sign])

        def optimizer(self):
            return keras.optimizers.SGD(0.05)

        def losses(self):
            return {"sum": "mse", "sign": "binary_crossentropy"}

        def training_metrics(self):
            return {"distance": ("sum", absolute)}

        def validation_metrics(self):
            return {"distance": ("sum", absolute), "sign_error": ("sign", absolute)}

else:

    class Trained(Common, TFKerasTrial):
        def __init__(self, hparams):
            assert hparams["trial"] == "tf"

        def build_model(self, hparams):
            inputs, hidden = layers()
            model = keras.models.Model(inputs, keras.layers.Dense(1)(hidden))
            if hparams["compiled"]:
                model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
            return model
