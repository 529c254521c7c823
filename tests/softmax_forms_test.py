"""A mask behind the softmax: what `convert` says of it, and that half types keep their attention.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, numpy_helper
from support.case_text import text_of_case

KVLIFT = os.environ["KVLIFT"]


def in_half(model):
    """The model with float16 in place of float32."""
    for value in [*model.graph.input, *model.graph.output]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            half = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    return model


class MaskBehindTheSoftmax(unittest.TestCase):
    def convert(self, model):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "m.onnx"
        onnx.save(model, path)
        return subprocess.run([KVLIFT, "convert", path, "-o", path.with_name("out.onnx")],
                              capture_output=True, text=True, check=False)

    def test_the_range_of_scores_is_printed(self):
        done = self.convert(onnx.parser.parse_model(
            text_of_case("decomposed_attention_mask_behind_softmax")))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("sees a key that scores more than -36, and no hidden key scores more than 36",
                      done.stdout)
        self.assertIn("1 of 1 attentions", done.stdout)

    def test_half_types_lose_small_weights(self):
        done = self.convert(in_half(onnx.parser.parse_model(
            text_of_case("decomposed_attention_mask_behind_softmax"))))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("KV218", done.stdout)


if __name__ == "__main__":
    unittest.main()
