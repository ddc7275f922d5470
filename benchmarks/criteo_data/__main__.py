"""Writes a data set of Criteo's schema; what may be chosen is told in parameters.py."""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from criteo_data.files import generate
from criteo_data.parameters import MULTI_HOT, Parameters, cardinalities


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(prog="criteo_data", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train-rows", type=int, default=1_000_000)
    parser.add_argument("--test-rows", type=int, default=100_000)
    parser.add_argument("--scale", type=float, default=0.1, help="of Criteo's cardinalities")
    parser.add_argument("--exponent", type=float, default=1.1, help="of the Zipf law of ids")
    parser.add_argument("--multi-hot", action="store_true", help="MLPerf's bag sizes, as lists")
    parser.add_argument("--drift", type=float, default=0.0, help="changes of popularity an id")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args(argv)
    start = time.perf_counter()
    dataset = generate(
        given.folder,
        Parameters(
            given.train_rows, given.test_rows, given.seed, cardinalities(given.scale),
            exponents=given.exponent, hotness=MULTI_HOT if given.multi_hot else 1,
            drift=given.drift,
        ),
        given.threads,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    rows = dataset.parameters.rows
    print(f"{rows:,} rows, {dataset.nbytes / 2**20:,.0f} MiB in {seconds:.1f} s")
    print(f"{sum(dataset.parameters.table_rows):,} table rows in 26 columns")
    print(f"best test AUC {dataset.best_auc:.4f}, log loss {dataset.best_log_loss:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
