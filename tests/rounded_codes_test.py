"""Integer codes of a cache that a rounding error moves to the next code: a difference behind one is
no fault of a model that is proved equal, and no excuse for one that is not.

Environment: KVLIFT, the tool.
"""
import os
import tempfile
import unittest

import numpy as np
import onnx
from onnx import helper, numpy_helper

from support.recorded import MODELS
from support.tool import done, tool

SOURCE = "llama_genai_gqa_int8"


def amplify(model, factor):
    """Gives the first attention a sink, whose conversion rounds in another order, and lets a sine of
    `factor` times its argument enlarge what that changes before the next layer's rows are coded."""
    graph = model.graph
    first, second = [n for n in graph.node if n.op_type == "GroupQueryAttention"]
    first.input[11] = "sink"
    read = second.input[0]
    at = list(graph.node).index(second)
    second.input[0] = "sine"
    kept = list(graph.node)
    del graph.node[:]
    graph.node.extend(kept[:at] + [helper.make_node("Mul", [read, "factor"], ["larger"]),
                                   helper.make_node("Sin", ["larger"], ["sine"])] + kept[at:])
    for name, value in (("sink", np.linspace(-1, 1, 4)), ("factor", factor)):
        graph.initializer.append(numpy_helper.from_array(np.float32(value), name))
    return model


class RoundedCodes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.source = os.path.join(folder.name, "source.onnx")
        self.target = os.path.join(folder.name, "target.onnx")

    def save(self, factor):
        model = onnx.load(os.path.join(MODELS, SOURCE, "model.onnx"))
        onnx.save(amplify(model, factor), self.source)

    def test_codes_that_rounding_moves_are_not_judged(self):
        told = ""
        for factor in (1, 10, 100):
            with self.subTest(factor=factor):
                self.save(factor)
                text = done("convert", self.source, "-o", self.target, "--force", "--verify")
                self.assertIn("verdict: equal (", text)
                self.assertNotIn("only tested", text)
                told += text
        self.assertIn("not judged: rounding may change a decision", " ".join(told.split()))

    def test_another_sink_is_another_model(self):
        self.save(100)
        done("convert", self.source, "-o", self.target, "--force")
        model = onnx.load(self.source)
        for tensor in model.graph.initializer:
            if tensor.name == "sink":
                tensor.CopyFrom(numpy_helper.from_array(np.float32([-1, -1, 1, 1]), "sink"))
        onnx.save(model, self.source)
        run = tool("verify", self.source, self.target)
        self.assertIn("verdict: different", run.stdout)


if __name__ == "__main__":
    unittest.main()
