"""Reads checkpoints with numpy alone, written from docs/checkpoint-format.md."""

import json

import numpy as np
import xxhash

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2"}
DTYPES |= {"I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"}


def read_file(folder, file):
    """The tensors of a file, each block checked; bfloat16 as float32."""
    raw = (folder / file["file"]).read_bytes()
    assert len(raw) == file["bytes"]
    start = 8 + int.from_bytes(raw[:8], "little")
    sums = {"": [xxhash.xxh3_64_hexdigest(raw[:start])]}
    tensors = {}
    for name, tensor in json.loads(raw[8:start]).items():
        begin, end = tensor["data_offsets"]
        data = raw[start + begin : start + end]
        rows = tensor["shape"][0] if tensor["shape"] else 1
        block = len(data) // max(rows, 1) * file["block"]
        parts = [data[at : at + block] for at in range(0, len(data), block or 1)]
        sums[name] = [xxhash.xxh3_64_hexdigest(part) for part in parts]
        values = np.frombuffer(data, DTYPES.get(tensor["dtype"], "<u2"))
        if tensor["dtype"] == "BF16":
            values = (values.astype("<u4") << 16).view("<f4")
        tensors[name] = values.reshape(tensor["shape"])
    assert sums == file["checksums"]
    return tensors


def read_table(folder, name):
    """{key: {column: value}} of a table, with what the checkpoint goes on from."""
    manifest = json.loads((folder / "manifest.json").read_text())
    table, rows = manifest["tables"].get(name), {}
    if manifest["base"] and not (table and table["full"]):
        rows = read_table(folder / manifest["base"]["path"], name)
    for shard in table["shards"] if table else []:
        tensors = read_file(folder, shard)
        for key in tensors.pop("erased", []):
            rows.pop(int(key), None)
        keys = tensors.pop("keys", None)
        for row in range(shard["count"]):
            key = shard["keys"][0] + row if keys is None else int(keys[row])
            rows[key] = {column: values[row] for column, values in tensors.items()}
    return rows


def read_group(folder, name):
    """The arrays of a group."""
    return read_file(folder, json.loads((folder / "manifest.json").read_text())["groups"][name])
