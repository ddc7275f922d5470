"""One module a peer: how its forward and training steps are best called.

Each module defines `Adapter`, a subclass of `adapters.base.Adapter`, and is imported only by the
worker process that runs it, since the peers live in different environments.
"""
