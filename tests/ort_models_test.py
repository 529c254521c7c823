"""Real models before and after conversion in ONNX Runtime, over their recorded steps.

What is compared: every output with the recording, within 1e-4 of the tensor's maximum; every cache
row that a step does not write, bit for bit; every row that it writes with the recorded one. Unused
slots are filled with random numbers. Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import json
import os
import subprocess
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime as ort

from support.cases import session
from support.recorded import MODELS, metas, steps_of
from support.schemas import check_json

KVLIFT = os.environ["KVLIFT"]
TOLERANCE = 1e-4
CAPACITY = 24


def convert(source, out, *flags):
    done = subprocess.run([KVLIFT, "convert", source, "-o", out, "--json", *flags],
                          capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def rows(array, axis, begin, end):
    return np.take(array, range(begin, end), axis=axis)


class Driver:
    """Feeds a converted model from the recorded inputs of its source, by the manifest."""

    def __init__(self, path, in_place=False):
        self.session = session(path)
        with open(path.removesuffix(".onnx") + ".kv.json", encoding="utf-8") as file:
            self.manifest = json.load(file)
        self.outputs = [o.name for o in self.session.get_outputs()]
        self.caches = {c["id"]: c for c in self.manifest["caches"]}
        self.buffers = {}
        self.in_place = in_place
        self.random = np.random.default_rng(7)

    def past_length(self, feeds):
        cache = next(iter(self.caches.values()))["source"]
        return feeds[cache["input"]].shape[cache["axis"]]

    def buffer(self, cache, past):
        if cache["id"] not in self.buffers:
            shape = list(past.shape)
            shape[cache["axis"]] = CAPACITY
            fresh = self.random.standard_normal(shape).astype(past.dtype)
            index = [slice(None)] * fresh.ndim
            index[cache["axis"]] = slice(0, past.shape[cache["axis"]])
            fresh[tuple(index)] = past
            self.buffers[cache["id"]] = fresh
        return self.buffers[cache["id"]]

    def feeds_for(self, recorded):
        length = self.past_length(recorded)
        feeds = {}
        for entry in self.manifest["inputs"]:
            name = entry["name"]
            if entry["as"] == "same":
                feeds[name] = recorded[name]
            elif entry["as"] == "control":
                cache = next(iter(self.caches.values()))
                batch = recorded[cache["source"]["input"]].shape[cache["layout"].index("B")]
                feeds[name] = np.full([batch], length, np.int64)
            elif entry["as"] == "pad_to_capacity":
                value, axis = recorded[name], entry["axis"]
                widths = [(0, 0)] * value.ndim
                widths[axis] = (0, CAPACITY - value.shape[axis])
                feeds[name] = np.pad(value, widths, constant_values=entry["fill"])
            elif entry["as"] == "cache":
                cache = self.caches[entry["id"]]
                feeds[name] = self.buffer(cache, recorded[cache["source"]["input"]])
            else:
                raise AssertionError(f"unknown: {entry}")
        return feeds

    def run(self, feeds):
        if not self.in_place:
            return dict(zip(self.outputs, self.session.run(None, feeds)))
        binding = self.session.io_binding()
        kept = {}
        for name, value in feeds.items():
            kept[name] = ort.OrtValue.ortvalue_from_numpy(value)
            binding.bind_ortvalue_input(name, kept[name])
        presents = {c["output"]: c["input"] for c in self.caches.values()}
        for name in self.outputs:
            if name in presents:
                binding.bind_ortvalue_output(name, kept[presents[name]])
            else:
                binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        return dict(zip(self.outputs, binding.copy_outputs_to_cpu()))


class ConvertedModels(unittest.TestCase):
    maxDiff = None

    def close(self, actual, expected, what):
        self.assertEqual(actual.shape, expected.shape, what)
        self.assertEqual(actual.dtype, expected.dtype, what)
        if not expected.size:
            return
        bound = TOLERANCE * np.abs(expected.astype(np.float64)).max()
        error = np.abs(actual.astype(np.float64) - expected.astype(np.float64)).max()
        self.assertLessEqual(error, bound, what)

    def drive(self, name, path, in_place=False):
        source = session(os.path.join(MODELS, name, "model.onnx"))
        driver = Driver(path, in_place)
        new_rows = 0
        for number, (recorded, expected) in enumerate(steps_of(name)):
            what = f"{name}, step {number}"
            original = dict(zip([o.name for o in source.get_outputs()],
                                source.run(None, recorded)))
            past = driver.past_length(recorded)
            feeds = driver.feeds_for(recorded)
            before = {i: b.copy() for i, b in driver.buffers.items()}
            outputs = driver.run(feeds)
            self.assertEqual(set(outputs), set(expected), what)
            for cache in driver.caches.values():
                axis, present = cache["axis"], outputs[cache["output"]]
                recorded_present = expected[cache["source"]["output"]]
                total = recorded_present.shape[cache["source"]["axis"]]
                here = f"{what}, {cache['output']}"
                for begin, end in ((0, past), (total, CAPACITY)):
                    self.assertEqual(rows(present, axis, begin, end).tobytes(),
                                     rows(before[cache["id"]], axis, begin, end).tobytes(), here)
                written = rows(recorded_present, axis, past, total)
                self.close(rows(present, axis, past, total), written, here)
                new_rows += written.size
                driver.buffers[cache["id"]] = present.copy()
            for entry in driver.manifest["outputs"]:
                if entry["as"] == "cache":
                    continue
                output = entry["name"]
                self.close(outputs[output], expected[output], f"{what}, {output}")
                self.close(outputs[output], original[output], f"{what}, {output}, now")
        self.assertGreater(new_rows, 0, f"{name}: nothing was written")

    def check(self, name, *flags, in_place=False):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.onnx")
            code, stdout, stderr = convert(os.path.join(MODELS, name, "model.onnx"), out, *flags)
            self.assertEqual(code, 0, f"{name}: {stdout}\n{stderr}")
            self.assertEqual(check_json(stdout)["status"], "converted")
            onnx.checker.check_model(onnx.load(out), full_check=True)
            self.drive(name, out, in_place)

    def each(self, run):
        found = 0
        for meta in metas():
            if meta["expect"] == "convert" and meta["growing"]:
                found += 1
                with self.subTest(meta["name"]):
                    run(meta["name"], meta)
        self.assertGreaterEqual(found, 10)

    def test_spec(self):
        self.each(lambda name, _: self.check(name))

    def test_in_place(self):
        self.each(lambda name, _: self.check(name, in_place=True))

    def test_static_capacity(self):
        self.each(lambda name, _: self.check(name, "--max-seq-len", str(CAPACITY)))

    def test_explicit_mask(self):
        self.each(lambda name, _: self.check(name, "--mask", "explicit"))

    def test_added_mask(self):
        self.each(lambda name, _: self.check(name, "--mask", "additive"))

    def test_form_for_compilers(self):
        def run(name, _):
            if name != "toy_transposed_key_ts":  # its keys get another layout than its steps have
                self.check(name, "--target", "portable", "--max-seq-len", str(CAPACITY))
        self.each(run)

    def test_whole_buffer(self):
        self.each(lambda name, _: self.check(name, "--read", "full"))

    def test_genai(self):
        def run(name, meta):
            if meta["drive"].get("mask"):
                self.check(name, "--target", "genai", in_place=True)
        self.each(run)

    def test_refused_models_write_nothing(self):
        refused = 0
        for meta in metas():
            if meta["expect"] != "refuse":
                continue
            refused += 1
            with self.subTest(meta["name"]), tempfile.TemporaryDirectory() as folder:
                source = os.path.join(MODELS, meta["name"], "model.onnx")
                code, stdout, stderr = convert(source, os.path.join(folder, "out.onnx"))
                self.assertEqual(code, 1, stderr)
                self.assertIn(check_json(stdout)["status"], ("refused", "nothing"))
                self.assertEqual(os.listdir(folder), [])
        self.assertGreaterEqual(refused, 5)

    def test_no_model_is_told_by_code(self):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "in.onnx")
            with open(source, "wb") as file:
                file.write(b"no model")
            code, _, stderr = convert(source, os.path.join(folder, "out.onnx"))
            self.assertEqual(code, 3)
            self.assertTrue("KV002" in stderr, stderr)
            self.assertEqual(os.listdir(folder), ["in.onnx"])


if __name__ == "__main__":
    unittest.main()
