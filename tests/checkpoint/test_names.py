"""Names that are taken, links, and two who write one checkpoint."""

import dataclasses
import os

import pytest

from merlin_embeddings import checkpoint
from merlin_embeddings.checkpoint import Checkpoint, Writer, disk
from tests.checkpoint import made

INFO = made.id_info()
CHANGED = dataclasses.replace(INFO, full=False)


def test_only_checkpoints_are_replaced(tmp_path):
    (tmp_path / "work" / "tables").mkdir(parents=True)
    (tmp_path / "work" / "model.py").write_text("precious")
    (tmp_path / "file").write_text("precious")
    made.write_ids(tmp_path / "a", {}, INFO)
    (tmp_path / "newest").symlink_to("a")
    for name, message in {
        "work": "that isn't a checkpoint",
        "file": "that isn't a checkpoint",
        "newest": "this is a link",
    }.items():
        with pytest.raises(FileExistsError, match=message) as raised:
            made.write_ids(tmp_path / name, {}, INFO, overwrite=True)
        assert raised.value.filename == str(tmp_path / name)
    # What takes the name while rows are written isn't replaced, either.
    with Writer(tmp_path / "b", overwrite=True):
        (tmp_path / "b").write_text("precious")
    with pytest.raises(FileExistsError, match="that isn't a checkpoint"):
        checkpoint.commit(tmp_path / "b", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "file", "newest", "work"]
    assert Checkpoint(tmp_path / "newest").tables
    # A folder that is empty, or what is left of a checkpoint that was being removed.
    (tmp_path / "empty").mkdir()
    (tmp_path / "a" / "manifest.json").unlink()
    for name in ("empty", "a"):
        made.write_ids(tmp_path / name, {}, INFO, overwrite=True)
        assert list(Checkpoint(tmp_path / name).tables) == ["ids"]


@pytest.mark.parametrize("path", ["a", "b", "there/../a", "linked/a"])
def test_what_others_go_on_from_is_not_replaced(tmp_path, path):
    made.write_ids(tmp_path / "a", {}, INFO)
    made.write_ids(tmp_path / "b", {}, CHANGED, base=tmp_path / "a")
    made.write_ids(tmp_path / "c", {}, CHANGED, base=tmp_path / "b")
    (tmp_path / "there").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="can't go on from itself"):
        made.write_ids(tmp_path / path, {}, CHANGED, base=tmp_path / "c", overwrite=True)
    with pytest.raises(ValueError, match="can't go on from itself"):
        checkpoint.compact(tmp_path / "c", tmp_path / path, overwrite=True)
    assert len(Checkpoint(tmp_path / "c").chain) == 3
    assert not list(tmp_path.glob(".*"))


def test_bases_are_found_by_way_of_links(tmp_path):
    (tmp_path / "deep" / "run").mkdir(parents=True)
    (tmp_path / "run").symlink_to(tmp_path / "deep" / "run")
    made.write_ids(tmp_path / "a", {}, INFO)
    made.write_ids(tmp_path / "run" / "b", {}, CHANGED, base=tmp_path / "a")
    (tmp_path / "deep" / "newest").symlink_to("run/b")
    for path in ("run/b", "deep/run/b", "deep/newest"):
        assert [one.path.name for one in Checkpoint(tmp_path / path).chain][1:] == ["a"]


def test_another_writer_between_the_end_of_writing_and_the_commit(tmp_path):
    made.write_ids(tmp_path / "a", {}, INFO)
    before = Checkpoint(tmp_path / "a").id
    with Writer(tmp_path / "a", overwrite=True) as writer:
        writer.arrays("mine", {})
    # The other one has the part, and has removed nothing yet.
    lock = disk.lock(disk.partial(tmp_path / "a") / "part-00000.lock")
    with pytest.raises(FileExistsError, match="part 0 is being written by another writer"):
        checkpoint.commit(tmp_path / "a", overwrite=True)
    assert Checkpoint(tmp_path / "a").id == before
    os.close(lock)
    checkpoint.commit(tmp_path / "a", overwrite=True)
    assert Checkpoint(tmp_path / "a").groups == ["mine"]
    assert os.listdir(tmp_path) == ["a"]


def test_a_lock_of_a_file_that_is_gone_is_none(tmp_path, monkeypatch):
    """Whoever held it has given the folder its name meanwhile."""
    path, flock, gone = tmp_path / "folder" / "lock", disk.fcntl.flock, []

    def slow(descriptor, flags):
        if not gone:
            gone.append(path.parent.rename(tmp_path / "committed"))
        flock(descriptor, flags)

    monkeypatch.setattr(disk.fcntl, "flock", slow)
    lock = disk.lock(path)
    assert os.path.samestat(os.fstat(lock), os.stat(path)) and gone
    assert disk.lock(path) is None
    os.close(lock)
