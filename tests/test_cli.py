"""`merlin-embeddings`, the commands."""

import json
import subprocess
import sys

import numpy as np
import pytest

from merlin_embeddings import checkpoint, cli
from merlin_embeddings.checkpoint import Checkpoint, SlotInfo, TableInfo, Writer, commit
from merlin_embeddings.tables import Entries

ITEMS = np.arange(40, dtype="float32").reshape(10, 4)


def save(path, change=0.0, rows=10):
    """Table `items` [10, 4] with a slot, table `users` of 3 ids in a capacity of 8."""
    slots = {"accumulator": SlotInfo((), "float32", 0.1)}
    with Writer(path) as writer:
        items = Entries(range(10), ITEMS + change, {"accumulator": np.ones(10, "float32")})
        writer.table(TableInfo("items", 10, 4, slots=slots), [items], 10, range(10))
        ids = {"class": "ManagedCollision", "capacity": 8, "policy": {"class": "LRU"}}
        users = Entries([7, -1, 2**40], np.full((3, 2), 3.0, "float16") * [[0], [1], [2]],
                        scores=np.arange(3))  # fmt: skip
        users = Entries(users.keys, users.vectors.astype("float16"), scores=users.scores)
        info = TableInfo("users", 8, 2, "float16", "id", scores="int64", ids=ids)
        writer.table(info, [users], 3)
        writer.arrays("weights", {"dense/kernel": np.ones((2, 3), "float32")})
    commit(path, step=12)
    return str(path)


def test_inspect_tells_all_of_a_checkpoint(tmp_path, capsys):
    path = save(tmp_path / "one")
    assert cli.main(["inspect", path, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["format"], told["step"], told["groups"]) == (
        "checkpoint",
        12,
        {"weights": [1, 24]},
    )
    items, users = told["tables"]
    lengths = np.linalg.norm(ITEMS, axis=1)
    assert items["norms"] == pytest.approx(
        {"least": lengths.min(), "mean": lengths.mean(), "most": lengths.max(), "bad": 0}
    )
    # Key, vector and slot.
    assert (items["rows"], items["used"], items["bytes"]) == (10, 10, 10 * (8 + 16 + 4))
    assert (users["keys"], users["rows"], users["used"], users["files"]) == ("id", 8, 3, 1)
    assert users["norms"]["most"] == pytest.approx(6 * 2**0.5)
    assert users["ids"] == "ManagedCollision(capacity=8, policy=LRU())"
    assert cli.main(["inspect", path, "--quick"]) == 0
    shown = capsys.readouterr().out
    for word in ("step 12", "items", "accumulator []", "37.5%", "dense", "280 B", "weights"):
        assert word in shown or word == "dense"
    assert "norm" not in shown


def test_inspect_and_verify_other_formats(tmp_path, capsys):
    bad = ITEMS.copy()
    bad[3, 1] = np.nan
    np.save(tmp_path / "items.npy", bad)
    assert cli.main(["inspect", str(tmp_path / "items.npy"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["norms"]["bad"] == 1
    assert cli.main(["verify", str(tmp_path / "items.npy")]) == 1
    assert "table 'items': 1 vectors have NaN or infinity" in capsys.readouterr().out
    np.save(tmp_path / "items.npy", ITEMS)
    assert cli.main(["verify", str(tmp_path / "items.npy"), "--from", "numpy"]) == 0
    assert "table 'items': 10 rows, nothing wrong" in capsys.readouterr().out


def test_verify_finds_a_flipped_bit(tmp_path, capsys):
    path = save(tmp_path / "one")
    assert cli.main(["verify", path]) == 0
    assert "nothing wrong" in capsys.readouterr().out
    file = tmp_path / "one" / Checkpoint(path).shards("items")[0].file.file
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    assert cli.main(["verify", path]) == 1
    assert file.name in capsys.readouterr().out


def test_diff_has_the_exit_codes_of_diff(tmp_path, capsys):
    one, same, other = (
        save(tmp_path / name, change) for name, change in (("a", 0), ("b", 0), ("c", 0.5))
    )
    assert cli.main(["diff", one, same]) == 0
    assert "no difference" in capsys.readouterr().out
    assert cli.main(["diff", one, other]) == 1
    shown = capsys.readouterr().out
    assert "items" in shown and "vectors 0.5" in shown and "users" not in shown
    assert cli.main(["diff", one, str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err


def test_reshard(tmp_path, capsys):
    path = save(tmp_path / "one")
    assert cli.main(["reshard", path, str(tmp_path / "three"), "--shards", "3"]) == 0
    assert "table 'items': 3 files" in capsys.readouterr().out
    assert not checkpoint.diff(path, tmp_path / "three")
    assert cli.main(["reshard", path, str(tmp_path / "three"), "--shards", "2"]) == 2
    assert "three" in capsys.readouterr().err
    command = ["reshard", path, str(tmp_path / "three"), "--shards", "2", "--overwrite"]
    assert cli.main(command) == 0
    assert len(Checkpoint(tmp_path / "three").shards("items")) == 2


def test_convert(tmp_path, capsys):
    path, out = save(tmp_path / "one"), str(tmp_path / "hps")
    assert cli.main(["convert", path, out, "--to", "hps"]) == 2
    assert "slot 'accumulator'" in capsys.readouterr().err
    assert cli.main(["convert", path, out, "--to", "hps", "--lossy"]) == 0
    shown = capsys.readouterr().out
    assert "left out: table 'items': slot 'accumulator'" in shown
    assert "table 'users': 3 rows of 2" in shown
    vectors = np.fromfile(tmp_path / "hps" / "items" / "emb_vector", "<f4")
    np.testing.assert_array_equal(vectors.reshape(10, 4), ITEMS)
    # And back, the table that was asked for.
    command = ["convert", out, str(tmp_path / "back"), "--from", "hps", "--to", "checkpoint"]
    assert cli.main([*command, "--table", "users"]) == 0
    (info,) = Checkpoint(tmp_path / "back").tables.values()
    assert (info.name, info.key, info.rows, info.dtype) == ("users", "id", 3, "float32")
    assert cli.main(["convert", path, str(tmp_path / "x"), "--to", "checkpoint"]) == 2
    assert "use reshard" in capsys.readouterr().err
    assert cli.main(["convert", out, str(tmp_path / "x"), "--to", "sok", "--table", "no"]) == 2
    assert "no table 'no'" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["paint"], ["inspect"], ["convert", "a", "b"]])
def test_wrong_commands(command, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(command)
    assert left.value.code == 2
    assert "usage: merlin-embeddings" in capsys.readouterr().err


def test_as_a_program(tmp_path):
    path = save(tmp_path / "one")
    command = [sys.executable, "-m", "merlin_embeddings.cli", "inspect"]
    ran = subprocess.run([*command, path], capture_output=True, text=True)
    assert (ran.returncode, "users" in ran.stdout) == (0, True), ran.stderr
    ran = subprocess.run([*command, path + "-no"], capture_output=True, text=True)
    last = ran.stderr.strip().splitlines()[-1]
    assert (ran.returncode, ran.stdout) == (2, "")
    assert last == f"merlin-embeddings inspect: {path}-no: no such file or folder"
