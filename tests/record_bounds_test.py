"""record and verify judge by the same bounds.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import json
import pathlib
import tempfile
import unittest

import numpy as np
import onnx
import onnx.numpy_helper

from support.recorded import MODELS
from support.tool import done, tool


class BoundsTest(unittest.TestCase):
    def test_record_and_verify_judge_by_the_same_bounds(self):
        """A Log or Sqrt behind the logits makes rounding errors larger than the fixed bound."""
        source = onnx.load(pathlib.Path(MODELS) / "llama_optimum" / "model.onnx")
        logits = source.graph.output[0].name
        node, = [n for n in source.graph.node if logits in n.output]
        node.output[list(node.output).index(logits)] = "inner"
        for names in (("Abs", "Log"), ("Relu", "Log"), ("Log",), ("Abs", "Sqrt")):
            with self.subTest(names), tempfile.TemporaryDirectory() as folder:
                path, out = (pathlib.Path(folder) / name for name in ("m.onnx", "out.onnx"))
                model = onnx.ModelProto()
                model.CopyFrom(source)
                values = ["inner", *[f"end{k}" for k in range(1, len(names))], logits]
                for k, name in enumerate(names):
                    model.graph.node.append(onnx.helper.make_node(
                        name, [values[k]], [values[k + 1]], name=f"{name}_end"))
                onnx.save(model, path)
                done("convert", path, "-o", out)
                record = tool("record", path, out, "-o", out.with_suffix(""), "--lengths", "16")
                verify = tool("verify", path, out, "--json")
                self.assertEqual((record.returncode, verify.returncode), (0, 0),
                                 record.stderr + verify.stdout[:500])
                self.assertEqual(json.loads(verify.stdout)["verdict"], "equal")
                # One that is wrong by more than rounding is still found.
                wrong = onnx.load(out)
                last, = [n for n in wrong.graph.node if logits in n.output]
                last.output[list(last.output).index(logits)] = "nearly"
                factor = onnx.numpy_helper.from_array(np.array(1.01, np.float32), "factor")
                wrong.graph.initializer.append(factor)
                wrong.graph.node.append(
                    onnx.helper.make_node("Mul", ["nearly", "factor"], [logits]))
                onnx.save(wrong, out)
                for command in (("record", path, out, "-o", out.with_suffix(""), "--force"),
                                ("verify", path, out)):
                    self.assertEqual(tool(*command).returncode, 1, command)


if __name__ == "__main__":
    unittest.main()
