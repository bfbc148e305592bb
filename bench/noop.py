"""The cheapest work there is, for measuring what schedd itself costs. A module of its own: it must be importable."""


def noop() -> None:
    """Do nothing."""
