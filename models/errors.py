"""The one error of this package, and where other people's code may raise anything."""

from collections.abc import Iterator
from contextlib import contextmanager


class LoadError(ValueError):
    """A model that cannot be loaded: the message says what was got, what was expected, and what to do."""


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
        raise LoadError(f"{what} ({error}); {advice}") from error
