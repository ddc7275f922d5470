"""The CUDA twin of the id table beside the core: the same arrays, bit by bit, over random streams.

`make cuda` builds the library of both. The part that needs a GPU is skipped elsewhere; the core's
half of the calls runs everywhere, so that the structs here are the structs there.
"""

import ctypes
import pathlib

import numpy as np
import pytest

LIBRARY = pathlib.Path(__file__).parents[2] / "build" / "cuda" / "libmerlin_cuda.so"
POLICIES = ["lru", "lfu", "decayed_lfu", "epoch_lru", "epoch_lfu", "ttl", "custom"]

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="not built: make cuda")


class Shape(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("slots", "shards", "buckets", "initial", "filter_lines", "max_rows")
    ]


ARRAYS = ("tags", "keys", "scores", "pins", "rows", "taken", "filter", "meters")


class Table(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_void_p) for name in ARRAYS), ("shape", Shape)]


class Policy(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int32),
        ("half_life", ctypes.c_int64),
        ("ttl", ctypes.c_int64),
        ("admit_after", ctypes.c_int64),
        ("admit_probability", ctypes.c_double),
        ("contest", ctypes.c_bool),
        ("open_routes", ctypes.c_int64),
        ("oov_rows", ctypes.c_int64),
        ("evict", ctypes.c_bool),
    ]


class Ids(ctypes.Structure):
    _fields_ = [
        ("ids", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
        ("scores", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("padded", ctypes.c_bool),
        ("padding", ctypes.c_int64),
        ("rows", ctypes.c_void_p),
    ]


@pytest.fixture(scope="module")
def library():
    loaded = ctypes.CDLL(str(LIBRARY))
    loaded.merlin_cuda_id_workspace.restype = ctypes.c_int64
    loaded.merlin_cuda_id_workspace.argtypes = [ctypes.c_int64]
    return loaded


@pytest.fixture(scope="module")
def runtime():
    found = sorted(LIBRARY.parents[2].glob(".venv-cuda/lib/python3*/site-packages/nvidia/*/lib"))
    try:
        loaded = ctypes.CDLL(
            str(next(found[0].glob("libcudart.so.*"))) if found else "libcudart.so"
        )
    except OSError:
        pytest.skip("no CUDA runtime")
    count = ctypes.c_int()
    if loaded.cudaGetDeviceCount(ctypes.byref(count)) != 0 or count.value == 0:
        pytest.skip("no GPU on this machine")
    return loaded


def new_arrays(shape, dynamic):
    return {
        "tags": np.zeros(shape.slots, np.uint8),
        "keys": np.zeros(shape.slots, np.int64),
        "scores": np.zeros(shape.slots, np.uint32),
        "pins": np.zeros(shape.slots, np.uint16),
        "rows": np.zeros(shape.slots if dynamic else 0, np.int32),
        "taken": np.zeros(-(-shape.max_rows // 64) if dynamic else 0, np.int64),
        "filter": np.zeros(shape.shards * shape.filter_lines * 64, np.uint8),
        "meters": np.zeros(14 + shape.shards, np.int64),
    }


class Host:
    """The core, on numpy arrays."""

    def __init__(self, library, shape, policy, dynamic):
        self.library, self.policy = library, policy
        self.arrays = new_arrays(shape, dynamic)
        pointers = [a.ctypes.data if a.size else None for a in self.arrays.values()]
        self.table = Table(*pointers, shape)

    def assign(self, ids, counts, scores):
        rows = np.full(ids.size, -99, np.int64)
        changes = np.zeros((ids.size, 4), np.int64)
        changed, trouble = ctypes.c_uint32(), (ctypes.c_int64 * 5)()
        given = Ids(
            ids.ctypes.data,
            None if counts is None else counts.ctypes.data,
            None if scores is None else scores.ctypes.data,
            ids.size,
            True,
            -1,
            rows.ctypes.data,
        )
        self.library.merlin_host_id_assign(
            ctypes.byref(self.table),
            ctypes.byref(self.policy),
            ctypes.byref(given),
            changes.ctypes.data_as(ctypes.c_void_p),
            ctypes.byref(changed),
            trouble,
        )
        return rows, changes[: changed.value], trouble[0] & 0xFFFFFFFF

    def find(self, ids):
        rows = np.full(ids.size, -99, np.int64)
        given = Ids(ids.ctypes.data, None, None, ids.size, True, -1, rows.ctypes.data)
        self.library.merlin_host_id_find(
            ctypes.byref(self.table), ctypes.byref(self.policy), ctypes.byref(given)
        )
        return rows

    def release(self):
        self.library.merlin_host_id_release(ctypes.byref(self.table))

    def state(self):
        return self.arrays


class Device:
    """The twin, on arrays in device memory."""

    def __init__(self, library, runtime, shape, policy, dynamic):
        self.library, self.runtime, self.policy = library, runtime, policy
        self.like = new_arrays(shape, dynamic)
        self.held = {name: self.put(a) if a.size else None for name, a in self.like.items()}
        self.table = Table(*self.held.values(), shape)

    def allocate(self, size):
        pointer = ctypes.c_void_p()
        self.check(self.runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(max(size, 1))))
        return pointer

    def put(self, array):
        pointer = self.allocate(array.nbytes)
        self.copy(pointer, array.ctypes.data_as(ctypes.c_void_p), array.nbytes, 1)
        return pointer

    def get(self, pointer, like):
        out = np.empty_like(like)
        self.copy(out.ctypes.data_as(ctypes.c_void_p), pointer, out.nbytes, 2)
        return out

    def copy(self, to, source, size, kind):
        self.check(self.runtime.cudaMemcpy(to, source, ctypes.c_size_t(size), kind))

    def check(self, error):
        assert error == 0, f"CUDA error {error}"

    def assign(self, ids, counts, scores):
        held = [None if a is None else self.put(a) for a in (ids, counts, scores)]
        rows = self.put(np.full(ids.size, -99, np.int64))
        changes, changed = self.allocate(32 * ids.size), self.put(np.zeros(1, np.uint32))
        trouble = self.put(np.zeros(5, np.int64))
        workspace = self.allocate(self.library.merlin_cuda_id_workspace(ids.size))
        given = Ids(*held, ids.size, True, -1, rows)
        self.check(
            self.library.merlin_cuda_id_assign(
                ctypes.byref(self.table),
                ctypes.byref(self.policy),
                ctypes.byref(given),
                workspace,
                changes,
                changed,
                trouble,
                None,
            )
        )
        count = int(self.get(changed, np.zeros(1, np.uint32))[0])
        result = (
            self.get(rows, np.zeros(ids.size, np.int64)),
            self.get(changes, np.zeros((ids.size, 4), np.int64))[:count],
            int(self.get(trouble, np.zeros(5, np.int64))[0]) & 0xFFFFFFFF,
        )
        for pointer in (*held, rows, changes, changed, trouble, workspace):
            if pointer is not None:
                self.check(self.runtime.cudaFree(pointer))
        return result

    def find(self, ids):
        held, rows = self.put(ids), self.put(np.full(ids.size, -99, np.int64))
        given = Ids(held, None, None, ids.size, True, -1, rows)
        self.check(
            self.library.merlin_cuda_id_find(
                ctypes.byref(self.table), ctypes.byref(self.policy), ctypes.byref(given), None
            )
        )
        found = self.get(rows, np.zeros(ids.size, np.int64))
        for pointer in (held, rows):
            self.check(self.runtime.cudaFree(pointer))
        return found

    def release(self):
        self.check(self.library.merlin_cuda_id_release(ctypes.byref(self.table), None))

    def state(self):
        return {
            name: self.get(pointer, self.like[name]) if pointer else self.like[name]
            for name, pointer in self.held.items()
        }


def case(library, kind, dynamic, admit_after, evict=True, contest=False):
    shape = Shape()
    library.merlin_host_id_shape(
        ctypes.c_int64(40_000 if not dynamic else 3_000),
        ctypes.c_int64(admit_after),
        ctypes.c_int64(100 if dynamic else 0),
        ctypes.byref(shape),
    )
    return shape, Policy(POLICIES.index(kind), 3, 2, admit_after, 1.0, contest, 2, 5, evict)


def stream(steps, kind):
    rng = np.random.default_rng(steps)
    for _ in range(steps):
        ids = (rng.zipf(1.1, 20_000) % 200_000).astype(np.int64)
        ids[::97] = -1
        counts = rng.integers(1, 5, ids.size) if rng.random() < 0.5 else None
        yield ids, counts, rng.integers(0, 2**32, ids.size) if kind == "custom" else None


def test_structs_are_those_of_the_core(library):
    """Oracle: a table with room for all gives each id one row, counts it, and finds it again."""
    shape, policy = case(library, "lfu", False, 1)
    assert shape.slots >= 40_000
    assert shape.slots == shape.max_rows == shape.shards * shape.buckets * 16
    host = Host(library, shape, policy, False)
    ids = np.array([5, 9, -1, 5, 2**62], np.int64)
    counts = np.array([1, 2, 3, 4, 5], np.int64)
    rows, changes, trouble = host.assign(ids, counts, None)
    assert trouble == 0
    assert rows[2] == -1
    assert rows[0] == rows[3]
    assert len({int(r) for r in rows}) == 4
    scores = host.arrays["scores"]
    assert [scores[r] for r in rows[[0, 1, 4]]] == [5, 2, 5]
    assert {int(new): int(row) for row, _, new, _ in changes} == {
        5: rows[0],
        9: rows[1],
        2**62: rows[4],
    }
    np.testing.assert_array_equal(host.find(ids), rows)
    assert host.assign(ids, counts - 2, None)[2] == 1  # a count below 1


@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.parametrize(
    ("dynamic", "admit_after", "evict", "contest"),
    [
        (False, 1, True, False),
        (False, 1, True, True),
        (False, 3, True, True),
        (True, 1, True, True),
        (True, 1, False, False),
    ],
)
def test_twin_has_the_same_bits(library, runtime, kind, dynamic, admit_after, evict, contest):
    shape, policy = case(library, kind, dynamic, admit_after, evict, contest)
    host = Host(library, shape, policy, dynamic)
    device = Device(library, runtime, shape, policy, dynamic)
    for step, (ids, counts, scores) in enumerate(stream(8, kind)):
        expected, given = host.assign(ids, counts, scores), device.assign(ids, counts, scores)
        assert expected[2] == given[2]
        if expected[2] == 0:
            np.testing.assert_array_equal(expected[0], given[0])
            np.testing.assert_array_equal(expected[1], given[1])
        state = device.state()
        for name, array in host.state().items():
            np.testing.assert_array_equal(array, state[name], err_msg=f"{name}, step {step}")
        np.testing.assert_array_equal(host.find(ids), device.find(ids))
        if step % 2:
            host.release()
            device.release()
