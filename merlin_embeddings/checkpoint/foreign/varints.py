"""Numbers and messages as Protocol Buffers encode them (https://protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

from collections.abc import Iterator


def varint(content: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and the place behind it.

    Raises:
        ValueError: the bytes end in it, or it has more than 64 bits.
    """
    value, shift = 0, 0
    while shift < 64:
        if at >= len(content):
            raise ValueError("a number is cut short")
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number has more than 64 bits")


def put(value: int) -> bytes:
    """A number, at least 0."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: number, and value: an integer, or bytes.

    Raises:
        ValueError: it is no message.
    """
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = varint(message, at)
            yield number, value
            continue
        if kind == 2:
            size, at = varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if at + size > len(message):
            raise ValueError("a field is cut short")
        content, at = message[at : at + size], at + size
        yield number, content if kind == 2 else int.from_bytes(content, "little")


def field(number: int, value: int | bytes | str) -> bytes:
    """A field of a message."""
    if isinstance(value, int):
        return put(number << 3) + put(value)
    content = value.encode() if isinstance(value, str) else value
    return put(number << 3 | 2) + put(len(content)) + content


def fixed32(number: int, value: int) -> bytes:
    """A field of four bytes."""
    return put(number << 3 | 5) + value.to_bytes(4, "little")
