"""What is wrong with a checkpoint on disk."""


class BrokenCheckpoint(ValueError):
    """A file of a checkpoint isn't what the format says; the message names the file."""
