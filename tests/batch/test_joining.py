"""Shares of hosts, and what is said where they cannot be found."""

import jax
import pytest

from specdec_jax.batch import Host, JobError, joined


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
