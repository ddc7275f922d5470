"""XXH64 by its specification, on Python's integers."""

P1, P2, P3 = 11400714785074694791, 14029467366897019727, 1609587929392839161
P4, P5 = 9650029242287828579, 2870177450012600261
MASK = 2**64 - 1


def _turn(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & MASK


def xxh64(data: bytes, seed: int = 0) -> int:
    """Of less than 32 bytes."""
    assert len(data) < 32
    acc = (seed + P5 + len(data)) & MASK
    while len(data) >= 8:
        lane = int.from_bytes(data[:8], "little") * P2 & MASK
        acc ^= _turn(lane, 31) * P1 & MASK
        acc = (_turn(acc, 27) * P1 + P4) & MASK
        data = data[8:]
    if len(data) >= 4:
        acc ^= int.from_bytes(data[:4], "little") * P1 & MASK
        acc = (_turn(acc, 23) * P2 + P3) & MASK
        data = data[4:]
    for byte in data:
        acc ^= byte * P5 & MASK
        acc = _turn(acc, 11) * P1 & MASK
    acc = (acc ^ acc >> 33) * P2 & MASK
    acc = (acc ^ acc >> 29) * P3 & MASK
    return acc ^ acc >> 32


def row_of(id: int, rows: int, salt: int = 0) -> int:
    """What `ids.Hash(rows, salt)` says of an int64."""
    return xxh64(id.to_bytes(8, "little", signed=True), salt % 2**64) * rows >> 64
