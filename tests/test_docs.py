"""Programs in the docs run as they stand."""

import re
import shlex
from pathlib import Path

import numpy as np
import tensorflow as tf

import merlin_embeddings as me
from merlin_embeddings import cli
from merlin_embeddings.checkpoint import foreign
from tests.documented import names_of
from tests.ids.xxh64 import row_of


def test_users_from_items():
    names = names_of("docs/users-from-items.md")
    assert len(names["model"].history.history["loss"]) == 2
    assert names["model"].count_params() == 1000 * 16 + 1  # the table once, and a half-life
    seen = names["batch"][0][:3]
    _, ids = names["serving"](seen)
    assert ids.shape == (3, 10)
    assert not any(set(a) & {0, *b} for a, b in zip(ids.numpy(), seen, strict=True))


def test_from_nvtabular(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = names_of("docs/from-nvtabular.md")
    tables = {f.table.name: f.table.rows for f in names["features"].values()}
    # Padding, null, unknown, and 500 users, 90 items, 3 cities.
    assert tables == {"user": 503, "city": 6, "viewed_item": 93}
    assert names["model"].history.history["AUC"][-1] > 0.9
    scores = names["scores"]
    assert scores.shape == (4000, 1)
    np.testing.assert_array_equal(scores, names["model"].predict(names["batches"], verbose=0))
    served = tf.saved_model.load("served")
    request, _ = next(iter(names["batches"]))
    request["viewed"] = request["viewed"].to_tensor(0)
    request = {
        name: tf.cast(tensor, names["inputs"][name].dtype) for name, tensor in request.items()
    }
    np.testing.assert_allclose(served.serve(request), scores[:512], rtol=1e-4, atol=1e-5)


def test_checkpoints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = names_of("docs/checkpoints.md")
    loaded, saved = names["loaded"], names["saved"]
    assert (loaded.step, loaded.metadata, saved.full) == (8, {"run": "first"}, True)
    assert loaded.tables == {"item": "rows", "user": "rows and the id map's state"}
    item, again = (names[name].layers[2].tables["item"].variable for name in ("model", "again"))
    np.testing.assert_array_equal(item, again)
    assert names["history"].epoch == [2]
    assert names["second"].rows == {"item": 48, "user": 48} and not names["second"].full
    assert names["served"] == {"item": 48, "user": 48}
    whole = me.checkpoint.Checkpoint("whole")
    assert whole.base is None and len(me.checkpoint.Checkpoint("more").chain) == 2
    vectors = names["moving"](tf.constant([5, 105, 7]))
    np.testing.assert_array_equal(vectors, tf.gather(names["hashed"].embeddings, [5, 5, 7]))
    assert (tmp_path / "model.keras").stat().st_size < 100_000
    opened, trained = (names[name].get_weights() for name in ("opened", "trained"))
    np.testing.assert_equal(opened, trained)


def test_ids(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = names_of("docs/ids.md")
    assert names["by_id"].size() == 2 and sorted(names["listed"].tolist()) == [-9, 8, 10]
    # The rows of "Rome" and "Oslo" in tests/ids/xxh64.py's words.
    rome, oslo = (
        row_of(int(me.bags.hash_strings(tf.constant(city))), 1000) for city in ("Rome", "Oslo")
    )
    assert [batch.tolist() for batch in names["mapped"]] == [[rome, oslo, rome]]
    assert names["cap"].ids.keys.tolist() == [7, 3]
    assert names["split"].ids.keys.tolist() == [7, 3]  # 5 of 7 clicks
    np.testing.assert_array_equal(names["items"].embeddings[1:], names["found"][:2])
    np.testing.assert_array_equal(names["found"][1], names["found"][2])
    assert names["model"](tf.constant(["Rome"])).shape == (1, 8)
    assert names["vectors"].shape == (2, 8)
    assert names["visited"].count_params() == 500 * 8
    assert names["logs"]["item_hit_rate"][1] > 0.5 and (tmp_path / "scores.svg").exists()
    assert names["glance"].top[0, 0] == 1  # the most frequent of the Zipf law
    a, b, again = names["new_rows"].numpy().tolist()
    assert a == again != b and sorted(names["changes"].rows.numpy()) == sorted([a, b])
    assert names["statistics"] == {
        "looked_up": 3,
        "hits": 0,
        "inserted": 2,
        "evicted": 0,
        "not_admitted": 0,
        "overflowed": 0,
        "used": 2,
        "capacity": 1008,
        "steps": 1,
    }
    assert sorted(names["state"]["ids"].tolist()) == [-7, 7]


def test_other_formats(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[1] / "docs" / "other-formats.md").read_text()
    monkeypatch.chdir(tmp_path)
    names = names_of("docs/other-formats.md")
    vectors = np.load("items.npy")
    np.testing.assert_array_equal(names["layer"].table.variable, vectors)
    np.testing.assert_array_equal(names["rows"].vectors, vectors[:100])
    for command in re.findall(r"^merlin-embeddings (.*)$", page, re.MULTILINE):
        assert cli.main(shlex.split(command)) == 0, command
    shown = capsys.readouterr().out
    assert "table 'items': 4 files" in shown and "no difference" in shown
    told = re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)
    assert told == list(foreign.FORMATS)
