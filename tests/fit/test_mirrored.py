"""Our optimizers under MirroredStrategy: two replicas learn what one device learns."""

import pytest

from tests import fresh

# Ids repeat within a replica and across both; the dense part trains too.
SCRIPT = """
    import json
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras
    import merlin_embeddings as me

    # Must come before anything else runs, hence a process of its own.
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    # One for all: TensorFlow's collectives don't survive a second strategy in a process.
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    rng = np.random.default_rng(0)
    ids = {"item": rng.integers(0, 20, (32, 3)), "user": rng.integers(0, 20, (32, 1))}
    y = rng.normal(size=(32, 1))
    opt = me.optimizers

    def model_of(optimizer, **options):
        keras.utils.set_random_seed(1)
        features = {
            "item": me.FeatureConfig("item", me.TableConfig("item", 20, 4), combiner="sum"),
            "user": me.FeatureConfig("user", me.TableConfig("user", 20, 4), combiner="mean"),
        }
        symbols = {k: keras.Input((v.shape[1],), dtype="int64", name=k) for k, v in ids.items()}
        vectors = me.layers.Embeddings(features, name="tables")(symbols)
        known = keras.layers.Embedding(20, 2)(symbols["user"])
        joined = [vectors["item"], vectors["user"], keras.layers.Flatten()(known)]
        output = keras.layers.Dense(1)(keras.layers.Concatenate()(joined))
        model = keras.Model(symbols, output)
        model.compile(optimizer, "mse", **options)
        return model

    def train(model, rows=slice(None), epochs=2):
        x = {name: values[rows] for name, values in ids.items()}
        model.fit(x, y[rows], batch_size=8, epochs=epochs, shuffle=False, verbose=0)

    def variables(model):
        return [*model.weights, *model.optimizer.variables]

    def parts(model):
        found = [strategy.experimental_local_results(v.value) for v in variables(model)]
        return [[part.numpy() for part in of_one] for of_one in found]

    def compared(mirrored, alone):
        both = parts(mirrored)
        assert all(len(of_one) == 2 for of_one in both)
        return {
            "apart": max(np.abs(first - second).max() for first, second in both),
            "wrong": max(
                np.abs(own[0] - one.numpy()).max()
                for own, one in zip(both, variables(alone), strict=True)
            ),
            "moved": max(np.abs(p[0]).max() for p in both),
        }

    def say(results):
        print(json.dumps(results, default=float))
"""

# Each with something that acts on whole gradients: norms, decay, scales, several optimizers.
RULES = {
    "sgd": "opt.SGD(0.1, momentum=0.9, global_clipnorm=0.3)",
    "adagrad": "opt.Adagrad(0.1, clipnorm=0.05, weight_decay=0.1)",
    "rowwise_adagrad": "opt.RowwiseAdagrad(0.1, loss_scale_factor=8.0)",
    "adam": "opt.Adam(0.1)",
    "averages": "opt.Lamb(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3, "
    "gradient_accumulation_steps=2)",
    "split": "keras.optimizers.LossScaleOptimizer(opt.Split(keras.optimizers.Adam(0.1), "
    "opt.RowwiseAdagrad(0.1), {'user': opt.Adam(0.1)}), initial_scale=8.0)",
}


@pytest.fixture(scope="module")
def trained():
    makers = ", ".join(f"{name!r}: lambda: {make}" for name, make in RULES.items())
    return fresh.last_line_of(
        SCRIPT
        + f"""
    results = {{}}
    for name, make in {{{makers}}}.items():
        alone = model_of(make())
        train(alone)
        with strategy.scope():
            mirrored = model_of(make())
            train(mirrored)
        results[name] = compared(mirrored, alone)
    say(results)
    """
    )


@pytest.mark.parametrize("name", RULES)
def test_two_replicas_make_the_steps_of_one_device(trained, name):
    result = trained[name]
    assert result["apart"] == 0
    assert result["wrong"] < 2e-6
    assert result["moved"] > 0.1


def test_eager_steps_custom_loops_files_and_changes(tmp_path):
    results = fresh.last_line_of(
        SCRIPT
        + f"""
    results = {{}}
    with strategy.scope():
        eager = model_of(opt.Adagrad(0.1), run_eagerly=True)
        train(eager)
    alone = model_of(opt.Adagrad(0.1))
    train(alone)
    results["eager"] = compared(eager, alone)

    with strategy.scope():
        model = model_of(opt.Adagrad(0.1))
        optimizer = model.optimizer
        optimizer.build(model.trainable_variables)

    @tf.function
    def step(x, y):
        def in_replica(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / 8
            trained = model.trainable_variables
            optimizer.apply(tape.gradient(loss, trained), trained)
        strategy.run(in_replica, (x, y))

    data = tf.data.Dataset.from_tensor_slices((ids, y.astype("float32"))).batch(8).repeat(2)
    for x, target in strategy.experimental_distribute_dataset(data):
        step(x, target)
    results["loop"] = compared(model, alone)

    # A step marks its rows; files and writes reach both parts.
    table = model.get_layer("tables").tables["item"]
    mark = table.mark()
    with strategy.scope():
        train(model, slice(8), 1)
    changed = np.concatenate([part.keys for part in table.entries(since=mark)])
    assert changed.tolist() == sorted(set(ids["item"][:8].ravel())), changed
    alone.save_weights({str(tmp_path / "all.weights.h5")!r})
    model.load_weights({str(tmp_path / "all.weights.h5")!r})
    results["loaded"] = compared(model, alone)
    table.write(me.tables.Entries([3], np.full((1, 4), 7.0, np.float32)))
    for first, second in parts(model):
        np.testing.assert_array_equal(first, second)
    assert (next(table.entries(keys=[3])).vectors == 7).all()

    try:
        with strategy.scope():
            optimizer.apply([v.value for v in model.trainable_variables])
    except ValueError as error:
        results["refused"] = str(error)
    say(results)
    """
    )
    assert "strategy.run(step)" in results.pop("refused")
    for name, result in results.items():
        assert result["apart"] == 0, name
        assert result["wrong"] < 2e-6, name
        assert result["moved"] > 0.1, name
