"""Ratios, and the table of a case."""

from __future__ import annotations

import importlib.metadata

from rich.console import Console
from rich.table import Table

TITLES = {
    "ours": "merlin_embeddings",
    "keras": "keras.layers.Embedding",
    "tensorflow": "tf.nn.embedding_lookup_sparse",
    "none": "no tables",
}
PACKAGES = ("tensorflow-cpu", "tensorflow", "keras", "numpy", "pyarrow")


def versions() -> dict[str, str]:
    """Of what is installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def compared(results: dict[str, dict], batch: int) -> dict[str, dict]:
    """Results with what follows from them.

    - "ratio": our samples/s over theirs; above 1, ours is faster.
    - "step_ms": of a whole step.
    - "embeddings_share": what of a step's time goes when the tables go, by the run without tables.
    """
    ours = results.get("ours", {}).get("samples_per_second")
    bare = results.get("none", {}).get("samples_per_second")
    for name, result in results.items():
        rate = result["samples_per_second"]
        result["step_ms"] = 1e3 * batch / rate
        result["ratio"] = ours / rate if ours else None
        result["embeddings_share"] = 1 - rate / bare if bare and name != "none" else None
    return results


def show(console: Console, case: dict) -> None:
    """The table of a case."""
    best = case["data"]["test"]["auc"]
    title = (
        f"{case['tables']} rows, dim {case['dim']}, batch {case['batch']:,}: "
        f"{case['table_rows']:,} rows, {case['table_bytes'] / 2**30:.2f} GiB of tables, "
        f"the teacher's AUC {best:.4f}"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("embeddings")
    for heading in (
        "samples/s", "step, ms", "ours / theirs", "AUC", "after steps", "peak memory, GiB",
        "embeddings' share of a step", "by profile",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for name, result in case["results"].items():
        table.add_row(TITLES[name], *_cells(result, name == "none"))
    console.print(table)
    for name, reason in case["failed"].items():
        console.print(f"[red]{TITLES[name]}[/]: {reason}", highlight=False)


def _cells(result: dict, bare: bool) -> list[str]:
    profile = result.get("profile", {}).get("embeddings_share_of_ops")
    return [
        f"{result['samples_per_second']:,.0f}",
        f"{result['step_ms']:.1f}",
        f"{result['ratio']:.2f}x" if result["ratio"] and not bare else "-",
        f"{result['quality']['auc']:.4f}",
        str(result["quality"]["steps"]),
        f"{result['memory']['peak_bytes'] / 2**30:.2f}",
        f"{result['embeddings_share']:.0%}" if result["embeddings_share"] is not None else "-",
        f"{profile:.0%}" if profile is not None else "-",
    ]
