"""Windows as rings, converted with --window circular, against their sources in ONNX Runtime.

Steps go over the end of the ring several times, some of them on both sides of it. Slot t mod C of
the converted cache must hold, bit for bit, what the source computed for token t; the rings never
grow. Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import os
import tempfile
import unittest

import numpy as np

from support.cases import DATA, session, source_of_case
from support.tool import done

TOLERANCE = 1e-5
WINDOW = 5  # rows that the cases keep


def run(model, feeds):
    named = {i.name: feeds[i.name] for i in model.get_inputs()}
    return dict(zip([o.name for o in model.get_outputs()], model.run(None, named)))


class RingsTest(unittest.TestCase):
    def close(self, want, got, what=""):
        bound = TOLERANCE * max(1, np.abs(want).max())
        self.assertLessEqual(np.abs(want - got).max(), bound, what)

    def drive(self, case, steps, slots, feeds_of):
        """A decoder of tokens of 16 and 8 numbers; caches past_k, past_v, past_k2, ..."""
        random, batch, past = np.random.default_rng(5), 2, 0
        with tempfile.TemporaryDirectory() as folder:
            source = source_of_case(case, folder)
            out = os.path.join(folder, "out.onnx")
            done("convert", source, "-o", out, "--window", "circular")
            before, after = session(source), session(out)
            names = [i.name for i in before.get_inputs() if i.name.startswith("past")]
            theirs = {n: np.zeros((batch, 2, 0, 4), np.float32) for n in names}
            mine = {n: np.zeros((batch, 2, slots[n], 4), np.float32) for n in names}
            made = {n: [] for n in names}  # rows by token
            for tokens in steps:
                feeds = {n: random.standard_normal((batch, tokens, w)).astype(np.float32)
                         for n, w in (("q", 16), ("k", 8), ("v", 8))}
                feeds |= feeds_of(past, tokens, batch)
                want = run(before, feeds | theirs)
                got = run(after, feeds | mine | {"write_indices": np.full(batch, past, np.int64)})
                self.close(want["y"], got["y"], f"{case}, past {past}")
                past += tokens
                for name in names:
                    present = name.replace("past", "present")
                    theirs[name], mine[name] = want[present], got[present]
                    made[name] += list(np.moveaxis(want[present][:, :, -tokens:], 2, 0))
                    self.assertEqual(mine[name].shape[2], slots[name])
                    for token in range(max(0, past - slots[name]), past):
                        np.testing.assert_array_equal(
                            mine[name][:, :, token % slots[name]], made[name][token])
        return past

    def test_a_window(self):
        slots = {"past_k": WINDOW + 3, "past_v": WINDOW + 3}
        past = self.drive("growing_window_ring", [3, 1, 1, 2, 3, 1, 1, 1, 3, 2, 1, 3, 1, 3, 3, 2],
                          slots, lambda *_: {})
        self.assertGreater(past, 3 * slots["past_k"])

    def test_a_ring_beside_a_capacity(self):
        """The one is of the ring, the other of buffers that keep all rows."""
        with tempfile.TemporaryDirectory() as folder:
            source = source_of_case("growing_window_ring_and_full", folder)
            out = os.path.join(folder, "out.onnx")
            done("convert", source, "-o", out, "--window", "circular:8", "--max-seq-len", "30")
            self.assertEqual(done("check", out), "check: 0 errors, 0 warnings\n")
            slots = {i.name: i.shape[2] for i in session(out).get_inputs()
                     if i.name.startswith("past")}
            self.assertEqual(slots, {"past_k": 8, "past_v": 8, "past_k2": 30, "past_v2": 30})

    def test_moved_rows_in_few_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            source = source_of_case("shifting_buffer_mask", folder)
            text = done("convert", source, "-o", os.path.join(folder, "out.onnx"), "--mode",
                        "circular", "--quantize-cache", "int8:4", "--verify")
            self.assertIn("verdict: equal within quantisation", text)

    def test_a_ring_in_few_bits(self):
        """Slot t mod C holds token t as int8 with a scale for four elements."""
        slots, batch, past = WINDOW + 3, 2, 0
        random = np.random.default_rng(9)
        with tempfile.TemporaryDirectory() as folder:
            source = source_of_case("growing_window_ring", folder)
            out = os.path.join(folder, "out.onnx")
            text = done("convert", source, "-o", out, "--window", "circular", "--quantize-cache",
                        "int8:4", "--verify")
            self.assertIn("verdict: equal within quantisation", text)
            before, after = session(source), session(out)
            names = ("past_k", "past_v")
            theirs = {n: np.zeros((batch, 2, 0, 4), np.float32) for n in names}
            mine = {n: np.zeros((batch, 2, slots, 4), np.int8) for n in names}
            mine |= {n + "_scale": np.zeros((batch, 2, slots, 1), np.float32) for n in names}
            made = {n: [] for n in names}
            for tokens in (3, 1, 1, 2, 3, 1, 1, 1, 3, 2, 1, 3, 1, 3, 3, 2):
                feeds = {n: random.standard_normal((batch, tokens, w)).astype(np.float32)
                         for n, w in (("q", 16), ("k", 8), ("v", 8))}
                want = run(before, feeds | theirs)
                got = run(after, feeds | mine | {"write_indices": np.full(batch, past, np.int64)})
                self.assertLess(np.abs(want["y"] - got["y"]).max(), 0.05)
                past += tokens
                for name in names:
                    present = name.replace("past", "present")
                    theirs[name] = want[present]
                    made[name] += list(np.moveaxis(want[present][:, :, -tokens:], 2, 0))
                    for tensor in (name, name + "_scale"):
                        mine[tensor] = got[tensor.replace("past", "present")]
                    for token in range(max(0, past - slots), past):
                        row = made[name][token]
                        scale = np.abs(row).max(-1, keepdims=True) / np.float32(127)
                        at = token % slots
                        np.testing.assert_allclose(mine[name + "_scale"][:, :, at], scale,
                                                   rtol=1e-6)
                        np.testing.assert_array_equal(mine[name][:, :, at], np.rint(row / scale))
        self.assertGreater(past, 3 * slots)

    def test_ten_windows_in_a_ring_of_the_least_size(self):
        slots = {"past_k": WINDOW + 1, "past_v": WINDOW + 1}
        self.drive("growing_window_ring", [1] * 10 * WINDOW, slots, lambda *_: {})

    def test_a_window_and_a_full_cache(self):
        ring, full = WINDOW + 3, 40
        slots = {"past_k": ring, "past_v": ring, "past_k2": full, "past_v2": full}
        past = self.drive("growing_window_ring_and_full", [3, 2, 1, 3, 1, 3, 2, 1, 1, 3, 3, 3, 1],
                          slots, lambda past, tokens, batch: {
                              "mask2": np.ones((batch, past + tokens), bool)})
        self.assertGreater(past, 3 * ring)


if __name__ == "__main__":
    unittest.main()
