"""A process that is killed while it saves, again and again; started by test_kill.py.

Forks for each kill, so that the package is imported once. Prints one line of JSON: what each of
the calls in its argument returned.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from merlin_embeddings import checkpoint
from merlin_embeddings.checkpoint import disk
from tests.checkpoint import made
from tests.checkpoint.conftest import FAST

INFO = made.id_info()


def rows_of_version(version):
    rng = np.random.default_rng(version)
    return {key: made.row_of(rng) for key in range(40)}


def save(path, version, overwrite):
    made.write_ids(path, rows_of_version(version), INFO, overwrite=overwrite, step=version)


def version_at(path):
    """Which version is there in full, or None for nothing."""
    try:
        found = checkpoint.Checkpoint(path)
    except FileNotFoundError:
        return None
    assert made.rows_of(found.entries("ids"), INFO) == rows_of_version(found.step)
    assert not checkpoint.verify(path).problems
    return found.step


class Boundaries:
    """Kills this process at the n-th moment before or after something reaches the disk."""

    def __init__(self, number, exchange):
        self.number, self.exchange, self.met = number, exchange, 0

    def meet(self):
        if self.met == self.number:
            os.kill(os.getpid(), signal.SIGKILL)
        self.met += 1

    def around(self, call):
        def called(*arguments, **options):
            self.meet()
            result = call(*arguments, **options)
            self.meet()
            return result

        return called

    def install(self):
        os.fsync, os.rename = self.around(os.fsync), self.around(os.rename)
        rename = self.around(disk._renameat2)
        disk._renameat2 = rename if self.exchange else lambda *_: False
        disk.shutil.rmtree = self.around(disk.shutil.rmtree)


def in_child(work):
    """Runs work in a fork; whether it was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def at_every_boundary(folder, overwrite, exchange):
    seen = []
    for number in range(1000):
        path = folder / f"{number}"
        if overwrite:
            save(path, 1, False)

        def work(path=path, number=number):
            Boundaries(number, exchange).install()
            save(path, 2, overwrite)

        killed = in_child(work)
        seen.append(version_at(path))
        if not killed:
            return seen
        # The next save finds what was left, and leaves nothing of it.
        save(path, 3, path.exists() or disk.present(path) != path)
        assert version_at(path) == 3
        assert [found.name for found in folder.glob(f".{number}.*")] == []
    raise AssertionError("it never ended")


def at_random(folder, times):
    rng, seen, path = random.Random(0), [], folder / "a"
    save(path, 0, False)
    for version in range(1, times):
        child = os.fork()
        if child == 0:
            save(path, version, True)
            os._exit(0)
        time.sleep(rng.random() * 0.02)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        seen.append(version_at(path))
    return seen


def of_many(folder, writers, readers):
    """Writers and readers that are processes of their own."""
    path, info = folder / "a", made.row_info(1000)
    rows = made.without_scores({k: made.row_of(np.random.default_rng(k)) for k in range(1000)})

    def write(part):
        with checkpoint.Writer(path, part, writers) as writer:
            keys = range(1000 * part // writers, 1000 * (part + 1) // writers)
            mine = {key: rows[key] for key in keys}
            writer.table(info, made.entries_of(info, mine), len(keys), keys=keys)

    def read(part):
        keys = range(1000 * part // readers, 1000 * (part + 1) // readers)
        found = checkpoint.Checkpoint(path).entries(info.name, keys=keys)
        assert made.rows_of(found, info) == {key: rows[key] for key in keys}

    for work, count in ((write, writers), (read, readers)):
        children = []
        for part in range(count):
            child = os.fork()
            if child == 0:
                try:
                    work(part)
                except BaseException as error:
                    print(repr(error), file=sys.stderr)
                    os._exit(1)
                os._exit(0)
            children.append(child)
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        if work is write:
            checkpoint.commit(path, writers)
    return len(checkpoint.Checkpoint(path).shards(info.name))


if __name__ == "__main__":
    found = {}
    for name, (what, *arguments) in json.loads(sys.argv[1]).items():
        with tempfile.TemporaryDirectory(dir=FAST) as folder:
            found[name] = globals()[what](Path(folder), *arguments)
    print(json.dumps(found))
