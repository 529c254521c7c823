"""With --json, each command prints exactly one document, also if it ends with an error.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""

import os
import pathlib
import shutil
import tempfile
import unittest

from support.schemas import check_json
from support.tool import done, tool

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
GOOD = ROOT / "testdata" / "models" / "llama_optimum" / "model.onnx"
REFUSED = ROOT / "testdata" / "models" / "neg_concat_reversed_ts" / "model.onnx"


class JsonErrorsTest(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        self.converted = self.dir / "out.onnx"
        done("convert", GOOD, "-o", self.converted)
        self.cut = self.dir / "cut.onnx"
        self.cut.write_bytes(GOOD.read_bytes()[:5000])

    def check(self, code, *args):
        """Runs a command, and returns its document after comparing it with stderr."""
        run = tool(*args)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        document = check_json(run.stdout)
        self.assertEqual(document["schema"], "kvlift/error/1")
        self.assertEqual((document["command"], document["exit_code"]), (args[0], code))
        self.assertTrue(document["errors"])
        for error in document["errors"]:
            code = f" [{error['code']}]" if error["code"] else ""
            self.assertIn(f"kvlift: {error['text']}{code}\n", run.stderr)
        return document

    def test_models_that_cannot_be_read(self):
        out = self.dir / "x.onnx"
        for args in (("inspect", self.cut), ("convert", self.cut, "-o", out), ("run", self.cut),
                     ("lower", self.cut, "-o", out, "--to", "where"), ("bench", self.cut),
                     ("record", GOOD, self.cut, "-o", self.dir / "r"), ("diff", GOOD, self.cut),
                     ("report", GOOD, self.cut, "-o", self.dir / "r.html"),
                     ("explain", self.cut, "--node", "a"), ("emit-loop", self.cut),
                     ("emit-maintenance", self.cut, "-o", out), ("metadata", self.cut)):
            with self.subTest(args[0]):
                document = self.check(3, *args, "--json")
                self.assertRegex(document["errors"][0]["code"], "^KV0")
                self.assertIn("cut.onnx", document["errors"][0]["text"])
        # These say it in their own documents.
        for args in (("check", self.cut), ("verify", GOOD, self.cut)):
            document = check_json(tool(*args, "--json").stdout)
            self.assertEqual(document["schema"].split("/")[1], args[0])

    def test_files_that_cannot_be_written(self):
        taken = self.dir / "taken"
        taken.mkdir()
        (taken / "file").write_text("mine")
        for args in (("convert", GOOD, "-o", self.converted),
                     ("convert", GOOD, "-o", self.dir / "none" / "x.onnx"),
                     ("lower", self.converted, "-o", taken, "--to", "where"),
                     ("verify", GOOD, self.converted, "--save-failure", taken),
                     ("check", GOOD, "--save", f"json={taken / 'file'}"),
                     ("record", GOOD, self.converted, "-o", taken),
                     ("report", GOOD, self.converted, "-o", taken / "file"),
                     ("emit-maintenance", self.converted, "-o", self.converted),
                     ("fleet", "check", self.dir, "-o", taken / "file")):
            with self.subTest(args):
                self.check(5, *args, "--json")

    def test_wrong_command_lines(self):
        for args in (("convert", GOOD, "--json"), ("convert", GOOD, "-o", "x", "--json", "--raed"),
                     ("convert", GOOD, "-o", "x", "--json", "--max-seq-len", "-1"),
                     ("convrt", GOOD, "--json"), ("bench", GOOD, "--json", "--batch", "0"),
                     ("run", GOOD, "--inputs", "a", "--steps", "b", "--json")):
            with self.subTest(args):
                self.check(2, *args)
        # Behind "--" stand the options of another command.
        run = tool("reduce", GOOD, "-o", self.dir / "r", "--wrong", "--", "--json")
        self.assertEqual((run.returncode, run.stdout), (2, ""))

    def test_no_results(self):
        self.check(1, "emit-loop", GOOD, "--json")
        self.check(1, "bench", self.no_caches(), "--json")
        self.check(2, "run", GOOD, "--json")

    def test_format_json_is_json(self):
        self.check(3, "bench", self.cut, "--format", "json")
        self.check(3, "metadata", self.cut, "--format=json")

    def test_results_are_no_error(self):
        """What a command finds out has a document of its own, whatever the exit code."""
        for args in (("convert", REFUSED, "-o", self.dir / "x.onnx"),
                     ("inspect", self.cut, GOOD), ("metadata", GOOD)):
            run = tool(*args, "--json")
            self.assertNotEqual(run.returncode, 0)
            document = check_json(run.stdout)
            document = document[0] if isinstance(document, list) else document
            self.assertEqual(document["schema"].split("/")[1], args[0])

    def no_caches(self):
        path = self.dir / "relu.onnxtxt"
        path.write_text('<ir_version: 10, opset_import: ["" : 24]>\n'
                        "g (float[2] x) => (float[2] y) { y = Relu(x) }\n")
        return path


if __name__ == "__main__":
    unittest.main()
