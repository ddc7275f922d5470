"""The other methods of a model: predict, evaluate, single batches, weights, files."""

import json

import numpy as np
import pytest
from tensorflow import keras

import merlin_embeddings as me
from tests import fresh


def test_predict_and_evaluate(data, model_of, table_of):
    ids, y = data
    model = model_of(me.optimizers.SGD(0.1), dense=False, metrics=["mae"])
    predicted = table_of(model).astype(np.float64)[ids].sum((1, 2))
    np.testing.assert_allclose(
        model.predict(ids, batch_size=5, verbose=0)[:, 0], predicted, rtol=1e-4, atol=1e-6
    )
    loss, error = model.evaluate(ids, y, batch_size=8, verbose=0)
    assert loss == pytest.approx(((predicted - y[:, 0]) ** 2).mean(), rel=1e-5)
    assert error == pytest.approx(np.abs(predicted - y[:, 0]).mean(), rel=1e-5)
    found = model.evaluate(ids, y, batch_size=8, verbose=0, return_dict=True)
    assert found == pytest.approx({"loss": loss, "mae": error})
    before = table_of(model)
    np.testing.assert_array_equal(model.predict_on_batch(ids)[:, 0], model(ids)[:, 0])
    np.testing.assert_array_equal(table_of(model), before)


def test_single_batches(data, model_of, table_of, descended):
    ids, y = data
    model = model_of(me.optimizers.SGD(0.1), dense=False)
    start = table_of(model)
    for at in range(0, 32, 8):
        model.train_on_batch(ids[at : at + 8], y[at : at + 8])
    expected = descended(start, ids, y, [0.1] * 4)
    np.testing.assert_allclose(table_of(model), expected, rtol=1e-5, atol=1e-6)
    errors = expected[ids[:8]].sum((1, 2)) - y[:8, 0]
    model.reset_metrics()
    assert model.test_on_batch(ids[:8], y[:8]) == pytest.approx((errors**2).mean(), rel=1e-5)


def test_single_batches_with_weights(data, model_of, table_of, descended):
    ids, y = data
    weights = np.linspace(0, 3, 8)
    model = model_of(me.optimizers.SGD(0.1), dense=False)
    start = table_of(model)
    model.train_on_batch(ids[:8], y[:8], sample_weight=weights)
    expected = descended(start, ids[:8], y[:8], [0.1], weights=weights)
    np.testing.assert_allclose(table_of(model), expected, rtol=1e-5, atol=1e-6)


def test_weights_go_from_model_to_model(data, model_of, state_of):
    one, other = (model_of(me.optimizers.Adam(0.1)) for _ in range(2))
    one.fit(*data, batch_size=8, verbose=0)
    other.set_weights(one.get_weights())
    np.testing.assert_array_equal(
        one.predict(data[0], verbose=0), other.predict(data[0], verbose=0)
    )
    other.optimizer.build(other.trainable_variables)
    other.optimizer.set_weights([v.numpy() for v in one.optimizer.variables])
    for model in (one, other):
        model.fit(*data, batch_size=8, shuffle=False, verbose=0)
    for this, that in zip(state_of(one), state_of(other), strict=True):
        np.testing.assert_array_equal(this, that)


@pytest.mark.parametrize("shapes", [[(19, 4), (4, 1), (1,)], [(20, 4), (4, 1)]], ids=str)
def test_weights_that_do_not_fit(data, model_of, shapes):
    model = model_of(me.optimizers.Adam(0.1))
    before = model.get_weights()
    with pytest.raises(ValueError, match=r"shape|weights"):
        model.set_weights([np.zeros(shape) for shape in shapes])
    for this, that in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(this, that)


def test_files_need_no_custom_objects(tmp_path, data, model_of):
    """Importing the package is enough."""
    model = model_of(
        me.optimizers.Split(
            keras.optimizers.Adam(0.1),
            me.optimizers.RowwiseAdagrad(keras.optimizers.schedules.ExponentialDecay(0.1, 9, 0.5)),
        )
    )
    model.fit(*data, batch_size=8, verbose=0)
    path = str(tmp_path / "model.keras")
    model.save(path)
    predicted = fresh.last_line_of(
        f"""
        import json
        import numpy as np
        from tensorflow import keras
        import merlin_embeddings

        model = keras.models.load_model({path!r})
        assert type(model.optimizer).__name__ == "Split"
        ids = np.array({data[0].tolist()})
        print(json.dumps(model.predict(ids, verbose=0).ravel().tolist()))
        """
    )
    np.testing.assert_allclose(
        predicted, model.predict(data[0], verbose=0).ravel(), rtol=1e-5, atol=1e-6
    )


def test_structure_goes_through_json(data, model_of):
    model = model_of(me.optimizers.Adam(0.1))
    again = keras.models.model_from_json(json.dumps(json.loads(model.to_json())))
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(again(data[0]), model(data[0]))
    assert isinstance(again.get_layer("table"), me.layers.Embedding)
