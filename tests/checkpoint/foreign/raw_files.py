"""Files of SOK and of the parameter server, byte by byte from their descriptions alone."""

import struct

SOK_DTYPES = {"i": 0, "q": 1, "I": 2, "Q": 3, "e": 4, "f": 5, "d": 6}


def sok_file(path, kind, slot, code, numbers):
    head = b" " * 256 + struct.pack(">I", kind) + slot.rjust(32, " ").encode()
    head += struct.pack(">I", SOK_DTYPES[code])
    path.write_bytes(head + struct.pack(f"<{len(numbers)}{code}", *numbers))


def sok_numbers(path):
    """(kind, slot, code, numbers) of a file."""
    content = path.read_bytes()
    kind, slot = struct.unpack(">I", content[256:260])[0], content[260:292].decode().strip()
    number = struct.unpack(">I", content[292:296])[0]
    code = next(code for code, known in SOK_DTYPES.items() if known == number)
    rest = content[296:]
    return kind, slot, code, struct.unpack(f"<{len(rest) // struct.calcsize(code)}{code}", rest)


def hps_folder(path, rows, meta=None):
    """Rows: (key, vector) pairs."""
    path.mkdir(parents=True)
    path.joinpath("key").write_bytes(b"".join(struct.pack("<q", key) for key, _ in rows))
    vectors = b"".join(struct.pack(f"<{len(vector)}f", *vector) for _, vector in rows)
    path.joinpath("emb_vector").write_bytes(vectors)
    if meta is not None:
        path.joinpath("meta").write_bytes(struct.pack(f"<{len(meta)}q", *meta))


def hps_dump(path, rows, code="q"):
    dim = len(rows[0][1])
    content = b"bin\0" + struct.pack("<III", 1, struct.calcsize(code), 4 * dim)
    for key, vector in rows:
        content += struct.pack(f"<{code}{dim}f", key, *vector)
    path.write_bytes(content)


def hps_rows(content):
    """(key, vector) pairs of a dump."""
    magic, version, key_size, value_size = struct.unpack("<4s3I", content[:16])
    assert (magic, version, key_size) == (b"bin\0", 1, 8)
    rows = struct.iter_unpack(f"<q{value_size // 4}f", content[16:])
    return {row[0]: row[1:] for row in rows}
