"""Prints TensorFlow's version, its include folder and its compiler and linker flags, one a line."""

import tensorflow as tf

print(tf.__version__)
print(tf.sysconfig.get_include())
print(*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags(), sep="\n")
