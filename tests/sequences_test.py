"""Models that put tensors into sequences and take them out again, as exports of torch.hstack do:
they convert as those that name the tensors.

Environment: KVLIFT, the tool.
"""
import unittest

import numpy as np
import onnx
import onnxruntime as ort
from onnx import parser

from support.tool import FolderTest, done

# The mask of a step is one part for the past, of zeros, and one for the new tokens.
DECODER = """<ir_version: 10, opset_import: ["" : 20]>
decoder (float[B,S,16] x, float[B,2,P,8] past_k, float[B,2,P,8] past_v)
  => (float[B,S,16] y, float[B,2,T,8] present_k, float[B,2,T,8] present_v)
  <int64[4] apart = {{0,0,2,8}}, int64[3] joined = {{0,0,16}}, int64 first = {{0}}, int64 second = {{1}},
   int64[1] one = {{1}}, float low = {{-inf}}, float none = {{0}}, int64 upper = {{1}}>
{{
  heads = Reshape (x, apart)
  q = Transpose <perm = [0, 2, 1, 3]> (heads)
  present_k = Concat <axis = 2> (past_k, q)
  present_v = Concat <axis = 2> (past_v, q)
  new = Shape <start = 1, end = 2> (x)
  old = Shape <start = 2, end = 3> (past_k)
  square = Concat <axis = 0> (new, new)
  full = Expand (low, square)
  later = Trilu <upper = 1> (full, upper)
  before = Concat <axis = 0> (new, old)
  seen = Expand (none, before)
  {mask}
  turned = Transpose <perm = [0, 1, 3, 2]> (present_k)
  scores = MatMul (q, turned)
  masked = Add (scores, mask)
  weights = Softmax <axis = -1> (masked)
  context = MatMul (weights, present_v)
  rows = Transpose <perm = [0, 2, 1, 3]> (context)
  y = Reshape (rows, joined)
}}"""
PLAIN = "mask = Concat <axis = 1> (seen, later)"
JOINED = """parts = SequenceConstruct (seen, later)
  mask = ConcatFromSequence <axis = 1> (parts)"""
# TorchScript asks for the rank of the first part.
BY_RANK = """parts = SequenceConstruct (seen, later)
  part = SequenceAt (parts, first)
  dims = Shape (part)
  rank = Shape (dims)
  is_row = Equal (rank, one)
  mask = If (is_row) <
    then_branch = rows () => (float[F,G] row) { row = ConcatFromSequence <axis = 0> (parts) },
    else_branch = columns () => (float[F,G] column) {
      column = ConcatFromSequence <axis = 1> (parts)
    }>"""
# torch.export makes each part a tensor of at least one axis.
MAPPED = """parts = SequenceConstruct (seen, later)
  wide = SequenceMap (parts) <body = each (float[F,G] part) => (float[F,G] same) {
    same = Identity (part)
  }>
  left = SequenceAt (wide, first)
  right = SequenceAt (wide, second)
  mask = Concat <axis = 1> (left, right)"""


class Sequences(FolderTest):
    def saved(self, name, mask):
        path = self.dir / name
        onnx.save(parser.parse_model(DECODER.format(mask=mask).replace("{{", "{")), path)
        return path

    def test_models_convert_as_those_that_name_the_tensors(self):
        plain = self.saved("plain.onnx", PLAIN)
        for name, mask in (("joined", JOINED), ("by_rank", BY_RANK), ("mapped", MAPPED)):
            with self.subTest(name):
                source, out = self.saved(f"{name}.onnx", mask), self.dir / f"{name}.out.onnx"
                text = done("convert", source, "-o", out, "--accept", "proved")
                self.assertIn("2 of 2 caches, 1 of 1 attentions", text)
                self.assertIn("verdict: equal (", done("verify", source, out))
                left = {n.op_type for n in onnx.load(out).graph.node}
                self.assertFalse({op for op in left if "Sequence" in op})
                self.in_onnx_runtime(plain, source)

    def in_onnx_runtime(self, *paths):
        numbers = np.random.default_rng(4)
        feeds = {name: numbers.standard_normal(shape).astype(np.float32)
                 for name, shape in {"x": (2, 3, 16), "past_k": (2, 2, 4, 8),
                                     "past_v": (2, 2, 4, 8)}.items()}
        options = ort.SessionOptions()
        options.log_severity_level = 3  # constants that one of the masks does not read
        results = [ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
                   .run(["y"], feeds) for path in paths]
        np.testing.assert_allclose(*results, rtol=1e-6)


if __name__ == "__main__":
    unittest.main()
