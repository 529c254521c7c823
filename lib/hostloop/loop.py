#!/usr/bin/env python3
"""Runs a model that kvlift converted, in ONNX Runtime: prompts first, then token by token.

Each cache is one buffer of M slots that is bound as past and as present, so a step writes its new
rows in place and copies none. Written by kvlift for the model named below; yours to change.

    loop.py MODEL --prompt 1,2,3 --prompt 4,5 --new 20 --capacity 256

Letters: B sequences, S tokens of a step, P tokens of a sequence that the caches hold before it,
T = P + S, M slots.
"""
import argparse
from typing import NamedTuple

import numpy as np
import onnxruntime as ort


class Cache(NamedTuple):
    past: str           # name of its input
    present: str        # name of its output
    type: int           # element type, numbered as in ONNX
    axes: tuple         # letters or sizes; ("B", 4) is 4 rows for each sequence
    in_place: bool      # no node reads the past after it is written


class Input(NamedTuple):
    meaning: str        # what `Decoder.value` computes; "given": the caller gives it
    type: type
    axes: tuple
    added: bool = False  # a mask that is added: 0 for a visible key, else the lowest number


# ---- facts: replaced by those of the model
MODEL = "model.onnx"
BATCH = None        # B, where the model fixes it
TOKENS = None       # S, where the model fixes it
CAPACITY = None     # M, where the model fixes it
UNIFORM = False     # all sequences hold the same number of tokens
CIRCULAR = False    # slots are used again from the first on
NEW_WITH_PAST = None  # most tokens of a step that has a past
CHUNK = None        # most tokens of any step
LOGITS = "logits"
CACHES = ()
INPUTS = {"input_ids": Input("tokens", np.int64, ("B", "S"))}
# ---- end of facts

NUMPY_TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 10: np.float16, 11: np.float64}


class CacheFull(RuntimeError):
    """Raised before a step runs if it has more tokens than there are free slots."""


class Decoder:
    """A batch of sequences and their caches.

    `lengths`, int64 [B], is the number of tokens in the caches. Lowering a length removes the last
    tokens of a sequence: the next step overwrites their rows.
    """

    def __init__(self, path=MODEL, batch=BATCH or 1, capacity=CAPACITY or 256, threads=0):
        if BATCH not in (None, batch) or CAPACITY not in (None, capacity):
            raise ValueError(f"the model takes a batch of {BATCH or 'any size'} and caches of "
                             f"{CAPACITY or 'any'} slots")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3  # errors
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.batch, self.capacity = batch, capacity
        self.lengths = np.zeros(batch, np.int64)
        caches = {cache.present for cache in CACHES}
        self.outputs = [o.name for o in self.session.get_outputs() if o.name not in caches]
        # Buffers hold zeros, because a NaN in an unused slot would spread through 0 * NaN.
        self.buffers = {cache.past: self._buffer(cache) for cache in CACHES}
        self._spare = {c.past: self._buffer(c) for c in CACHES if not c.in_place}
        self.bound = {}  # by past: the present that ONNX Runtime returned in the last step

    def _buffer(self, cache):
        sizes = {"B": self.batch, "M": self.capacity}
        shape = [sizes[a[0]] * a[1] if isinstance(a, tuple) else sizes.get(a, a)
                 for a in cache.axes]
        if cache.type in NUMPY_TYPES:
            return ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, NUMPY_TYPES[cache.type]))
        wide = cache.type in (4, 5, 16)  # types of two bytes; all others have one
        zeros = np.zeros(shape, np.uint16 if wide else np.uint8)
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(zeros, cache.type)

    def value(self, spec, tokens, real):
        """Returns the array that the host gives for an input.

        tokens: [B, S]. real: [B], how many tokens of each sequence are not padding.
        """
        new = tokens.shape[1]
        total = self.lengths.max() + new
        sizes = {"B": self.batch, "S": new, "T": total, "M": self.capacity,
                 "P": self.lengths.max()}
        shape = [sizes[a[0]] * a[1] if isinstance(a, tuple) else sizes.get(a, a)
                 for a in spec.axes]
        names = [a[0] if isinstance(a, tuple) else a for a in spec.axes]
        place = dict(zip(names, np.indices(shape, sparse=True)))
        sequence = place.get("B", np.int64(0))
        past, count = self.lengths[sequence], real[sequence]
        token = place.get("S", 0)
        if spec.meaning in ("mask", "hidden"):
            key = next((place[letter] for letter in "TMP" if letter in place), 0)
            visible = key < past + (token + 1 if "S" in place else count)
            if spec.added:
                result = np.where(visible, 0, np.finfo(spec.type).min)
            else:
                result = visible == (spec.meaning == "mask")
        else:
            result = {"tokens": lambda: tokens if "B" in place else tokens[0],
                      "positions": lambda: past + token,
                      "last": lambda: past + count - 1, "total": lambda: past + count,
                      "new": lambda: count, "last_new": lambda: count - 1,
                      "order": lambda: sequence,
                      "has_past": lambda: past > 0, "no_past": lambda: past == 0,
                      "ones": lambda: 1, "zeros": lambda: 0,
                      "tree": lambda: np.tri(new)}[spec.meaning]()
        return np.broadcast_to(result, shape).astype(spec.type, order="C")

    def step(self, tokens, real=None, feeds=None):
        """Runs tokens [B, S] and returns the outputs other than caches, by name.

        real: [B], how many tokens of each sequence come before its padding; by default there is no
        padding. feeds: values by input name, which replace or complement those computed here.
        """
        tokens = np.asarray(tokens)
        new = tokens.shape[1]
        real = np.full(self.batch, new, np.int64) if real is None else np.asarray(real, np.int64)
        feeds = feeds or {}
        self._check(tokens, real, feeds)
        binding = self.session.io_binding()
        held = []  # bound tensors must outlive the run
        for name, spec in INPUTS.items():
            array = feeds[name] if name in feeds else self.value(spec, tokens, real)
            held.append(ort.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C")))
            binding.bind_ortvalue_input(name, held[-1])
        for name in self.outputs:
            binding.bind_output(name)
        for cache in CACHES:
            past = self.buffers[cache.past]
            binding.bind_ortvalue_input(cache.past, past)
            binding.bind_ortvalue_output(cache.present, self._spare.get(cache.past, past))
        self.session.run_with_iobinding(binding)
        results = binding.get_outputs()  # in the order in which they were bound
        self.bound = {c.past: v for c, v in zip(CACHES, results[len(self.outputs):])}
        for past, spare in self._spare.items():
            self.buffers[past], self._spare[past] = spare, self.buffers[past]
        self.lengths += real
        return {name: value.numpy() for name, value in zip(self.outputs, results)}

    def _check(self, tokens, real, feeds):
        new = tokens.shape[1]
        if tokens.shape[0] != self.batch or new == 0:
            raise ValueError(f"tokens need the shape [{self.batch}, S], S > 0")
        if TOKENS not in (None, new):
            raise ValueError(f"the model takes {TOKENS} tokens a step, not {new}")
        if CHUNK and new > CHUNK:
            raise ValueError(f"the model takes {CHUNK} tokens a step at most")
        if NEW_WITH_PAST and self.lengths.any() and new > NEW_WITH_PAST:
            raise ValueError(f"behind a past the model takes {NEW_WITH_PAST} tokens a step")
        if ((real < 0) | (real > new)).any():
            raise ValueError("each sequence has S tokens at most")
        if UNIFORM and (np.ptp(self.lengths) or np.ptp(real) or real[0] != new):
            raise ValueError("the model takes sequences of one length, without pads")
        missing = [n for n, i in INPUTS.items() if i.meaning == "given" and n not in feeds]
        if missing:
            raise TypeError(f"give a value for: {', '.join(missing)}")
        # ONNX Runtime would detect this in the middle of the step. Padding tokens take slots too.
        last = int(self.lengths.max()) + new
        if last > self.capacity and not CIRCULAR:
            raise CacheFull(f"{last} tokens do not fit into {self.capacity} slots")

    def prefill(self, prompts, feeds=None):
        """Runs prompts, lists of tokens; returns the logits after the last one of each, [B, V]."""
        real = np.array([len(prompt) for prompt in prompts])
        tokens = np.zeros((len(prompts), real.max()), np.int64)
        for row, prompt in zip(tokens, prompts):
            row[:len(prompt)] = prompt
        size = TOKENS or CHUNK or tokens.shape[1]
        if TOKENS and (real % TOKENS).any():
            raise ValueError(f"prompts need a multiple of {TOKENS} tokens")
        rows = None
        for first in range(0, tokens.shape[1], size):
            piece = tokens[:, first:first + size]
            count = np.clip(real - first, 0, piece.shape[1])
            ends = last_row(self.step(piece, count, feeds)[LOGITS], len(prompts), count)
            rows = ends if rows is None else np.where(count[:, None] > 0, ends, rows)
        return rows

    def generate(self, prompts, count, feeds=None):
        """Runs prompts, then generates greedily; returns `count` new tokens each, [B, count]."""
        rows = self.prefill(prompts, feeds)
        tokens = []
        for _ in range(count):
            tokens.append(rows.argmax(-1))
            if len(tokens) < count:
                rows = last_row(self.step(tokens[-1][:, None], feeds=feeds)[LOGITS], len(rows))
        return np.stack(tokens, axis=1)


def last_row(logits, batch, real=None):
    """Returns the logits of each sequence's last token, [B, V].

    logits: [B, S, V], [S, V] for one sequence, or [B, V] for the last token.
    """
    logits = logits.reshape(batch, -1, logits.shape[-1])
    last = np.minimum(logits.shape[1] if real is None else real, logits.shape[1]) - 1
    return logits[np.arange(logits.shape[0]), last]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=MODEL)
    parser.add_argument("--prompt", action="append", required=True,
                        help="tokens of one sequence: 1,2,3")
    parser.add_argument("--new", type=int, default=16, help="tokens to add")
    parser.add_argument("--capacity", type=int, default=CAPACITY or 256)
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    prompts = [[int(token) for token in prompt.split(",")] for prompt in args.prompt]
    decoder = Decoder(args.model, len(prompts), args.capacity, args.threads)
    for row in decoder.generate(prompts, args.new):
        print(",".join(str(token) for token in row))


if __name__ == "__main__":
    main()
