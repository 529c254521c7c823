"""Decoders over GroupQueryAttention with caches in few bits: int8 and int4, with scales for all of a
cache and by channel, as onnxruntime-genai's model builder writes them.

They are converted and proved equal; then the source and what it became are run beside each other in
ONNX Runtime: caches are the same bits, step after step. Environment: KVLIFT, the tool; KVLIFT_ROOT,
the repository.
"""
import json
import os
import sys
import tempfile
import unittest

import ml_dtypes
import numpy as np
import onnx
import onnx.utils
from onnx.reference import ReferenceEvaluator

from support.cases import session
from support.recorded import MODELS, steps_of
from support.tool import done, tool

sys.path.insert(0, os.path.join(os.environ["KVLIFT_ROOT"], "testdata", "export"))
from gqa_caches import TYPES, in_few_bits  # noqa: E402

SOURCE = "llama_genai_gqa"
SLOTS, SIZE, HEADS = 40, 16, 2
STEPS = (6, 1, 1, 5, 1, 1, 7, 1)


class Source:
    """The model in ONNX Runtime, its presents fed back."""

    def __init__(self, path, bits):
        self.session = session(path)
        self.names = [o.name for o in self.session.get_outputs()]
        width = SIZE if bits == 8 else SIZE // 2
        kept = np.int8 if bits == 8 else np.uint8
        self.past = {i.name: np.zeros((1, HEADS, 0, width), kept)
                     for i in self.session.get_inputs() if i.name.startswith("past")}

    def step(self, ids, total):
        feeds = {"input_ids": ids, "attention_mask": np.ones((1, total), np.int64), **self.past}
        got = dict(zip(self.names, self.session.run(self.names, feeds)))
        for name in self.past:
            self.past[name] = got[name.replace("past_key_values", "present")]
        return got


class GroupQueryCaches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def saved(self, name, kept, channels, change=lambda model: None):
        presents = list(steps_of(SOURCE))[-1][1]
        model = onnx.load(os.path.join(MODELS, SOURCE, "model.onnx"))
        in_few_bits(model, presents, kept, channels)
        change(model)
        onnx.save(model, self.path(name))
        return self.path(name)

    def test_is_proved_and_gives_the_bits_of_onnx_runtime(self):
        for bits in (8, 4):
            for channels in (False, True):
                name = f"int{bits}_{'channels' if channels else 'tensor'}"
                with self.subTest(name):
                    source = self.saved(f"{name}.onnx", TYPES[bits], channels)
                    target = self.path(f"{name}.out.onnx")
                    text = done("convert", source, "-o", target, "--verify")
                    self.assertIn("verdict: equal (", text)
                    self.assertNotIn("only tested", text)
                    self.drive(Source(source, bits), target, bits)

    def drive(self, source, target, bits):
        with open(target.replace(".onnx", ".kv.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        self.assertEqual({c["dtype"] for c in manifest["caches"]},
                         {"int8" if bits == 8 else "uint8"})
        ops = [node.op_type for node in onnx.load(target).graph.node]
        self.assertEqual(ops.count("TensorScatter"), len(manifest["caches"]))
        self.assertNotIn("GroupQueryAttention", ops)
        run = session(target)
        names = [output.name for output in run.get_outputs()]
        width = SIZE if bits == 8 else SIZE // 2
        buffers = {c["input"]: np.zeros((1, HEADS, SLOTS, width), c["dtype"])
                   for c in manifest["caches"]}
        rng, start = np.random.default_rng(5), 0
        for length in STEPS:
            ids = rng.integers(1, 96, (1, length))
            want = source.step(ids, start + length)
            feeds = {"input_ids": ids, "write_indices": np.array([start]), **buffers}
            got = dict(zip(names, run.run(names, feeds)))
            start += length
            np.testing.assert_allclose(got["logits"], want["logits"], rtol=0, atol=2e-5)
            for cache in manifest["caches"]:
                kept = got[cache["output"]]
                present = want[cache["source"]["output"]]
                np.testing.assert_array_equal(kept[:, :, :start], present, f"from {start}")
                self.assertFalse(kept[:, :, start:].any())
                buffers[cache["input"]] = kept

    def test_float8_caches_are_proved_and_hold_the_rounded_rows(self):
        kept = onnx.TensorProto.FLOAT8E4M3FN
        plain = os.path.join(MODELS, SOURCE, "model.onnx")
        ids = np.arange(1, 8)[None]
        empty = {i.name: np.zeros((1, HEADS, 0, SIZE), np.float32)
                 for i in session(plain).get_inputs() if i.name.startswith("past")}
        rows = session(plain).run(["present.0.key"], {
            "input_ids": ids, "attention_mask": np.ones((1, 7), np.int64), **empty})[0]
        for channels in (False, True):
            with self.subTest(channels=channels):
                source = self.saved("float8.onnx", kept, channels)
                target = self.path("float8.out.onnx")
                text = done("convert", source, "-o", target, "--verify", "--force")
                self.assertIn("verdict: equal (", text)
                self.assertNotIn("only tested", text)
                model = onnx.load(target)
                ops = [node.op_type for node in model.graph.node]
                self.assertEqual((ops.count("TensorScatter"), ops.count("Attention")), (4, 2))
                scale = next(onnx.numpy_helper.to_array(t) for t in onnx.load(source).graph.initializer
                             if t.name == "model.layers.0.attn.k_scale")
                steps = rows * (np.float32(1) / scale).reshape((HEADS, 1, -1) if channels else 1)
                want = np.clip(steps, -448, 448).astype(ml_dtypes.float8_e4m3fn)
                got = self.first_keys(target, ids)
                np.testing.assert_array_equal(got[:, :, :7].view(np.uint8), want.view(np.uint8))

    def first_keys(self, target, ids):
        """The first cache of keys after a prompt, by ONNX's reference implementation: ONNX Runtime has
        no TensorScatter of float8 for CPUs."""
        feeds = {"input_ids": ids, "write_indices": np.array([0]), "past_key_values.0.key":
                 np.zeros((1, HEADS, SLOTS, SIZE), ml_dtypes.float8_e4m3fn)}
        part = onnx.utils.Extractor(onnx.load(target)).extract_model(list(feeds), ["present.0.key"])
        return ReferenceEvaluator(part).run(["present.0.key"], feeds)[0]

    def refused(self, name, text, change):
        source = self.saved(f"{name}.onnx", TYPES[8], True, change)
        run = tool("convert", source, "-o", self.path("x.onnx"))
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("KV240", run.stdout + run.stderr)
        self.assertIn(text, " ".join((run.stdout + run.stderr).split()))
        self.assertFalse(os.path.exists(self.path("x.onnx")))

    def test_what_is_not_the_same_for_all_rows_is_refused(self):
        def node(model):
            return next(n for n in model.graph.node if n.op_type == "GroupQueryAttention")

        def fed(model):
            name = node(model).input[12]
            scale = next(t for t in model.graph.initializer if t.name == name)
            model.graph.initializer.remove(scale)
            model.graph.input.append(onnx.helper.make_tensor_value_info(name, 1, [HEADS * SIZE]))

        def attribute(name, value):
            def change(model):
                found = next(a for a in node(model).attribute if a.name == name)
                node(model).attribute.remove(found)
                node(model).attribute.append(onnx.helper.make_attribute(name, value))
            return change

        def negative(model):
            name = node(model).input[13]
            scale = next(t for t in model.graph.initializer if t.name == name)
            numbers = onnx.numpy_helper.to_array(scale).copy()
            numbers[3] = -numbers[3]
            scale.CopyFrom(onnx.numpy_helper.from_array(numbers, name))

        def mixed(model):
            names = {node(model).input[4], node(model).output[2]}
            for value in [*model.graph.input, *model.graph.output]:
                if value.name in names:
                    value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT8E4M3FN

        self.refused("fed", "needs a k_scale of constants", fed)
        self.refused("mixed", "needs caches of one type for keys and values", mixed)
        self.refused("one_side", "needs keys and values that are both quantised",
                     attribute("v_quant_type", "NONE"))
        self.refused("count", "needs a k_scale of 1 numbers",
                     attribute("k_quant_type", "PER_TENSOR"))
        self.refused("bits", "needs caches of uint8 for 4 bits",
                     attribute("kv_cache_bit_width", 4))
        self.refused("none", "needs a kv_cache_bit_width of 8 or 4",
                     attribute("kv_cache_bit_width", 0))
        self.refused("negative", "needs a v_scale of positive numbers", negative)


if __name__ == "__main__":
    unittest.main()
