"""The GitHub Action of .github/actions/verify: its definition, and what its step does."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import onnx
import yaml
from onnx import numpy_helper

from support import schemas

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
KVLIFT = os.environ["KVLIFT"]
ACTION = ROOT / ".github" / "actions" / "verify"
MODEL = ROOT / "testdata" / "models" / "llama_optimum" / "model.onnx"


class Definition(unittest.TestCase):
    def setUp(self):
        self.action = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))

    def test_it_is_an_action_by_the_schema_of_github(self):
        run = subprocess.run([sys.executable, "-m", "check_jsonschema", "--builtin-schema",
                              "vendor.github-actions", str(ACTION / "action.yml")],
                             capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_every_input_reaches_its_step_through_the_environment(self):
        """A value in the text of a script would be run as code."""
        used = set()
        for step in self.action["runs"]["steps"]:
            self.assertNotIn("${{", step.get("run", ""))
            for value in [*step.get("env", {}).values(), *step.get("with", {}).values(),
                          step.get("if", "")]:
                used |= {name for name in self.action["inputs"] if f"inputs.{name}" in str(value)}
        self.assertEqual(used, set(self.action["inputs"]))

    def test_the_page_shows_every_input(self):
        page = (ROOT / "docs" / "github.md").read_text(encoding="utf-8")
        for name in [*self.action["inputs"], *self.action["outputs"]]:
            self.assertIn(f"`{name}`", page)


class Step(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.models = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.models)
        shutil.copy(MODEL, cls.models / "source.onnx")
        subprocess.run([KVLIFT, "convert", cls.models / "source.onnx", "-o",
                        cls.models / "out.onnx", "--quiet"], check=True, stdout=subprocess.DEVNULL)
        wrong = onnx.load(cls.models / "out.onnx")
        weight = max((t for t in wrong.graph.initializer if t.data_type == onnx.TensorProto.FLOAT),
                     key=lambda t: len(t.raw_data))
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * 2, weight.name))
        onnx.save(wrong, cls.models / "wrong.onnx")
        shutil.copy(cls.models / "out.kv.json", cls.models / "wrong.kv.json")

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)

    def step(self, **inputs):
        env = {"PATH": os.environ["PATH"], "KVLIFT": KVLIFT,
               "GITHUB_OUTPUT": str(self.dir / "output"),
               "GITHUB_STEP_SUMMARY": str(self.dir / "summary"),
               **{"KVLIFT_" + name.upper(): value for name, value in inputs.items()}}
        return subprocess.run([sys.executable, ACTION / "run.py"], env=env, cwd=self.dir,
                              capture_output=True, text=True, timeout=300, check=False)

    def outputs(self):
        lines = (self.dir / "output").read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines)

    def test_models_and_pairs_without_faults(self):
        source, after = self.models / "source.onnx", self.models / "out.onnx"
        run = self.step(models=f"{self.models}/*t.onnx\n", pairs=f"{source} '{after}'\n",
                        target="ort", results="found")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertEqual(self.outputs(), {"results": "found", "verdict": "equal"})
        found = self.dir / "found"
        self.assertEqual(sorted(p.name for p in found.iterdir()),
                         ["check.junit.xml", "check.sarif", "verify-1.html", "verify-1.json",
                          "verify-1.junit.xml", "verify-1.sarif"])
        for name in ("check", "verify-1"):
            schemas.check_sarif((found / f"{name}.sarif").read_text(encoding="utf-8"))
            schemas.check_junit((found / f"{name}.junit.xml").read_bytes())
        verdict = schemas.check_json((found / "verify-1.json").read_text(encoding="utf-8"))
        self.assertEqual(verdict["verdict"], "equal")
        self.assertIn("<html", (found / "verify-1.html").read_text(encoding="utf-8"))
        self.assertIn("| equal |", (self.dir / "summary").read_text(encoding="utf-8"))

    def test_a_pair_that_differs_fails_the_step_with_an_annotation(self):
        source = self.models / "source.onnx"
        run = self.step(pairs=f"{source} {self.models / 'out.onnx'}\n"
                              f"{source} {self.models / 'wrong.onnx'}\n")
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertEqual(self.outputs()["verdict"], "different")
        self.assertIn("::error", run.stdout)
        self.assertIn("KV404", run.stdout)
        self.assertTrue((self.dir / "kvlift-results" / "verify-2.html").is_file())

    def test_a_model_that_cannot_be_read_is_no_pass(self):
        (self.dir / "broken.onnx").write_bytes(b"no model")
        run = self.step(models="broken.onnx")
        self.assertEqual(run.returncode, 3, run.stdout + run.stderr)
        self.assertEqual(self.outputs()["verdict"], "failed")

    def test_nothing_to_do_is_an_error(self):
        for inputs in ({}, {"models": "*.onnx"}, {"pairs": "one.onnx"}):
            run = self.step(**inputs)
            self.assertNotEqual(run.returncode, 0)
            self.assertIn("kvlift: ", run.stderr)


if __name__ == "__main__":
    unittest.main()
