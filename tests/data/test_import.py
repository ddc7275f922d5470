"""Merlin is no requirement of the package."""

from tests import fresh


def test_no_merlin_is_imported_with_the_package():
    assert (
        fresh.last_line_of(
            """
            import json, sys
            import merlin_embeddings
            print(json.dumps([m for m in sys.modules if m.split(".")[0] in ("merlin", "nvtabular")]))
            """
        )
        == []
    )
