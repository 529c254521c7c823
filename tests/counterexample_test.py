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
from support.schemas import check_json  # noqa: E402

KVLIFT = os.environ["KVLIFT"]


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
        path = os.path.join(ROOT, "testdata", "rewrites", f"{case}.onnxtxt")
        with open(path, encoding="utf-8") as file:
            text = file.read().split("# ---- before\n")[1].split("# ---- ")[0]
        onnx.save(onnx.parser.parse_model(text), self.source)
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


if __name__ == "__main__":
    unittest.main()
