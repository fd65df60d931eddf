"""The one error of this package."""


class LoadError(ValueError):
    """A model that cannot be loaded: the message says what was got, what was expected, and what to do."""
