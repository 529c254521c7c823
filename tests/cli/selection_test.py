"""Which caches --only and --skip choose, and what --io-names calls them. Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository."""
import os
import subprocess
import tempfile
import unittest

import onnx
import onnx.parser

from support.case_text import text_of_case
from support.schemas import check_json

KVLIFT = os.environ["KVLIFT"]
MODEL = os.path.join(os.environ["KVLIFT_ROOT"], "testdata", "models", "llama_optimum", "model.onnx")


def convert(out, *flags, model=MODEL):
    done = subprocess.run([KVLIFT, "convert", model, "-o", out, "--json", *flags],
                          capture_output=True, text=True, timeout=120)
    return done.returncode, check_json(done.stdout)


class SelectionTest(unittest.TestCase):
    def choose(self, *flags):
        """The document, and what each cache of the result is written by."""
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.onnx")
            code, document = convert(out, "--verify", *flags)
            self.assertEqual(code, 0, document)
            self.assertEqual(document["status"], "converted")
            self.assertEqual(document["verify"]["verdict"], "equal")
            graph = onnx.load(out).graph
            onnx.checker.check_model(out, full_check=True)
        makers = {name: node.op_type for node in graph.node for name in node.output}
        presents = [o.name for o in graph.output if o.name.startswith("present")]
        return document, {name: makers[name] for name in presents}

    def test_skip_leaves_a_layer(self):
        document, makers = self.choose("--skip", "past_key_values.1.*")
        self.assertEqual(makers, {"present.0.key": "TensorScatter", "present.0.value": "TensorScatter",
                                  "present.1.key": "Concat", "present.1.value": "Concat"})
        left = {c["input"]: c["reason"]["code"] for c in document["caches"] if c["reason"]}
        self.assertEqual(left, {"past_key_values.1.key": "KV230", "past_key_values.1.value": "KV230"})

    def test_only_takes_a_layer_by_either_name(self):
        _, makers = self.choose("--only", "present.1.*")
        self.assertEqual([makers[f"present.{k}.key"] for k in (0, 1)], ["Concat", "TensorScatter"])

    def test_nothing_is_left_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.onnx")
            code, document = convert(out, "--only", "no such cache")
            self.assertEqual((code, document["status"]), (1, "nothing"))
            self.assertEqual(os.listdir(folder), [])

    def test_an_operator_that_cannot_be_lowered_may_be_left(self):
        before = text_of_case("attention_op_refuse_group_query_scale")
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "in.onnx")
            onnx.save(onnx.parser.parse_model(before), source)
            for flags, code, status in [((), "KV240", "refused"), (("--skip", "*"), "KV230", "nothing")]:
                _, document = convert(os.path.join(folder, "out.onnx"), *flags, model=source)
                self.assertEqual(document["status"], status)
                self.assertEqual({c["reason"]["code"] for c in document["caches"]}, {code})

    def test_a_name_that_is_taken(self):
        with tempfile.TemporaryDirectory() as folder:
            model = onnx.load(MODEL)
            for node in model.graph.node:
                for names in (node.input, node.output):
                    names[:] = ["key_cache.0" if n == "/model/norm/Mul_1_output_0" else n for n in names]
            self.assertTrue(any("key_cache.0" in node.output for node in model.graph.node))
            source = os.path.join(folder, "in.onnx")
            onnx.save(model, source)
            done = subprocess.run([KVLIFT, "convert", source, "-o", os.path.join(folder, "out.onnx"),
                                   "--json", "--io-names", "static"], capture_output=True, text=True,
                                  timeout=120)
            document = check_json(done.stdout)
            self.assertEqual((done.returncode, document["status"]), (1, "refused"))
            reason = document["caches"][0]["reason"]
            self.assertEqual(reason["code"], "KV229")
            self.assertIn("key_cache.0 is taken", reason["text"])
            self.assertEqual(os.listdir(folder), ["in.onnx"])


if __name__ == "__main__":
    unittest.main()
