"""How the op library is built: what it runs on, what it is for, what is said when it cannot be."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import tensorflow as tf

import merlin_embeddings

PACKAGE = Path(merlin_embeddings.__file__).parent
LIBRARY = PACKAGE / "_ops" / "libmerlin_embeddings.so"
OPS = Path(__file__).parent.parent / "ops"


def run(*command, **kwargs):
    return subprocess.run(command, capture_output=True, text=True, check=False, **kwargs)


def test_the_record_names_the_tensorflow_in_use():
    record = json.loads((PACKAGE / "_ops" / "build.json").read_text())
    assert record == {"tensorflow": tf.__version__}


def test_another_tensorflow_is_refused_at_import(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name)
    (tmp_path / PACKAGE.name / "_ops" / "build.json").write_text('{"tensorflow": "2.3.4"}')
    done = run(sys.executable, "-c", "import merlin_embeddings", cwd=tmp_path)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError")
    for part in ("2.3.4", tf.__version__, "pip install --no-build-isolation"):
        assert part in last


def test_wide_instructions_stay_in_their_kernels():
    """Templates and inline functions too: the linker keeps one copy of those, from any object."""
    listing = run("objdump", "--disassemble", "--demangle", "--no-show-raw-insn", LIBRARY).stdout
    wide = Counter()
    function = ""
    for line in listing.splitlines():
        if begin := re.fullmatch(r"[0-9a-f]+ <(.*)>:", line):
            function = begin[1]
        elif re.match(r"\s*[0-9a-f]+:\s+v\w+ ", line) or "%ymm" in line or "%zmm" in line:
            wide[function] += 1
    inside = {
        isa: sum(count for name, count in wide.items() if f"merlin::{isa}::" in name)
        for isa in ("avx2", "avx512")
    }
    assert min(inside.values()) > 1000, "the kernels are there, and use what they are built for"
    outside = [name for name in wide if not re.search(r"merlin::(avx2|avx512)::", name)]
    assert outside == []


def configure(folder, *options, **kwargs):
    return run("cmake", "-S", OPS, "-B", folder, *options, **kwargs)


def test_compiler_flags(tmp_path):
    done = configure(tmp_path, "-DMERLIN_TENSORFLOW=OFF")
    assert done.returncode == 0, done.stderr
    commands = json.loads((tmp_path / "compile_commands.json").read_text())
    assert {Path(c["file"]) for c in commands} == set((OPS / "core").glob("*.cc"))
    built_for = {}
    for command in commands:
        flags = command["command"].split()
        assert not [f for f in flags if f.startswith(("-march", "-mtune", "-Ofast", "-ffast"))]
        assert {"-O3", "-ffp-contract=off", "-fno-math-errno"} <= set(flags)
        isa = [f.removeprefix("-DMERLIN_ISA=") for f in flags if f.startswith("-DMERLIN_ISA=")]
        wide = {f for f in flags if f.startswith("-m")}
        assert bool(wide) == (isa in (["avx2"], ["avx512"]))
        built_for.setdefault(Path(command["file"]).name, []).extend(isa)
    for name, sets in built_for.items():
        assert sorted(sets) == (
            ["avx2", "avx512", "baseline"] if name.startswith("kernels_") else []
        )


@pytest.fixture
def without_tensorflow(tmp_path):
    """An environment in which TensorFlow can't be imported."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "tensorflow.py").write_text("raise ImportError('no TensorFlow here')")
    return os.environ | {"PYTHONPATH": str(hidden)}


def test_without_tensorflow_the_way_out_is_named(tmp_path, without_tensorflow):
    done = configure(
        tmp_path / "build", f"-DPython_EXECUTABLE={sys.executable}", env=without_tensorflow
    )
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    for part in (sys.executable, "no TensorFlow here", "pip install --no-build-isolation ."):
        assert part in said
