"""`inspect`, against what was looked up."""

import io

import numpy as np
import pytest
import tensorflow as tf

import merlin_embeddings as me


@pytest.fixture
def item():
    layer = me.layers.Embedding(
        None, 4, ids=me.ids.ManagedCollision(32, "lfu", admit_after=2), name="item"
    )
    layer(tf.constant([7, 7, 7, 8, 8, 9, -1, -1]), training=True)
    layer(tf.constant([7, 5]), training=True)
    return layer


def test_what_a_moving_table_tells(item):
    found = me.inspect(item)
    # 9 and 5 were seen once.
    assert found.top.tolist() == [[7, 4], [-1, 2], [8, 2]]
    assert found.scores.tolist() == [4, 2, 2]
    assert found.capacity == 32
    assert found.counted == {
        "found": 1, "not admitted": 2, "overflowed": 0, "ids admitted": 3, "ids evicted": 0,
    }  # fmt: skip
    assert found.facts["ids with rows"] == "3 of 32 (9.4%)"
    assert found.facts["of these found"] == "10.0%"
    assert found.facts["without a row"] == "20.0% not admitted, 0.0% overflowed"
    assert found.facts["slots of optimizers"] == "none"
    text = str(found)
    assert text.startswith("table 'embeddings'\n") and "7 (4), -1 (2), 8 (2)" in text


def test_a_table_is_as_good_as_its_layer(item):
    assert me.inspect(item.table).facts == me.inspect(item).facts


def test_an_empty_table_tells_as_much():
    layer = me.layers.Embedding(None, 4, ids=me.ids.ManagedCollision(32))
    layer.build()
    found = me.inspect(layer)
    assert found.facts["highest scores"] == "none" and len(found.scores) == 0
    assert found.picture() is not None


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_picture(item, tmp_path, kind):
    path = tmp_path / f"scores.{kind}"
    figure = me.inspect(item).picture(path)
    content = path.read_bytes()
    if kind == "png":
        assert tf.io.decode_png(content).shape[0] > 100
    else:
        assert b"<svg" in content
    left, right = figure.axes
    np.testing.assert_array_equal(left.lines[0].get_ydata(), [4, 2, 2])
    assert [bar.get_width() for bar in right.patches] == [0, 3, 0, 2, 1]


def test_notebooks_show_the_picture(item):
    assert "<svg" in me.inspect(item)._repr_svg_()


def test_rich_makes_a_table(item):
    from rich.console import Console

    console = Console(record=True, width=100, file=io.StringIO())
    console.print(me.inspect(item))
    assert "3 of 32 (9.4%)" in console.export_text()


def test_a_table_whose_rows_stay():
    layer = me.layers.Embedding(10, 4, name="fixed")
    layer.build()
    found = me.inspect(layer)
    assert found.facts["rows"] == "10 of 4 float32, 160 B" and found.facts["ids"] == "row = id"
    assert found._repr_svg_() is None
    with pytest.raises(ValueError, match="rows don't move"):
        found.picture()


def test_several_tables_and_none_are_named():
    tables = [me.FeatureConfig(n, me.TableConfig(n, 4, 2)) for n in ("a", "b")]
    layer = me.layers.Embeddings(tables, name="both")
    with pytest.raises(ValueError, match="'both' has no table, or none yet"):
        me.inspect(layer)
    layer.build()
    with pytest.raises(ValueError, match=r"several tables, both/a, both/b; .*tables\[name\]"):
        me.inspect(layer)
    assert me.inspect(layer.tables["b"]).name == "b"
