"""Counterexamples of `kvlift verify --save-failure`: small, and replayed by `kvlift run` and by ONNX
Runtime."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

ROOT = os.environ["KVLIFT_ROOT"]
sys.path.insert(0, os.path.join(ROOT, "tests"))
from decoders.cases import build  # noqa: E402
from decoders.draw import random_spec  # noqa: E402
from support.case_text import text_of_case  # noqa: E402
from support.schemas import check_json  # noqa: E402

KVLIFT = os.environ["KVLIFT"]

# One buffer, which attention reads up to the last token.
PREFIX = """<ir_version: 12, opset_import: ["" : 24]>
g (float[B,S,4] x, float[B,1,16,4] past, int64[B] at) => (float[B,S,4] y, float[B,1,16,4] now)
<int64[1] axis = {1}, int64[1] all = {16}, int64[3] places = {1, 2, 3}, int64 first = {0},
 int64 next = {1}, int64 end = {16}, float none = {0}, float low = {-1e30}>
{
  x4 = Unsqueeze (x, axis)
  now = TensorScatter <axis = 2> (past, x4, at)
  news = Shape <start = 1, end = 2> (x)
  filled = Add (at, news)
  y4 = Attention <is_causal = 1> (x4, now, now, , , , filled)
  y = Squeeze (y4, axis)
}"""
# The same with one slot more, which gets no weight.
ONE_BEHIND = PREFIX.replace(
    "  y4 = Attention <is_causal = 1> (x4, now, now, , , , filled)",
    """  more = Add (filled, axis)
  behind = Min (more, all)
  slots = Range (first, end, next)
  tokens = Squeeze (news)
  steps = Range (first, tokens, next)
  rows = Unsqueeze (steps, axis)
  at4 = Unsqueeze (at, places)
  own = Add (at4, rows)
  sees = LessOrEqual (slots, own)
  bias = Where (sees, none, low)
  y4 = Attention (x4, now, now, bias, , , behind)""",
)


def kvlift(*arguments):
    return subprocess.run([KVLIFT, *arguments], capture_output=True, text=True, timeout=120)


def tensors(folder, what, names):
    found = {}
    for k, name in enumerate(names):
        path = os.path.join(folder, f"{what}_{k}.pb")
        if os.path.exists(path):
            found[name] = numpy_helper.to_array(onnx.load_tensor(path))
    return found


def replay(model, folder):
    """What ONNX Runtime makes of the folder's inputs, beside its outputs."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    feeds = tensors(folder, "input", [i.name for i in session.get_inputs()])
    return dict(zip(names, session.run(None, feeds))), tensors(folder, "output", names)


class CounterexampleTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.source, self.target, self.wrong = (self.at(f"{x}.onnx") for x in "abc")
        model, _ = build(random_spec(4))
        onnx.save(model, self.source)
        done = kvlift("convert", self.source, "-o", self.target)
        self.assertEqual(done.returncode, 0, done.stderr)

    def at(self, *names):
        return os.path.join(self.folder, *names)

    def break_it(self, change):
        model = onnx.load(self.target)
        change(model)
        onnx.save(model, self.wrong)
        done = kvlift(
            "verify", self.source, self.wrong, "--manifest", self.at("b.kv.json"), "--json",
            "--save-failure", self.at("failure"),
        )
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        return check_json(done.stdout)["counterexample"]

    def test_small_and_replayed(self):
        def louder(model):
            node = [n for n in model.graph.node if n.op_type == "Attention"][-1]
            kept = [a for a in node.attribute if a.name != "scale"]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute("scale", 3.0)])

        found = self.break_it(louder)
        smallest = found["smallest"]
        self.assertEqual(len(smallest["past"]), 1)
        self.assertEqual(smallest["new_tokens"], 1)
        self.assertLessEqual(smallest["past"][0], 1)
        self.assertTrue(found["nodes"]["after"])
        with open(self.at("failure", "counterexample.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), found)
        results = {}
        for side, model in (("before", self.source), ("after", self.wrong)):
            steps = self.at("failure", side)
            done = kvlift("run", model, "--steps", steps, "--expect", steps)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            got, saved = replay(model, os.path.join(steps, "00"))
            for name, value in saved.items():
                np.testing.assert_allclose(got[name], value, rtol=2e-3, atol=2e-4)
            results[side] = got
        name = smallest["output"]
        self.assertFalse(
            np.allclose(results["before"][name], results["after"][name], rtol=1e-4, atol=1e-4)
        )

    def ring(self, case):
        """A circular buffer instead of the drawn decoder."""
        onnx.save(onnx.parser.parse_model(text_of_case(case)), self.source)
        for name in ("b.onnx", "b.kv.json"):
            os.remove(self.at(name))
        done = kvlift("convert", self.source, "-o", self.target, "--mode", "circular")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_rings_are_replayed(self):
        """Slots of both models, as each of them was fed."""

        def louder(model):
            node = [n for n in model.graph.node if n.op_type == "Attention"][-1]
            kept = [a for a in node.attribute if a.name != "scale"]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute("scale", 3.0)])

        for case in ("ring_buffer_scatter", "shifting_buffer_mask"):
            with self.subTest(case=case):
                self.ring(case)
                self.break_it(louder)
                for side, model in (("before", self.source), ("after", self.wrong)):
                    steps = self.at("failure", side)
                    done = kvlift("run", model, "--steps", steps, "--expect", steps)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    got, saved = replay(model, os.path.join(steps, "00"))
                    self.assertTrue(saved)
                    for name, value in saved.items():
                        np.testing.assert_allclose(got[name], value, rtol=2e-3, atol=2e-4)
                shutil.rmtree(self.at("failure"))

    def test_modes_of_updates_in_place(self):
        """What only the executor's poison shows is replayed with what it put into the cache."""
        for path, text in ((self.source, PREFIX), (self.wrong, ONE_BEHIND)):
            onnx.save(onnx.parser.parse_model(text), path)
        done = kvlift(
            "verify", self.source, self.wrong, "--json", "--save-failure", self.at("failure")
        )
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        found = check_json(done.stdout)["counterexample"]
        self.assertEqual(found["plan"], "poison")
        self.assertTrue(found["text"].startswith("KV431"))
        self.assertEqual(found["smallest"]["past"], [0])
        self.assertEqual(found["smallest"]["new_tokens"], 1)
        self.assertEqual(found["smallest"]["output"], "y")
        for side, model in (("before", self.source), ("after", self.wrong)):
            steps = self.at("failure", side)
            done = kvlift("run", model, "--steps", steps, "--expect", steps)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            got, saved = replay(model, os.path.join(steps, "00"))
            np.testing.assert_allclose(got["y"], saved["y"], rtol=2e-3, atol=2e-4)
            self.assertEqual(bool(np.isnan(got["y"]).any()), side == "after")

    def test_first_node_that_differs(self):
        changed = []

        def negated(model):
            names = {o for n in onnx.load(self.source).graph.node for o in n.output}
            for n, node in enumerate(model.graph.node):
                if node.op_type == "MatMul" and node.output[0] in names:
                    changed.append(node.output[0])
                    kept = node.output[0]
                    node.output[0] = "test.positive"
                    model.graph.node.insert(n + 1, helper.make_node("Neg", ["test.positive"], [kept]))
                    return

        found = self.break_it(negated)
        self.assertIn("MatMul", found["nodes"]["before"])
        self.assertIn("Neg", found["nodes"]["after"])
        self.assertIn(changed[0], found["nodes"]["after"])
        first = [value for value in found["values"] if value["differs"]][0]
        self.assertEqual(first["name"], changed[0])
        self.assertGreater(first["distance"], 0)
        self.assertEqual((first["before"], first["after"]),
                         (found["nodes"]["before"], found["nodes"]["after"]))
        earlier = found["values"][: found["values"].index(first)]
        self.assertEqual({value["differs"] for value in earlier}, {False})

    def test_values_are_shown_and_written_for_model_explorer(self):
        changed = []

        def negated(model):
            for n, node in enumerate(model.graph.node):
                if node.op_type == "MatMul":
                    changed.append(node.output[0])
                    node.output[0] = "test.positive"
                    model.graph.node.insert(
                        n + 1, helper.make_node("Neg", ["test.positive"], [changed[0]], name="test.neg"))
                    return

        self.break_it(negated)
        data = os.path.join(self.folder, "nodes.json")
        run = kvlift("verify", self.source, self.wrong, "--manifest", self.at("b.kv.json"),
                     "--explorer", data)
        self.assertEqual(run.returncode, 1, run.stdout)
        self.assertRegex(run.stdout, r"Neg \"test.neg\" +\S+ +different")
        with open(data, encoding="utf-8") as file:
            graphs = json.load(file)
        self.assertEqual(set(graphs), {onnx.load(m).graph.name for m in (self.source, self.wrong)})
        for table in graphs.values():
            self.assertTrue(table["name"])
            for key, result in table["results"].items():
                self.assertGreaterEqual(result["value"], 0, key)
                self.assertRegex(result["bgColor"], "^#[0-9a-f]{6}$")
        after = graphs[onnx.load(self.wrong).graph.name]["results"]
        self.assertGreater(after["test.neg"]["value"], 0)

    def test_equal_models_give_model_explorer_empty_tables(self):
        data = os.path.join(self.folder, "nodes.json")
        run = kvlift("verify", self.source, self.target, "--explorer", data)
        self.assertEqual(run.returncode, 0, run.stdout)
        with open(data, encoding="utf-8") as file:
            self.assertEqual([table["results"] for table in json.load(file).values()], [{}])


if __name__ == "__main__":
    unittest.main()
