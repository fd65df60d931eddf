"""SIGTERM: a stop that is asked for, and one that has to be."""

import os
import signal
import subprocess
import sys
import time

import pytest

from specdec_jax.cli.drain import STOPPED, draining


def test_the_first_signal_asks_and_the_second_is_as_ever():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append(7))
    try:
        with draining(1000.0) as drain:
            assert not drain.asked
            os.kill(os.getpid(), signal.SIGTERM)
            assert drain.asked
            assert not drain.over
            assert not seen
            os.kill(os.getpid(), signal.SIGTERM)
            assert seen == [7]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_signals_are_left_as_they_were():
    before = signal.getsignal(signal.SIGTERM)
    with draining(0.0) as drain:
        pass
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.set_wakeup_fd(-1) == -1
    assert not drain.asked


BUSY = """
import hashlib, signal, sys
from specdec_jax.cli.drain import draining
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as every command has it
with draining(float(sys.argv[1]), grace=float(sys.argv[2])) as drain:
    print("busy", flush=True)
    while not drain.over:
        # In C, where no handler of Python's runs, for long or not.
        hashlib.pbkdf2_hmac("sha256", b"password", b"salt", int(sys.argv[3]))
    sys.exit(5)
"""


@pytest.mark.parametrize(
    ("seconds", "grace", "work", "signals", "status"),
    [("0.3", "20", 1000, 1, 5), ("0.3", "0.2", 10**9, 1, STOPPED), ("1000", "0.2", 10**9, 2, 128 + signal.SIGTERM)],
    ids=["by itself", "from outside", "at once"],
)
def test_what_does_not_end_by_itself_is_ended(seconds, grace, work, signals, status):
    command = [sys.executable, "-c", BUSY, seconds, grace, str(work)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        for _ in range(signals):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        assert process.wait(timeout=20) == status
