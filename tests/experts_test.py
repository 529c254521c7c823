"""Decoders with mixtures of experts (MoE and QMoE of com.microsoft), which verify runs as operators
of ONNX: they are converted and proved equal, and a model whose experts differ is another model.

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

SOURCE = "llama_genai_gqa"
EXPERTS, SIZE, INNER = 4, 64, 16


def add_experts(model, quantized=False):
    """Adds a mixture of experts between the first layer's attention and what follows it."""
    graph, rng = model.graph, np.random.default_rng(5)
    attention = next(n for n in graph.node if n.op_type == "GroupQueryAttention")
    shape = [EXPERTS, 2 * INNER, SIZE], [EXPERTS, SIZE, INNER]
    tensors = {"experts_router": rng.normal(size=(SIZE, EXPERTS)).astype(np.float32),
               "experts_rows": np.array([-1, EXPERTS])}
    operands = []
    for k, (experts, rows, columns) in enumerate(shape):
        if quantized:
            tensors[f"experts_w{k}"] = rng.integers(0, 256, (experts, rows, columns // 2), np.uint8)
            tensors[f"experts_s{k}"] = np.full((experts, rows), 0.02, np.float32)
        else:
            tensors[f"experts_w{k}"] = rng.normal(size=shape[k]).astype(np.float32) / 8
        tensors[f"experts_b{k}"] = rng.normal(size=(experts, rows)).astype(np.float32)
        operands += [f"experts_{part}{k}" for part in ("wsb" if quantized else "wb")]
    read, made = attention.output[0], "attention_and_experts"
    for node in graph.node:
        for i, name in enumerate(node.input):
            if name == read:
                node.input[i] = made
    options = {"expert_weight_bits": 4} if quantized else {}
    nodes = [
        helper.make_node("MatMul", [read, "experts_router"], ["experts_scores3"]),
        helper.make_node("Reshape", ["experts_scores3", "experts_rows"], ["experts_scores"]),
        helper.make_node("QMoE" if quantized else "MoE", [read, "experts_scores", *operands],
                         ["experts_output"], domain="com.microsoft", k=2, activation_type="swiglu",
                         swiglu_fusion=1, normalize_routing_weights=1, **options),
        helper.make_node("Add", [read, "experts_output"], [made])]
    for name, tensor in tensors.items():
        graph.initializer.append(numpy_helper.from_array(tensor, name))
    at = list(graph.node).index(attention) + 1
    kept = list(graph.node)
    del graph.node[:]
    graph.node.extend(kept[:at] + nodes + kept[at:])
    return model


class Experts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.source = os.path.join(folder.name, "source.onnx")
        self.target = os.path.join(folder.name, "target.onnx")

    def save(self, **options):
        model = onnx.load(os.path.join(MODELS, SOURCE, "model.onnx"))
        onnx.save(add_experts(model, **options), self.source)

    def test_a_decoder_with_experts_is_proved_and_run(self):
        for quantized in (False, True):
            with self.subTest(quantized=quantized):
                self.save(quantized=quantized)
                text = done("convert", self.source, "-o", self.target, "--force", "--verify")
                self.assertIn("verdict: equal (", text)
                self.assertNotIn("(0 plans", text)
                self.assertNotIn("only tested", text)
                ops = {node.op_type for node in onnx.load(self.target).graph.node}
                self.assertIn("QMoE" if quantized else "MoE", ops)
                self.assertIn("TensorScatter", ops)

    def test_other_experts_are_another_model(self):
        self.save()
        done("convert", self.source, "-o", self.target, "--force")
        for name, value in (("experts_w0", 3.0), ("experts_router", -4.0)):
            with self.subTest(changed=name):
                model = onnx.load(self.target)
                for tensor in model.graph.initializer:
                    if tensor.name == name:
                        array = numpy_helper.to_array(tensor).copy()
                        array[..., 0] += np.float32(value)
                        tensor.CopyFrom(numpy_helper.from_array(array, name))
                other = self.target.replace("target", name)
                onnx.save(model, other)
                run = tool("verify", self.source, other, "--manifest",
                           self.target.replace(".onnx", ".kv.json"))
                self.assertNotIn("verdict: equal", run.stdout)


if __name__ == "__main__":
    unittest.main()
