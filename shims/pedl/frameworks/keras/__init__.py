"""For models of Keras and `tf.keras`."""
from pedl.frameworks.keras import data as data
