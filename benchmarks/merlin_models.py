#!/usr/bin/env python3
"""Do merlin-models' models learn the same with our tables? Pairs of runs on MovieLens-100k.

    .venv-merlin/bin/python benchmarks/merlin_models.py             all, some minutes
    QUICK=1 .venv-merlin/bin/python benchmarks/merlin_models.py     two models, one seed
    .venv-merlin/bin/python benchmarks/merlin_models.py --json results.json

Ranking: for each seed, stock tables, ours, and ours with our optimizer start from the same weights
and see the same batches in the same order; compared are the AUCs on the test ratings.

Retrieval: two towers with in-batch negatives, and YoutubeDNN with sampled ones, learn which film a
user liked next; compared is recall@10 of each user's last like among all films. What TensorFlow
draws for sampled negatives depends on the graph, so those pairs aren't the same run twice: the
spread over seeds is what to hold a difference against.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import merlin_retrieval as retrieval
import merlin_training as training
import movielens_data as data
import numpy as np
import tensorflow as tf
from machine import CpuUsage, describe
from rich.console import Console
from rich.table import Table

MOST_DIFFERENCE = 0.002  # of AUC


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    quick = os.environ.get("QUICK", "0") not in ("", "0")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranking", default="dlrm" if quick else "dlrm,dcn")
    parser.add_argument("--optimizers", default="adagrad" if quick else "sgd,adagrad,adam")
    parser.add_argument("--retrieval", default="two_tower" if quick else "two_tower,youtube_dnn")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0] if quick else [0, 1, 2])
    parser.add_argument("--epochs", type=int, default=2 if quick else 4)
    parser.add_argument("--retrieval-epochs", type=int, default=4 if quick else 12)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--cache", type=Path, default=data.CACHE, help="folder of the ratings")
    parser.add_argument("--json", type=Path, help="file to write")
    parsed = parser.parse_args(given)
    parsed.quick = quick
    return parsed


def ranking(options, ratings, name: str, optimizer: str, console: Console) -> dict:
    """{kind: AUC by seed}."""
    aucs: dict[str, list[float]] = {kind: [] for kind in training.KINDS}
    for seed in options.seeds:
        models = training.start(ratings, training.MODELS[name], optimizer, seed)
        for kind, model in models.items():
            training.fit(ratings, model, seed, options.epochs, options.batch_size)
            aucs[kind].append(training.test_auc(ratings, model))
        tf.keras.backend.clear_session()
    return {"measure": "AUC", "model": name, "optimizer": optimizer, "values": aucs}


def retrieving(options, likes, name: str, console: Console) -> dict:
    """{kind: recall@10 by seed}, with Adam."""
    recalls: dict[str, list[float]] = {kind: [] for kind in training.KINDS}
    for seed in options.seeds:
        for kind, model in retrieval.start(likes, name, seed).items():
            retrieval.fit(likes, name, model, seed, options.retrieval_epochs)
            recalls[kind].append(retrieval.recall(likes, name, model, 10))
        tf.keras.backend.clear_session()
    return {"measure": "recall@10", "model": name, "optimizer": "adam", "values": recalls}


def compared(result: dict) -> dict:
    """The result with each kind's largest difference from stock at one seed, and stock's spread."""
    stock = np.array(result["values"]["stock"])
    result["largest_difference"] = {
        kind: float(np.abs(np.array(values) - stock).max())
        for kind, values in result["values"].items()
        if kind != "stock"
    }
    result["spread"] = float(stock.max() - stock.min())
    return result


def show(console: Console, results: list[dict]) -> None:
    table = Table(
        title="means over the seeds; largest difference at one seed", title_justify="left"
    )
    for heading in ("model", "optimizer", "measure"):
        table.add_column(heading)
    for heading in ("stock", "spread", "our tables", "apart", "and our optimizer", "apart"):
        table.add_column(heading, justify="right")
    for result in results:
        means = {kind: np.mean(values) for kind, values in result["values"].items()}
        table.add_row(
            *(result[key] for key in ("model", "optimizer", "measure")),
            *(f"{means['stock']:.4f}", f"{result['spread']:.4f}"),
            *(f"{means['tables']:.4f}", f"{result['largest_difference']['tables']:.5f}"),
            *(f"{means['both']:.4f}", f"{result['largest_difference']['both']:.5f}"),
        )
    console.print(table)


def main(given: list[str] | None = None) -> int:
    options, usage = arguments(given), CpuUsage()
    console = Console(width=None if sys.stdout.isatty() else 150)
    tf.get_logger().setLevel("ERROR")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        ratings = training.load(Path(folder), options.cache)
        likes = retrieval.likes_of(options.cache)
        for name in filter(None, options.ranking.split(",")):
            for optimizer in options.optimizers.split(","):
                results.append(compared(ranking(options, ratings, name, optimizer, console)))
                show(console, results[-1:])
        for name in filter(None, options.retrieval.split(",")):
            results.append(compared(retrieving(options, likes, name, console)))
            show(console, results[-1:])
    show(console, results)
    if options.json:
        document = {
            "benchmark": "merlin_models",
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "quick": options.quick,
            "seeds": options.seeds,
            "epochs": {"ranking": options.epochs, "retrieval": options.retrieval_epochs},
            "machine": {**describe(), "others_cpu_percent": round(usage.others_percent(), 1)},
            "results": results,
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    apart = [
        result
        for result in results
        if result["measure"] == "AUC"
        and max(result["largest_difference"].values()) >= MOST_DIFFERENCE
    ]
    for result in apart:
        console.print(f"[red]{result['model']} with {result['optimizer']}: AUCs part[/]")
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
