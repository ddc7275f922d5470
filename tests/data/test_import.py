"""Merlin is no requirement of the package."""

from tests import fresh


def test_no_merlin_is_imported_with_the_package():
    imported = fresh.last_line_of(
        """
        import json, sys
        import merlin_embeddings
        print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
        """
    )
    assert "merlin_embeddings" in imported
    assert not {"merlin", "nvtabular"}.intersection(imported)
