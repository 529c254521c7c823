"""Times one step of both models at several lengths, and asks whether caches are copied.

A copy shows in time alone: the same step with one buffer for past and present, and with two, which
have to be copied.
"""

import statistics
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from .errors import Refused
from .record import Plan, Record
from .runtime import Converted, Runtime, feed_array

WARM_UP = 3


class Times(NamedTuple):
    min_us: float
    median_us: float


class Length(NamedTuple):
    tokens: int
    capacity: int
    before: Optional[Times]  # None: the runtime refuses the source
    after: Times


class InPlace(NamedTuple):
    """What was measured of a step with large caches."""

    bytes: int            # of the caches that the manifest calls safe
    one_buffer: Times
    two_buffers: Times
    copy: Optional[Times]  # of as many bytes in host memory; None: the caches are elsewhere
    copied: str           # "no", "yes" or "unclear"


def rounds_of(steps: List[Callable[[], None]], rounds: int) -> List[Times]:
    """Returns the times of each step; the steps take turns, so that noise meets all alike."""
    taken: List[List[float]] = [[] for _ in steps]
    for number in range(WARM_UP + rounds):
        for step, times in zip(steps, taken):
            begin = time.perf_counter()
            step()
            if number >= WARM_UP:
                times.append((time.perf_counter() - begin) * 1e6)
    return [Times(min(times), statistics.median(times)) for times in taken]


def _converted_step(runtime: Runtime, session: Any, record: Record, plan: Plan,
                    arrays: Dict[str, np.ndarray], in_place: bool) -> Callable[[], None]:
    model = Converted(runtime, session, record.caches, in_place)
    binding = model.bind(plan.steps[0].after, arrays)

    def step() -> None:
        model.bind_outputs(binding)
        runtime.run(session, binding)

    return step


def _source_step(runtime: Runtime, session: Any, plan: Plan,
                 arrays: Dict[str, np.ndarray]) -> Callable[[], None]:
    binding = session.io_binding()
    held = []
    for feed in plan.steps[0].before[0].inputs:
        held.append(runtime.value(feed_array(feed, arrays), feed.type))
        binding.bind_ortvalue_input(feed.name, held[-1])
    names = [o.name for o in session.get_outputs()]

    def step(keep: Any = held) -> None:
        # A host gets presents of another length in each step: nothing can be bound before.
        binding.clear_binding_outputs()
        for name in names:
            binding.bind_output(name, runtime.device, runtime.device_id)
        runtime.run(session, binding)

    return step


def lengths(runtime: Runtime, after: Any, record: Record,
            rounds: int) -> Tuple[List[Length], str]:
    """Returns the times of both models behind each recorded length, and why the source has none."""
    found, before, why = [], None, ""
    try:
        before = runtime.session(record.before.path)
    except Refused as error:
        why = str(error)
    for plan in record.lengths:
        arrays = record.arrays(plan.steps[0])
        mine = _converted_step(runtime, after, record, plan, arrays, True)
        times: List[Times] = []
        if before is not None:
            try:
                source = _source_step(runtime, before, plan, arrays)
                source()
                times = rounds_of([source, mine], rounds)
            except Refused as error:
                why = str(error)
        if not times:
            times = [None, *rounds_of([mine], rounds)]
        found.append(Length(plan.steps[0].past[0], plan.capacity, *times))
    return found, why


def in_place(runtime: Runtime, after: Any, record: Record, rounds: int) -> Optional[InPlace]:
    """Compares one buffer for past and present with two; None: the record has no such step."""
    safe = {c.input for c in record.caches if c.in_place}
    if not record.large or not safe:
        return None
    plan = record.large[0]
    arrays = record.arrays(plan.steps[0])
    size = sum(feed_array(f, arrays).nbytes for f in plan.steps[0].after if f.name in safe)
    steps = [_converted_step(runtime, after, record, plan, arrays, one) for one in (True, False)]
    if runtime.device == "cpu":
        here, there = np.ones(size, np.uint8), np.empty(size, np.uint8)
        steps.append(lambda: np.copyto(there, here))
    one, two, *copy = rounds_of(steps, rounds)
    saved = two.min_us - one.min_us
    cost = copy[0].min_us if copy else two.min_us
    copied = "unclear"
    if saved > 0.4 * cost:
        copied = "no"
    elif one.min_us > cost and abs(saved) < 0.1 * cost:
        copied = "yes"
    return InPlace(size, one, two, copy[0] if copy else None, copied)
