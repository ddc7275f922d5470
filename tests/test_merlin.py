"""`merlin_embeddings.merlin` where it can't be."""

import importlib

import pytest


def test_keras_3_is_told_what_to_use_instead():
    with pytest.raises(ImportError, match=r"(?s)TF_USE_LEGACY_KERAS=1.*layers\.InputBlock"):
        importlib.import_module("merlin_embeddings.merlin")
