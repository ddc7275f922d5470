"""What compile and dtype policies offer: the same steps, in other clothes."""

import warnings

import numpy as np
import pytest
from tensorflow import keras

import merlin_embeddings as me


def fit(model, data, epochs=2):
    return model.fit(*data, batch_size=8, epochs=epochs, shuffle=False, verbose=0)


@pytest.mark.parametrize(
    "options",
    [
        {"steps_per_execution": 3},
        {"run_eagerly": True},
        {"jit_compile": False},
        {"auto_scale_loss": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("optimizer", [me.optimizers.SGD, me.optimizers.Adam])
def test_the_same_steps(data, model_of, state_of, optimizer, options):
    plain = model_of(optimizer(0.1))
    other = model_of(optimizer(0.1), **options)
    losses = fit(plain, data).history["loss"]
    assert fit(other, data).history["loss"] == pytest.approx(losses, rel=1e-5)
    for expected, found in zip(state_of(plain), state_of(other), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("features", ["one", "several"])
def test_jit_compile_is_turned_off_with_one_warning(data, model_of, features):
    keras.utils.set_random_seed(1)
    symbol = keras.Input((3,), dtype="int64")
    if features == "one":
        vectors = me.layers.Embedding(20, 4, combiner="sum")(symbol)
    else:
        configs = [me.FeatureConfig(n, me.TableConfig(n, 20, 4), combiner="sum") for n in "ab"]
        vectors = keras.layers.Concatenate()(me.layers.Embeddings(configs)([symbol, symbol]))
    hidden = keras.layers.Dense(4, activation="relu")(vectors)
    model = keras.Model(symbol, keras.layers.Dense(1)(hidden))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.compile(me.optimizers.Adam(0.1), "mse", jit_compile=True)
        losses = fit(model, data, 4).history["loss"]
        model.evaluate(*data, verbose=0)
        model.predict(data[0], verbose=0)
    about = [str(w.message) for w in caught if "jit_compile" in str(w.message)]
    assert len(about) == 1, about
    assert "Proceeding with `jit_compile=False`" in about[0]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "float16", "bfloat16"])
@pytest.mark.parametrize("make", [me.optimizers.SGD, me.optimizers.Adam], ids=["sgd", "adam"])
def test_dtype_policies(data, policy, make):
    def trained(dtype, table_dtype):
        keras.utils.set_random_seed(1)
        symbol = keras.Input((3,), dtype="int64")
        layer = me.layers.Embedding(
            20, 4, combiner="sum", seed=1, dtype=dtype, table_dtype=table_dtype
        )
        # Numbers of float32 in the end, as Keras advises.
        output = keras.layers.Dense(1, kernel_initializer="ones", dtype="float32")(layer(symbol))
        model = keras.Model(symbol, output)
        model.compile(make(0.05), "mse")
        losses = fit(model, data, 3).history["loss"]
        return layer.get_weights()[0].astype(np.float32), losses

    mixed = policy.startswith("mixed")
    expected, losses = trained("float32", "float32")
    found, its_losses = trained(policy, None)
    # Rows are float32 in mixed precision and half of it elsewhere; an error of a few units in
    # bfloat16's 8 bits adds up over 12 steps.
    tolerance = 0.02 if mixed else 0.1
    np.testing.assert_allclose(found, expected, atol=tolerance)
    assert its_losses == pytest.approx(losses, rel=tolerance)


def test_a_policy_for_the_whole_model(data):
    """mixed_float16 puts a LossScaleOptimizer around ours."""
    keras.config.set_dtype_policy("mixed_float16")
    try:
        symbol = keras.Input((3,), dtype="int64")
        vectors = me.layers.Embedding(20, 4, combiner="mean", seed=1)(symbol)
        assert vectors.dtype == "float16"
        model = keras.Model(symbol, keras.layers.Dense(1, dtype="float32")(vectors))
        model.compile(me.optimizers.Adagrad(0.1), "mse")
        losses = fit(model, data, 4).history["loss"]
    finally:
        keras.config.set_dtype_policy("float32")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert isinstance(model.optimizer.inner_optimizer, me.optimizers.Adagrad)
    assert losses[-1] < losses[0]
    assert {w.dtype for w in model.weights} == {"float32"}
