"""kvlift diff: what it finds different in two graphs, and what it must not."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import onnx
from onnx import numpy_helper

from support.schemas import check_json

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
KVLIFT = os.environ["KVLIFT"]
GOOD = ROOT / "testdata" / "models" / "llama_optimum" / "model.onnx"


class Diff(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        self.model = onnx.load(GOOD)

    def run_diff(self, before, after, *flags):
        run = subprocess.run([KVLIFT, "diff", before, after, *flags], capture_output=True,
                             check=False)
        return run.returncode, run.stdout.decode()

    def diff(self, code=1):
        """Of the bundled model and self.model."""
        onnx.save(self.model, self.dir / "m.onnx")
        done, out = self.run_diff(GOOD, self.dir / "m.onnx", "--json")
        self.assertEqual(done, code, out)
        document = check_json(out)
        self.assertEqual(document["same"], code == 0)
        nodes = document["nodes"]
        for side, gone in (("before", "removed"), ("after", "added")):
            self.assertEqual(document[side]["nodes"],
                             nodes["kept"] + len(nodes["changed"]) + len(nodes[gone]))
        return document

    def test_a_model_is_the_same_as_itself(self):
        self.assertEqual(self.diff(0)["nodes"]["kept"], len(self.model.graph.node))

    def test_names_of_nodes_and_inner_values_do_not_matter(self):
        kept = {v.name for v in [*self.model.graph.input, *self.model.graph.output,
                                 *self.model.graph.initializer]}
        for k, node in enumerate(self.model.graph.node):
            node.name = f"n{k}"
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name and name not in kept:
                        names[i] = "v_" + name
        del self.model.graph.value_info[:]
        self.diff(0)

    def test_nor_where_constants_lie(self):
        onnx.save(self.model, self.dir / "e.onnx", save_as_external_data=True, location="e.data",
                  size_threshold=0)
        self.assertEqual(self.run_diff(GOOD, self.dir / "e.onnx")[0], 0)

    def test_an_attribute(self):
        node = next(n for n in self.model.graph.node if n.op_type == "Concat")
        node.attribute[0].i += 1
        changed = self.diff()["nodes"]["changed"]
        self.assertEqual([(n["name"], n["what"]) for n in changed],
                         [(node.name, ["attribute axis differs"])])

    def test_a_weight(self):
        tensor = max(self.model.graph.initializer, key=lambda t: len(t.raw_data))
        array = numpy_helper.to_array(tensor).copy()
        array.flat[-1] += 1
        tensor.raw_data = array.tobytes()
        constants = self.diff()["constants"]
        self.assertEqual((constants["changed"], constants["removed"], constants["added"]),
                         (1, 0, 0))

    def test_wiring(self):
        node = next(n for n in self.model.graph.node if n.op_type == "MatMul")
        node.input[0], node.input[1] = node.input[1], node.input[0]
        changed = self.diff()["nodes"]["changed"]
        self.assertEqual(len(changed), 1)
        self.assertEqual(len(changed[0]["what"]), 2)

    def test_a_conversion(self):
        out = self.dir / "out.onnx"
        subprocess.run([KVLIFT, "convert", GOOD, "-o", out, "--quiet"], check=True)
        self.model = onnx.load(out)
        document = self.diff()
        self.assertIn({"operator": "TensorScatter", "before": 0, "after": 4},
                      document["operators"])
        new = [v for v in document["inputs"] if v["before"] is None]
        self.assertEqual([v["name"] for v in new], ["write_indices"])
        _, text = self.run_diff(GOOD, out)
        self.assertRegex(text.splitlines()[-1],
                         r"^differ: nodes \d+ kept, \d+ changed, \d+ removed, \d+ added$")
        self.assertTrue(all(len(line) <= 80 for line in text.splitlines()), text)
        _, details = self.run_diff(GOOD, out, "--details")
        self.assertEqual(sum(line.startswith("removed") for line in details.splitlines()),
                         len(document["nodes"]["removed"]))


if __name__ == "__main__":
    unittest.main()
