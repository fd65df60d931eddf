"""The one error of this package, and where other people's code may raise anything."""

from collections.abc import Iterator
from contextlib import contextmanager

_MOST, _MOST_OF_OTHERS = 4000, 300
"""Characters of a message, and of what another library says in it: both may quote a file at any length."""


class LoadError(ValueError):
    """A model that cannot be loaded: the message says what was got, what was expected, and what to do."""

    def __init__(self, message: str):
        super().__init__(_shortened(message, _MOST))


def _shortened(text: str, most: int) -> str:
    """A long text without its middle."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} [...] {text[-half:]}"


@contextmanager
def blamed(what: str, advice: str) -> Iterator[None]:
    """Turn whatever is raised within into a LoadError: ``what (the error); advice``.

    For libraries that raise nothing more exact. A panic of one written in Rust is no Exception, only a BaseException.
    """
    try:
        yield
    except (LoadError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise LoadError(f"{what} ({_shortened(str(error), _MOST_OF_OTHERS)}); {advice}") from error
