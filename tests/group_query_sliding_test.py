"""Decoders over GroupQueryAttention with sliding_window_cache, as onnxruntime-genai's model builder
writes local layers: their pasts are buffers of a few slots from which the operator drops the oldest
rows.

They are converted and proved equal; then the source, with buffers of several sizes, and what it
became are run beside each other in ONNX Runtime until the window has left the first tokens far
behind. Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import json
import os
import sys
import tempfile
import unittest

import numpy as np
import onnx

from support.cases import session
from support.recorded import MODELS, steps_of
from support.tool import done, tool

sys.path.insert(0, os.path.join(os.environ["KVLIFT_ROOT"], "testdata", "export"))
from gqa_caches import TYPES, attentions, in_few_bits, slide  # noqa: E402

SOURCE = "llama_genai_gqa"
HEADS, SIZE, WINDOW, SLOTS = 2, 16, 6, 48
STEPS = (4, 1, 1, 1, 3, 1, 1, 9, 1, 1, 2, 1, 12, 1, 1)


def rows_held(tokens, slots):
    """How many of the newest tokens a buffer holds, by the operator's text."""
    dropped = slots - WINDOW + 1
    return tokens if tokens <= slots else tokens - dropped * -(-(tokens - slots) // dropped)


class SlidingBuffers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def saved(self, name, layers, slots=None, bits=None):
        model = onnx.load(os.path.join(MODELS, SOURCE, "model.onnx"))
        if bits is not None:
            in_few_bits(model, list(steps_of(SOURCE))[-1][1], TYPES[bits], True)
        slide(model, layers, WINDOW, slots)
        onnx.save(model, self.path(name))
        return self.path(name)

    def converted(self, source, *options):
        target = source.replace(".onnx", ".out.onnx")
        text = done("convert", source, "-o", target, "--verify", *options)
        self.assertIn("verdict: equal (", text)
        self.assertNotIn("only tested", text)
        self.assertIn("GroupQueryAttention with sliding_window_cache", text)
        with open(target.replace(".onnx", ".kv.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        ops = [node.op_type for node in onnx.load(target).graph.node]
        self.assertEqual(ops.count("TensorScatter"), len(manifest["caches"]))
        self.assertNotIn("GroupQueryAttention", ops)
        return target, manifest

    def drive(self, source, target, manifest, slots):
        """Runs both models. slots: of the source's buffers; those of rings are as few as fit."""
        a, b = session(source), session(target)
        inputs = {i.name: i for i in b.get_inputs()}
        longest, rows, buffers = max(STEPS), {}, {}
        for cache in manifest["caches"]:
            width = next(i.shape[3] for i in b.get_inputs() if i.name == cache["input"])
            sliding = cache["source"]["kind"] == "sliding"
            made = cache["ring"]["window"] + longest if "ring" in cache else SLOTS
            shape = (1, HEADS, slots if sliding else 0, width)
            rows[cache["source"]["input"]] = np.zeros(shape, cache["dtype"])
            buffers[cache["input"]] = np.zeros((1, HEADS, made, width), cache["dtype"])
        rng, start = np.random.default_rng(7), 0
        for length in STEPS:
            total = start + length
            ids, mask = rng.integers(1, 96, (1, length)), np.ones((1, total), np.int64)
            feeds = {"input_ids": ids, "attention_mask": mask}
            want = dict(zip([o.name for o in a.get_outputs()], a.run(None, {**feeds, **rows})))
            feeds["write_indices"] = np.array([start])
            feeds = {name: value for name, value in feeds.items() if name in inputs}
            got = dict(zip([o.name for o in b.get_outputs()], b.run(None, {**feeds, **buffers})))
            np.testing.assert_allclose(got["logits"], want["logits"], rtol=0, atol=2e-5)
            for cache in manifest["caches"]:
                theirs, mine = want[cache["source"]["output"]], got[cache["output"]]
                rows[cache["source"]["input"]] = theirs
                buffers[cache["input"]] = mine
                if "ring" in cache:
                    continue
                held = (rows_held(total, slots) if cache["source"]["kind"] == "sliding" else total)
                np.testing.assert_allclose(mine[:, :, total - held:total].astype(np.float64),
                                           theirs[:, :, :held], rtol=0, atol=2e-5)
            start = total
        self.assertGreater(start, 5 * WINDOW)

    def test_is_proved_and_gives_what_onnx_runtime_gives(self):
        for layers in ((0,), (0, 1)):
            source = self.saved(f"layers{len(layers)}.onnx", layers)
            target, manifest = self.converted(source)
            for slots in (WINDOW, WINDOW + 1, 11, 40):
                with self.subTest(layers=layers, slots=slots):
                    self.drive(source, target, manifest, slots)

    def test_a_declared_number_of_slots_is_in_the_manifest(self):
        source = self.saved("slots.onnx", (0,), 9)
        target, manifest = self.converted(source)
        sliding = [c["source"]["sliding"] for c in manifest["caches"] if c["layer"] == 0]
        self.assertEqual(sliding, [{"window": WINDOW, "capacity": 9}] * 2)
        self.drive(source, target, manifest, 9)

    def test_rings_keep_the_size_of_the_window(self):
        source = self.saved("ring.onnx", (0,))
        target, manifest = self.converted(source, "--window", "circular")
        rings = [c["ring"] for c in manifest["caches"] if c["layer"] == 0]
        self.assertEqual(rings, [{"window": WINDOW - 1}] * 2)
        self.drive(source, target, manifest, 8)

    def test_the_past_is_as_long_as_the_mask_of_genai(self):
        for layers in ((), (0,), (0, 1)):
            with self.subTest(layers=layers):
                source = self.saved(f"genai{len(layers)}.onnx", layers)
                target = source.replace(".onnx", ".out.onnx")
                text = done("convert", source, "-o", target, "--target", "genai", "--verify")
                self.assertIn("verdict: equal (", text)
                with open(target.replace(".onnx", ".kv.json"), encoding="utf-8") as file:
                    manifest = json.load(file)
                mask = next(i for i in manifest["inputs"] if i["name"] == "attention_mask")
                self.assertEqual(mask, {"name": "attention_mask", "as": "same", "requires": "ones"})
                self.drive(source, target, manifest, 8)
                with open(target.replace(".onnx", ".genai.json"), encoding="utf-8") as file:
                    decoder = json.load(file)["model"]["decoder"]
                self.assertEqual("sliding_window" in decoder, bool(layers))
                self.assertIsNone(decoder.get("sliding_window"))

    def test_quantised_rows_slide(self):
        for bits in (8, 4):
            with self.subTest(bits=bits):
                source = self.saved(f"int{bits}.onnx", (0,), None, bits)
                target, manifest = self.converted(source)
                # ONNX Runtime takes int4 rows of a multiple of 32 elements only.
                if bits == 8:
                    self.drive(source, target, manifest, 8)

    def test_all_buffers_are_converted_or_none(self):
        source = self.saved("some.onnx", (0,))
        target = self.path("some.out.onnx")
        run = tool("convert", source, "-o", target, "--skip", "past_key_values.0*")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("needs all sliding buffers converted, found past_key_values.0.key",
                      " ".join((run.stdout + run.stderr).split()))
        self.assertFalse(os.path.exists(target))

    def test_wrong_relations_and_models_are_not_equal(self):
        source = self.saved("wrong.onnx", (0,))
        target, manifest = self.converted(source)

        def verdict(change, model=target):
            changed = json.loads(json.dumps(manifest))
            change(changed)
            path = self.path("changed.kv.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(changed, file)
            run = tool("verify", source, model, "--manifest", path)
            self.assertNotEqual(run.returncode, 0)
            return run.stdout + run.stderr

        def local(changed):
            return [c["source"] for c in changed["caches"] if c["layer"] == 0]

        def another_window(changed):
            for cache in local(changed):
                cache["sliding"]["window"] = WINDOW + 1

        def grows(changed):
            for cache in local(changed):
                cache["kind"] = "concat"
                del cache["sliding"]

        def slots(changed):
            next(i for i in changed["inputs"] if i["name"] == "write_indices")["value"] = "slots"

        self.assertIn("which only companion models take", verdict(slots))
        self.assertIn("sliding buffer for a window of 6 tokens", verdict(another_window))
        self.assertIn("sliding buffer for a window of 6 tokens", verdict(grows))
        other = onnx.load(source)
        for attribute in attentions(other)[0].attribute:
            if attribute.name == "local_window_size":
                attribute.i = WINDOW + 1
        onnx.save(other, self.path("other.onnx"))
        wider, _ = self.converted(self.path("other.onnx"))
        self.assertIn("verdict: different", verdict(lambda changed: None, wider))


if __name__ == "__main__":
    unittest.main()
