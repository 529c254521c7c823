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

    def test_what_pip_installs(self):
        """A bare version is one of kvlift; everything else is what pip takes."""
        step = self.action["runs"]["steps"][0]
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder, "python3")
            fake.write_text("#!/bin/sh\nfor word; do last=$word; done\necho \"$last\"\n")
            fake.chmod(0o755)
            pathlib.Path(folder, "2.whl").touch()
            for given, wanted in (("0.1.0", "kvlift==0.1.0"), ("1", "kvlift==1"),
                                  ("2.0rc1", "kvlift==2.0rc1"), ("kvlift", "kvlift"),
                                  ("kvlift==0.1.0", "kvlift==0.1.0"), ("2.whl", "2.whl"),
                                  ("dist/0.1 x.whl", "dist/0.1 x.whl")):
                with self.subTest(given=given):
                    env = {"PATH": f"{folder}:{os.environ['PATH']}", "KVLIFT_INSTALL": given}
                    run = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", step["run"]],
                                         env=env, cwd=folder, capture_output=True, text=True,
                                         check=True)
                    self.assertEqual(run.stdout, wanted + "\n")

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

    def step(self, program=KVLIFT, **inputs):
        env = {"PATH": os.environ["PATH"], "KVLIFT": program,
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

    def test_what_cannot_be_done_has_a_verdict_and_a_line(self):
        (self.dir / "file").write_text("no folder")
        source = str(self.models / "source.onnx")
        for code, wanted, inputs in (
                (2, "neither models nor pairs", {}),
                (3, "no model matches *.onnx", {"models": "*.onnx"}),
                (2, "two paths, found one.onnx", {"pairs": "one.onnx"}),
                (2, "No closing quotation", {"pairs": "it's.onnx out.onnx"}),
                (5, "folder of results cannot be made", {"models": source, "results": "file"}),
                (5, "folder of results cannot be made", {"models": source, "results": "file/in"}),
                (2, "control characters", {"models": source, "results": "a\nverdict=equal"})):
            with self.subTest(inputs=inputs):
                (self.dir / "output").unlink(missing_ok=True)
                run = self.step(**inputs)
                self.assertEqual(run.returncode, code, run.stderr)
                self.assertTrue(run.stderr.startswith("kvlift: "), run.stderr)
                self.assertEqual(len(run.stderr.splitlines()), 1, run.stderr)
                self.assertIn(wanted, run.stderr)
                self.assertEqual(self.outputs()["verdict"], "failed")
                self.assertIn("| failed |", (self.dir / "summary").read_text(encoding="utf-8"))

    def test_a_program_that_is_absent_or_killed_has_a_verdict(self):
        killed = self.dir / "killed"
        killed.write_text("#!/bin/sh\nkill -9 $$\n")
        killed.chmod(0o755)
        for program, code in ((self.dir / "absent", 70), (self.dir, 70), (killed, 137)):
            with self.subTest(program=program):
                (self.dir / "output").unlink(missing_ok=True)
                run = self.step(models=str(MODEL), program=str(program))
                self.assertEqual(run.returncode, code, run.stderr)
                self.assertNotIn("Traceback", run.stderr)
                self.assertEqual(self.outputs()["verdict"], "failed")

    def test_the_name_of_a_file_is_no_pattern_and_no_option(self):
        names = ["a[1].onnx", "-x.onnx", "--exit-zero", "what?.onnx"]
        for name in names:
            shutil.copy(self.models / "source.onnx", self.dir / name)
        shutil.copy(self.models / "source.onnx", self.dir / "a1.onnx")
        run = self.step(models="\n".join(names))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout.splitlines()[0],
                         f"$ {KVLIFT} check 'a[1].onnx' ./-x.onnx ./--exit-zero 'what?.onnx' "
                         "--target=spec --format github --save sarif=kvlift-results/check.sarif "
                         "--save junit=kvlift-results/check.junit.xml --force")
        # Patterns match files only, and names that begin with a dash as well.
        (self.dir / "folder.onnx").mkdir()
        run = self.step(models="[-a]*.onnx\n*.onnx")
        self.assertIn("check ./-x.onnx a1.onnx 'a[1].onnx' 'what?.onnx' --target", run.stdout)
        self.assertEqual(run.returncode, 0, run.stderr)
        run = self.step(pairs="-x.onnx out.onnx")
        self.assertIn("verify ./-x.onnx out.onnx", run.stdout)

    def test_names_start_no_lines_in_the_log(self):
        shutil.copy(self.models / "source.onnx", self.dir / "a\n::error::b.onnx")
        shutil.copy(self.models / "source.onnx", os.path.join(os.fsencode(self.dir), b"\xe9.onnx"))
        run = self.step(models="*.onnx")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertFalse([line for line in run.stdout.splitlines() if line.startswith("::")])


if __name__ == "__main__":
    unittest.main()
