"""Shares of hosts, and what is said where they cannot be found."""

import jax
import pytest

from specdec_jax.batch import Host, JobError, PassingError, joined
from specdec_jax.batch.hosts import FAREWELL


@pytest.mark.parametrize("processes", [1, 3, 4])
def test_every_item_belongs_to_one_host(processes):
    shares = [list(Host(process, processes).share("abcdefghij")) for process in range(processes)]
    assert sorted(pair for share in shares for pair in share) == list(enumerate("abcdefghij"))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_machine_that_knows_of_no_others(monkeypatch):
    def unknown(*_, **__):
        raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(jax.distributed, "initialize", unknown)
    message = r"cannot join the other hosts \(coordinator_address should .*or a coordinator"
    with pytest.raises(JobError, match=message), joined():
        pass


@pytest.mark.parametrize(("in_step", "seconds"), [(True, FAREWELL), (False, 300)])
def test_those_in_step_leave_together(in_step, seconds, monkeypatch):
    """Or, after so long, one of them has failed while the others wait for it elsewhere."""
    asked = []

    def late(*_, shutdown_timeout_seconds):
        asked.append(shutdown_timeout_seconds)
        raise RuntimeError("DEADLINE_EXCEEDED")

    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(jax.distributed, "initialize", late)
    message = r"cannot join the other hosts \(DEADLINE_EXCEEDED\); expected all of them to start"
    with pytest.raises(PassingError, match=message), joined(in_step=in_step):
        pass
    assert asked == [seconds]
