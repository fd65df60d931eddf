"""The slots of a batch as the host sees them: who sits where, and the programs that run over them."""

import itertools
from collections import deque
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh
from jax.typing import ArrayLike

from .._typing import PyTree
from ..control import Controller, Costs, estimate
from ..drafters import Drafter
from ..lm import LanguageModel
from ..sharding import on_mesh
from ..state import FinishReason, GenerateConfig, Generation
from . import programs
from .placement import groups_of, zeros
from .prompts import IDLE, bucket, pack, rows_at_once
from .request import Request


class Slots:
    """A batch of rows on the device or a mesh, all of them idle at first. Only `build` and `ended` wait for it."""

    def __init__(
        self,
        target: LanguageModel,
        target_params: PyTree,
        drafter: Drafter | None,
        drafter_params: PyTree,
        *,
        batch: int,
        config: GenerateConfig,
        seed: int,
        eos_tokens: Sequence[int],
        controller: Controller,
        costs: Costs | None,
        mesh: Mesh | None,
    ):
        if costs is None:
            costs = estimate(target_params, drafter, drafter_params, batch // groups_of(mesh), config.widths)
        costs = costs.checked(config.widths)
        if mesh is not None:
            target_params, drafter_params, costs = on_mesh((target_params, drafter_params, costs), mesh)
        self._models = (target, target_params, drafter, drafter_params)
        self._config, self._seed = config, seed
        self._eos = np.asarray(eos_tokens, np.int32)
        self._requests: list[Request | None] = [None] * batch
        self._built: set[int] = set()
        self._controller, self._costs = controller, costs
        state = programs.shapes(*self._models, self._eos, batch=batch, config=config, mesh=mesh)
        self._state, self._placement = zeros(state), state.placement
        self._reasons: ArrayLike = np.full(batch, FinishReason.RUNNING)
        # Rows that take the place of others go on with what was learned of those: the best guess there is.
        self._control = programs.begin(controller, drafter, batch, config, self._placement)
        self._own = batch // self._placement.groups
        """Slots of each group of devices: the first of them are the first group's."""

    @property
    def busy(self) -> int:
        """Rows that run, as far as the host knows."""
        return sum(request is not None for request in self._requests)

    def next_group(self, waiting: deque[Request]) -> tuple[int, list[Request]]:
        """A bucket, and the requests of it that are read next: the first that waits, and others along with it.

        They leave the queue; there are none where no slot is idle. The others keep their order.
        """
        if not waiting:
            return 0, []
        width = self._bucket(waiting[0])
        most = len(self._idle(width))
        if not most:
            return 0, []
        group = []
        for _ in range(len(waiting)):
            request = waiting.popleft()
            if len(group) < most and self._bucket(request) == width:
                group.append(request)
            else:
                waiting.append(request)
        return width, group

    def is_built(self, width: int) -> bool:
        """Whether the programs for prompts of this bucket have run."""
        return width in self._built

    def build(self, width: int) -> None:
        """Compile what prompts of this bucket need, by running it on idle rows; the rows that run are not touched."""
        if not self._built:
            # Every leaf of the state gets the value that the models give an idle row.
            rows = self._rows(width)
            for first in range(0, self._own, rows):
                own = range(first, min(first + rows, self._own))
                every = [base + slot for base in range(0, len(self._requests), self._own) for slot in own]
                self._insert(width, [IDLE] * len(every), every, fresh=True)
            jax.block_until_ready(self._take([0] * self._placement.groups))
        else:
            self._insert(width, [], [])
        self.decode(wanted=1, rounds=0)
        jax.block_until_ready(self._reasons)
        self._built.add(width)

    def insert(self, width: int, group: Sequence[Request]) -> None:
        """Put the requests into idle slots."""
        idle = self._idle(width)[: len(group)]
        self._insert(width, group, idle)
        for slot, request in zip(idle, group, strict=True):
            self._requests[slot] = request

    def decode(self, *, wanted: int, rounds: int) -> None:
        """Go on until ``wanted`` rows have ended, none runs, or so many rounds have passed.

        Each group of devices goes by its share of ``wanted``.
        """
        self._state, self._control, self._reasons = programs.decode(
            *self._models,
            self._controller,
            self._costs,
            self._state,
            self._control,
            np.int32(-(-wanted // self._placement.groups)),
            np.int32(rounds),
            config=self._config,
            placement=self._placement,
        )

    def ended(self) -> list[tuple[Request, Generation, int]]:
        """Wait for the device, and free the slots whose rows have ended.

        Each request comes with a generation, which may still be on its way, and its row in it.
        """
        reasons = np.asarray(self._reasons)
        due: list[list[tuple[int, Request]]] = [[] for _ in range(self._placement.groups)]
        for slot, request in enumerate(self._requests):
            if request is not None and reasons[slot] != FinishReason.RUNNING:
                due[slot // self._own].append((slot % self._own, request))
                self._requests[slot] = None
        found = []
        for turn in itertools.zip_longest(*due):  # one of each group
            generation = self._take([0 if one is None else one[0] for one in turn])
            found += [(one[1], generation, row) for row, one in enumerate(turn) if one is not None]
        return found

    def _bucket(self, request: Request) -> int:
        return bucket(len(request.token_ids), self._config)

    def _rows(self, width: int) -> int:
        """R, the prompts of a bucket that each group of devices reads at once."""
        return rows_at_once(width, self._config, self._own)

    def _idle(self, width: int) -> list[int]:
        """The idle slots that can be filled at once: up to R of each group, in turn so that all get as many."""
        by_group = (
            [slot for slot in range(first, first + self._own) if self._requests[slot] is None][: self._rows(width)]
            for first in range(0, len(self._requests), self._own)
        )
        return [slot for turn in itertools.zip_longest(*by_group) for slot in turn if slot is not None]

    def _insert(self, width: int, group: Sequence[Request], slots: Sequence[int], *, fresh: bool = False) -> None:
        groups, rows = self._placement.groups, self._rows(width)
        members = [IDLE] * (groups * rows)
        places, counts = np.zeros((groups, rows), np.int32), np.zeros(groups, np.int32)
        for slot, request in zip(slots, group, strict=True):
            of, place = divmod(slot, self._own)
            members[of * rows + counts[of]] = request
            places[of, counts[of]] = place
            counts[of] += 1
        self._state = programs.insert(
            *self._models,
            self._state,
            pack(members, len(members), width, self._seed),
            places,
            counts,
            np.bool_(fresh),
            self._eos,
            config=self._config,
            placement=self._placement,
        )

    def _take(self, places: Sequence[int]) -> Generation:
        return programs.take(self._state, np.asarray(places, np.int32), config=self._config, placement=self._placement)
