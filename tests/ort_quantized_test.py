"""Caches in int8 in ONNX Runtime, over the recorded steps of real models.

Values and scales go from step to step. What is compared: all rows that a step does not write, bit
for bit; the rows that it writes, dequantised, with the recorded ones, within half a step of their
scale and what earlier layers add; all other outputs with the recording. Environment: KVLIFT, the
tool; KVLIFT_ROOT, the repository.
"""
import os
import tempfile
import unittest

import numpy as np

from ort_models_test import CAPACITY, MODELS, convert, rows, session
from support.recorded import metas, steps_of
from support.schemas import check_json

# Of the largest element: what rounded rows of all layers make of an output, or of a later row.
TOLERANCE = 0.08


class Quantised:
    """A converted model with its caches, fed from the recorded inputs of its source."""

    def __init__(self, path, manifest):
        self.session = session(path)
        self.manifest = manifest
        self.outputs = [o.name for o in self.session.get_outputs()]
        self.caches = {c["id"]: c for c in manifest["caches"]}
        self.buffers = {}

    def past_length(self, recorded):
        cache = next(iter(self.caches.values()))["source"]
        return recorded[cache["input"]].shape[cache["axis"]]

    def buffer(self, cache, recorded):
        if cache["id"] not in self.buffers:
            shape = list(recorded[cache["source"]["input"]].shape)
            shape[cache["axis"]] = CAPACITY
            if "quantization" not in cache:
                values = next(c for c in self.caches.values()
                              if c.get("quantization", {}).get("scales") == cache["id"])
                shape[-1] //= values["quantization"]["group"]
            self.buffers[cache["id"]] = np.zeros(shape, cache["dtype"])
        return self.buffers[cache["id"]]

    def feeds_for(self, recorded):
        feeds = {}
        for entry in self.manifest["inputs"]:
            if entry["as"] == "same":
                feeds[entry["name"]] = recorded[entry["name"]]
            elif entry["as"] == "control":
                batch = recorded[next(iter(self.caches.values()))["source"]["input"]].shape[0]
                feeds[entry["name"]] = np.full([batch], self.past_length(recorded), np.int64)
            elif entry["as"] == "pad_to_capacity":
                value = recorded[entry["name"]]
                widths = [(0, 0)] * value.ndim
                widths[entry["axis"]] = (0, CAPACITY - value.shape[entry["axis"]])
                feeds[entry["name"]] = np.pad(value, widths, constant_values=entry["fill"])
            else:
                feeds[entry["name"]] = self.buffer(self.caches[entry["id"]], recorded)
        return feeds


def dequantised(values, scales, group):
    return values.astype(np.float32) * np.repeat(scales, group, axis=-1)


class QuantisedModels(unittest.TestCase):
    def close(self, actual, expected, slack, what):
        self.assertEqual(actual.shape, expected.shape, what)
        bound = slack + TOLERANCE * np.abs(expected).max()
        self.assertLessEqual(float((np.abs(actual - expected) - bound).max()), 0, what)

    def drive(self, name, path, manifest):
        model = Quantised(path, manifest)
        for number, (recorded, expected) in enumerate(steps_of(name)):
            past = model.past_length(recorded)
            if past and not model.buffers:
                return  # the recording begins with a past
            feeds = model.feeds_for(recorded)
            before = {i: b.copy() for i, b in model.buffers.items()}
            outputs = dict(zip(model.outputs, model.session.run(None, feeds)))
            for cache in model.caches.values():
                axis, present = cache["axis"], outputs[cache["output"]]
                total = expected[cache["source"]["output"]].shape[axis]
                for begin, end in ((0, past), (total, CAPACITY)):
                    self.assertEqual(rows(present, axis, begin, end).tobytes(),
                                     rows(before[cache["id"]], axis, begin, end).tobytes(),
                                     f"{name}, step {number}, {cache['output']}")
                model.buffers[cache["id"]] = present
            for cache in model.caches.values():
                if "quantization" not in cache:
                    continue
                axis, group = cache["axis"], cache["quantization"]["group"]
                want = expected[cache["source"]["output"]]
                total = want.shape[axis]
                scales = rows(model.buffers[cache["quantization"]["scales"]], axis, past, total)
                got = dequantised(rows(model.buffers[cache["id"]], axis, past, total), scales, group)
                self.close(got, rows(want, axis, past, total), np.repeat(scales, group, -1) / 2,
                           f"{name}, step {number}, {cache['id']}")
            for entry in manifest["outputs"]:
                if entry["as"] != "cache":
                    output = entry["name"]
                    self.close(outputs[output], expected[output], 0,
                               f"{name}, step {number}, {output}")

    def test_models(self):
        driven = 0
        for meta in metas():
            if meta["expect"] != "convert" or not meta["growing"]:
                continue
            with self.subTest(meta["name"]), tempfile.TemporaryDirectory() as folder:
                out = os.path.join(folder, "out.onnx")
                code, stdout, stderr = convert(os.path.join(MODELS, meta["name"], "model.onnx"),
                                               out, "--quantize-cache", "int8:channel")
                document = check_json(stdout)
                if code != 0:
                    codes = {c["reason"]["code"] for c in document["caches"]}
                    self.assertTrue(codes <= {"KV242", "KV243", "KV244"}, f"{stdout}\n{stderr}")
                    continue
                with open(out.removesuffix(".onnx") + ".kv.json", encoding="utf-8") as file:
                    manifest = check_json(file.read())
                self.assertEqual(manifest["quantization"]["scheme"], "int8:channel")
                self.drive(meta["name"], out, manifest)
                driven += 1
        self.assertGreaterEqual(driven, 8)


if __name__ == "__main__":
    unittest.main()
