"""What tests say alike on Keras 2 and on Keras 3."""

import tensorflow as tf
from tensorflow import keras

# Keras 3 wraps TensorFlow's variables; Keras 2 has no others.
Variable = getattr(keras, "Variable", tf.Variable)
KERAS_3 = hasattr(keras, "Variable")
LossScaleOptimizer = (keras.optimizers if KERAS_3 else keras.mixed_precision).LossScaleOptimizer
