"""Decoders of one attention beside operators of com.microsoft that newer exports have around it:
states of convolutions and of linear attention, positions of several axes (MRotaryEmbedding),
mixtures of experts, norms of heads. The caches are converted and proved; states stay as they are.
Environment: KVLIFT, the tool.
"""
import json
import os
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime as ort

from support.tool import done, tool

HIDDEN, SIZE, TABLE = 32, 8, 64

HEAD = """<ir_version: 10, opset_import: ["" : 22, "com.microsoft" : 1]>
decoder (float[B,S,32] embeds, int64[B,T] mask, float[B,2,P,8] "past.1.key",
         float[B,2,P,8] "past.1.value"{inputs})
  => (float[B,S,32] logits, float[B,2,T,8] "present.1.key",
      float[B,2,T,8] "present.1.value"{outputs})
<int64[1] one = {{1}}, int64 at = {{1}}>
{{
"""
# `x` is what the attention projects, `q`, `k` and `v` are its operands, `y` is its result.
LENGTHS = """
  counted = ReduceSum<keepdims = 0>(mask, one)
  less = Sub(counted, one)
  last = Cast<to = 6>(less)
  dims = Shape(mask)
  width = Gather(dims, at)
  total = Cast<to = 6>(width)
"""
PROJECT = """
  q = MatMul(x, wq)
  k = MatMul(x, wk)
  v = MatMul(x, wv)
"""
ATTEND = """
  y, "present.1.key", "present.1.value" = com.microsoft.GroupQueryAttention<num_heads = 4,
    kv_num_heads = 2{attributes}>(q, k, v, "past.1.key", "past.1.value", last, total{tables})
"""


def decoder(before, after="logits = Add(y, x)", inputs="", outputs="", attributes="", tables="",
            project=PROJECT):
    text = HEAD.format(inputs=inputs, outputs=outputs) + LENGTHS + before + project
    text += ATTEND.format(attributes=attributes, tables=tables) + after + "\n}\n"
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(3)
    shapes = {"wq": (32, 32), "wk": (32, 16), "wv": (32, 16), "cosines": (TABLE, 4),
              "sines": (TABLE, 4), "filters": (32, 1, 3), "norm": (SIZE,), "router": (32, 4),
              "up": (4, 8, 32), "down": (4, 32, 8)}
    read = {name for node in model.graph.node for name in node.input}
    for name, shape in shapes.items():
        if name in read:
            values = (rng.normal(size=shape) / 2).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return model


CONVOLUTION = """
  turned = Transpose<perm = [0, 2, 1]>(embeds)
  mixed, "present.0.conv" = com.microsoft.CausalConvWithState(turned, filters, , "past.0.conv")
  x = Transpose<perm = [0, 2, 1]>(mixed)
"""
STATE = {"inputs": ', float[B,32,2] "past.0.conv"', "outputs": ', float[B,32,2] "present.0.conv"'}
SAME = "\n  x = Identity(embeds)\n"


class HybridDecoders(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def convert(self, model, *options, equality="proved"):
        source, target = (os.path.join(self.folder, f"{name}.onnx") for name in ("source", "target"))
        onnx.save(model, source)
        text = done("convert", source, "-o", target, "--force", *options)
        with open(target.replace(".onnx", ".kv.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        self.assertEqual(manifest["equality"], equality, text)
        ops = [node.op_type for node in onnx.load(target).graph.node]
        self.assertNotIn("GroupQueryAttention", ops)
        self.assertEqual(ops.count("TensorScatter"), 2)
        return text, manifest, source, target

    def drive(self, source, target, manifest, more=lambda start, length: {}):
        """Runs both models beside each other in ONNX Runtime, states fed back."""
        options = ort.SessionOptions()
        options.log_severity_level = 3
        a, b = (ort.InferenceSession(path, options, ["CPUExecutionProvider"])
                for path in (source, target))
        slots, rng, start = 24, np.random.default_rng(5), 0
        theirs = {i.name: np.zeros([1 if d == "B" else 0 if d == "P" else d for d in i.shape],
                                   np.float32)
                  for i in a.get_inputs() if i.name.startswith("past.")}
        mine = {name: np.zeros((1, 2, slots, SIZE), np.float32) if "past.1" in name else value
                for name, value in theirs.items()}
        wanted = {i.name for i in b.get_inputs()}
        for length in (4, 1, 1, 3, 1, 2, 1):
            total = start + length
            feeds = {"embeds": rng.normal(size=(1, length, HIDDEN)).astype(np.float32),
                     "mask": np.ones((1, total), np.int64), **more(start, length)}
            want = dict(zip([o.name for o in a.get_outputs()], a.run(None, {**feeds, **theirs})))
            fed = {name: x for name, x in feeds.items() if name in wanted}
            if "write_indices" in wanted:
                fed["write_indices"] = np.array([start])
            got = dict(zip([o.name for o in b.get_outputs()], b.run(None, {**fed, **mine})))
            np.testing.assert_allclose(got["logits"], want["logits"], rtol=0, atol=2e-5)
            for name in theirs:
                present = name.replace("past", "present")
                theirs[name], mine[name] = want[present], got[present]
            start = total
        self.assertIn("write_indices", [i["name"] for i in manifest["inputs"]])

    def test_states_beside_embeddings(self):
        # No input but the dropped mask has integers: the sequences are counted elsewhere.
        model = decoder(CONVOLUTION, **STATE, attributes=", do_rotary = 1",
                        tables=", cosines, sines")
        text, manifest, source, _ = self.convert(model, "--verify")
        self.assertIn("KV226", done("inspect", source))
        self.assertEqual([d["name"] for d in manifest["dropped"]], ["mask"])
        self.assertIn("verdict: equal (", text)

    def test_genai_counts_the_layers_of_states(self):
        model = decoder(CONVOLUTION, **STATE)
        _, manifest, source, target = self.convert(model, "--target", "genai")
        self.assertEqual([d["name"] for d in manifest["dropped"]], [])
        with open(target.replace(".onnx", ".genai.json"), encoding="utf-8") as file:
            fragment = json.load(file)["model"]["decoder"]
        self.assertEqual(fragment["num_hidden_layers"], 2)
        self.assertEqual(fragment["inputs"]["past_key_names"], "past.%d.key")
        self.assertIn("0 errors, 0 warnings", done("check", target, "--target", "genai"))

    def test_states_of_gated_delta_nets(self):
        model = decoder(
            "\n  rows = Unsqueeze(embeds, two)\n  rates = ReduceMean<keepdims = 0>(rows, last_axis)\n"
            '  net, "present.0.state" = com.microsoft.GatedDeltaNet(rows, rows, rows, , rates, rates,'
            ' "past.0.state")\n  x = Squeeze(net, two)\n',
            inputs=', float[B,1,32,32] "past.0.state"',
            outputs=', float[B,1,32,32] "present.0.state"')
        for name, number in (("two", 2), ("last_axis", -1)):
            model.graph.initializer.append(
                onnx.numpy_helper.from_array(np.array([number]), name))
        _, _, source, _ = self.convert(model)
        text = done("inspect", source)
        self.assertIn("KV226", text)
        self.assertNotIn("KV206", text)

    def test_positions_of_several_axes(self):
        turn = """
  q = com.microsoft.MRotaryEmbedding<mrope_section = [2, 1, 1], num_heads = 4>(q0, ids, cosines,
    sines)
  k = com.microsoft.MRotaryEmbedding<mrope_section = [2, 1, 1], num_heads = 2>(k0, ids, cosines,
    sines)
"""
        project = PROJECT.replace("q = ", "q0 = ").replace("k = ", "k0 = ") + turn
        model = decoder(SAME, inputs=", int64[3,B,S] ids", project=project)
        text, manifest, source, target = self.convert(model, "--verify")
        self.assertIn("verdict: equal (", text)
        self.drive(source, target, manifest, lambda start, length: {
            "ids": np.stack([np.arange(start, start + length) + k for k in range(3)])[:, None]})

    def test_experts_compute_each_token_by_itself(self):
        after = """
  scores = MatMul(y, router)
  flat = Reshape(scores, experts)
  chosen = Softmax(flat)
  logits = com.microsoft.MoE<k = 2, normalize_routing_weights = 1, activation_type = "relu">(y,
    chosen, up, , down)
"""
        model = decoder(SAME, after)
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1, 4]), "experts"))
        text, manifest, source, target = self.convert(model)
        self.assertFalse(manifest["uniform"])
        self.assertNotIn("KV236", text)
        self.assertNotIn("KV251", text)
        self.drive(source, target, manifest)

    def test_experts_that_another_token_chooses(self):
        after = """
  scores = MatMul(y, router)
  flat = Reshape(scores, experts)
  chosen = Softmax(flat)
  turned = Transpose<perm = [1, 0, 2]>(y)
  other = com.microsoft.MoE<k = 2, normalize_routing_weights = 1, activation_type = "relu">(turned,
    chosen, up, , down)
  logits = Transpose<perm = [1, 0, 2]>(other)
"""
        model = decoder(SAME, after)
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1, 4]), "experts"))
        source = os.path.join(self.folder, "source.onnx")
        onnx.save(model, source)
        target = os.path.join(self.folder, "target.onnx")
        run = tool("convert", source, "-o", target, "--padding", "none")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("logits differs first at ragged", run.stdout + run.stderr)
        self.assertFalse(os.path.exists(target))

    def test_padding_that_only_the_plans_exclude_is_a_precondition(self):
        # Rows are read in the order of tokens and written in that of sequences.
        after = """
  turned = Transpose<perm = [1, 0, 2]>(y)
  flat = Reshape(turned, rows)
  bent = Tanh(flat)
  shape = Shape(y)
  back = Reshape(bent, shape)
  logits = Add(y, back)
"""
        model = decoder(SAME, after)
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1, 32]), "rows"))
        for value in [*model.graph.input, *model.graph.output]:
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param == "B":
                    dim.dim_value = 2
        text, manifest, _, _ = self.convert(model, equality="tested")
        self.assertIn("KV236", [p["code"] for p in manifest["preconditions"]], text)
        self.assertIn("KV236", text)

    def test_scales_beside_sinks_are_exact_in_half_precision(self):
        for scale, cap in ((0.3, 0), (0.3, 1.3), (0, 0)):
            with self.subTest(scale=scale, cap=cap):
                attributes = f", smooth_softmax = 1, scale = {scale:.2f}, softcap = {cap:.2f}"
                model = decoder(SAME, attributes=attributes)
                for value in [*model.graph.input, *model.graph.output]:
                    if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
                        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
                for tensor in model.graph.initializer:
                    if tensor.data_type == onnx.TensorProto.FLOAT:
                        half = onnx.numpy_helper.to_array(tensor).astype(np.float16)
                        tensor.CopyFrom(onnx.numpy_helper.from_array(half, tensor.name))
                text, _, _, target = self.convert(model, "--verify")
                self.assertIn("verdict: equal (", text)
                node = next(n for n in onnx.load(target).graph.node if n.op_type == "Attention")
                given = {a.name: a.f for a in node.attribute}
                if scale:
                    self.assertEqual(given["scale"], np.float32(scale))
                if cap:
                    self.assertEqual(given["softcap"], np.float32(cap))

    def test_norms_of_heads_allow_padding_tokens(self):
        project = PROJECT.replace("q = ", "q0 = ").replace("k = ", "k0 = ") + """
  q1 = Reshape(q0, heads)
  q2 = RMSNormalization<axis = -1>(q1, norm)
  q = Reshape(q2, queries)
  k1 = Reshape(k0, heads)
  k2 = RMSNormalization<axis = -1>(k1, norm)
  k = Reshape(k2, keys)
"""
        model = decoder(SAME, project=project)
        model.opset_import[0].version = 23
        for name, shape in (("heads", [0, -1, 8]), ("queries", [0, -1, 32]), ("keys", [0, -1, 16])):
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(shape), name))
        text, manifest, source, target = self.convert(model, "--verify")
        self.assertNotIn("KV236", text)
        self.drive(source, target, manifest)


if __name__ == "__main__":
    unittest.main()
