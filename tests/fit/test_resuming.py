"""BackupAndRestore: a training that died goes on in a new process as if it hadn't."""

from tests import fresh

SCRIPT = """
    import json
    import numpy as np
    from tensorflow import keras
    import merlin_embeddings as me

    def model_of(optimizer):
        item, user = me.TableConfig("item", 30, 4, seed=1), me.TableConfig("user", 20, 4, seed=2)
        features = {
            "item": me.FeatureConfig("item", item, combiner="mean"),
            "user": me.FeatureConfig("user", user, combiner="sum"),
        }
        symbols = {name: keras.Input((3,), dtype="int64", name=name) for name in features}
        vectors = me.layers.Embeddings(features)(symbols)
        joined = keras.layers.Concatenate()([vectors["item"], vectors["user"]])
        output = keras.layers.Dense(1, kernel_initializer="ones")(joined)
        model = keras.Model(symbols, output)
        model.compile(optimizer, "mse")
        return model

    rng = np.random.default_rng(0)
    ids = {"item": rng.integers(0, 30, (32, 3)), "user": rng.integers(0, 20, (32, 3))}
    y = rng.normal(size=(32, 1))

    def train(model, *callbacks):
        callbacks = list(callbacks)
        model.fit(ids, y, batch_size=8, epochs=4, shuffle=False, verbose=0, callbacks=callbacks)

    def state_of(model):
        return [v.numpy().tolist() for v in [*model.weights, *model.optimizer.variables]]

    class PowerCut(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            if (self.epoch, batch) == (2, 1):
                raise RuntimeError("power cut")

    def optimizer():
        return me.optimizers.Split(
            dense=keras.optimizers.Adam(0.1),
            embeddings=me.optimizers.Adam(0.1, weight_decay=0.01),
            overrides={"user": me.optimizers.RowwiseAdagrad(0.1)},
        )
"""
INTERRUPTED = """
    try:
        train(model_of(optimizer()), keras.callbacks.BackupAndRestore(FOLDER), PowerCut())
    except RuntimeError as error:
        assert str(error) == "power cut"
    else:
        raise AssertionError("nothing was interrupted")
    model = model_of(optimizer())
    train(model)
    print(json.dumps(state_of(model)))
"""
RESUMED = """
    epochs = []
    model = model_of(optimizer())
    log = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, _: epochs.append(epoch))
    train(model, keras.callbacks.BackupAndRestore(FOLDER), log)
    print(json.dumps([epochs, state_of(model)]))
"""


def test_a_resumed_training_ends_exactly_where_an_uninterrupted_one_does(tmp_path):
    folder = f"    FOLDER = {str(tmp_path / 'backup')!r}\n"
    straight = fresh.last_line_of(SCRIPT + folder + INTERRUPTED)
    epochs, resumed = fresh.last_line_of(SCRIPT + folder + RESUMED)
    assert epochs == [2, 3]
    assert resumed == straight
