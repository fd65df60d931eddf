"""``specdec plan`` for a TPU slice that is not here, for test_tpu to run in a process of its own.

libtpu reads the environment once a process, so the command lines in the argument, a JSON list of lists, share one. For
each of them one line of JSON says with which status it ended, and what it wrote.
"""

import contextlib
import io
import json
import sys

from specdec_jax.cli import main


def ran(command: list[str]) -> dict[str, str | int | None]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["plan", *command])
    return {"status": status, "out": out.getvalue(), "err": err.getvalue()}


for command in json.loads(sys.argv[1]):
    print(json.dumps(ran(command)), flush=True)
