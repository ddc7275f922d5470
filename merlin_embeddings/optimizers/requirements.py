"""What the optimizers ask of their arguments."""


def require_not_negative(optimizer: str, **arguments: float | None) -> None:
    """Raises ValueError, naming the argument, for a number below 0 (None is none)."""
    for argument, value in arguments.items():
        if value is not None and not value >= 0:
            raise ValueError(f"{optimizer}: {argument} must not be negative, got {value}")


def require_positive(optimizer: str, **arguments: float | None) -> None:
    """Raises ValueError, naming the argument, for a number that isn't above 0 (None is none)."""
    for argument, value in arguments.items():
        if value is not None and not value > 0:
            raise ValueError(f"{optimizer}: {argument} must be positive, got {value}")
