"""Guesses who earns much: an `EstimatorTrial`, for TensorFlow 1.14 to 2.15.

    pedl-run --config const.yaml .              # 8 steps of 100 batches; accuracy comes to more than 0.85
    saved_model_cli show --dir .pedl/estimator/work/exports/raw --all
    saved_model_cli run --dir .pedl/estimator/work/exports/raw --tag_set serve --signature_def predict --input_exprs \
        'age=[[40.0]];years_of_education=[[18.0]];hours_a_week=[[45.0]];occupation=[["doctor"]]'

It shows an Estimator of TensorFlow's own, feature columns, and two serving functions: each checkpoint has a SavedModel for
columns as they are (`raw`), and one for `tf.train.Example`s (`parsing`). Kill it at any moment and run the same command again:
it ends with the same weights.
"""

import pedl
import tensorflow.compat.v1 as tf
from pedl.frameworks.tensorflow import EstimatorTrial

from .data import OCCUPATIONS, make_people

# Mean and spread of each number.
NUMBERS = {"age": (46.0, 16.0), "years_of_education": (14.0, 4.0), "hours_a_week": (38.0, 10.0)}


def scaled(mean, spread):
    """A function that brings a number of a person near to 0."""
    return lambda value: (value - mean) / spread


def make_columns():
    """Of what the model is given, each once."""
    columns = [
        tf.feature_column.numeric_column(name, normalizer_fn=scaled(mean, spread)) for name, (mean, spread) in NUMBERS.items()
    ]
    occupation = tf.feature_column.categorical_column_with_vocabulary_list("occupation", OCCUPATIONS)
    return [*columns, tf.feature_column.indicator_column(occupation)]


class IncomeTrial(EstimatorTrial):
    """A network of two layers."""

    def __init__(self, hparams):
        self.hparams = hparams
        self.data = pedl.get_data_config()

    def build_estimator(self, hparams):
        return tf.estimator.DNNClassifier(
            [hparams["hidden"], hparams["hidden"] // 2],
            make_columns(),
            optimizer=lambda: tf.train.AdamOptimizer(0.003),
            dropout=hparams["dropout"],
        )

    def build_train_spec(self, hparams):
        def people():
            count = self.data["num_training"]
            data = tf.data.Dataset.from_tensor_slices(make_people(count, seed=1))
            return data.shuffle(count).batch(hparams["batch_size"], drop_remainder=True)

        return tf.estimator.TrainSpec(people)

    def build_validation_spec(self, hparams):
        def people():
            return tf.data.Dataset.from_tensor_slices(make_people(self.data["num_validation"], seed=2)).batch(100)

        return tf.estimator.EvalSpec(people, steps=None)

    def build_serving_input_receiver_fns(self, hparams):
        export = tf.estimator.export

        def raw():
            features = {name: tf.placeholder(tf.float32, [None, 1], name) for name in NUMBERS}
            features["occupation"] = tf.placeholder(tf.string, [None, 1], "occupation")
            return export.build_raw_serving_input_receiver_fn(features)()

        examples = tf.feature_column.make_parse_example_spec(make_columns())
        return {"raw": raw, "parsing": export.build_parsing_serving_input_receiver_fn(examples)}
