"""The error of everything that reads or keeps a population."""


class PopulationError(OSError, ValueError):
    """The data cannot be made into a population; the message says what to do."""
