"""The machine's gather limit on the same ids: `gather_limit.cc`, compiled here, called by ctypes.

Forward only. Every combination of instruction set, prefetch distance, kind of store and split of
the work is a way of its own, so that the worker's trial finds the best this machine can do.
"""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from adapters import base

SOURCE = Path(__file__).resolve().parent.parent / "gather_limit.cc"
DISTANCES = (0, 4, 8, 16, 32, 64)
FLOATS = ctypes.POINTER(ctypes.c_float)
IDS = ctypes.POINTER(ctypes.c_int64)


def compile_library(folder: Path) -> ctypes.CDLL:
    library = folder / "gather_limit.so"
    command = ["g++", "-O3", "-std=c++20", "-shared", "-fPIC", "-pthread", str(SOURCE)]
    done = subprocess.run([*command, "-o", str(library)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{SOURCE.name} doesn't compile:\n{done.stderr}")
    loaded = ctypes.CDLL(str(library))
    loaded.gather_team.restype = ctypes.c_void_p
    loaded.gather_alloc.restype = FLOATS
    loaded.gather_alloc.argtypes = [ctypes.c_size_t]
    loaded.gather_free.argtypes = [FLOATS, ctypes.c_size_t]
    loaded.gather_fill.argtypes = [ctypes.c_void_p, FLOATS, ctypes.c_size_t]
    loaded.gather_sum.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.POINTER(FLOATS),
        IDS,
        *[ctypes.c_int64] * 3,
        FLOATS,
        ctypes.c_int,
        ctypes.c_int64,
        ctypes.c_int,
        ctypes.c_int,
    ]
    return loaded


class Adapter(base.Adapter):
    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        with tempfile.TemporaryDirectory() as folder:
            self.library = compile_library(Path(folder))
        self.team = ctypes.c_void_p(self.library.gather_team(threads))
        self.memory: list[tuple[ctypes._Pointer, int]] = []
        self.out: tuple[ctypes._Pointer, int] | None = None

    def versions(self) -> dict[str, str]:
        compiler = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True)
        return {"g++": compiler.stdout.strip()}

    def _alloc(self, floats: int):
        memory = self.library.gather_alloc(floats)
        if not memory:
            raise MemoryError(f"no memory for {floats * 4 / 2**30:.1f} GiB")
        self.library.gather_fill(self.team, memory, floats)
        return memory

    def build(self, tables: int, rows: int, dim: int) -> None:
        for memory, floats in self.memory:
            self.library.gather_free(memory, floats)
        self.shape = (tables, rows, dim)
        self.memory = [(self._alloc(rows * dim), rows * dim) for _ in range(tables)]
        self.tables = (FLOATS * tables)(*[memory for memory, _ in self.memory])

    def _array(self, table: int) -> np.ndarray:
        return np.ctypeslib.as_array(self.memory[table][0], self.shape[1:])

    def load(self, values: np.ndarray) -> None:
        for table, value in enumerate(values):
            self._array(table)[:] = value

    def read(self) -> np.ndarray:
        return np.stack([self._array(table) for table in range(self.shape[0])])

    def steps(self, group: str, ids: np.ndarray) -> dict[str, base.Step]:
        _, tables, bags, hotness = ids.shape
        dim = self.shape[2]
        pointers = [batch.ctypes.data_as(IDS) for batch in ids]
        size = tables * bags * dim
        out = self._alloc(size)
        self.out = (out, size)
        self.out_shape = (tables, bags, dim)

        def way(avx512: int, distance: int, whole: int, stream: int) -> base.Step:
            return lambda i: self.library.gather_sum(
                self.team,
                tables,
                self.tables,
                pointers[i],
                bags,
                hotness,
                dim,
                out,
                avx512,
                distance,
                whole,
                stream,
            )

        ways = {}
        sets = (0, 1) if self.library.gather_has_avx512() else (0,)
        for avx512, distance, whole, stream in itertools.product(sets, DISTANCES, (0, 1), (0, 1)):
            if (whole and tables == 1) or (stream and dim % 16):
                continue
            name = (
                f"{'AVX-512' if avx512 else 'AVX2'}, prefetch {distance} ahead, "
                f"{'tables' if whole else 'bags'} split{', streaming stores' if stream else ''}"
            )
            ways[name] = way(avx512, distance, whole, stream)
        return ways

    def outputs(self, result: object) -> np.ndarray:
        assert self.out is not None
        return np.ctypeslib.as_array(self.out[0], self.out_shape).copy()

    def release(self) -> None:
        if self.out is not None:
            self.library.gather_free(*self.out)
            self.out = None
