"""convert --stop-after STEP --dump-dir DIR: how a conversion ends, and the files of its steps.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import onnx
import onnx.parser
from onnx import TensorProto, helper

from support.case_text import text_of_case
from support.schemas import check_json

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
KVLIFT = os.environ["KVLIFT"]
MODELS = ROOT / "testdata" / "models"
GOOD = MODELS / "llama_optimum" / "model.onnx"
REFUSED = MODELS / "neg_concat_reversed_ts" / "model.onnx"  # by the step recognise
NO_CACHES = MODELS / "llama_decoder_first_legacy" / "model.onnx"
GQA = MODELS / "llama_genai_gqa" / "model.onnx"

STEPS = ("lower", "recognise", "plan", "emit", "check", "prove")
FILES = {"lower": ["1-lower.onnxtxt"], "recognise": ["2-recognise.txt"], "plan": ["3-plan.txt"],
         "emit": ["4-emit.kv.json", "4-emit.onnxtxt"], "check": ["5-check.txt"],
         "prove": ["6-prove.txt"]}
WORDS = {
    "1-lower.onnxtxt": ("tensors are left out", "#left-out", "ir_version", "past_key_values.0.key"),
    "2-recognise.txt": (
        "recognise: 4 caches, 4 of them to convert, 2 attentions", "cache 0.key", "cache 1.value",
        "past_key_values.0.key float32", "present.0.key", "concat", "BNSD",
        "write start      past_sequence_length", "new length       sequence_length",
        "window           none", "reorder          none", "slots            linear", "present is",
        "past_key_values.0.key[i0, i1, i2, i3]", "attention 0 at", "keys             cache 0.key",
        "values           cache 0.value", "scale            0.", "softcap          none",
        "mask             causal+padding", "visible keys", "attention_mask["),
    "3-plan.txt": (
        "plan: converted", "control          inputs write_indices", "uniform          no",
        "read             prefix", "cache 0.key", "TensorScatter into past_key_values.0.key",
        "max_sequence_length", "attention 1", "Attention-24", "is_causal 1",
        "added            write_indices int64 [batch_size]", "changed          attention_mask"),
    "4-emit.onnxtxt": ("TensorScatter", "Attention", "write_indices", "#left-out"),
    "5-check.txt": ("check: passed", "ONNX checker", "shape inference", "lint", "node names"),
    "6-prove.txt": ("prove: proved", "accepted         yes", "facts\nproved", "lemmas", "ledger\n"),
}


def files_up_to(step):
    return sorted(name for k in STEPS[:STEPS.index(step) + 1] for name in FILES[k])


class StopAfterTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        self.dumps = self.dir / "dumps"

    def convert(self, model, *args, stdin=None):
        return subprocess.run([KVLIFT, "convert", str(model), *map(str, args)], input=stdin,
                              capture_output=True, timeout=300, check=False)

    def stop(self, code, model, step, *args):
        """Runs up to a step with --json; returns the document and the names of the dumps."""
        run = self.convert(model, "--stop-after", step, "--dump-dir", self.dumps, "--json", *args)
        self.assertEqual(run.returncode, code, run.stderr.decode())
        document = check_json(run.stdout)
        names = sorted(os.listdir(self.dumps))
        self.assertEqual(sorted(pathlib.Path(p).name for p in document.get("dumps", [])), names)
        self.assertEqual(document["outputs"], [])
        self.assertEqual([c["converted"] for c in document["caches"] if c["converted"]], [])
        return document, names

    def read(self, name):
        return (self.dumps / name).read_text(encoding="utf-8")

    def check_onnx_text(self, name):
        """The text is a model; names of weights that are left out say so."""
        model = onnx.parser.parse_model(self.read(name))
        onnx.checker.check_model(model)
        return model

    def test_every_step_of_a_decoder(self):
        for step in STEPS:
            with self.subTest(step):
                shutil.rmtree(self.dumps, ignore_errors=True)
                document, names = self.stop(0, GOOD, step, "-o", self.dir / "out.onnx")
                self.assertEqual(document["status"], "stopped")
                self.assertEqual(document["stopped_after"], step)
                self.assertEqual(names, files_up_to(step))
                self.assertEqual(len(document["caches"]), 0 if step == "lower" else 4)
                self.assertEqual((document["equality"] or {}).get("shown"),
                                 "proved" if step == "prove" else None)
                self.assertEqual(os.listdir(self.dir), ["dumps"])
        for name, words in WORDS.items():
            text = self.read(name)
            for word in words:
                self.assertIn(word, text, name)
        lowered = self.check_onnx_text("1-lower.onnxtxt")
        self.assertEqual(lowered.opset_import[0].version, 24)
        emitted = self.check_onnx_text("4-emit.onnxtxt")
        self.assertEqual([i.name for i in emitted.graph.input].count("write_indices"), 1)
        manifest = json.loads(self.read("4-emit.kv.json"))
        self.assertEqual([c["id"] for c in manifest["caches"]],
                         ["0.key", "0.value", "1.key", "1.value"])
        self.assertRegex(manifest["source_sha256"], "^[0-9a-f]{64}$")

    def test_every_step_of_a_refused_model(self):
        for step in STEPS:
            with self.subTest(step):
                shutil.rmtree(self.dumps, ignore_errors=True)
                document, names = self.stop(int(step != "lower"), REFUSED, step)
                self.assertEqual(names, files_up_to("lower" if step == "lower" else "recognise"))
                self.assertEqual(document["status"], "stopped" if step == "lower" else "refused")
                self.assertEqual("stopped_after" in document, step == "lower")
        reason = document["caches"][0]["reason"]
        self.assertIn(f"refused: {reason['code']} ", self.read("2-recognise.txt"))
        self.check_onnx_text("1-lower.onnxtxt")
        run = self.convert(REFUSED, "--stop-after", "recognise")
        self.assertEqual(run.returncode, 1)
        self.assertIn(reason["code"], run.stdout.decode())

    def test_every_step_of_a_model_without_caches(self):
        for step in STEPS:
            with self.subTest(step):
                shutil.rmtree(self.dumps, ignore_errors=True)
                document, names = self.stop(int(step != "lower"), NO_CACHES, step)
                self.assertEqual(names, files_up_to("lower" if step == "lower" else "recognise"))
                self.assertEqual(document["status"], "stopped" if step == "lower" else "nothing")
        self.assertIn("recognise: 0 caches", self.read("2-recognise.txt"))
        self.assertIn("KV220", self.read("2-recognise.txt"))

    def test_later_steps_that_refuse(self):
        # A mask that hides padding tokens cannot be said by is_causal alone.
        for args, code, names in (
                (("--mask", "causal"), "KV224", files_up_to("plan")),
                (("--io-names", "static", "--target", "ort"), None, files_up_to("prove")),
                (("--quantize-cache", "int8:5"), "KV24", files_up_to("plan"))):
            with self.subTest(args):
                shutil.rmtree(self.dumps, ignore_errors=True)
                document, found = self.stop(int(code is not None), GOOD, "prove", *args)
                self.assertEqual(found, names)
                if code is not None:
                    self.assertEqual(document["status"], "refused")
                    last = self.read(names[-1])
                    self.assertIn("refused", last)
                    self.assertIn(code, last)
        # Slots mean something to this model, which the check of trees refuses.
        shutil.rmtree(self.dumps)
        _, found = self.stop(1, GQA, "check", "--tree-mask")
        self.assertEqual(found, files_up_to("check"))
        self.assertRegex(self.read("5-check.txt"), "^check: refused\n  KV235 ")

    def source_of_case(self, name):
        path = self.dir / f"{name}.onnxtxt"
        path.write_text(text_of_case(name), encoding="utf-8")
        return path

    def test_a_model_that_cannot_be_raised(self):
        _, names = self.stop(1, self.source_of_case("growing_concat_refuse_opset"), "lower")
        self.assertEqual(names, files_up_to("lower"))
        self.assertIn("# refused: KV201 ", self.read("1-lower.onnxtxt"))
        self.assertEqual(self.check_onnx_text("1-lower.onnxtxt").opset_import[0].version, 12)

    def test_a_result_that_is_not_accepted(self):
        model = self.source_of_case("growing_concat_range_ends_with_sequences")
        document, names = self.stop(4, model, "prove", "--accept", "proved")
        self.assertEqual(document["status"], "refused")
        self.assertEqual(names, files_up_to("prove"))
        text = self.read("6-prove.txt")
        for word in ("prove: unproved", "accepted         no", "reason           KV436", "\nopen ",
                     "why not"):
            self.assertIn(word, text)

    def test_what_is_printed(self):
        run = self.convert(GOOD, "--stop-after=plan", "--dump-dir", self.dumps)
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        self.assertEqual(run.stdout.decode().splitlines(),
                         [f"wrote {self.dumps / name}" for name in files_up_to("plan")] +
                         ["stopped after plan: 4 caches, 2 attentions, no model written"])
        run = self.convert(GOOD, "--stop-after=lower")
        self.assertEqual(run.stdout.decode(),
                         "stopped after lower, before caches are looked for: no model written\n")
        # Dumps are written, although there is no model.
        for model, last in ((NO_CACHES, "nothing: no cache found"), (REFUSED, "refused: 4 caches")):
            for flags, written in (((), "nothing written"),
                                   (("--dump-dir", self.dumps), "no model written")):
                run = self.convert(model, "-o", self.dir / "out.onnx", *flags)
                self.assertEqual(run.returncode, 1)
                self.assertEqual(run.stdout.decode().splitlines()[-1], f"{last}, {written}")
        run = self.convert(self.source_of_case("growing_concat_refuse_opset"), "--dry-run", "-o",
                           self.dir / "out.onnx")
        self.assertEqual(run.stdout.decode().splitlines()[-1], "refused: nothing written")
        run = self.convert(GOOD, "--stop-after=plan", "--quiet")
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, b"", b""))
        run = self.convert(GOOD, "--stop-after=prove", "--verify")
        self.assertEqual(run.returncode, 0)
        self.assertIn("verdict: equal (", run.stdout.decode())
        self.assertIn("equal: all ", run.stdout.decode())

    def test_the_model_does_not_depend_on_it(self):
        """Also that dumps are written beside a model, and that they are the same twice."""
        for model, *flags in ((GOOD,), (GOOD, "--control", "derived"), (GQA, "--target", "ort"),
                              (MODELS / "toy_fifo_shift_ts" / "model.onnx", "--mode", "circular"),
                              (MODELS / "gpt_oss_optimum" / "model.onnx", "--window", "circular"),
                              (MODELS / "llama_optimum_merged" / "model.onnx",)):
            with self.subTest(model=model.parent.name, flags=flags):
                outputs = {}
                for name, more in (("plain", ()), ("first", ("--dump-dir", "dumps")),
                                   ("second", ("--dump-dir", "dumps"))):
                    folder = self.dir / name
                    folder.mkdir()
                    run = subprocess.run(
                        [KVLIFT, "convert", str(model), "-o", "out.onnx", *flags, *more],
                        cwd=folder, capture_output=True, timeout=300, check=False)
                    self.assertEqual(run.returncode, 0, run.stderr.decode())
                    outputs[name] = {p.relative_to(folder).as_posix(): p.read_bytes()
                                     for p in folder.rglob("*") if p.is_file()}
                    shutil.rmtree(folder)
                self.assertEqual(outputs["first"], outputs["second"])
                dumps = {f"dumps/{name}" for name in files_up_to("prove")}
                self.assertEqual(set(outputs["first"]), set(outputs["plain"]) | dumps)
                for name, data in outputs["plain"].items():
                    self.assertEqual(outputs["first"][name], data, name)
                self.assertIn(b"wrote dumps/1-lower.onnxtxt\n", run.stdout)

    def test_onnx_text_of_every_bundled_model(self):
        for folder in sorted(MODELS.iterdir()):
            with self.subTest(folder.name):
                run = self.convert(folder / "model.onnx", "--stop-after", "emit", "--dump-dir",
                                   self.dumps, "--mode", "circular", "--quiet")
                self.assertIn(run.returncode, (0, 1), run.stderr.decode())
                for path in self.dumps.glob("*.onnxtxt"):
                    onnx.parser.parse_model(path.read_text(encoding="utf-8"))
                self.assertLess(sum(p.stat().st_size for p in self.dumps.iterdir()), 2 << 20)
                shutil.rmtree(self.dumps)

    def test_a_folder_that_exists(self):
        self.dumps.mkdir()
        (self.dumps / "mine.txt").write_text("mine")
        (self.dumps / "1-lower.onnxtxt").write_text("old")
        self.assertEqual(
            self.convert(GOOD, "--stop-after", "lower", "--dump-dir", self.dumps).returncode, 0)
        self.assertEqual(sorted(os.listdir(self.dumps)), ["1-lower.onnxtxt", "mine.txt"])
        self.assertNotEqual(self.read("1-lower.onnxtxt"), "old")
        self.assertEqual(self.read("mine.txt"), "mine")

    def test_a_folder_that_cannot_be_made(self):
        (self.dir / "file").write_text("x")
        for folder in (self.dir / "file", self.dir / "file" / "below", ""):
            for more in (("--stop-after", "lower"), ("-o", self.dir / "out.onnx")):
                run = self.convert(GOOD, "--dump-dir", folder, "--json", *more)
                self.assertEqual(run.returncode, 5)
                self.assertEqual(check_json(run.stdout)["schema"], "kvlift/error/1")
                lines = run.stderr.decode().splitlines()
                self.assertRegex(lines[0], r"^kvlift: .*cannot make the folder .* \[KV501\]$")
                self.assertEqual(sum(line.startswith("kvlift:") for line in lines), 1)
        self.assertEqual(os.listdir(self.dir), ["file"])

    def test_files_that_cannot_be_written(self):
        (self.dumps / "3-plan.txt").mkdir(parents=True)
        run = self.convert(GOOD, "--dump-dir", self.dumps, "-o", self.dir / "out.onnx")
        self.assertEqual(run.returncode, 5)
        self.assertIn(b"[KV501]", run.stderr)
        self.assertEqual(os.listdir(self.dir), ["dumps"])
        self.assertEqual(sorted(os.listdir(self.dumps)), files_up_to("plan"))

    def test_the_input_is_not_replaced(self):
        self.convert(GOOD, "--stop-after", "lower", "--dump-dir", self.dumps)
        source = self.dumps / "1-lower.onnxtxt"
        before = source.read_bytes()
        run = self.convert(source, "--stop-after", "lower", "--dump-dir", self.dumps)
        self.assertEqual(run.returncode, 5)
        self.assertIn("it is the input", run.stderr.decode())
        self.assertEqual(source.read_bytes(), before)

    def test_stdin(self):
        run = self.convert("-", "--stop-after", "check", "--dump-dir", self.dumps,
                           stdin=GOOD.read_bytes())
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        self.assertEqual(sorted(os.listdir(self.dumps)), files_up_to("check"))

    def test_a_model_that_cannot_be_read(self):
        run = self.convert(self.dir / "none.onnx", "--stop-after", "lower", "--dump-dir",
                           self.dumps)
        self.assertEqual(run.returncode, 3)
        self.assertEqual(os.listdir(self.dir), [])

    def test_usage(self):
        for words, best in ((("--stop-after", "plann"), "plan"), (("--stop-after=recognize",),
                                                                  "recognise")):
            run = self.convert(GOOD, *words)
            self.assertEqual((run.returncode, run.stdout), (2, b""))
            self.assertIn(f"did you mean '{best}'?\n", run.stderr.decode())
        run = self.convert(GOOD, "--dump-dir", self.dumps)
        self.assertEqual(run.returncode, 2)
        self.assertIn("--output is required", run.stderr.decode())
        run = self.convert(GOOD, "--stop-after", "plan", "--report", self.dir / "r.html")
        self.assertEqual(run.returncode, 2)
        self.assertEqual(os.listdir(self.dir), [])

    def test_names_of_the_model_stay_data(self):
        model = onnx.load(GOOD)
        names = {"attention_mask": "mask\n\x1b]0;x\a\u202e\"\\", "input_ids": "ids' \u2028",
                 "past_key_values.0.key": "past\r\n# x\x7f"}
        for node in model.graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]
        for value in model.graph.input:
            value.name = names.get(value.name, value.name)
        # An If keeps its bodies, whose names ONNX text cannot quote, and large constants in them.
        weights = helper.make_tensor("onnx::weights", TensorProto.FLOAT, [100], [0.5] * 100)
        branches = [
            helper.make_graph(
                [helper.make_node("Constant", [], [f"c{k}"], value=weights),
                 helper.make_node("ReduceSum", [f"c{k}"], [f"out{k}"])],
                name, [], [helper.make_tensor_value_info(f"out{k}", TensorProto.FLOAT, [1])])
            for k, name in enumerate(("then/branch", "float"))]
        model.graph.input.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
        model.graph.node.append(helper.make_node("If", ["flag"], ["chosen"], name="if\x1b[1m",
                                                 then_branch=branches[0], else_branch=branches[1]))
        model.graph.output.append(helper.make_tensor_value_info("chosen", TensorProto.FLOAT, [1]))
        onnx.save(model, self.dir / "model.onnx")
        self.stop(0, self.dir / "model.onnx", "check")
        for name in set(files_up_to("check")) - {"4-emit.kv.json"}:  # as OUT.kv.json is
            text = self.read(name)
            for char in "\x1b\a\r\x7f\u202e\u2028":
                self.assertNotIn(char, text, name)
        for name in ("1-lower.onnxtxt", "4-emit.onnxtxt"):
            read = onnx.parser.parse_model(self.read(name))
            self.assertIn("past\\x0d\\n# x\\x7f", [i.name for i in read.graph.input])
        self.assertIn("past\\x0d\\n# x\\x7f", self.read("2-recognise.txt"))


if __name__ == "__main__":
    unittest.main()
