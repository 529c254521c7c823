"""Compares what a runtime gave with what a record expects, element by element."""

from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from .record import Cache, Record, Step
from .runtime import StepResult


class Difference(NamedTuple):
    """An element that is farther from the expected one than its bound."""

    output: str
    element: Optional[Tuple[int, ...]]  # None: not one element, but shape or slots
    got: float
    want: float
    bound: float
    text: str


class Worst(NamedTuple):
    """The largest distance of an output's elements, and the bound of the worst one in its terms."""

    max_abs: float = 0.0
    bound: float = 0.0
    ratio: float = 0.0


def numbers(array: np.ndarray, type_name: str) -> np.ndarray:
    """Returns the elements as float64; those of 8-bit floats as their bits."""
    if type_name == "bfloat16":
        wide = array.astype(np.uint32) << 16
        return wide.view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def _float8e4m3fn() -> np.ndarray:
    """Returns the number of each byte."""
    byte = np.arange(256)
    exponent, digits = byte >> 3 & 15, byte & 7
    size = np.where(exponent == 0, digits * 2.0**-9, (1 + digits / 8) * 2.0**(exponent - 7.0))
    size[byte & 127 == 127] = np.nan
    return np.where(byte & 128, -size, size).astype(np.float32)


FLOAT8E4M3FN = _float8e4m3fn()


def read_back(values: np.ndarray, scales: np.ndarray, cache: Cache) -> np.ndarray:
    """Returns the rows of a quantised cache in float32."""
    wide = FLOAT8E4M3FN[values] if cache.type == "float8e4m3fn" else values.astype(np.float32)
    return wide * np.repeat(scales, cache.group, axis=-1)


def is_exact(type_name: str) -> bool:
    return not type_name.startswith(("float16", "float32", "float64", "bfloat16"))


def compare(name: str, got: np.ndarray, want: np.ndarray, bound: np.ndarray,
            type_name: str) -> Tuple[Worst, Optional[Difference]]:
    """Compares two tensors; elements whose bound is NaN may be anything."""
    if got.shape != want.shape or got.dtype != want.dtype:
        text = f"{got.dtype} {list(got.shape)} instead of {want.dtype} {list(want.shape)}"
        return Worst(ratio=np.inf), Difference(name, None, 0, 0, 0, text)
    judged = ~np.isnan(np.broadcast_to(bound, want.shape))
    if is_exact(type_name):
        wrong = judged & (got != want)
        if not wrong.any():
            return Worst(), None
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        return Worst(ratio=np.inf), Difference(name, at, float(got[at]), float(want[at]), 0.0,
                                               f"{got[at]} instead of {want[at]}")
    g, w = numbers(got, type_name), numbers(want, type_name)
    with np.errstate(invalid="ignore"):
        distance = np.where(g == w, 0.0, np.abs(g - w))
    alike = (g == w) | (np.isnan(g) & np.isnan(w))
    distance = np.where(alike, 0.0, np.where(np.isfinite(g) & np.isfinite(w), distance, np.inf))
    distance = np.where(judged, distance, 0.0)
    allowed = np.broadcast_to(bound, want.shape).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(distance == 0, 0.0, distance / allowed)
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    if ratio.size == 0:
        return Worst(), None
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
    worst = Worst(float(distance.max()), float(allowed[at]) if distance[at] else 0.0,
                  float(ratio[at]))
    if not ratio[at] > 1:
        return worst, None
    text = f"{g[at]:.9g} instead of {w[at]:.9g}, bound {allowed[at]:.3g}"
    return worst, Difference(name, at, float(g[at]), float(w[at]), float(allowed[at]), text)


def slots_of(cache: Cache, step: Step, sequence: int, capacity: int) -> np.ndarray:
    """Returns the slots of a sequence's new tokens."""
    slots = step.past[sequence] + np.arange(step.new_tokens)
    return slots % capacity if cache.circular else slots


def rows_of(buffer: np.ndarray, cache: Cache, sequence: int, batch: int) -> np.ndarray:
    """Returns the part of a buffer that holds a sequence."""
    each = buffer.shape[cache.batch_axis] // batch
    index = [slice(None)] * buffer.ndim
    index[cache.batch_axis] = slice(sequence * each, (sequence + 1) * each)
    return buffer[tuple(index)]


def new_rows(buffer: np.ndarray, cache: Cache, step: Step) -> np.ndarray:
    """Returns the rows of the step's tokens, of all sequences."""
    batch = len(step.past)
    parts = [np.take(rows_of(buffer, cache, b, batch),
                     slots_of(cache, step, b, buffer.shape[cache.axis]), axis=cache.axis)
             for b in range(batch)]
    return np.concatenate(parts, axis=cache.batch_axis)


def changed_slot(cache: Cache, step: Step, before: np.ndarray,
                 after: np.ndarray) -> Optional[Tuple[int, int]]:
    """Returns sequence and slot of a row that the step must not touch and that has other bytes."""
    batch, capacity = len(step.past), after.shape[cache.axis]
    if before.shape != after.shape:
        return 0, 0
    sources = step.order or range(batch)
    for b, source in zip(range(batch), sources):
        kept = np.ones(capacity, bool)
        kept[slots_of(cache, step, b, capacity)] = False
        old = np.compress(kept, rows_of(before, cache, source, batch), axis=cache.axis)
        new = np.compress(kept, rows_of(after, cache, b, batch), axis=cache.axis)
        bits = f"u{old.dtype.itemsize}"
        unlike = np.ascontiguousarray(old).view(bits) != np.ascontiguousarray(new).view(bits)
        if unlike.any():
            place = int(np.argwhere(unlike)[0][cache.axis])
            return b, int(np.flatnonzero(kept)[place])
    return None


def judge(record: Record, step: Step, arrays: Dict[str, np.ndarray],
          result: StepResult) -> Iterator[Tuple[str, Worst, Optional[Difference]]]:
    """Yields output, distance and difference for each output of a step."""
    by_output = {c.output: c for c in record.caches}
    for expected in step.expect:
        got, cache = result.outputs[expected.name], by_output.get(expected.name)
        want, bound = arrays[expected.array], arrays[expected.bound]
        if cache is not None and not cache.grows:
            last = max(step.past) + step.new_tokens
            if not cache.circular and last > got.shape[cache.axis]:
                text = f"{got.shape[cache.axis]} slots do not hold {last} tokens"
                yield expected.name, Worst(), Difference(expected.name, None, 0, 0, 0, text)
                continue
            stored = [cache] if not cache.scales else [cache, by_output[cache.scales]]
            changed = next(((one.output, at) for one in stored
                            if (at := changed_slot(one, step, result.before[one.output],
                                                   result.outputs[one.output])) is not None), None)
            if changed is not None:
                name, (sequence, slot) = changed
                holds = "a past token" if slot < step.past[sequence] else "no token of the step"
                text = f"slot {slot} of sequence {sequence} holds {holds} and changed"
                yield name, Worst(ratio=np.inf), Difference(name, None, 0, 0, 0, text)
                continue
            rows = [new_rows(result.outputs[one.output], one, step) for one in stored]
            got = rows[0] if len(rows) == 1 else read_back(rows[0], rows[1], cache)
        yield expected.name, *compare(expected.name, got, want, bound, expected.type)


def source_agrees(record: Record, step: Step, arrays: Dict[str, np.ndarray],
                  runs: List[Dict[str, np.ndarray]]) -> bool:
    """Whether the source's outputs other than caches lie within the bounds of the conversion's."""
    caches = {c.output for c in record.caches}
    names = {o["name"]: o.get("source", o["name"]) for o in record.document["manifest"]["outputs"]}
    batch = len(step.past)
    for expected in step.expect:
        if expected.name in caches:
            continue
        for run, outputs in zip(step.before, runs):
            got, want = outputs[names[expected.name]], arrays[expected.array]
            bound = np.broadcast_to(arrays[expected.bound], want.shape)
            if got.shape != want.shape and want.ndim and want.shape[0] % batch == 0:
                each = want.shape[0] // batch
                rows = slice(run.sequences[0] * each, (run.sequences[0] + 1) * each)
                want, bound = want[rows], bound[rows]
            if got.shape != want.shape:
                # Alone, a sequence has no padding tokens: it may have fewer tokens.
                if got.ndim < 2 or got.shape[1] > want.shape[1]:
                    continue
                want, bound = want[:, :got.shape[1]], bound[:, :got.shape[1]]
            if compare(expected.name, got, want, bound, expected.type)[1] is not None:
                return False
    return True
