"""Decoders over GroupQueryAttention whose past and present are buffers of one fixed capacity, as
hosts share them.

They are converted and proved equal; then the source and what it became are run beside each other in
ONNX Runtime, with sequences of different lengths and with a prompt that is padded on the right.
Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import json
import os
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime as ort

from support.recorded import MODELS
from support.tool import done, tool

SOURCE = "llama_genai_gqa"
SLOTS = 40


def session(path):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return ort.InferenceSession(path, options, ["CPUExecutionProvider"])


def attentions(model):
    return [n for n in model.graph.node if n.op_type == "GroupQueryAttention"]


def with_buffers(model):
    """Declares one capacity for pasts and presents."""
    for value in [*model.graph.input, *model.graph.output]:
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 4:
            dims[2].dim_value, dims[3].dim_value = SLOTS, 16


def with_window(model):
    for node in attentions(model):
        kept = [a for a in node.attribute if a.name != "local_window_size"]
        del node.attribute[:]
        node.attribute.extend([*kept, onnx.helper.make_attribute("local_window_size", 5)])


def with_fed_lengths(model):
    """Lets the host feed seqlens_k and total_sequence_length, without a mask."""
    for node in attentions(model):
        node.input[5], node.input[6] = "last", "total"
    model.graph.input.extend([
        onnx.helper.make_tensor_value_info("last", onnx.TensorProto.INT32, ["batch_size"]),
        onnx.helper.make_tensor_value_info("total", onnx.TensorProto.INT32, [])])
    read = {name for node in model.graph.node for name in node.input}
    made = True
    while made:
        made = [n for n in model.graph.node if not any(
            o in read or o in {v.name for v in model.graph.output} for o in n.output)]
        for node in made:
            model.graph.node.remove(node)
        read = {name for node in model.graph.node for name in node.input}
    for value in list(model.graph.input):
        if value.name == "attention_mask" and value.name not in read:
            model.graph.input.remove(value)


class GroupQueryBuffers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def saved(self, name, *changes):
        model = onnx.load(os.path.join(MODELS, SOURCE, "model.onnx"))
        for change in (with_buffers, *changes):
            change(model)
        path = os.path.join(self.folder, name)
        onnx.save(model, path)
        return path

    def converted(self, source):
        target = source.replace(".onnx", ".out.onnx")
        text = done("convert", source, "-o", target, "--verify")
        self.assertIn("verdict: equal (", text)
        self.assertNotIn("only tested", text)
        with open(target.replace(".onnx", ".kv.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        ops = [node.op_type for node in onnx.load(target).graph.node]
        self.assertEqual(ops.count("TensorScatter"), len(manifest["caches"]))
        self.assertNotIn("GroupQueryAttention", ops)
        self.assertIn("Attention", ops)
        return target, manifest

    def test_is_proved_and_agrees_with_onnx_runtime(self):
        for name, changes in {"mask": (), "window": (with_window,),
                              "fed": (with_fed_lengths,)}.items():
            with self.subTest(name):
                source = self.saved(f"{name}.onnx", *changes)
                target, manifest = self.converted(source)
                self.drive(session(source), session(target), manifest)

    def drive(self, before, after, manifest):
        """Two sequences: 6 and 4 tokens of a prompt, then one token each, three times."""
        rng = np.random.default_rng(3)
        valid = np.array([6, 4])
        pairs = [(c["source"]["input"], c["source"]["output"], c["input"], c["output"])
                 for c in manifest["caches"]]
        shapes = {i.name: [2 if isinstance(d, str) else d for d in i.shape]
                  for i in before.get_inputs() if len(i.shape) == 4}
        caches = [{past: np.zeros(shapes[past], np.float32) for past, *_ in pairs},
                  {past: np.zeros(shapes[own], np.float32) for own, _, past, _ in pairs}]
        for step in range(4):
            length = 6 if step == 0 else 1
            total = int(valid.max())
            ids = rng.integers(1, 96, (2, length))
            mask = (np.arange(total)[None] < valid[:, None]).astype(np.int64)
            feeds = {"input_ids": ids, "attention_mask": mask,
                     "last": (valid - 1).astype(np.int32), "total": np.int32(total)}
            results = []
            for run, kept in ((before, caches[0]), (after, caches[1])):
                names = [o.name for o in run.get_outputs()]
                wanted = {i.name for i in run.get_inputs()}
                given = {k: np.asarray(v) for k, v in feeds.items() if k in wanted}
                results.append(dict(zip(names, run.run(names, {**given, **kept}))))
            for b in range(2):
                tokens = valid[b] if step == 0 else 1
                np.testing.assert_allclose(results[1]["logits"][b, :tokens],
                                           results[0]["logits"][b, :tokens], rtol=0, atol=2e-5)
            for past, present, own_past, own_present in pairs:
                for b in range(2):
                    np.testing.assert_allclose(results[1][own_present][b, :, :valid[b]],
                                               results[0][present][b, :, :valid[b]],
                                               rtol=0, atol=2e-5)
                caches[0][past] = results[0][present]
                caches[1][own_past] = results[1][own_present]
            valid = valid + 1

    def test_a_present_of_another_capacity_is_refused(self):
        def longer(model):
            for value in model.graph.output:
                dims = value.type.tensor_type.shape.dim
                if len(dims) == 4:
                    dims[2].dim_value = SLOTS + 1
        run = tool("convert", self.saved("longer.onnx", longer), "-o",
                   os.path.join(self.folder, "x.onnx"))
        self.assertEqual(run.returncode, 1)
        self.assertIn("needs a past that grows, or a present of the past's capacity",
                      " ".join((run.stdout + run.stderr).split()))


if __name__ == "__main__":
    unittest.main()
