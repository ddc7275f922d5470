"""The README's program runs as it stands."""

from tests.documented import names_of


def test_program():
    names = names_of("README.md")
    assert names["model"].count_params() == 10_000 * 16 + 32 + 1
