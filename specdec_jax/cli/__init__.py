"""``specdec``: thin subcommands over the library. Each lives in its own module and is imported when it is asked for."""

import contextlib
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

COMMANDS = {
    "generate": "continue prompts from the command line or from a file",
    "demo": "answer the shipped prompts with and without a drafter, and compare",
    "explain": "show on one token, in pictures, how the output keeps the target's distribution",
    "trace": "show a generation round by round, in the terminal and as a page",
    "predict": "say what speculation gains, from numbers or for two models beside the measurement",
    "convert": "write a model as a Hugging Face directory",
    "distill": "train a drafter for a target",
    "check": "check that a drafter changes nothing in what a model says",
    "throughput": "time many answers with slots that are refilled, and in whole batches",
    "tune": "measure what draft steps and verify passes cost on this device",
    "plan": "compile for a TPU slice without one, and say what fits and how fast it could be",
    "bench": "time plain and speculative decoding beside transformers on the same weights",
}

USAGE = "usage: specdec COMMAND [OPTIONS]\n\nLossless speculative decoding.\n\ncommands:\n" + "".join(
    f"  {name:<12}{what}\n" for name, what in COMMANDS.items()
)


UNEXPECTED = 70
"""Exit status of a command that an error of the program or the device has ended; EX_SOFTWARE of sysexits.h."""


INTERRUPTED = 130
"""Exit status of a command that Ctrl-C has ended, as shells have it."""


class UserError(Exception):
    """What the user can put right: shown as a message, without a traceback."""


def main(args: Sequence[str] | None = None) -> int:
    """Run a subcommand and return its exit status: 0 done, 1 done in part, 2 not done because of bad input,
    3 stopped before the end, 70 failed by what nobody expected, 130 interrupted."""
    args = sys.argv[1:] if args is None else list(args)
    name = args[0] if args else "--help"
    if name in ("-h", "--help"):
        print(USAGE + "\nspecdec COMMAND --help lists the options of a command.")
        return 0 if args else 2
    if name not in COMMANDS:
        _say(f"specdec: no command {name!r}; expected one of {', '.join(COMMANDS)}")
        return 2

    from ..models import LoadError

    _keep_compiled_programs()
    command = importlib.import_module(f".{name}", __name__)
    try:
        with _terminable():
            return command.main(args[1:])
    except (UserError, LoadError) as error:
        _say(f"specdec {name}: {error}")
        return 2
    except BrokenPipeError:  # whoever read the output has had enough, as in `specdec generate ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception:  # Python itself would end with 1, which says that the work is done
        _say(traceback.format_exc().rstrip())
        return UNEXPECTED


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # nothing can be written there, and the exit status says the rest
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends a command as an exception, so that what it was writing beside its output is cleaned up."""
    if threading.current_thread() is not threading.main_thread():  # only there can it be asked for
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _keep_compiled_programs() -> None:
    """Keep compiled programs in the user's cache folder, so that a second run of a command starts at once."""
    import jax

    chosen = jax.config.values["jax_compilation_cache_dir"]
    if chosen is None:  # otherwise JAX_COMPILATION_CACHE_DIR says where
        jax.config.update("jax_compilation_cache_dir", str(cache_folder()))


def cache_folder() -> Path:
    """The package's own folder among the user's caches."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specdec_jax"
