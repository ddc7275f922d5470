"""What is for Keras 2 says so on Keras 3."""

import pytest

import merlin_embeddings as me
from tests.either_keras import KERAS_3


@pytest.mark.skipif(not KERAS_3, reason="it is for Keras 2")
def test_keras_3_has_no_legacy_optimizers():
    with pytest.raises(RuntimeError, match="Legacy is for Keras 2, this is Keras 3"):
        me.optimizers.Legacy(me.optimizers.SGD(0.1))
