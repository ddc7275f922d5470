"""Settings of all tests."""

import hypothesis

# The first example of a test builds and traces: a deadline an example would only measure that.
hypothesis.settings.register_profile("merlin_embeddings", deadline=None)
hypothesis.settings.load_profile("merlin_embeddings")
