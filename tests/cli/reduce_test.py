"""reduce: pairs that differ, models that are refused, and crashes become small and still show it.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository; KVLIFT_CRASH_SHIM, a library that makes
the tool crash (absent in builds with sanitizers).
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

import numpy as np
import onnx
from onnx import numpy_helper

from support.fleets import children, wait_for
from support.schemas import check_json
from support.tool import done, tool

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
KVLIFT = os.environ["KVLIFT"]
MODELS = ROOT / "testdata" / "models"
SHIM = os.environ.get("KVLIFT_CRASH_SHIM")


def node_of(model, op_type, behind=""):
    return next(n for n in model.graph.node if n.op_type == op_type and behind in n.output[0])


def swap_activation(model):
    node_of(model, "Sigmoid", "layers.1").op_type = "Tanh"


def shift_write(model):
    """The values of a layer are written a slot too late."""
    scatter = [n for n in model.graph.node if n.op_type == "TensorScatter"][-1]
    model.graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "one"))
    at = list(model.graph.node).index(scatter)
    model.graph.node.insert(at, onnx.helper.make_node(
        "Add", [scatter.input[2], "one"], ["late"], name="late"))
    scatter.input[2] = "late"


def drop_scale(model):
    attention = [n for n in model.graph.node if n.op_type == "Attention"][-1]
    kept = [a for a in attention.attribute if a.name != "scale"]
    del attention.attribute[:]
    attention.attribute.extend([*kept, onnx.helper.make_attribute("scale", 0.5)])


def change_weight(model):
    tensor = next(t for t in model.graph.initializer if len(t.dims) == 2 and t.dims[0] > 8)
    values = numpy_helper.to_array(tensor).copy()
    values[0] *= 1.5
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


WRONG = {"activation": (swap_activation, "Tanh"), "write": (shift_write, "TensorScatter"),
         "scale": (drop_scale, "Attention"), "weight": (change_weight, "")}
REFUSED = {  # model, options: code
    ("neg_concat_reversed_ts",): "KV203",
    ("toy_fifo_shift_ts",): "KV205",
    ("llama_optimum", "--quantize-cache", "int8:7"): "KV241",
}


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.made)
        cls.before = MODELS / "llama_optimum" / "model.onnx"
        cls.after = cls.made / "out.onnx"
        done("convert", cls.before, "-o", cls.after)
        cls.nodes = sum(len(onnx.load(path).graph.node) for path in (cls.before, cls.after))

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        self.out = self.dir / "small"

    def wrong(self, edit):
        """The conversion with an edit, and its manifest beside it."""
        model = onnx.load(self.after)
        edit(model)
        path = self.dir / "wrong.onnx"
        onnx.save(model, path)
        shutil.copy(self.made / "out.kv.json", self.dir / "wrong.kv.json")
        return path

    def reduce(self, *args, code=0):
        run = tool("reduce", *args, "-o", self.out, "--json")
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return check_json(run.stdout), run.stderr

    def by_the_readme(self):
        """Runs the command of the README in the folder; returns its exit code and document."""
        text = (self.out / "README.md").read_text(encoding="utf-8")
        command = text.split("```sh\n")[1].split("\n```")[0]
        folder = self.dir / "bin"
        folder.mkdir()
        (folder / "kvlift").symlink_to(KVLIFT)
        env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        run = subprocess.run(["bash", "-c", command + " --json"], cwd=self.out, env=env,
                             capture_output=True, text=True, check=False)
        return run.returncode, json.loads(run.stdout)


class Pairs(Case):
    def test_each_is_found_among_hundreds_of_nodes(self):
        for name, (edit, op_type) in WRONG.items():
            with self.subTest(name):
                self.setUp()
                path = self.wrong(edit)
                document, said = self.reduce(self.before, path)
                self.assertRegex(said, r"^keeps: different with KV4\d\d: (?!KV)")
                self.assertEqual(document["property"]["kind"], "different")
                self.assertTrue(document["complete"])
                before, after = (onnx.load(self.out / f"{side}.onnx")
                                 for side in ("before", "after"))
                count = len(before.graph.node) + len(after.graph.node)
                given = sum(len(onnx.load(p).graph.node) for p in (self.before, path))
                self.assertEqual(document["before"]["nodes"], given)
                self.assertEqual(document["after"]["nodes"], count)
                self.assertLess(count, self.nodes / 5)
                self.assertLess(document["after"]["bytes"], document["before"]["bytes"] / 5)
                if op_type:
                    self.assertIn(op_type, {n.op_type for n in after.graph.node})
                for model in (before, after):
                    onnx.checker.check_model(model, full_check=True)
                code, verdict = self.by_the_readme()
                self.assertEqual((code, verdict["verdict"]), (1, "different"))
                readme = (self.out / "README.md").read_text(encoding="utf-8")
                self.assertIn(" say that the pair is different with KV4", readme)
                self.assertIn(f":\n\n```text\n{document['observed']}\n```", readme)
                self.assertTrue(verdict["reason"].startswith(document["property"]["code"]))

    def test_a_limit_of_its_own_is_no_finding(self):
        """Too little memory or time for the models is said, whatever it makes of them."""
        refused = MODELS / "neg_concat_reversed_ts" / "model.onnx"
        pair = (self.before, self.after)
        for models, flag, value, keep in (
                (pair, "--memory", 0.01, "inconclusive"), (pair, "--memory", 0.02, "inconclusive"),
                (pair, "--memory", 0.007, "crash"), (pair, "--memory", 0.002, "crash"),
                ([self.before], "--memory", 0.008, "crash"),
                ([refused], "--memory", 0.002, "KV203"),
                ([refused], "--timeout", 0.001, "KV203")):
            with self.subTest(models=models, flag=flag, value=value):
                document, said = self.reduce(*models, flag, value, "--keep", keep, code=3)
                line, = [line for line in said.splitlines() if not line.startswith("keeps: ")]
                self.assertIn(f"{flag} {value} is too small for the model", line)
                self.assertEqual(document["outputs"], [])
                self.assertFalse(self.out.exists())

    def test_a_pair_without_a_manifest(self):
        path = self.wrong(swap_activation)
        (self.dir / "wrong.kv.json").unlink()
        model = onnx.load(path)
        del model.metadata_props[:]
        onnx.save(model, path)
        document, _ = self.reduce(self.before, path)
        self.assertLess(document["after"]["nodes"], self.nodes / 5)
        self.assertEqual(self.by_the_readme()[1]["verdict"], "different")

    def test_the_number_of_jobs_changes_nothing(self):
        path = self.wrong(shift_write)
        folders = [self.dir / f"jobs{n}" for n in (1, 3)]
        for folder, jobs in zip(folders, (1, 3)):
            done("reduce", self.before, path, "-o", folder, "--jobs", jobs, "--quiet")
        names = [sorted(p.name for p in folder.iterdir()) for folder in folders]
        self.assertEqual(names[0], ["README.md", "after.kv.json", "after.onnx", "before.onnx"])
        self.assertEqual(names[0], names[1])
        for name in names[0]:
            self.assertEqual((folders[0] / name).read_bytes(), (folders[1] / name).read_bytes())

    def test_external_data_becomes_part_of_the_result(self):
        paths = []
        for name, path in (("a", self.before), ("b", self.wrong(change_weight))):
            folder = self.dir / name
            folder.mkdir()
            paths.append(folder / "wrong.onnx")
            onnx.save(onnx.load(path), paths[-1], save_as_external_data=True,
                      location=f"{name}.data", size_threshold=100)
        shutil.copy(self.dir / "wrong.kv.json", self.dir / "b")
        document, _ = self.reduce(*paths)
        self.assertLess(document["after"]["nodes"], self.nodes / 5)
        self.assertEqual(sorted(p.name for p in self.out.iterdir()),
                         ["README.md", "after.kv.json", "after.onnx", "before.onnx"])
        self.assertEqual(self.by_the_readme()[1]["verdict"], "different")

    def test_equal_models_show_nothing(self):
        document, said = self.reduce(self.before, self.after, code=1)
        self.assertEqual(document["status"], "not-shown")
        self.assertEqual(document["observed"], "equal")
        self.assertIn("verify says equal: nothing to reduce", said)
        self.assertFalse(self.out.exists())

    def test_another_property_than_asked_for(self):
        path = self.wrong(swap_activation)
        for keep in ("inconclusive", "crash", "KV406"):
            document, said = self.reduce(self.before, path, "--keep", keep, code=1)
            self.assertEqual(document["status"], "not-shown")
            self.assertIn(f"nothing to reduce with --keep {keep}", said)
        self.assertFalse(self.out.exists())
        document, _ = self.reduce(self.before, path, "--keep", "different")
        self.assertIsNone(document["property"]["code"])

    def test_a_short_budget_still_gives_a_pair(self):
        document, _ = self.reduce(self.before, self.wrong(swap_activation), "--budget", "0.4")
        self.assertFalse(document["complete"])
        self.assertEqual(self.by_the_readme()[1]["verdict"], "different")
        self.assertIn("something smaller may exist",
                      (self.out / "README.md").read_text(encoding="utf-8"))


class Models(Case):
    def test_refusals(self):
        for (name, *options), code in REFUSED.items():
            with self.subTest(name):
                self.setUp()
                path = MODELS / name / "model.onnx"
                arguments = (path, "--", *options) if options else (path,)
                run = tool("reduce", "-o", self.out, "--json", *arguments)
                self.assertEqual(run.returncode, 0, run.stderr)
                document = check_json(run.stdout)
                self.assertEqual(document["property"], {
                    "kind": "refused", "code": code, "text": f"refused with {code}"})
                model = onnx.load(self.out / "model.onnx")
                onnx.checker.check_model(model, full_check=True)
                self.assertLess(len(model.graph.node), len(onnx.load(path).graph.node) / 5)
                exit_code, told = self.by_the_readme()
                self.assertEqual((exit_code, told["status"]), (1, "refused"))
                codes = {c["reason"]["code"] for c in told["caches"] if c["reason"]}
                self.assertIn(code, codes)

    def test_a_model_that_is_converted_shows_nothing(self):
        document, said = self.reduce(self.before, code=1)
        self.assertEqual(document["status"], "not-shown")
        self.assertIn("convert says converted: nothing to reduce", said)

    @unittest.skipUnless(SHIM, "sanitizers cannot be preloaded")
    def test_crashes(self):
        crash = {**os.environ, "LD_PRELOAD": SHIM, "KVLIFT_CRASH_COMMAND": "convert",
                 "KVLIFT_CRASH_WORD": "Softmax"}
        run = subprocess.run([KVLIFT, "reduce", self.before, "-o", self.out], env=crash,
                             capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("keeps: a crash with exit code 139", run.stderr)
        model = onnx.load(self.out / "model.onnx")
        self.assertEqual(len(model.graph.node), 1)
        self.assertIn(b"Softmax", (self.out / "model.onnx").read_bytes())
        self.assertIn("crash with exit code 139",
                      (self.out / "README.md").read_text(encoding="utf-8"))
        # If it crashes while it reads the model, nothing can be taken apart.
        shutil.rmtree(self.out)
        shutil.copy(self.before, self.dir / "model.onnx")
        both = {**crash, "KVLIFT_CRASH_COMMAND": "convert,check"}
        run = subprocess.run([KVLIFT, "reduce", self.dir / "model.onnx", "-o", self.out], env=both,
                             capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn("crashes when it reads the model", run.stderr)
        self.assertFalse(self.out.exists())

    def test_wrong_usage(self):
        run = tool("reduce", self.before, "-o", "")
        self.assertEqual((run.returncode, "name of a folder" in run.stderr), (2, True), run.stderr)
        for args, text in [(("-",), "models are read from files"),
                           ((self.before, "--manifest", "m.json"), "--manifest is for a pair"),
                           ((self.before, "--keep", "KV999"), "needs the code of a finding"),
                           *[((self.before, flag, number),
                              f"{flag}: needs a number above 0, found {number}")
                             for flag in ("--memory", "--timeout", "--budget")
                             for number in ("0", "-1", "nan", "1e999", "soon")],
                           ((self.before, "--", "--json"), "reduce decides this itself"),
                           ((self.before, "--", "--no-such"), "--no-such")]:
            run = tool("reduce", "-o", self.out, *args)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(text, run.stderr)
            self.assertNotRegex(run.stderr, "[0-9]{30}")
            self.assertFalse(self.out.exists())

    def test_unreadable_models(self):
        broken = self.dir / "broken.onnx"
        broken.write_bytes(b"no model")
        for path in (broken, self.dir / "absent.onnx"):
            run = tool("reduce", path, "-o", self.out)
            self.assertEqual(run.returncode, 3, run.stderr)
            self.assertTrue(run.stderr.startswith("kvlift: "), run.stderr)
            self.assertEqual(run.stderr.count("[KV"), 1, run.stderr)
            self.assertFalse(self.out.exists())

    def test_the_folder(self):
        refused = MODELS / "neg_concat_reversed_ts" / "model.onnx"
        self.out.mkdir()
        (self.out / "notes.txt").write_text("mine")
        run = tool("reduce", refused, "-o", self.out)
        self.assertEqual(run.returncode, 5)
        self.assertIn("exists and is not empty; --force writes into it", run.stderr)
        done("reduce", refused, "-o", self.out, "--force", "--quiet")
        self.assertEqual(sorted(p.name for p in self.out.iterdir()),
                         ["README.md", "model.onnx", "notes.txt"])
        file = self.dir / "file"
        file.write_text("")
        run = tool("reduce", refused, "-o", file / "small")
        self.assertEqual(run.returncode, 5, run.stderr)

    def test_nothing_stays_of_a_run_that_ends_early(self):
        for how in (signal.SIGTERM, signal.SIGINT):
            scratch = self.dir / f"scratch{how}"
            scratch.mkdir()
            process = subprocess.Popen(
                [KVLIFT, "reduce", self.before, "-o", self.out, "--", "--quantize-cache", "int8:7"],
                env={**os.environ, "TMPDIR": str(scratch)}, stderr=subprocess.PIPE)
            self.addCleanup(process.stderr.close)
            self.addCleanup(process.kill)
            wait_for(lambda: list(scratch.glob("*/1-model.onnx")) and list(children(process.pid)))
            process.send_signal(how)
            self.assertEqual(process.wait(60), -how)
            wait_for(lambda: not list(scratch.iterdir()))
            self.assertFalse(self.out.exists())


if __name__ == "__main__":
    unittest.main()
