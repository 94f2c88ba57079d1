"""`tf_keras`, Keras 2 beside TensorFlow 2.16 and later (`TF_USE_LEGACY_KERAS=1`): not intercepted, which is reported."""
