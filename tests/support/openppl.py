"""Shared by the tests of models with OpenPPL's KeyValueCache."""
import os
import tempfile
import unittest

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

LAYERS, HEADS, SIZE, VOCABULARY, WIDTH, SLOTS, GROUP = 2, 2, 8, 50, 32, 24, 4


class Model:
    def __init__(self):
        self.nodes, self.weights = [], {}

    def constant(self, name, value, dtype=np.int64):
        self.weights.setdefault(name, np.array(value, dtype))
        return name

    def op(self, kind, inputs, outputs, domain="", **attributes):
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(kind, inputs, outputs, domain=domain, **attributes))
        return outputs[0] if len(outputs) == 1 else outputs

    def mask_and_angles(self, start):
        """Adds mask [S, T], cos and sin [S, 1, D] of tokens start to total, both scalars."""
        c = self.constant
        self.op("Range", [start, "total", c("one", 1)], "places")
        self.op("Range", [c("zero", 0), "total", c("one", 1)], "keys_at")
        self.op("Unsqueeze", ["places", c("axis_1", [1])], "rows_at")
        self.op("LessOrEqual", ["keys_at", "rows_at"], "sees")
        self.op("Where", ["sees", c("open", 0, np.float32), c("low", -np.inf, np.float32)], "mask")
        angles = np.outer(np.arange(64), 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE))
        self.constant("cos_table", np.concatenate([np.cos(angles)] * 2, 1), np.float32)
        self.constant("sin_table", np.concatenate([np.sin(angles)] * 2, 1), np.float32)
        for name in ("cos", "sin"):
            self.op("Gather", [f"{name}_table", "places"], f"{name}_rows")
            self.op("Unsqueeze", [f"{name}_rows", c("axis_1", [1])], name)

    def rotated(self, x, name, axis):
        """Applies RoPE to heads [.., S, N, D]; `axis` is the axis of D."""
        c, half, at = self.constant, SIZE // 2, self.constant(f"axis_{axis}", [axis])
        first = self.op("Slice", [x, c("from_0", [0]), c("from_half", [half]), at],
                        f"{name}_first")
        second = self.op("Slice", [x, c("from_half", [half]), c("to_end", [SIZE]), at],
                         f"{name}_second")
        turned = self.op("Concat", [self.op("Neg", [second], f"{name}_neg"), first],
                         f"{name}_turned", axis=axis)
        return self.op("Add", [self.op("Mul", [x, "cos"], f"{name}_cos"),
                               self.op("Mul", [turned, "sin"], f"{name}_sin")], f"{name}_rotated")

    def build(self, inputs, outputs, domain):
        info = lambda name, kind, shape: helper.make_tensor_value_info(name, kind, list(shape))
        graph = helper.make_graph(
            self.nodes, "decoder", [info(*i) for i in inputs], [info(*o) for o in outputs],
            [numpy_helper.from_array(w, name) for name, w in self.weights.items()])
        return helper.make_model(graph, ir_version=8, opset_imports=[
            helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)])


def write(folder, name, array):
    os.makedirs(folder, exist_ok=True)
    np.save(os.path.join(folder, f"{name}.npy"), array)


def read(folder, k):
    tensor = TensorProto()
    with open(os.path.join(folder, f"output_{k}.pb"), "rb") as file:
        tensor.ParseFromString(file.read())
    return numpy_helper.to_array(tensor)


class Tested(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def near(self, got, want, what):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4, err_msg=what)

    def driven(self, target, manifest, batch, steps):
        """Runs a converted model in ONNX Runtime and returns its outputs. The steps have the feeds
        without the caches, which begin with zeros."""
        options = ort.SessionOptions()
        options.log_severity_level = 3
        session = ort.InferenceSession(target, options, providers=["CPUExecutionProvider"])
        buffers = {}
        for cache in manifest["caches"]:
            groups = SIZE // GROUP if cache["role"].endswith("_scale") else SIZE
            sizes = {"B": batch, "S": SLOTS, "N": HEADS, "D": groups, "L": LAYERS, "K": 2}
            buffers[cache["input"]] = np.zeros([sizes[x] for x in cache["layout"]],
                                               cache["dtype"])
        names = [output.name for output in session.get_outputs()]
        for feeds in steps:
            self.assertEqual({i.name for i in session.get_inputs()}, {*feeds, *buffers})
            got = dict(zip(names, session.run(names, {**feeds, **buffers})))
            yield got
            for cache in manifest["caches"]:
                buffers[cache["input"]] = got[cache["output"]]
