"""No command replaces what it reads, or anything that is no regular file; others need --force.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
import unittest

import onnx

KVLIFT = os.environ.get("KVLIFT") or "kvlift"
ROOT = pathlib.Path(os.environ.get("KVLIFT_ROOT", pathlib.Path(__file__).parents[2]))
MODEL = ROOT / "testdata" / "models" / "llama_optimum"


class OutputsTest(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        shutil.copy(MODEL / "model.onnx", self.dir / "m.onnx")

    def run_tool(self, *args):
        return subprocess.run([KVLIFT, *map(str, args)], cwd=self.dir, capture_output=True,
                              text=True, timeout=300, check=False)

    def done(self, *args):
        run = self.run_tool(*args)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run

    def refused(self, why, *args, code=5):
        """Exits with `code` and says why, and every file is as it was."""
        before = self.contents()
        run = self.run_tool(*args)
        self.assertEqual((run.returncode, run.stdout), (code, ""), run.stderr)
        self.assertIn(why, run.stderr.splitlines()[0])
        self.assertEqual(self.contents(), before)

    def contents(self):
        return {p.relative_to(self.dir): p.read_bytes() if p.is_file() else p.lstat().st_mode
                for p in self.dir.rglob("*")}

    def convert(self):
        self.done("convert", "m.onnx", "-o", "out.onnx", "--quiet")

    def test_the_model_is_not_replaced(self):
        self.convert()
        for args in (("emit-loop", "out.onnx"), ("emit-maintenance", "out.onnx"),
                     ("report", "m.onnx", "out.onnx"), ("lower", "out.onnx", "--to", "where")):
            with self.subTest(args[0]):
                self.refused(" is an input", *args, "-o", "./out.onnx", "--force")

    def test_the_manifest_is_not_replaced(self):
        self.convert()
        shutil.copy(self.dir / "out.kv.json", self.dir / "given.json")
        for args in (("emit-loop", "out.onnx"), ("emit-maintenance", "out.onnx"),
                     ("report", "m.onnx", "out.onnx"), ("lower", "out.onnx", "--to", "where")):
            with self.subTest(args[0]):
                self.refused("out.kv.json is an input", *args, "-o", "out.kv.json", "--force")
                if args[0] == "lower":
                    continue
                self.refused("given.json is an input", *args, "-o", "given.json", "--force",
                             "--manifest", "given.json")

    def test_external_data_is_not_replaced(self):
        onnx.save(onnx.load(self.dir / "m.onnx"), self.dir / "e.onnx", save_as_external_data=True,
                  location="w.data", size_threshold=64)
        self.refused("w.data is an input", "convert", "e.onnx", "-o", "w.data", "--force")
        self.refused("w.data is an input", "check", "e.onnx", "--save", "json=w.data")

    def test_private_weights_stay_private(self):
        onnx.save(onnx.load(self.dir / "m.onnx"), self.dir / "e.onnx", save_as_external_data=True,
                  location="w.data", size_threshold=64)
        (self.dir / "w.data").chmod(0o600)
        (self.dir / "to").mkdir()
        self.done("convert", "e.onnx", "-o", "to/o.onnx")
        (copy,) = (self.dir / "to").glob("*.data")
        self.assertEqual(stat.S_IMODE(copy.stat().st_mode), 0o600)

    def test_two_outputs_are_two_files(self):
        (self.dir / "here").symlink_to(".")
        for report in ("y.kv.json", "./y.onnx", "here/y.kv.json"):
            self.refused("is asked for twice", "convert", "m.onnx", "-o", "y.onnx", "--report",
                         report)
        self.refused("is asked for twice", "check", "m.onnx", "--save", "json=a", "--save",
                     "sarif=./a")

    def test_what_is_no_regular_file_is_not_replaced(self):
        os.mkfifo(self.dir / "pipe")
        (self.dir / "link").symlink_to("pipe")
        (self.dir / "open").symlink_to("/proc/self/fd/1")
        (self.dir / "folder").mkdir()
        for name in ("pipe", "link"):
            self.refused("is no regular file", "check", "m.onnx", "--save", f"json={name}")
            self.refused("is no regular file", "convert", "m.onnx", "-o", name, "--force")
        self.refused("", "check", "m.onnx", "--save", "json=open")
        self.refused("is a folder", "convert", "m.onnx", "-o", "folder")

    def test_a_link_that_leads_nowhere_exists(self):
        (self.dir / "l.onnx").symlink_to("nowhere")
        self.refused("l.onnx exists; --force", "convert", "m.onnx", "-o", "l.onnx")
        self.assertTrue((self.dir / "l.onnx").is_symlink())

    def test_a_dash_is_no_output(self):
        for args in (("convert", "m.onnx", "-o", "-"), ("check", "m.onnx", "--save", "json=-")):
            self.refused("outputs are written to files", *args, code=2)

    def test_run_keeps_recorded_outputs(self):
        shutil.copytree(MODEL / "steps" / "00", self.dir / "d")
        self.refused("output_0.pb exists; --force", "run", "m.onnx", "--inputs", "d", "--outputs",
                     "d")
        self.refused("output_0.pb is an input", "run", "m.onnx", "--inputs", "d", "--expect", "d",
                     "--outputs", "d", "--force")
        self.done("run", "m.onnx", "--inputs", "d", "--outputs", "d", "--force")

    def test_what_verify_and_check_write_replaces_nothing(self):
        self.convert()
        onnx.save(onnx.load(self.dir / "out.onnx"), self.dir / "e.onnx", save_as_external_data=True,
                  location="w.data", size_threshold=64)
        shutil.copy(self.dir / "out.kv.json", self.dir / "e.kv.json")
        shutil.copy(self.dir / "out.kv.json", self.dir / "given.json")
        (self.dir / "mine").write_text("mine")
        (self.dir / "folder").mkdir()
        (self.dir / "folder" / "mine").write_text("mine")
        verify = ("verify", "m.onnx", "e.onnx", "--manifest", "given.json")
        for args in ((*verify, "--save", "json=mine"), (*verify, "--explorer", "mine"),
                     ("check", "m.onnx", "--save", "json=mine")):
            with self.subTest(args=args):
                self.refused("mine exists; --force overwrites it", *args)
                self.done(*args, "--force", "--quiet")
                self.assertNotEqual((self.dir / "mine").read_text(), "mine")
                (self.dir / "mine").write_text("mine")
        for option in ("--save-failure", "--obligations"):
            with self.subTest(option):
                self.refused("folder exists and is not empty; --force", *verify, option, "folder")
        self.done(*verify, "--obligations", "folder", "--force", "--quiet")
        self.assertEqual((self.dir / "folder" / "mine").read_text(), "mine")
        for name in ("m.onnx", "e.onnx", "w.data", "e.kv.json", "given.json"):
            with self.subTest(name):
                self.refused(f"{name} is an input", *verify, "--explorer", name, "--force")
                self.refused(f"{name} is an input", *verify, "--save", f"html={name}", "--force")
        self.refused("is asked for twice", *verify, "--explorer", "a", "--save", "json=./a")
        self.refused("outputs are written to files", *verify, "--explorer", "-", code=2)

    def test_reduce_keeps_its_models(self):
        shutil.copy(self.dir / "m.onnx", self.dir / "model.onnx")
        self.refused_after_reading("model.onnx is an input", "reduce", "model.onnx", "-o", ".",
                                   "--force", "--", "--quantize-cache", "int8:7")
        self.refused("is no folder", "reduce", "m.onnx", "-o", "model.onnx", "--force")

    def refused_after_reading(self, why, *args):
        before = self.contents()
        run = self.run_tool(*args)
        self.assertEqual(run.returncode, 5, run.stderr)
        self.assertIn(why, run.stderr)
        self.assertEqual(self.contents(), before)


if __name__ == "__main__":
    unittest.main()
