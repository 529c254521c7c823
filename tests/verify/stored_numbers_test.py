"""Models that differ in stored numbers. Bools take part in no arithmetic, so that no difference in
the results is rounding.

Environment: KVLIFT, the tool.
"""

import unittest

import numpy as np
import onnx
from onnx import numpy_helper

from support.tool import FolderTest, tool

SLOTS = 24
TEXT = '''<ir_version: 10, opset_import: ["" : 18]>
  g (float[B,S,16] x, float[B,2,P,8] past_k, float[B,2,P,8] past_v)
    => (float[B,S,16] y, float[B,2,T,8] present_k, float[B,2,T,8] present_v)
  { heads = Constant <value = int64[4] {0, 0, 2, 8}> ()
    flat = Constant <value = int64[3] {0, 0, 16}> ()
    first = Constant <value = int64[1] {0}> ()
    axis_q = Constant <value = int64[1] {2}> ()
    axis_k = Constant <value = int64[1] {3}> ()
    x4 = Reshape (x, heads) q0 = Transpose <perm = [0, 2, 1, 3]> (x4) q = Mul (q0, sharp)
    k = Neg (q0) v = Tanh (q0)
    present_k = Concat <axis = 2> (past_k, k) present_v = Concat <axis = 2> (past_v, v)
    k_t = Transpose <perm = [0, 1, 3, 2]> (present_k)
    product = MatMul (q, k_t) scores = Add (product, shift)
    p = Shape <start = 2, end = 3> (past_k) t = Shape <start = 2, end = 3> (present_k)
    rows = Slice (table, p, t, axis_q) seen = Slice (rows, first, t, axis_k)
    masked = Where (seen, scores, low) w = Softmax (masked) c = MatMul (w, present_v)
    c4 = Transpose <perm = [0, 2, 1, 3]> (c) y0 = Reshape (c4, flat) y = Add (x, y0) }'''


def model(flipped=None, sharp=0.75, shift=0.0):
    result = onnx.parser.parse_model(TEXT)
    table = np.tril(np.ones((1, 1, SLOTS, SLOTS), bool))
    if flipped:
        table[0, 0, flipped[0], flipped[1]] ^= True
    for name, value in (("table", table), ("sharp", np.float32(sharp)),
                        ("low", np.float32(-np.inf)), ("shift", np.float32(shift))):
        result.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return result


class StoredNumbersTest(FolderTest):
    def verdict(self, before, after):
        onnx.save(before, self.dir / "before.onnx")
        onnx.save(after, self.dir / "after.onnx")
        run = tool("verify", self.dir / "before.onnx", self.dir / "after.onnx")
        return run.stdout.splitlines()[-1]

    def test_an_entry_of_a_mask_that_hides_a_key_of_little_weight(self):
        """The outputs differ by less than rounding may explain elsewhere."""
        self.assertIn("verdict: equal (", self.verdict(model(), model()))
        for query in (SLOTS // 2, SLOTS - 1):
            for key in range(0, query, 3):
                with self.subTest(query=query, key=key):
                    self.assertIn("verdict: different", self.verdict(model(), model((query, key))))

    def test_scores_that_are_all_larger_by_a_number(self):
        """A softmax is the same function for them, and rounds otherwise."""
        self.assertNotIn("different", self.verdict(model(), model(shift=5.0)))

    def test_a_rounding_of_a_stored_number_is_no_difference(self):
        near = self.verdict(model(), model(sharp=np.nextafter(np.float32(0.75), np.float32(2))))
        self.assertNotIn("different", near)
        self.assertIn("verdict: different", self.verdict(model(), model(sharp=0.8)))


if __name__ == "__main__":
    unittest.main()
