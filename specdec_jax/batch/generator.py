"""Many prompts through a few slots: when a row ends, the next prompt takes its place."""

import dataclasses
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
from jax.sharding import Mesh

from .._typing import PyTree
from ..control import Controller, Costs, constant
from ..drafters import Drafter
from ..lm import LanguageModel
from ..sharding import check_rows
from ..state import FinishReason, GenerateConfig, Generation
from .request import Answer, Counts, Refused, Request, check, check_integer
from .slots import Slots


class Finished(NamedTuple):
    """What ended in one stretch of decoding; often nothing."""

    answers: list[Answer | Refused]
    seconds: float
    """Of the clock since the stretch before, building programs left out."""


_CONFIG = GenerateConfig()
_CONSTANT = constant()


@dataclasses.dataclass(frozen=True)
class BatchGenerator:
    """Answers any number of requests with ``batch`` rows that are kept busy.

        generate_all = BatchGenerator(target, target_params, drafter, drafter_params, batch=8)
        for answer in generate_all(Request(index, ids) for index, ids in enumerate(prompts)):
            ...

    Requests are drawn from their iterable as slots become idle, so a million of them are never in memory. Answers come
    as they finish. A row's randomness comes from the seed and the request alone, never from slot, neighbours or order:
    with a fixed draft length, or under the coupled rule, any batch size gives the same tokens (in float32; in bfloat16
    other shapes round otherwise). Requests that bring the same ``seed`` get the same noise: of equal prompts they are
    the same sample again, not further ones. Without seeds of their own rows are independent.

    Three programs are compiled: one that reads prompts, for each bucket of lengths that occurs, one that decodes, and a
    small one that takes an answer out. Nothing that comes later compiles anew. While the device decodes, the host hands
    out the answers before and draws the requests to come.
    """

    target: LanguageModel
    target_params: PyTree
    drafter: Drafter | None
    drafter_params: PyTree
    config: GenerateConfig = _CONFIG
    batch: int = 8
    """Slots."""
    seed: int = 0
    """Of the requests that bring none."""
    eos_tokens: Sequence[int] = ()
    """Ids of which any ends a row."""
    controller: Controller = _CONSTANT
    """How many guesses a round has. An adaptive one looks at all rows: then answers depend on each other's acceptance,
    except under the coupled and the greedy rule. Each answer's own law never does."""
    costs: Costs | None = None
    """That the controller weighs; by default estimated, as `generate` does."""
    refill: int | None = None
    """Rows that have ended before their slots are filled; by default an eighth of the batch. Reading prompts costs a
    pass whether one or several are due, and while several are waited for their slots are idle. On a mesh each group
    waits for its share of them."""
    max_rounds: int = 16
    """Rounds after which the host has a look, even if too few rows have ended."""
    mesh: Mesh | None = None
    """Devices to work on, see `sharding.make_mesh`: each group along ``data`` has an equal part of the slots, and the
    models lie over ``tensor`` as their parameters do; those that lie elsewhere are copied whole to every device. The
    devices may be those of several processes: then all ask for the same, and each gets all answers."""
    compiling: Callable[[int], None] | None = None
    """Told before programs are built for prompts of so many slots."""

    def __post_init__(self):
        for name in ("batch", "refill", "max_rounds"):
            value = getattr(self, name)
            if value is not None:
                check_integer(name, value, 1, 2**31 - 1)
        check_integer("seed", self.seed, 0, 2**32 - 1)
        if self.mesh is not None:
            check_rows(self.batch, self.mesh)

    def __call__(self, requests: Iterable[Request | Refused]) -> Iterator[Answer | Refused]:
        """The answers as they finish. A request that cannot be answered comes back as refused."""
        for finished in self.stretches(requests):
            yield from finished.answers

    def stretches(
        self, requests: Iterable[Request | Refused], *, accepting: Callable[[], bool] = lambda: True
    ) -> Iterator[Finished]:
        """The same, stretch by stretch, so that the caller has a say at least every ``max_rounds`` rounds.

        Once ``accepting()`` is False no request starts any more, and it ends with those that run. Whoever stops before
        that loses the rows that run and nothing else. If the iterable raises, its error comes after all answers to what
        it gave before.
        """
        failed: list[Exception] = []

        def until_it_fails() -> Iterator[Request | Refused]:
            try:
                for request in requests:  # noqa: UP028  (`yield from` would close the caller's generator with this one)
                    yield request
            except Exception as error:
                failed.append(error)

        run = self.begin(until_it_fails())
        yield run.collect()
        while run.advance(accepting=accepting()):
            yield run.collect()
        if failed:
            raise failed[0]

    def begin(self, requests: Iterable[Request | Refused]) -> "Run":
        """The same in two steps for each stretch, for callers that have to know which of them runs programs."""
        return Run(self, requests)


class Run:
    """Requests on their way through the slots of a generator: `collect` and `advance` in turn, until there is no more.

    Only `advance` runs programs. While the device is at work on what it was given there, `collect` is the host's part
    of the work, which costs the device no time: answers are fetched that had ended before, and requests drawn.
    """

    def __init__(self, generator: BatchGenerator, requests: Iterable[Request | Refused]):
        self._generator = generator
        self._slots = Slots(
            generator.target,
            generator.target_params,
            generator.drafter,
            generator.drafter_params,
            batch=generator.batch,
            config=generator.config,
            seed=generator.seed,
            eos_tokens=generator.eos_tokens,
            controller=generator.controller,
            costs=generator.costs,
            mesh=generator.mesh,
        )
        self._source = iter(requests)
        self._waiting: deque[Request] = deque()
        self._ended: list[tuple[Request, Generation, int]] = []
        self._more = self._accepting = True
        self._since, self._building = time.perf_counter(), 0.0

    def collect(self) -> Finished:
        """What has ended in the stretch before the one that runs, and the requests that cannot be answered."""
        answers = [_answer(*each) for each in self._ended]
        refused = self._draw() if self._more and self._accepting else []
        now = time.perf_counter()
        seconds, self._since = now - self._since - self._building, now
        return Finished([*answers, *refused], seconds)

    def advance(self, *, accepting: bool = True) -> bool:
        """Wait for the stretch that runs, and have the device begin the next; False if nothing is left to collect.

        Where it is not ``accepting`` no request starts, and it had better stay so.
        """
        ask, slots = self._generator, self._slots
        self._accepting, self._ended = accepting, slots.ended()
        self._building = self._fill() if accepting else 0.0
        if slots.busy:
            slots.decode(wanted=ask.refill or max(1, ask.batch // 8), rounds=ask.max_rounds)
        return bool(slots.busy or self._ended or (self._more and accepting))

    def _draw(self) -> list[Refused]:
        """Let up to a batch of requests wait; returns those that cannot be answered."""
        wanted, drawn, refused = self._generator.batch - len(self._waiting), 0, []
        for request in itertools.islice(self._source, wanted):
            drawn += 1
            checked = self._checked(request)
            if isinstance(checked, Refused):
                refused.append(checked)
            else:
                self._waiting.append(checked)
        self._more = drawn == wanted
        return refused

    def _checked(self, request: Request | Refused) -> Request | Refused:
        if isinstance(request, Refused):
            return request
        try:
            target = self._generator.target
            check(request, self._generator.config, vocab_size=target.vocab_size, max_positions=target.max_positions)
        except ValueError as error:
            return Refused(request.index, str(error), request.source)
        return request

    def _fill(self) -> float:
        """Give idle slots to those that wait; returns the seconds that building programs took."""
        seconds = 0.0
        while True:
            width, group = self._slots.next_group(self._waiting)
            if not group:
                return seconds
            if not self._slots.is_built(width):
                started = time.perf_counter()
                if self._generator.compiling is not None:
                    self._generator.compiling(width)
                self._slots.build(width)
                seconds += time.perf_counter() - started
            self._slots.insert(width, group)


def _answer(request: Request, generation: Generation, row: int) -> Answer:
    """A row of a generation, fetched from the device."""
    stats, logprobs = generation.stats, generation.logprobs
    counts = (stats.rounds, stats.drafted, stats.accepted, stats.drafted_at, stats.accepted_at)
    values = (generation.lengths, generation.finish_reason, generation.tokens, logprobs.raw, logprobs.sampled, *counts)
    length, reason, tokens, raw, sampled, *counts = (value[row].tolist() for value in jax.device_get(values))
    return Answer(
        request=request,
        token_ids=tokens[:length],
        finish_reason=FinishReason(reason),
        logprobs=raw[:length],
        sampled_logprobs=sampled[:length],
        counts=Counts(length, *counts),
    )
