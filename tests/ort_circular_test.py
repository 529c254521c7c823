"""Rings and shifting buffers, converted with --mode circular, against their sources in ONNX Runtime.

Steps go over the end of the buffer several times. Slot t mod M of the converted cache must hold, bit
for bit, what the source holds for token t. Environment: KVLIFT, the tool; KVLIFT_ROOT, the
repository.
"""
import glob
import os
import tempfile
import unittest

import numpy as np
import onnx
from onnx import numpy_helper

from support.cases import DATA, session, source_of_case
from support.tool import done

TOLERANCE = 1e-5


def convert(source, folder):
    out = os.path.join(folder, "out.onnx")
    done("convert", source, "-o", out, "--mode", "circular", "--force", "--quiet")
    return out


def run(model, feeds):
    return dict(zip([o.name for o in model.get_outputs()], model.run(None, feeds)))


def slots(capacity, total):
    """Of the rows of a shifting buffer."""
    return [(row + total) % capacity for row in range(capacity)]


class CircularTest(unittest.TestCase):
    def close(self, want, got):
        self.assertLessEqual(np.abs(want - got).max(), TOLERANCE * max(1, np.abs(want).max()))

    def drive(self, case, mask_of, extra=None):
        """mask_of(P, S, batch): what the source's host gives; of rows for a shifting source."""
        shifts = case.startswith("shifting")
        batch, capacity, past = 2, 8, 0
        random = np.random.default_rng(3)
        with tempfile.TemporaryDirectory() as folder:
            source = source_of_case(case, folder)
            before, after = session(source), session(convert(source, folder))
            theirs = {n: np.zeros((batch, 2, capacity, 4), np.float32) for n in ("past_k", "past_v")}
            mine = {n: v.copy() for n, v in theirs.items()}
            for tokens in [3, 1, 1, 2, 3, 1, 1, 1, 3, 2, 1, 4, 1]:
                feeds = {n: random.standard_normal((batch, tokens, w)).astype(np.float32)
                         for n, w in (("q", 16), ("k", 8), ("v", 8))}
                feeds["mask"] = mask_of(past, tokens, batch)
                feeds |= extra(past) if extra else {}
                want = run(before, feeds | theirs)
                control = {"write_indices": np.full(batch, past, np.int64)} if shifts else {}
                got = run(after, feeds | mine | control)
                self.close(want["y"], got["y"])
                past += tokens
                for kind in "kv":
                    theirs[f"past_{kind}"] = want[f"present_{kind}"]
                    mine[f"past_{kind}"] = got[f"present_{kind}"]
                    rows = got[f"present_{kind}"]
                    if shifts:
                        rows = rows[:, :, slots(capacity, past)]
                    np.testing.assert_array_equal(want[f"present_{kind}"], rows)
        self.assertGreater(past, 2 * capacity)

    @staticmethod
    def of_rows(past, tokens, batch):
        """Row r holds token P + S - M + r."""
        token = past + tokens - 8 + np.arange(8)
        seen = (token >= 0) & (token <= past + np.arange(tokens)[:, None])
        return np.broadcast_to(seen, (batch, 1, tokens, 8)).copy()

    @staticmethod
    def of_slots(past, tokens, batch):
        last = past + tokens - 1
        token = last - (last - np.arange(8)) % 8
        seen = (token >= 0) & (token <= past + np.arange(tokens)[:, None])
        return np.broadcast_to(seen, (batch, 1, tokens, 8)).copy()

    def test_shifting_buffer(self):
        self.drive("shifting_buffer_mask", self.of_rows)

    def test_shifting_buffer_with_a_bias(self):
        def bias(past, tokens, _):
            seen = self.of_rows(past, tokens, 1)
            slope = np.arange(8, dtype=np.float32) / 4
            return np.where(seen, slope, -np.inf).astype(np.float32)
        self.drive("shifting_buffer_bias", bias)

    def test_ring_buffer(self):
        self.drive("ring_buffer_scatter", self.of_slots, lambda past: {"first": np.array([past])})

    def test_recorded_steps(self):
        folder = os.path.join(DATA, "models", "toy_fifo_shift_ts")
        with tempfile.TemporaryDirectory() as out:
            model = session(convert(os.path.join(folder, "model.onnx"), out))
            caches, past = {}, 0
            for step in sorted(glob.glob(os.path.join(folder, "steps", "*"))):
                feeds, want = {}, {}
                for kind, values in (("input", feeds), ("output", want)):
                    for path in glob.glob(os.path.join(step, kind + "_*.pb")):
                        tensor = onnx.TensorProto()
                        with open(path, "rb") as file:
                            tensor.ParseFromString(file.read())
                        values[tensor.name] = numpy_helper.to_array(tensor)
                caches = {n: caches.get(n + "_out", v) for n, v in feeds.items() if "cache" in n}
                tokens, batch = feeds["input_ids"].shape[1], feeds["input_ids"].shape[0]
                got = run(model, feeds | caches
                          | {"write_indices": np.full(batch, past, np.int64)})
                self.close(want["logits"], got["logits"])
                past += tokens
                for name in caches:
                    rows = got[name + "_out"][:, :, slots(32, past)]
                    self.close(want[name + "_out"], rows)
                caches = {n: v for n, v in got.items() if "cache" in n}
        self.assertGreater(past, 1)


if __name__ == "__main__":
    unittest.main()
