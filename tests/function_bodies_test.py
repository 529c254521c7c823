"""Models that bring the body of an operator of com.microsoft as a local function, as exporters do for
runtimes without the operator: the node stays, and so does the body.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import os
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, parser

from support.tool import done, tool

DECODER = """<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
decoder (float[B,S,16] x, float[B,S,16] residual, float[B,2,P,8] past_k, float[B,2,P,8] past_v)
  => (float[B,S,16] y, float[B,2,T,8] present_k, float[B,2,T,8] present_v)
  <float[16] weight = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}, int64[4] apart = {0,0,2,8},
   int64[3] joined = {0,0,16}>
{
  normal, mean, inverse, sum =
      com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.001> (x, residual, weight)
  heads = Reshape (normal, apart)
  q = Transpose <perm = [0, 2, 1, 3]> (heads)
  context, present_k, present_v = Attention <is_causal = 1> (q, q, q, , past_k, past_v)
  rows = Transpose <perm = [0, 2, 1, 3]> (context)
  y = Reshape (rows, joined)
}"""
NORM = "SkipSimplifiedLayerNormalization"
LEDGER = f"the runtime runs com.microsoft.{NORM} by its own kernel, not by the function in the model"


def body(scale=1.0):
    """Returns the function; with a scale other than 1 it is another computation than the operator."""
    return helper.make_function(
        "com.microsoft", NORM, ["input", "skip", "weight"], ["normal", "mean", "inverse", "sum"], [
            helper.make_node("Add", ["input", "skip"], ["sum"]),
            helper.make_node("Constant", [], ["scale"], value_float=scale),
            helper.make_node("Mul", ["weight", "scale"], ["scaled"]),
            function_norm(),
            helper.make_node("Constant", [], ["mean"], value_floats=[0.0]),
            helper.make_node("Constant", [], ["inverse"], value_floats=[0.0]),
        ], [helper.make_opsetid("", 23)], ["epsilon"])


def grown(function):
    """Returns a decoder of operator set 17 with its attention written out."""
    text = DECODER.replace('"" : 23', '"" : 17').replace(
        "context, present_k, present_v = Attention <is_causal = 1> (q, q, q, , past_k, past_v)", """
  present_k = Concat <axis = 2> (past_k, q)
  present_v = Concat <axis = 2> (past_v, q)
  turned = Transpose <perm = [0, 1, 3, 2]> (present_k)
  scores = MatMul (q, turned)
  weights = Softmax <axis = -1> (scores)
  context = MatMul (weights, present_v)""").replace("[B,S,16]", "[B,1,16]")
    model = parser.parse_model(text)
    model.functions.append(function)
    return model


def function_norm():
    node = helper.make_node("RMSNormalization", ["sum", "scaled"], ["normal"])
    epsilon = node.attribute.add()
    epsilon.name, epsilon.ref_attr_name = "epsilon", "epsilon"
    epsilon.type = onnx.AttributeProto.FLOAT
    return node


class FunctionBodies(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def saved(self, name, function=None):
        model = parser.parse_model(DECODER)
        if function is not None:
            model.functions.append(function)
        path = os.path.join(self.folder, name)
        onnx.save(model, path)
        return path

    def test_the_node_and_its_body_stay(self):
        plain, source = self.saved("plain.onnx"), self.saved("source.onnx", body())
        out = os.path.join(self.folder, "out.onnx")
        text = done("convert", source, "-o", out, "--accept", "proved")
        self.assertIn("2 of 2 caches, 1 of 1 attentions", text)
        before, after = onnx.load(source), onnx.load(out)
        kept, = after.functions
        self.assertEqual([n.SerializeToString() for n in kept.node],
                         [n.SerializeToString() for n in before.functions[0].node])
        self.assertEqual([(o.domain, o.version) for o in kept.opset_import], [("", 24)])
        calls = [n.op_type for n in after.graph.node].count(NORM)
        self.assertEqual(calls, [n.op_type for n in before.graph.node].count(NORM))
        self.assertGreater(calls, 0)
        self.assertNotIn(LEDGER, done("verify", source, out))
        bare = os.path.join(self.folder, "bare.onnx")
        done("convert", plain, "-o", bare)
        self.assertEqual(after.graph.SerializeToString(), onnx.load(bare).graph.SerializeToString())
        self.in_onnx_runtime(source, plain)

    def in_onnx_runtime(self, source, plain):
        """ONNX Runtime runs its own kernel, body or not."""
        numbers = np.random.default_rng(4)
        feeds = {name: numbers.standard_normal(shape).astype(np.float32)
                 for name, shape in {"x": (2, 3, 16), "residual": (2, 3, 16),
                                     "past_k": (2, 2, 4, 8), "past_v": (2, 2, 4, 8)}.items()}
        results = [ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(["y"], feeds)
                   for path in (source, plain)]
        np.testing.assert_array_equal(*results)

    def test_a_body_of_an_old_operator_set(self):
        """The axes of ReduceMean have become an operand since."""
        old = helper.make_function(
            "com.microsoft", NORM, ["input", "skip", "weight"], ["normal", "mean", "inverse", "sum"],
            [helper.make_node("Add", ["input", "skip"], ["sum"]),
             helper.make_node("Mul", ["sum", "sum"], ["square"]),
             helper.make_node("ReduceMean", ["square"], ["mean"], axes=[-1]),
             helper.make_node("Sqrt", ["mean"], ["root"]),
             helper.make_node("Reciprocal", ["root"], ["inverse"]),
             helper.make_node("Mul", ["sum", "inverse"], ["unit"]),
             helper.make_node("Mul", ["unit", "weight"], ["normal"])],
            [helper.make_opsetid("", 17)], ["epsilon"])
        source = os.path.join(self.folder, "old.onnx")
        onnx.save(grown(old), source)
        out = os.path.join(self.folder, "out.onnx")
        done("convert", source, "-o", out)
        onnx.checker.check_model(onnx.load(out))

    def test_bodies_that_differ_are_in_the_ledger(self):
        source, other = self.saved("source.onnx", body()), self.saved("other.onnx", body(2.0))
        out = os.path.join(self.folder, "out.onnx")
        done("convert", other, "-o", out)
        run = tool("verify", source, out, "--manifest", out.replace(".onnx", ".kv.json"))
        self.assertIn(LEDGER, " ".join(run.stdout.split()))


if __name__ == "__main__":
    unittest.main()
