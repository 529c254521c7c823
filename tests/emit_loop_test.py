"""The loop that emit-loop writes, run in ONNX Runtime on real models.

It reproduces the recorded steps; each cache that nothing reads after the write is one buffer, by
its pointer. Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

from support.recorded import MODELS, metas, steps_of
from support.tool import tool

TOLERANCE = 1e-4
CAPACITY = 24


class Loop:
    """A converted model, its manifest and the module that drives it."""

    def __init__(self, name, folder, *flags):
        self.path = os.path.join(folder, name + ".onnx")
        self.script = os.path.join(folder, name + ".py")
        done = tool("convert", os.path.join(MODELS, name, "model.onnx"), "-o", self.path, *flags)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        done = tool("emit-loop", self.path, "-o", self.script, "--force")
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        with open(self.path.removesuffix(".onnx") + ".kv.json", encoding="utf-8") as file:
            self.manifest = json.load(file)
        spec = importlib.util.spec_from_file_location(name, self.script)
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)

    def decoder(self, batch, capacity=CAPACITY):
        return self.module.Decoder(self.path, batch, self.module.CAPACITY or capacity, threads=1)


def convertible():
    return [meta for meta in metas() if meta["expect"] == "convert"]


class EmitLoopTest(unittest.TestCase):
    def close(self, got, want, what):
        self.assertEqual(got.shape, want.shape, what)
        bound = TOLERANCE * np.abs(want).max(initial=0)
        self.assertLessEqual(np.abs(got - want).max(initial=0), bound, what)

    def drive(self, loop, name):
        """Steps as recorded; values that the loop makes are what was recorded, too."""
        decoder, module = None, loop.module
        tokens_input = next(n for n, i in module.INPUTS.items() if i.meaning == "tokens")
        steps = made = 0
        for recorded, expected in steps_of(name):
            tokens = recorded[tokens_input]
            if decoder is None:
                decoder = loop.decoder(tokens.shape[0])
                self.start(decoder, loop, recorded)
            past = int(decoder.lengths[0])
            new = tokens.shape[1]
            given, feeds, mine = {}, {}, {}
            for entry in loop.manifest["inputs"]:
                if entry["as"] not in ("same", "pad_to_capacity"):
                    continue
                value = recorded[entry["name"]]
                if module.INPUTS[entry["name"]].meaning == "given":
                    given[entry["name"]] = value
                    continue
                if entry["as"] == "pad_to_capacity":
                    widths = [(0, 0)] * value.ndim
                    widths[entry["axis"]] = (0, decoder.capacity - value.shape[entry["axis"]])
                    value = np.pad(value, widths, constant_values=entry["fill"])
                mine[entry["name"]] = decoder.value(
                    module.INPUTS[entry["name"]], tokens, np.full(len(tokens), new))
                feeds[entry["name"]] = value
            # Left pads are the host's own: such steps are fed as they were recorded.
            if all(np.array_equal(mine[n], feeds[n]) for n in feeds):
                feeds = {}
                made += 1
            outputs = decoder.step(tokens, feeds=feeds | given)
            for output in loop.manifest["outputs"]:
                if output["as"] != "cache":
                    self.close(outputs[output["name"]], expected[output["name"]], name)
            self.check_caches(decoder, loop, expected, past, new, name)
            steps += 1
        self.assertGreater(steps, 2, name)
        return made

    def start(self, decoder, loop, recorded):
        """The past of the first recorded step."""
        for cache in loop.manifest["caches"]:
            source, axis = recorded[cache["source"]["input"]], cache["axis"]
            if not cache["source"]["growing"] or not source.size:
                continue
            buffer = decoder.buffers[cache["input"]].numpy().copy()
            index = [slice(None)] * buffer.ndim
            index[axis] = slice(0, source.shape[axis])
            buffer[tuple(index)] = source
            decoder.buffers[cache["input"]].update_inplace(buffer)
            decoder.lengths[:] = source.shape[axis]

    def check_caches(self, decoder, loop, expected, past, new, name):
        for cache in loop.manifest["caches"]:
            present = decoder.bound[cache["input"]]
            # In place, or the buffers have taken turns.
            self.assertEqual(present.data_ptr(), decoder.buffers[cache["input"]].data_ptr())
            spare = decoder._spare.get(cache["input"])
            self.assertEqual(spare is None, cache["alias"] == "safe")
            if spare is None:
                self.in_place += 1
            want = expected[cache["source"]["output"]]
            if cache["source"]["layout"] != cache["layout"] or cache["source"]["select"]:
                continue
            rows = [slice(None)] * want.ndim
            rows[cache["axis"]] = slice(past, past + new)
            self.close(present.numpy()[tuple(rows)], want[tuple(rows)], f"{name}, {cache['id']}")

    def test_recorded_steps_come_out_as_they_were(self):
        models = made = self.in_place = 0
        with tempfile.TemporaryDirectory() as folder:
            for meta in convertible():
                with self.subTest(meta["name"]):
                    models += 1
                    made += self.drive(Loop(meta["name"], folder), meta["name"])
        self.assertGreaterEqual(models, 15)
        self.assertGreaterEqual(self.in_place, 100)
        self.assertGreaterEqual(made, 40, "steps whose inputs the loop made itself")

    def test_derived_length(self):
        self.in_place = 0
        with tempfile.TemporaryDirectory() as folder:
            self.drive(Loop("llama_optimum", folder, "--target", "genai"), "llama_optimum")

    def test_targets_with_caches_of_their_own_form(self):
        self.in_place = 0
        names = ("llama_optimum", "gpt2_optimum", "toy_transposed_key_ts", "llama_static_ts")
        for target in ("tensorrt", "genai-static"):
            for name in names:
                with self.subTest(target=target, name=name):
                    with tempfile.TemporaryDirectory() as folder:
                        flags = ["--target", target, "--max-seq-len", str(CAPACITY)]
                        loop = Loop(name, folder, *flags)
                        self.drive(loop, name)
                        ranks = {len(cache.axes) for cache in loop.module.CACHES}
                        self.assertEqual(ranks, {3 if target == "genai-static" else 4})
        self.assertGreater(self.in_place, 0)

    def test_ragged_prompts_give_what_each_gives_alone(self):
        prompts = [[3, 14, 15, 9, 2], [6, 5], [35, 8, 9]]
        with tempfile.TemporaryDirectory() as folder:
            loop = Loop("llama_optimum", folder)
            together = loop.decoder(3).generate(prompts, 12)
            for row, prompt in zip(together, prompts):
                alone = loop.decoder(1).generate([prompt], 12)
                self.assertEqual(row.tolist(), alone[0].tolist())

    def test_prompts_longer_than_a_ring_takes_go_in_pieces(self):
        prompts = [[3, 14, 15, 9, 2, 6, 5, 35, 8, 9, 7, 9], [3, 2, 3, 8, 4, 6, 2], [26, 4]]
        with tempfile.TemporaryDirectory() as folder:
            full = Loop("gemma2_optimum", folder)
            want = full.decoder(3, capacity=64).generate(prompts, 40)
            for window in ("circular", "circular:9"):
                ring = Loop("gemma2_optimum", folder, "--window", window, "--force")
                self.assertEqual(ring.module.CHUNK, 4 if window == "circular:9" else 64)
                decoder = ring.decoder(3, capacity=64)
                slots = {c["id"]: decoder.buffers[c["input"]].shape()[c["axis"]]
                         for c in ring.manifest["caches"]}
                self.assertEqual(set(slots.values()), {ring.module.CHUNK + 5, 64})
                self.assertEqual(decoder.generate(prompts, 40).tolist(), want.tolist())

    def test_full_cache_is_refused_before_the_run(self):
        with tempfile.TemporaryDirectory() as folder:
            loop = Loop("llama_optimum", folder)
            decoder = loop.decoder(1, capacity=8)
            decoder.prefill([[1, 2, 3, 4, 5]])
            kept = {n: b.numpy().copy() for n, b in decoder.buffers.items()}
            with self.assertRaises(loop.module.CacheFull):
                decoder.step([[1, 2, 3, 4]])
            self.assertEqual(decoder.lengths.tolist(), [5])
            for name, buffer in decoder.buffers.items():
                self.assertEqual(buffer.numpy().tobytes(), kept[name].tobytes())
            decoder.step([[1, 2, 3]])  # the last slot
            self.assertEqual(decoder.lengths.tolist(), [8])

    def test_tokens_can_be_taken_back(self):
        with tempfile.TemporaryDirectory() as folder:
            decoder = Loop("llama_optimum", folder).decoder(1)
            decoder.prefill([[1, 2, 3]])
            first = decoder.step([[4]])["logits"]
            decoder.step([[7, 8, 9]])
            decoder.lengths[:] = 3
            self.assertEqual(decoder.step([[4]])["logits"].tobytes(), first.tobytes())

    def test_the_script_runs_by_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            loop = Loop("llama_optimum", folder)
            done = subprocess.run(
                [sys.executable, loop.script, "--prompt", "1,2,3", "--prompt", "4,5", "--new", "6"],
                capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            want = loop.decoder(2).generate([[1, 2, 3], [4, 5]], 6)
            self.assertEqual(done.stdout.split(), [",".join(map(str, row)) for row in want])

    def test_what_cannot_be_driven_is_said(self):
        model = os.path.join(MODELS, "llama_optimum", "model.onnx")
        done = tool("emit-loop", model)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no manifest", done.stderr)
        self.assertEqual(done.stdout, "")
        with tempfile.TemporaryDirectory() as folder:
            loop = Loop("llama_optimum", folder)
            again = tool("emit-loop", loop.path, "-o", loop.script)
            self.assertEqual(again.returncode, 5)
            self.assertEqual(tool("emit-loop", loop.path, "-o", loop.script, "--force").returncode, 0)


if __name__ == "__main__":
    unittest.main()
