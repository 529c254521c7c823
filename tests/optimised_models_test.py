"""`verify` of models that ONNX Runtime's graph optimisations changed, before or after a conversion.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""

import os
import pathlib
import shutil
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from support.tool import done, tool

MODELS = pathlib.Path(os.environ["KVLIFT_ROOT"]) / "testdata" / "models"
# Norms become quotients, repeated nodes one, constants are folded, opsets raised.
GROWING = ("llama_optimum", "gpt2_optimum", "gemma2_optimum", "qwen2_optimum", "gpt_oss_optimum",
           "llama_attention_opset23", "llama_dynamic_dynamo", "llama_genai_gqa",
           "llama_optimum_merged", "whisper_decoder_with_past_optimum", "toy_splice_ts")
CONVERTED = ("llama_optimum", "gpt2_optimum", "bloom_optimum", "llama_dynamic_dynamo",
             "llama_genai_gqa", "toy_splice_ts", "llama_static_ts")


def optimise(source, target):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 4
    ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


class OptimisedModelsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def test_sources(self):
        for name in GROWING:
            with self.subTest(name):
                source, target = MODELS / name / "model.onnx", self.dir / f"{name}.onnx"
                optimise(source, target)
                self.assertNotEqual(source.read_bytes(), target.read_bytes())
                self.assertIn("\nverdict: equal (", done("verify", source, target))

    def test_conversions(self):
        for name in CONVERTED:
            with self.subTest(name):
                source, converted = MODELS / name / "model.onnx", self.dir / f"{name}.onnx"
                target = self.dir / f"{name}.optimised.onnx"
                done("convert", source, "-o", converted)
                optimise(converted, target)
                shutil.copy(converted.with_suffix(".kv.json"), target.with_suffix(".kv.json"))
                self.assertIn("\nverdict: equal (", done("verify", source, target))

    def test_weights_that_changed(self):
        """One weight is off by the least that its type can be."""
        source, target = MODELS / "llama_optimum" / "model.onnx", self.dir / "model.onnx"
        optimise(source, target)
        model = onnx.load(target)
        weights = [t for t in model.graph.initializer if len(t.dims) == 2]
        self.assertGreater(len(weights), 4)
        for tensor in (weights[0], weights[-1]):
            changed = onnx.ModelProto()
            changed.CopyFrom(model)
            [own] = [t for t in changed.graph.initializer if t.name == tensor.name]
            array = numpy_helper.to_array(own).copy()
            array[0, 0] = np.nextafter(array[0, 0], np.float32(np.inf))
            own.CopyFrom(numpy_helper.from_array(array, own.name))
            onnx.save(changed, target)
            run = tool("verify", source, target)
            self.assertEqual(run.returncode, 1, run.stdout[-2000:])


if __name__ == "__main__":
    unittest.main()
