"""`EmbeddingsBlock`: the vectors of tables by themselves, by one lookup op for all of them."""

import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags
from tensorflow import keras

import merlin_embeddings as me
import merlin_embeddings.merlin as mem
from merlin_embeddings.merlin.block import EmbeddingsBlock


def column(name, count, *tags, domain=None):
    properties = {"domain": {"min": 0, "max": count - 1, "name": domain or name}}
    return ColumnSchema(name, [Tags.CATEGORICAL, *tags], properties, np.int64)


SCHEMA = Schema(
    [
        column("item", 9, Tags.ITEM),
        column("viewed", 9, Tags.USER, domain="item"),
        column("city", 5, Tags.USER),
        column("shop", 4, Tags.ITEM),
    ]
)
VIEWED = [[3, 8], [], [2, 2, 5]]
BATCH = {
    "item": tf.constant([[1], [8], [1]]),
    "viewed": tf.ragged.constant([[[i] for i in bag] for bag in VIEWED], inner_shape=(1,)),
    "city": tf.constant([[4], [0], [4]]),
    "shop": tf.constant([[3], [3], [0]]),
}


def rows_of(block):
    return {name: t.table.embeddings.numpy() for name, t in block.parallel_dict.items()}


def expected_of(rows, name):
    """A column's vectors, in numpy; means of the rows of lists."""
    if name == "viewed":
        bags = [rows["item"][bag] for bag in VIEWED]
        return np.stack([bag.mean(0) if len(bag) else np.zeros(bag.shape[1]) for bag in bags])
    return rows[name][np.ravel(BATCH[name])]


def ops_of(function, *arguments):
    graph = tf.function(function).get_concrete_function(*arguments).graph
    return [operation.type for operation in graph.get_operations()]


def check(block, batch=BATCH):
    found = block(batch)
    rows = rows_of(block)
    expected = {name: expected_of(rows, name) for name in found}
    assert list(found) == [name for name in ("item", "viewed", "city", "shop") if name in batch]
    for name, vectors in found.items():
        np.testing.assert_allclose(vectors, expected[name], rtol=1e-6)


def test_one_lookup_for_all_tables():
    block = mem.Embeddings(SCHEMA, dim={"item": 6, "city": 3, "shop": 3})
    check(block)
    assert isinstance(block, EmbeddingsBlock)
    assert ops_of(block, BATCH).count("Merlin>Lookup") == 1
    apart = mm.Embeddings(SCHEMA, dim=3, table_cls=mem.EmbeddingTable)
    apart(BATCH)
    assert ops_of(apart, BATCH).count("Merlin>Lookup") == 3


@pytest.mark.parametrize(
    "arguments, lookups",
    [
        ({"l2_batch_regularization_factor": {"city": 0.5}}, 2),
        ({"activity_regularizer": {"city": "l2"}}, 2),
        ({"embeddings_regularizer": {"city": keras.regularizers.L2(0.5)}}, 2),
        ({"sequence_combiner": {"item": mm.SequenceAggregator("mean")}}, 2),
        ({"trainable": {"city": False}}, 2),  # a frozen table costs no gradient
        ({"dtype": {"city": "mixed_float16"}}, 1),
        ({"padding_id": {"city": 4}, "ids": {"shop": me.ids.Modulo(4)}}, 1),
    ],
)
def test_what_tables_do_by_themselves(arguments, lookups):
    """Losses, gradients, dtypes: as of the tables one by one."""

    def step(block):
        with tf.GradientTape() as tape:
            vectors = block(BATCH, training=True)
            loss = sum(tf.reduce_sum(tf.cast(v, tf.float32) ** 2) for v in vectors.values())
            loss += sum(tf.cast(each, tf.float32) for each in block.losses)
        gradients = tape.gradient(loss, block.trainable_weights)
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return {**vectors, **dict(enumerate(dense)), "losses": [*map(float, block.losses)]}

    arguments = {"sequence_combiner": "mean", **arguments}
    together = mem.Embeddings(SCHEMA, dim=3, **arguments)
    apart = mm.Embeddings(SCHEMA, dim=3, table_cls=mem.EmbeddingTable, **arguments)
    together(BATCH), apart(BATCH)
    together.set_weights(apart.get_weights())
    one, other = step(together), step(apart)
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert tf.convert_to_tensor(value).dtype == tf.convert_to_tensor(other[name]).dtype
        np.testing.assert_array_equal(value, other[name])
    assert ops_of(together, BATCH).count("Merlin>Lookup") == lookups


def test_masks():
    schema = SCHEMA.select_by_name(["city", "shop"])
    block = mem.Embeddings(schema, dim=3, mask_zero={"city": True}, sequence_combiner=None)
    symbols = {name: keras.Input((2,), dtype="int64", name=name) for name in ("city", "shop")}
    found = block(symbols)
    assert found["city"]._keras_mask is not None
    assert getattr(found["shop"], "_keras_mask", None) is None


@pytest.mark.parametrize("lost", ["city", "viewed"])  # a table's only column, one of two
@pytest.mark.parametrize("graph", [False, True])
def test_columns_that_the_batch_hasnt(lost, graph):
    block = mem.Embeddings(SCHEMA, dim=3)
    block(BATCH)
    fewer = {name: ids for name, ids in BATCH.items() if name != lost}
    with pytest.raises(ValueError, match=rf"(?s)the batch has no columns \['{lost}'\], with which"):
        (tf.function(block) if graph else block)(fewer)
    # A column that never was there is no part of the model, as in merlin-models, which doesn't say.
    pruned = mem.Embeddings(SCHEMA, dim=3)
    with pytest.warns(UserWarning, match=rf"no columns \['{lost}'\], so that the model is made w"):
        check(pruned, fewer)
    assert ("city" in pruned.parallel_dict) == (lost != "city")
    check(pruned, {**fewer, "unknown": tf.constant([[1], [2], [3]])})


def test_ids_that_the_schema_doesnt_know():
    block = mem.Embeddings(SCHEMA, dim=3)
    wrong = {**BATCH, "shop": tf.constant([[3], [4], [0]])}
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"table 'shop', feature 'shop' .* 4"):
        block(wrong)


def test_a_batch_without_any_column():
    with pytest.raises(ValueError, match=r"none of the columns \['item', .* it has \['Item'\]"):
        mem.Embeddings(SCHEMA, dim=3)({"Item": BATCH["item"]})


def test_ids_without_names():
    with pytest.raises(ValueError, match=r"takes a dict of ids by column, \['item', 'viewed'"):
        mem.Embeddings(SCHEMA, dim=3)(BATCH["city"])


def test_lists_as_values_and_offsets():
    viewed = BATCH["viewed"]
    raw = {**BATCH, "viewed__values": viewed.flat_values, "viewed__offsets": viewed.row_splits}
    del raw["viewed"]
    with pytest.raises(ValueError, match=r"lists of column 'viewed' as values.*PrepareFeatures"):
        mem.Embeddings(SCHEMA, dim=3)(raw)
    lists = Schema(
        [each.with_shape((None, None)) if each.name == "viewed" else each for each in SCHEMA]
    )
    block = mem.Embeddings(lists, 3, sequence_combiner="mean", pre=mm.PrepareFeatures(lists))
    np.testing.assert_allclose(block(raw)["viewed"], expected_of(rows_of(block), "viewed"), 1e-6)


def test_one_table_of_several_columns(tmp_path):
    """merlin-models gives such a table, alone in its block, the column of its own name only."""
    schema = SCHEMA.select_by_name(["item", "viewed"])
    batch = {name: BATCH[name] for name in ("item", "viewed")}
    check(mem.Embeddings(schema, dim=3, sequence_combiner="mean"), batch)
    apart = mm.Embeddings(schema, dim=3, table_cls=mem.EmbeddingTable, sequence_combiner="mean")
    with pytest.warns(UserWarning, match=r"'item', and \['viewed'\] have no vectors.*mem\.Embedd"):
        assert list(apart(batch)) == ["item"]
    symmetric = Schema([column("item", 9), column("last", 9, domain="item")])
    tables = mem.Embeddings(symmetric, dim=3)
    model = mm.Model(mm.InputBlockV2(symmetric, categorical=tables), mm.RegressionOutput("score"))
    batch = {"item": BATCH["item"], "last": BATCH["item"][::-1]}
    model.compile(me.optimizers.Adagrad(0.1), "mse")
    model(batch)
    start = rows_of(tables)["item"]
    model.fit(tf.data.Dataset.from_tensors((batch, tf.ones([3, 1]))), verbose=0)
    moved = np.any(rows_of(tables)["item"] != start, axis=1)
    assert np.flatnonzero(moved).tolist() == [1, 8]
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(mm.Model.load(tmp_path / "model")(batch), model(batch))


def test_trainable_is_switched_after_the_block_was_built():
    block = mem.Embeddings(SCHEMA, dim=3)
    block(BATCH)

    def gradients():
        with tf.GradientTape() as tape:
            vectors = block(BATCH, training=True)
            loss = sum(tf.reduce_sum(tf.square(each)) for each in vectors.values())
        weights = {weight.name: weight for weight in block.trainable_weights}
        found = tape.gradient(loss, weights)
        return {name: tf.convert_to_tensor(each).numpy() for name, each in found.items()}

    before = gradients()
    for frozen in (block["city"], block["city"].table):
        frozen.trainable = False
        check(block)
        rest = gradients()
        assert len(rest) == 2 and not any("city" in name for name in rest)
        for name, gradient in rest.items():
            np.testing.assert_array_equal(gradient, before[name])
        frozen.trainable = True
    after = gradients()
    assert after.keys() == before.keys()
    for name, gradient in after.items():
        np.testing.assert_array_equal(gradient, before[name])


def test_a_table_called_as_its_only_column():
    block = mem.Embeddings(SCHEMA.select_by_name(["city"]), dim=3)
    found = block({"city": BATCH["city"]})
    np.testing.assert_array_equal(found["city"], rows_of(block)["city"][[4, 0, 4]])


def test_parts_of_it_by_tag():
    block = mem.Embeddings(SCHEMA, dim=3)
    block(BATCH)
    items = block.select_by_tag(Tags.ITEM)
    assert type(items) is EmbeddingsBlock
    assert items["item"].table is block["item"].table
    found = items({name: BATCH[name] for name in ("item", "shop")})
    np.testing.assert_array_equal(found["shop"], rows_of(block)["shop"][[3, 3, 0]])
    assert block.select_by_tag(Tags.CONTEXT) is None


@pytest.mark.parametrize("aggregation", ["concat", None])
def test_config_there_and_back(aggregation):
    block = mem.Embeddings(SCHEMA, dim=3, aggregation=aggregation, block_name="tables")
    block(BATCH)
    again = EmbeddingsBlock.from_config(block.get_config())
    again(BATCH)
    again.set_weights(block.get_weights())
    assert again.name == "tables"
    one, other = again(BATCH), block(BATCH)
    for this, that in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
        np.testing.assert_array_equal(this, that)


def test_a_model_trains_as_with_tables_apart_and_is_loaded(tmp_path, executed_ops):
    def model_with(block):
        return mm.Model(block, mm.MLPBlock([1]), mm.RegressionOutput("score"))

    schema = SCHEMA.excluding_by_name(["viewed"])
    batch = {name: ids for name, ids in BATCH.items() if name != "viewed"}
    data = tf.data.Dataset.from_tensors((batch, tf.ones([3, 1]))).repeat(3)
    together = model_with(mem.Embeddings(schema, dim=3, aggregation="concat"))
    apart = model_with(
        mm.Embeddings(schema, dim=3, aggregation="concat", table_cls=mem.EmbeddingTable)
    )
    together(batch), apart(batch)
    apart.set_weights(together.get_weights())
    for model in (together, apart):
        model.compile(me.optimizers.Adagrad(0.1))
    with executed_ops() as ops:
        losses = together.fit(data, verbose=0).history["loss"]
    assert {"Merlin>Lookup", "Merlin>Update"} <= ops and "Merlin>Values" not in ops
    np.testing.assert_allclose(losses, apart.fit(data, verbose=0).history["loss"], rtol=1e-6)
    together.save(tmp_path / "model")
    loaded = mm.Model.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded(batch), together(batch))
    [block] = [layer for layer in loaded.blocks if isinstance(layer, EmbeddingsBlock)]
    assert all(type(table) is mem.EmbeddingTable for table in block.parallel_dict.values())
    for model in (together, loaded):
        model.fit(data, verbose=0)
    for this, that in zip(loaded.get_weights(), together.get_weights(), strict=True):
        np.testing.assert_allclose(this, that, rtol=1e-6)
