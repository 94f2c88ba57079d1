"""For models of Keras and `tf.keras`."""
from pedl.frameworks.keras import data as data
from pedl.frameworks.keras.keras_trial import KerasFunctionalTrial as KerasFunctionalTrial
from pedl.frameworks.keras.keras_trial import KerasTrial as KerasTrial
from pedl.frameworks.keras.tf_keras_trial import TFKerasTrial as TFKerasTrial


def wrap_dataset(dataset):
    """Takes note of a `tf.data.Dataset`, right after it is created. Returns it.

    With one device there is nothing to be done with it.
    """
    return dataset
