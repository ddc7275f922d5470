"""The stateful maps once more, of dicts and lists: what the native table must agree with."""

from __future__ import annotations

import math
from dataclasses import dataclass

MASK = 2**64 - 1
BUCKET, LINE = 16, 64
NEVER = -(10**9)


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def hash_of(id):
    return mix(id & MASK)


@dataclass
class Entry:
    id: int
    row: int
    score: int
    returned: int  # the last training step that returned it, or NEVER


class Filter:
    """A line of 64 counters has four groups of 16; an id has one counter in each."""

    def __init__(self, lines):
        self.counters = [0] * (lines * LINE)
        self.lines, self.sightings = lines, 0

    def add(self, hash, count):
        self.sightings += min(count, 255)
        x = (hash * 0xD6E8FEB86659FD93) & MASK
        start = ((x >> 32) * self.lines >> 32) * LINE
        places = [start + 16 * q + ((x >> (16 + 4 * q)) & 15) for q in range(4)]
        seen = min(255, min(self.counters[p] for p in places) + count)
        for p in places:
            self.counters[p] = max(self.counters[p], seen)
        return seen

    def end_of_step(self):
        while 2 * self.sightings >= len(self.counters):
            self.sightings //= 2
            self.counters = [c // 2 for c in self.counters]


class Oracle:
    """A map of `kind` with the sizes that the native table tells.

    Args:
        policy: a word; `parameter`: half-life or TTL.
        sizes: slots, shards, rows; `initial`: buckets of a shard at first.
    """

    def __init__(
        self,
        kind,
        policy,
        slots,
        shards,
        rows,
        *,
        initial=None,
        parameter=1,
        admit_after=1,
        probability=1.0,
        oov_rows=0,
        open_routes=16,
        evict=True,
        contest=True,
    ):
        self.dynamic = kind == "dynamic"
        self.policy, self.parameter, self.evict = policy, parameter, evict
        self.shards, self.rows, self.oov_rows = shards, rows, oov_rows
        self.all_buckets = slots // shards // BUCKET
        self.active = initial if self.dynamic else self.all_buckets
        self.admit_after, self.probability = admit_after, probability
        self.open_routes, self.contest = open_routes, contest
        self.slots: dict[int, Entry] = {}
        self.where: dict[int, int] = {}  # slot of an id
        self.free = set(range(rows))
        lines = -(-4 * self.all_buckets * BUCKET // LINE)
        self.filters = [Filter(lines) for _ in range(shards)] if admit_after > 1 else []
        self.clock = self.released = self.epoch = self.epoch_began = 0
        self.exact: dict[int, float] = {}  # of the last call, before they are rounded
        self.counts = dict.fromkeys(
            ("looked_up", "hits", "inserted", "evicted", "not_admitted", "overflowed"), 0
        )

    # Where an id can be

    def shard(self, id):
        return hash_of(id) >> (64 - int(math.log2(self.shards))) if self.shards > 1 else 0

    def buckets(self, id):
        """The first slots of an id's two buckets."""
        hash, bits = hash_of(id), int(math.log2(self.shards))
        x = ((hash << bits) & MASK) >> 32
        y = ((hash * 0x9FB21C651E98DF25) & MASK) >> 32
        first, second = x * self.active >> 32, y * self.active >> 32
        if not self.dynamic and self.active > 1:
            second = y * (self.active - 1) >> 32
            second += second >= first
        return [self.start(self.shard(id), b) for b in (first, second)]

    def start(self, shard, bucket):
        if self.dynamic:
            return (bucket * self.shards + shard) * BUCKET
        return (shard * self.all_buckets + bucket) * BUCKET

    def empty(self, start):
        return [s for s in range(start, start + BUCKET) if s not in self.slots]

    def grow(self):
        if not self.dynamic or self.active == self.all_buckets:
            return False
        old = {id: self.buckets(id) for id in self.where}
        entries = sorted(self.slots.items())
        self.active *= 2
        self.slots, self.where = {}, {}
        for slot, entry in entries:
            which = old[entry.id].index(slot // BUCKET * BUCKET)
            self.put(min(self.empty(self.buckets(entry.id)[which])), entry)
        return True

    def grow_for(self, ids):
        while 5 * ids > 3 * self.active * self.shards * BUCKET and self.grow():
            pass

    def put(self, slot, entry):
        self.slots[slot] = entry
        self.where[entry.id] = slot

    # Scores

    def first_score(self, count, given):
        return {
            "lru": self.clock,
            "ttl": self.clock,
            "lfu": min(count, 2**32 - 1),
            "epoch_lru": self.epoch << 20 | min(self.clock - self.epoch_began, 2**20 - 1),
            "epoch_lfu": self.epoch << 20 | min(count, 2**20 - 1),
            "custom": given,
            "decayed_lfu": None,  # rounded at random: see `settle`
        }[self.policy]

    def next_score(self, score, count, given):
        if self.policy == "lfu":
            return min(score + count, 2**32 - 1)
        if self.policy == "epoch_lfu":
            return self.epoch << 20 | min(score % 2**20 + count, 2**20 - 1)
        return self.first_score(count, given)

    def pinned(self, entry):
        newer = self.clock - entry.returned
        open = self.clock - self.released - 1
        return newer <= min(open, self.open_routes)

    def may_go(self, entry):
        if self.pinned(entry):
            return False
        return self.policy != "ttl" or self.clock - entry.score >= self.parameter

    def decayed(self, before, count):
        """The exact logarithm of a decayed count, in steps of 2^-12: before is a score or None.

        A step counts an id 2^32 - 1 times at most; decayed counts stay at 2^33 from 2^32 on.
        """
        base = self.clock * 4096 // self.parameter
        left = 0 if before is None else 2 ** min((before - base) / 4096, 33)
        left = 2**33 if left >= 2**32 else left + min(count, 2**32 - 1)
        return base + 4096 * math.log2(min(left, 2**33))

    # Steps

    def find(self, id):
        slot = self.where.get(id)
        return -1 if slot is None else self.slots[slot].row

    def without(self, id):
        return self.rows + hash_of(id) % self.oov_rows if self.oov_rows else -1

    def row(self, id):
        return self.slots[self.where[id]].row if id in self.where else self.without(id)

    def assign(self, seen):
        """One step; `seen`: [(id, count, score)]. Gives the changes (row, new id, old id or None).

        Raises OverflowError where the native table refuses.
        """
        counts, given = {}, {}
        for id, count, score in seen:
            counts[id] = counts.get(id, 0) + min(count, 2**32 - 1)
            given[id] = max(given.get(id, 0), score)
        missing = [id for id in counts if id not in self.where]
        if self.dynamic and not self.evict and len(missing) > len(self.free):
            raise OverflowError(len(missing), len(self.free))
        self.clock += 1
        self.counts["looked_up"] += sum(counts.values())
        self.exact = {}
        for id in counts:
            if id not in self.where:
                continue
            entry = self.slots[self.where[id]]
            self.counts["hits"] += counts[id]
            if self.policy == "decayed_lfu":
                self.exact[id] = max(entry.score, self.decayed(entry.score, counts[id]))
            else:
                entry.score = self.next_score(entry.score, counts[id], given[id])
            entry.returned = self.clock
        return self.insert(sorted(missing, key=hash_of), counts, given)

    def insert(self, missing, counts, given):
        admitted = []
        for id in missing:
            times = count = min(counts[id], 2**32 - 1)
            if self.filters:
                sightings = self.filters[self.shard(id)].add(hash_of(id), count)
                count = max(count, sightings)
                if sightings < self.admit_after:
                    self.counts["not_admitted"] += counts[id]
                    continue
            if self.draw(id) >= self.probability:
                self.counts["not_admitted"] += counts[id]
                continue
            admitted.append((id, times, count))
        for filter in self.filters:
            filter.end_of_step()
        self.grow_for(min(len(self.slots) + len(admitted), self.rows))
        changes = []
        for id, times, count in admitted:
            score = self.first_score(count, given[id])
            change, why = self.newcomer(id, score, self.clock, (times, count))
            if change is None:
                self.counts[why] += counts[id]
                continue
            if self.policy == "decayed_lfu":
                taken = self.slots[self.where[id]].score  # None, or the one that it took the row of
                least = -1 if taken is None else self.decayed(taken, 1)
                self.exact[id] = max(self.decayed(None, count), least)
            changes.append(change)
        return changes

    def draw(self, id):
        return (mix(hash_of(id) ^ mix(2 * self.clock)) >> 11) * 2.0**-53

    def wins(self, id, theirs, score, times, seen):
        """The score of an id that takes the row of one with score `theirs`, or -1: it doesn't."""
        if self.policy == "custom":
            return score if score >= theirs else -1
        if self.policy == "lfu":
            their_count, floor, most = theirs, 0, 2**32 - 1
        elif self.policy == "decayed_lfu":
            base = self.clock * 4096 // self.parameter
            their_count = 2 ** min((theirs - base) / 4096, 33)
        elif self.policy == "epoch_lfu":
            their_count, floor, most = theirs - (self.epoch << 20), self.epoch << 20, 2**20 - 1
            if their_count < 0:
                return score
        else:
            return score
        if seen <= their_count and self.draw(id) * (their_count + 1) >= times:
            return -1
        if self.policy == "decayed_lfu":
            return theirs  # `insert` counts one more
        return max(score, floor + min(their_count + 1, most))

    def newcomer(self, id, score, returned, sightings=None):
        """(the change or None, why). Without sightings the id contests nothing."""
        while self.free or not self.dynamic:
            first, second = self.buckets(id)
            more = second if len(self.empty(second)) > len(self.empty(first)) else first
            if self.empty(more):
                slot = min(self.empty(more))
                row = min(self.free) if self.dynamic else slot
                self.free.discard(row)
                return self.own(slot, Entry(id, row, score, returned), None), None
            if not self.grow():
                slot = self.make_room(id) if self.dynamic else None
                if slot is not None:
                    row = min(self.free)
                    self.free.discard(row)
                    return self.own(slot, Entry(id, row, score, returned), None), None
                break
        if self.dynamic and not self.evict:
            return None, "overflowed"
        slots = {s for b in self.buckets(id) for s in range(b, b + BUCKET)}
        go = [s for s in slots if s in self.slots and self.may_go(self.slots[s])]
        if not go:
            return None, "not_admitted" if self.policy == "ttl" else "overflowed"
        slot = min(go, key=lambda s: (self.slots[s].score, s))
        old = self.slots[slot]
        if self.contest and sightings is not None:
            score = self.wins(id, old.score, score, *sightings)
            if score == -1:
                return None, "not_admitted"
        del self.where[old.id]
        self.counts["evicted"] += 1
        return self.own(slot, Entry(id, old.row, score, returned), old.id), None

    def make_room(self, id):
        """A slot of a full bucket, whose id moves to its other bucket; None if none can."""
        for bucket in self.buckets(id):
            for slot in range(bucket, bucket + BUCKET):
                first, second = self.buckets(self.slots[slot].id)
                empty = self.empty(second if first == bucket else first)
                if empty:
                    self.put(min(empty), self.slots.pop(slot))
                    return slot
        return None

    def own(self, slot, entry, old):
        self.put(slot, entry)
        self.counts["inserted"] += 1
        return entry.row, entry.id, old

    def settle(self, id, score):
        """Takes over a score that was rounded at random, if it is one of the two it can be."""
        assert abs(score - self.exact[id]) < 1.01, (id, score, self.exact[id])
        self.slots[self.where[id]].score = score

    def release(self):
        self.released = self.clock

    # Outside of steps

    def upsert(self, ids, scores):
        """All ids distinct; scores or Nones."""
        new = [id for id in ids if id not in self.where]
        if self.dynamic and not self.evict and len(new) > len(self.free):
            raise OverflowError(len(new), len(self.free))
        self.grow_for(len(self.slots) + min(len(new), len(self.free)))
        changes, self.exact = [], {}
        for id, score in sorted(zip(ids, scores, strict=True), key=lambda x: hash_of(x[0])):
            if id in self.where:
                if score is not None:
                    self.slots[self.where[id]].score = score
                continue
            if score is None:  # the logarithm of 1 needs no rounding
                decayed = self.policy == "decayed_lfu"
                score = int(self.decayed(None, 1)) if decayed else self.first_score(1, 0)
            change, _ = self.newcomer(id, score, NEVER)
            if change is not None:
                changes.append(change)
        return changes

    def erase(self, ids):
        rows = []
        for id in ids:
            rows.append(self.find(id))
            if id in self.where:
                self.forget(self.where[id])
        return rows

    def forget(self, slot):
        entry = self.slots.pop(slot)
        del self.where[entry.id]
        if self.dynamic:
            self.free.add(entry.row)

    def restrict(self, lowest, keep):
        loose = [s for s in sorted(self.slots) if not self.pinned(self.slots[s])]
        gone = [s for s in loose if self.slots[s].score < lowest]
        rest = sorted((s for s in loose if s not in gone), key=lambda s: (self.slots[s].score, s))
        gone += rest[: max(0, len(self.slots) - len(gone) - keep)]
        known = [entry[1:] for entry in self.known() if entry[0] in gone]
        for slot in gone:
            self.forget(slot)
        return known

    def known(self):
        """(slot, id, row, score) of all ids."""
        return [(s, e.id, e.row, e.score) for s, e in sorted(self.slots.items())]
