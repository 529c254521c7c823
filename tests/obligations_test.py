"""What proofs rest on, checked by a solver of others (z3): `kvlift verify --obligations DIR`.
Environment: KVLIFT, KVLIFT_ROOT."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import onnx
import z3
from onnx import helper, numpy_helper
import numpy as np

from support.tool import tool

MODELS = Path(os.environ["KVLIFT_ROOT"]) / "testdata" / "models"
MILLISECONDS = 2000  # for each problem
UNKNOWN = 0.05       # of all that the solver may leave open: products of symbols


def answer(path):
    solver = z3.Solver()
    solver.set("timeout", MILLISECONDS)
    solver.from_file(str(path))
    return str(solver.check())


def bundled():
    return sorted(p.parent for p in MODELS.glob("*/model.onnx"))


class Obligations(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def at(self, *names):
        return os.path.join(self.folder.name, *names)

    def converted(self, source, name="model"):
        """The conversion of a model, or None if there is none."""
        target = self.at(name + ".onnx")
        return target if tool("convert", source, "-o", target).returncode == 0 else None

    def obligations(self, source, target, name="obligations", more=()):
        """Files, and the exit code of verify."""
        folder = self.at(name)
        run = tool("verify", source, target, "--obligations", folder, *more)
        self.assertIn(run.returncode, (0, 1, 4), run.stderr)
        return sorted(Path(folder).glob("*.smt2")), run.returncode

    def edited(self, target, change):
        model = onnx.load(target)
        change(model.graph)
        path = self.at("wrong.onnx")
        onnx.save(model, path)
        return path

    def test_a_solver_agrees_with_what_is_proved_of_bundled_models(self):
        asked, unknown, models = 0, [], 0
        for source in bundled():
            target = self.converted(source / "model.onnx", source.name)
            if target is None:
                continue
            found, code = self.obligations(source / "model.onnx", target, source.name + ".smt")
            if code != 0 or any("-open" in path.name for path in found):
                continue
            self.assertGreater(len(found), 5, source.name)
            models += 1
            for path in found:
                asked += 1
                got = answer(path)
                self.assertNotEqual(got, "sat", f"{source.name}: {path.read_text()}")
                if got != "unsat":
                    unknown.append(f"{source.name}/{path.name}")
        print(f"{asked} problems of {models} models; unknown: {', '.join(unknown) or 'none'}")
        self.assertGreater(models, 15)
        self.assertLessEqual(len(unknown), UNKNOWN * asked, unknown)

    def test_of_wrong_pairs_one_problem_has_a_solution(self):
        source = MODELS / "llama_optimum" / "model.onnx"
        target = self.converted(source)
        self.assertIsNotNone(target)

        def write_later(graph):
            for node in graph.node:
                if node.op_type == "TensorScatter":
                    node.input[2] = "later"
            graph.initializer.append(numpy_helper.from_array(np.array([1]), "one_more"))
            graph.node.insert(
                0, helper.make_node("Add", ["write_indices", "one_more"], ["later"]))

        def see_all(graph):
            for node in graph.node:
                if node.op_type == "Attention":
                    for attribute in node.attribute:
                        if attribute.name == "is_causal":
                            attribute.i = 0

        for change in (write_later, see_all):
            with self.subTest(change.__name__):
                found, code = self.obligations(source, self.edited(target, change),
                                               change.__name__,
                                               ("--manifest", self.at("model.kv.json")))
                self.assertNotEqual(code, 0)
                self.assertIn("sat", [answer(path) for path in found])

    def test_of_each_wrong_pair_of_the_corpus_one_problem_is_open(self):
        """The pairs of tests/negatives_test.cc, by cause."""
        corpus = self.at("corpus")
        os.mkdir(corpus)
        writer = Path(os.environ["KVLIFT"]).parent / "negatives_test"
        subprocess.run([writer, "--gtest_filter=NegativesCorpus.*"], check=True,
                       env=dict(os.environ, KVLIFT_NEGATIVES=corpus), stdout=subprocess.DEVNULL)
        pairs = sorted(Path(corpus).iterdir())
        self.assertGreater(len(pairs), 30)
        proved, unknown = [], []
        for pair in pairs:
            found, _ = self.obligations(pair / "source.onnx", pair / "target.onnx", pair.name,
                                        ("--manifest", pair / "target.kv.json"))
            still_open = [path for path in found if "-open" in path.name]
            answers = {path.name: answer(path) for path in still_open}
            unknown += [f"{pair.name}/{name}" for name, a in answers.items() if a == "unknown"]
            if all(a == "unsat" for a in answers.values()):
                proved.append(pair.name)
        print(f"{len(pairs)} wrong pairs; unknown: {', '.join(unknown) or 'none'}")
        self.assertEqual(proved, [])

    def test_what_is_not_proved_is_written_as_what_was_compared(self):
        source = MODELS / "llama_optimum" / "model.onnx"
        target = self.converted(source)

        def write_later(graph):
            for node in graph.node:
                if node.op_type == "TensorScatter":
                    node.input[2] = "later"
            graph.initializer.append(numpy_helper.from_array(np.array([1]), "one_more"))
            graph.node.insert(
                0, helper.make_node("Add", ["write_indices", "one_more"], ["later"]))

        found, _ = self.obligations(source, self.edited(target, write_later), "later",
                                    ("--manifest", self.at("model.kv.json")))
        texts = [path.read_text() for path in found if "-open" in path.name]
        compared = [text for text in texts if "; mine:" in text and "(assert (not (=" in text]
        self.assertGreater(len(compared), 0, texts)

    def test_a_claim_that_is_not_so_has_a_solution(self):
        """The problems are not unsat for want of a model of what is known."""
        source = MODELS / "llama_optimum" / "model.onnx"
        found, _ = self.obligations(source, self.converted(source))
        satisfiable = 0
        for path in found:
            lines = path.read_text().splitlines()
            last = max(k for k, line in enumerate(lines) if line.startswith("(assert "))
            solver = z3.Solver()
            solver.set("timeout", MILLISECONDS)
            solver.from_string("\n".join(lines[:last] + lines[last + 1:]))
            self.assertNotEqual(str(solver.check()), "unsat", path.read_text())
            satisfiable += str(solver.check()) == "sat"
        self.assertGreater(satisfiable, len(found) // 2)


if __name__ == "__main__":
    unittest.main()
