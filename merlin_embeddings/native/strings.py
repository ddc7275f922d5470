"""Strings as ids."""

from __future__ import annotations

import tensorflow as tf

# FarmHash Fingerprint64 modulo this: 0 .. 2**63 - 2, every value an int64.
STRING_BUCKETS = 2**63 - 1


def hash_strings(values: tf.Tensor) -> tf.Tensor:
    """Strings as int64 ids: FarmHash Fingerprint64 modulo 2**63 - 1, in `[0, 2**63 - 1)`.

    The same string has the same id for ever, on every machine.

    >>> import tensorflow as tf
    >>> hash_strings(tf.constant(["Hello", "TensorFlow"])).numpy().tolist()
    [6181326957702750344, 4265654129848386254]
    """
    return tf.strings.to_hash_bucket_fast(values, STRING_BUCKETS)
