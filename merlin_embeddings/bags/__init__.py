"""Bags: one feature's ragged batch of ids, made from every kind of input."""

from merlin_embeddings.bags.bags import Bags, check_parts, check_shape
from merlin_embeddings.bags.padding import without_padding
from merlin_embeddings.bags.positions import bag_of, positions
from merlin_embeddings.bags.truncation import truncate
from merlin_embeddings.bags.values import check_padding
from merlin_embeddings.bags.weights import check_like, check_pool, flat_weights, kind_of
from merlin_embeddings.native import asserted, hash_strings

__all__ = [
    "Bags",
    "asserted",
    "bag_of",
    "check_like",
    "check_padding",
    "check_parts",
    "check_pool",
    "check_shape",
    "flat_weights",
    "hash_strings",
    "kind_of",
    "positions",
    "truncate",
    "without_padding",
]
