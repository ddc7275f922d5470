"""The id maps that the example compares, each for the same number of rows."""

import dataclasses
from dataclasses import dataclass

from streaming_data import Stream

import merlin_embeddings as me

FULL, MODULO, ORACLE = "own rows", "modulo", "static oracle"
BASELINES = (FULL, MODULO, ORACLE)
CUSTOM = "custom: counted outside"
FIRST_ROWS = 16  # of a dynamic table


@dataclass(frozen=True)
class Task:
    """A stream, the share of rows its tables get, and how it is trained."""

    name: str
    share: float
    dim: int
    batch: int
    dropout: float = 0.0
    epochs: int = 0  # 0: once through, in the order of time


TASKS = {
    "clicks": Task("Click logs like Criteo's", 0.1, dim=8, batch=1024),
    "movielens-time": Task("MovieLens-100k by time", 0.1, dim=8, batch=128),
    "movielens-random": Task(
        "MovieLens-100k in random order", 0.25, dim=16, batch=512, dropout=0.3, epochs=20
    ),
}


@dataclass(frozen=True)
class Contender:
    """A map at work.

    Attributes:
        stream: the samples, with ids as the map sees them.
        ids: {column: which row an id has}, of columns whose ids aren't their rows.
    """

    stream: Stream
    ids: dict

    @property
    def thinks_in_epochs(self) -> bool:
        """Whether the policy wants to know when a day begins."""
        policies = (getattr(spec, "policy", None) for spec in self.ids.values())
        return any(isinstance(policy, (me.ids.EpochLRU, me.ids.EpochLFU)) for policy in policies)


def managed(rows: int, **arguments) -> me.ids.ManagedCollision:
    """One row is for all ids that have none of their own; the capacity is rounded up."""
    return me.ids.ManagedCollision(rows - 1, oov_rows=1, **arguments)


def policies(day: int) -> dict:
    """{name: rows of a table -> its id map}; a day has so many steps."""
    return {
        "LFU": lambda rows: managed(rows, policy="lfu"),
        "LFU, admitted at 2": lambda rows: managed(rows, policy="lfu", admit_after=2),
        "LFU, admitted by 2%": lambda rows: managed(rows, policy="lfu", admit_probability=0.02),
        "LFU, all admitted": lambda rows: managed(rows, policy="lfu", admit_probability=1),
        "LFU, half-life 2 days": lambda rows: managed(rows, policy=me.ids.LFU(2 * day)),
        "LRU": lambda rows: managed(rows, policy="lru"),
        "LRU, admitted by 2%": lambda rows: managed(rows, policy="lru", admit_probability=0.02),
        "epoch LRU": lambda rows: managed(rows, policy="epoch_lru"),
        "epoch LFU": lambda rows: managed(rows, policy="epoch_lfu"),
        "TTL, 1 day": lambda rows: managed(rows, policy=me.ids.TTL(day)),
        CUSTOM: lambda rows: managed(rows, policy="custom"),
        "dynamic, LFU": lambda rows: me.ids.Dynamic(
            initial=min(rows, FIRST_ROWS), max_rows=rows, when_full="lfu"
        ),
    }


def contenders(task: Task, stream: Stream, kept=None) -> dict[str, Contender]:
    """The maps by name, baselines first.

    Args:
        task: says how many rows there are.
        stream: ids as they are.
        kept: the policies whose names have one of these, and the baselines; None: all.
    """
    ranked = stream.by_frequency()
    # As many as the maps have whose capacity is rounded up, for all.
    rows = {
        column: managed(max(2, int(task.share * ranked.vocabulary[column]))).rows
        for column in stream.open_columns
    }
    clipped = dataclasses.replace(ranked, vocabulary={**ranked.vocabulary, **rows})
    found = {
        FULL: Contender(ranked, {}),
        MODULO: Contender(stream, {c: me.ids.Modulo(count) for c, count in rows.items()}),
        ORACLE: Contender(clipped, {c: me.ids.Identity("clip") for c in rows}),
    }
    steps = -(-len(stream) // task.batch)
    scored = stream.with_counts(of_first_day=task.epochs > 0)
    for name, spec in policies(max(1, steps // (len(stream.days) - 1))).items():
        if kept is None or any(part in name for part in kept):
            ids = {c: spec(count) for c, count in rows.items()}
            found[name] = Contender(scored if name == CUSTOM else stream, ids)
    return found
