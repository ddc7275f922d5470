import sys
from pathlib import Path

# The example's modules import each other as neighbours, as in `python examples/movielens.py`.
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
