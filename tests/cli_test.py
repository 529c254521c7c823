"""The command line as a host sees it: help, exit codes, what is printed where, what is written."""

import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import tempfile
import unittest

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

from support.case_text import text_of_case
from support.schemas import check_document, check_json

ROOT = pathlib.Path(os.environ.get("KVLIFT_ROOT", pathlib.Path(__file__).parent.parent))
KVLIFT = os.environ.get("KVLIFT") or "kvlift"
MODELS = ROOT / "testdata" / "models"
COMMANDS = ("inspect", "convert", "check", "verify", "record", "run", "bench", "explain",
            "emit-loop")
GOOD = MODELS / "llama_optimum" / "model.onnx"
REFUSED = MODELS / "neg_concat_reversed_ts" / "model.onnx"


def kvlift(*args, stdin=b""):
    return subprocess.run([KVLIFT, *map(str, args)], input=stdin, capture_output=True, timeout=300,
                          check=False)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(self.remove)

    def remove(self):
        for path in [self.dir, *self.dir.rglob("*")]:
            if path.is_dir():
                path.chmod(0o700)
        shutil.rmtree(self.dir)

    def run_ok(self, *args, code=0, stdin=b""):
        run = kvlift(*args, stdin=stdin)
        self.assertEqual(run.returncode, code, run.stderr.decode() + run.stdout.decode())
        return run

    def fails(self, code, *args, stdin=b""):
        """Exit with `code` and one clear line on stderr, nothing on stdout.

        What follows it, why it matters and what to do, is indented.
        """
        run = self.run_ok(*args, code=code, stdin=stdin)
        self.assertEqual(run.stdout, b"")
        lines = run.stderr.decode().splitlines()
        self.assertTrue(lines and lines[0].startswith("kvlift: "), run.stderr)
        if code != 2:
            self.assertTrue(all(line.startswith("  ") for line in lines[1:]), run.stderr)
        self.assertNotIn(b"\x1b", run.stderr)
        return lines

    def document(self, *args, code=0, stdin=b""):
        """The JSON document, which is as docs/schema says."""
        return check_json(self.run_ok(*args, "--json", code=code, stdin=stdin).stdout)

    def files(self):
        return sorted(p.name for p in self.dir.iterdir())


class Usage(Case):
    def test_help_names_every_command_and_common_flag(self):
        text = self.run_ok("--help").stdout.decode()
        for command in COMMANDS:
            self.assertIn(command, text)
            own = self.run_ok(command, "--help").stdout.decode()
            for flag in ("--json", "--quiet", "--verbose", "--color", "--threads"):
                self.assertIn(flag, own, command)

    def test_version(self):
        self.assertRegex(self.run_ok("version").stdout.decode(), r"^kvlift \d+\.\d+")

    def test_misspelt_command(self):
        self.assertIn("convert", "\n".join(self.fails(2, "convrt", GOOD)))

    def test_misspelt_flag(self):
        lines = self.fails(2, "convert", GOOD, "-o", self.dir / "o.onnx", "--dry-rum")
        self.assertIn("--dry-run", "\n".join(lines))
        self.assertEqual(self.files(), [])

    def test_no_command_missing_operand_and_bad_values(self):
        for args in ((), ("convert", GOOD), ("inspect",), ("verify", GOOD),
                     ("inspect", GOOD, "--color", "pink"), ("inspect", GOOD, "--threads", "x"),
                     ("convert", GOOD, "-o", self.dir / "o.onnx", "--max-seq-len", "0"),
                     ("convert", GOOD, "-o", self.dir / "o.onnx", "--window", "circular:none"),
                     ("convert", GOOD, "-o", self.dir / "o.onnx", "--window", "circular",
                      "--target", "genai"),
                     ("convert", GOOD, "-o", self.dir / "o.onnx", "--target", "moon"),
                     ("bench", GOOD, "--context", "-1"),
                     ("run", GOOD, "--inputs", self.dir, "--steps", self.dir)):
            with self.subTest(args=args):
                self.fails(2, *args)
        self.assertEqual(self.files(), [])


class Reading(Case):
    def each_command(self, model):
        yield "inspect", model
        yield "convert", model, "-o", self.dir / "out.onnx"
        yield "check", model
        yield "verify", model, GOOD
        yield "verify", GOOD, model
        yield "run", model
        yield "bench", model
        yield "explain", model, "--node", "n"

    def test_what_is_no_model(self):
        (self.dir / "empty.onnx").write_bytes(b"")
        (self.dir / "text.onnx").write_bytes(b"hello\nworld\n")
        (self.dir / "cut.onnx").write_bytes(GOOD.read_bytes()[:5000])
        (self.dir / "bad.onnxtxt").write_text("<ir_version: 10> g (float x")
        before = self.files()
        for name in ("gone.onnx", "no/dir/m.onnx", "empty.onnx", "text.onnx", "cut.onnx",
                     "bad.onnxtxt", "."):
            for args in self.each_command(self.dir / name):
                with self.subTest(args=args):
                    self.fails(3, *args)
        self.assertEqual(self.files(), before)

    def test_errors_about_a_graph_end_with_a_code(self):
        path = self.dir / "m.onnx"
        node = helper.make_node("Relu", ["nowhere"], ["y"])
        onnx.save(helper.make_model(helper.make_graph(
            [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])), path)
        pair = ("-o", self.dir / "out")
        for args in (*self.each_command(path), ("diff", path, GOOD), ("diff", GOOD, path),
                     ("report", path, GOOD, *pair), ("report", GOOD, path, *pair),
                     ("record", GOOD, path, *pair),
                     ("lower", path, "--to", "where", "-o", self.dir / "out.onnx")):
            with self.subTest(args=args):
                run = kvlift(*args)
                lines = run.stderr.decode().splitlines()
                if run.returncode == 3:
                    self.assertTrue(lines[0].endswith("[KV024]"), lines)
                else:  # a verdict or a finding, with the code in it
                    self.assertIn(run.returncode, (1, 4))
                    self.assertIn("KV", run.stdout.decode() + run.stderr.decode())

    @unittest.skipIf(os.geteuid() == 0, "root reads everything")
    def test_unreadable_file(self):
        path = self.dir / "m.onnx"
        shutil.copy(GOOD, path)
        path.chmod(0)
        self.fails(3, "inspect", path)

    def test_stdin(self):
        document = self.document("inspect", "-", stdin=GOOD.read_bytes())
        self.assertEqual(len(document["caches"]), 4)

    def test_hostile_names_are_escaped(self):
        name = "\x1b[31mred\n"
        node = helper.make_node("Relu", ["x"], ["y"], name=name)
        model = helper.make_model(helper.make_graph(
            [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])]))
        onnx.save(model, self.dir / "m.onnx")
        run = kvlift("run", self.dir / "m.onnx", "--trace", "--inputs", self.dir)
        self.assertNotIn(b"\x1b", run.stdout + run.stderr)
        self.fails(3, "inspect", self.dir / name)


class Inspect(Case):
    def test_document_has_every_key(self):
        document = self.document("inspect", GOOD)
        self.assertEqual(list(document),
                         ["schema", "model", "caches", "attention", "memory", "near_misses"])
        # 2 layers of keys and values, 2 heads of 12 floats.
        self.assertEqual(document["memory"][0], {"tokens": 1024, "source_bytes": 2 * 384 * 1024,
                                                 "converted_bytes": 4 * 2 * 12 * 4 * 1024})
        self.assertEqual(document["schema"], "kvlift/inspect/1")
        self.assertEqual(list(document["model"]), ["path", "nodes", "opset", "external_bytes"])
        self.assertEqual(list(document["caches"][0]),
                         ["id", "layer", "role", "input", "output", "kind", "axis", "layout",
                          "dtype", "growing", "capacity", "bytes_per_token", "update", "write_start",
                          "convertible", "reason"])
        self.assertEqual(list(document["attention"][0]),
                         ["id", "form", "q_heads", "kv_heads", "head_dim", "v_head_dim", "scale",
                          "softcap", "mask", "convertible", "reason", "nodes"])
        self.assertTrue(all(c["convertible"] and c["reason"] is None for c in document["caches"]))

    def test_refusals_have_reasons(self):
        document = self.document("inspect", REFUSED, code=1)
        reasons = [c["reason"] for c in document["caches"]]
        self.assertTrue(reasons and all(reasons))
        for reason in reasons:
            self.assertRegex(reason["code"], r"^KV2\d\d$")
            self.assertTrue(reason["text"] and reason["nodes"])

    def test_several_models_make_one_document(self):
        documents = self.document("inspect", GOOD, GOOD)
        self.assertEqual(len(documents), 2)

    def test_stdout_that_is_full(self):
        with open("/dev/full", "wb") as full:
            run = subprocess.run([KVLIFT, "inspect", str(GOOD)], stdout=full,
                                 stderr=subprocess.PIPE, check=False)
        self.assertEqual(run.returncode, 5)

    def test_reader_that_has_gone(self):
        def into_closed_pipe(*args):
            reader, writer = os.pipe()
            os.close(reader)
            try:
                run = subprocess.run([KVLIFT, *args], stdout=writer, stderr=subprocess.PIPE,
                                     check=False)
            finally:
                os.close(writer)
            return run.returncode, run.stderr

        self.assertEqual(into_closed_pipe("inspect", GOOD), (-signal.SIGPIPE, b""))
        # A finding is not lost with the reader.
        self.assertEqual(into_closed_pipe("inspect", REFUSED), (1, b""))

    def test_text_lines_up_without_colour(self):
        text = self.run_ok("inspect", GOOD).stdout.decode()
        self.assertNotIn("\x1b", text)
        rows = text.splitlines()[:3]
        kind = rows[0].index("kind")
        self.assertTrue(all(row[kind - 1] == " " and row[kind] != " " for row in rows), text)
        self.assertEqual([row.split()[0] for row in rows], ["cache", "0-1.key", "0-1.value"])
        details = self.run_ok("inspect", GOOD, "--details").stdout.decode()
        self.assertEqual([row.split()[0] for row in details.splitlines()[:5]],
                         ["cache", "0.key", "0.value", "1.key", "1.value"])
        for row in text.splitlines()[:-1] + details.splitlines()[:-1]:
            self.assertLessEqual(len(row), 80)

    def test_quiet_prints_nothing(self):
        self.assertEqual(self.run_ok("inspect", GOOD, "--quiet").stdout, b"")


class Convert(Case):
    def setUp(self):
        super().setUp()
        self.out = self.dir / "out.onnx"

    def test_a_start_that_is_a_conditional_is_in_parentheses(self):
        (self.dir / "m.onnxtxt").write_text(text_of_case("fixed_buffer_place_from_the_end"))
        run = self.run_ok("convert", self.dir / "m.onnxtxt", "-o", self.out)
        self.assertIn("KV301  0 <= (start < 0 ? start + 8 : start) and "
                      "(start < 0 ? start + 8 : start) + new tokens <= capacity",
                      run.stdout.decode())

    def test_writes_model_and_manifest(self):
        document = self.document("convert", GOOD, "-o", self.out)
        self.assertEqual(list(document)[:7], ["schema", "status", "caches", "attention", "outputs",
                                              "preconditions", "verify"])
        self.assertEqual(document["status"], "converted")
        self.assertTrue(all(c["converted"] for c in document["caches"] + document["attention"]))
        self.assertEqual(sorted(pathlib.Path(p).name for p in document["outputs"]), self.files())
        self.assertEqual(self.files(), ["out.kv.json", "out.onnx"])
        self.assertIsNone(document["verify"])
        model = onnx.load(self.out)
        onnx.checker.check_model(model, full_check=True)
        manifest = json.loads((self.dir / "out.kv.json").read_text())
        check_document(manifest)
        stamped = {p.key: p.value for p in model.metadata_props}
        self.assertEqual(json.loads(stamped["kvlift.manifest"])["caches"], manifest["caches"])
        self.assertEqual(self.run_ok("check", self.out).returncode, 0)

    def test_same_bytes_twice(self):
        self.run_ok("convert", GOOD, "-o", self.out)
        first = [(self.dir / name).read_bytes() for name in self.files()]
        self.run_ok("convert", GOOD, "-o", self.out, "--force")
        self.assertEqual(first, [(self.dir / name).read_bytes() for name in self.files()])

    def test_genai_writes_its_configuration(self):
        self.run_ok("convert", GOOD, "-o", self.out, "--target", "genai")
        self.assertEqual(self.files(), ["out.genai.json", "out.kv.json", "out.onnx"])
        json.loads((self.dir / "out.genai.json").read_text())

    def test_dry_run_writes_nothing(self):
        self.assertEqual(self.document("convert", GOOD, "-o", self.out, "--dry-run")["outputs"], [])
        self.assertEqual(self.files(), [])

    def test_refusal_writes_nothing(self):
        document = self.document("convert", REFUSED, "-o", self.out, code=1)
        self.assertIn(document["status"], ("refused", "nothing"))
        self.assertEqual((document["outputs"], self.files()), ([], []))

    def test_existing_output_needs_force(self):
        self.out.write_bytes(b"precious")
        self.fails(5, "convert", GOOD, "-o", self.out)
        self.assertEqual(self.out.read_bytes(), b"precious")
        self.assertEqual(self.files(), ["out.onnx"])
        self.run_ok("convert", GOOD, "-o", self.out, "--force")
        self.assertNotEqual(self.out.read_bytes(), b"precious")

    def test_the_input_is_never_overwritten(self):
        model = self.dir / "m.onnx"
        shutil.copy(GOOD, model)
        os.symlink(model, self.dir / "link.onnx")
        for out in (model, self.dir / "link.onnx", self.dir / "." / "m.onnx"):
            self.fails(5, "convert", model, "-o", out, "--force")
        self.assertEqual(model.read_bytes(), GOOD.read_bytes())

    def test_missing_folder(self):
        self.fails(5, "convert", GOOD, "-o", self.dir / "no" / "out.onnx")
        self.assertEqual(self.files(), [])

    @unittest.skipIf(os.geteuid() == 0, "root writes everywhere")
    def test_read_only_folder(self):
        self.dir.chmod(stat.S_IRUSR | stat.S_IXUSR)
        self.fails(5, "convert", GOOD, "-o", self.out)
        self.assertEqual(self.files(), [])

    def test_folder_that_takes_no_files(self):
        self.fails(5, "convert", GOOD, "-o", "/proc/out.onnx")

    def test_output_that_is_a_folder(self):
        self.out.mkdir()
        self.fails(5, "convert", GOOD, "-o", self.out, "--force")
        self.assertEqual(self.files(), ["out.onnx"])
        self.assertEqual(list(self.out.iterdir()), [])

    def test_weights_with_other_numbers_are_named_once(self):
        self.run_ok("convert", GOOD, "-o", self.out)
        manifest = self.out.with_suffix("").with_suffix(".kv.json")
        model = onnx.load(self.out)
        table = next(t for t in model.graph.initializer if "embed_tokens" in t.name)
        numbers = onnx.numpy_helper.to_array(table).copy()
        numbers[3, 3] += 0.5
        table.CopyFrom(onnx.numpy_helper.from_array(numbers, table.name))
        onnx.save(model, self.dir / "other.onnx")
        run = self.run_ok("verify", GOOD, self.dir / "other.onnx", "--manifest", manifest, code=1)
        self.assertIn(f"reads {table.name}, which holds other numbers",
                      " ".join(run.stdout.decode().split()))

    def test_external_data_that_does_not_exist(self):
        source, elsewhere = self.dir / "source", self.dir / "elsewhere"
        source.mkdir()
        elsewhere.mkdir()
        onnx.save(onnx.load(GOOD), source / "m.onnx", save_as_external_data=True,
                  location="weights.bin", size_threshold=0)
        (source / "weights.bin").unlink()
        for arguments in ((elsewhere / "o.onnx",), (source / "o.onnx", "--external", "copy")):
            lines = self.fails(5, "convert", source / "m.onnx", "-o", *arguments)
            self.assertIn('external data "weights.bin" does not exist', lines[0])
            self.assertFalse(arguments[0].exists())

    def test_external_data_is_kept_by_reference(self):
        source = self.dir / "source"
        source.mkdir()
        onnx.save(onnx.load(GOOD), source / "m.onnx", save_as_external_data=True,
                  location="m.data", size_threshold=64)
        self.run_ok("convert", source / "m.onnx", "-o", source / "o.onnx")
        onnx.load(source / "o.onnx")
        self.run_ok("convert", source / "m.onnx", "-o", self.out)
        onnx.load(self.out)
        elsewhere = self.dir / "elsewhere"
        elsewhere.mkdir()
        lines = self.fails(5, "convert", source / "m.onnx", "-o", elsewhere / "o.onnx",
                           "--external", "keep")
        self.assertIn("KV503", lines[0])
        self.assertEqual(list(elsewhere.iterdir()), [])
        self.run_ok("convert", source / "m.onnx", "-o", elsewhere / "o.onnx")
        onnx.load(elsewhere / "o.onnx")
        data = list(elsewhere.glob("o.*.data"))
        self.assertEqual(len(data), 1)
        self.assertEqual(data[0].read_bytes(), (source / "m.data").read_bytes())


    def test_operator_set_of_the_future(self):
        model = onnx.load(GOOD)
        model.opset_import[0].version = 2147483647
        onnx.save(model, self.dir / "m.onnx")
        self.assertIn("KV028", self.fails(3, "convert", self.dir / "m.onnx", "-o", self.out)[0])
        codes = {f["code"] for f in self.document("check", self.dir / "m.onnx", code=1)
                 ["models"][0]["findings"]}
        self.assertIn("KV028", codes)

    def test_weights_that_are_a_byte_short(self):
        model = onnx.load(GOOD)
        weights = next(t for t in model.graph.initializer if len(t.raw_data) > 64)
        weights.raw_data = weights.raw_data[:-1]
        onnx.save(model, self.dir / "m.onnx")
        self.assertIn("KV029", self.fails(3, "convert", self.dir / "m.onnx", "-o", self.out)[0])
        codes = {f["code"] for f in self.document("check", self.dir / "m.onnx", code=1)
                 ["models"][0]["findings"]}
        self.assertIn("KV029", codes)

    def test_what_is_shown_stands_in_output_and_manifest(self):
        document = self.document("convert", GOOD, "-o", self.out, "--accept", "proved")
        self.assertEqual((document["equality"]["shown"], document["equality"]["open"]),
                         ("proved", []))
        manifest = json.loads((self.dir / "out.kv.json").read_text())
        self.assertEqual(manifest["equality"], "proved")
        self.assertTrue(manifest["proved"])

    def test_weights_that_are_not_there(self):
        source = self.dir / "m.onnx"
        onnx.save(onnx.load(GOOD), source, save_as_external_data=True, location="m.data",
                  size_threshold=64)
        (self.dir / "m.data").unlink()
        document = self.document("convert", source, "-o", self.out, "--accept", "proved")
        self.assertEqual(document["equality"]["shown"], "proved")  # no weights are needed


class Check(Case):
    def model(self, body, name="m.onnxtxt"):
        path = self.dir / name
        path.write_text('<ir_version: 12, opset_import: ["" : 24]>\n' + body)
        return path

    def test_findings_and_exit_codes(self):
        bad = self.model("g (float[2,2,4,8] c, float[2,2,5,8] u, int64[2] w) => (float[a,b,c,d] y) "
                         "{ y = TensorScatter (c, u, w) }")
        document = self.document("check", bad, code=1)
        findings = document["models"][0]["findings"]
        self.assertEqual([f["code"] for f in findings], ["KV121"])
        text = self.run_ok("check", bad, code=1).stdout.decode()
        self.assertIn("KV121", text)
        self.run_ok("check", bad, "--exit-zero")
        self.run_ok("check", bad, "--ignore", "KV121")
        self.run_ok("check", bad, "--select", "KV110,KV111")
        self.run_ok("check", bad, "--select", "KV12", code=1)
        for flag in ("--select", "--ignore"):  # a typing error would hide what is wrong
            for codes in ("KVO30", "kv121", "KV121,KV999", ""):
                self.assertIn(b"no code begins with",
                              self.run_ok("check", bad, flag, codes, code=2).stderr)

    def test_manifest_beside_the_model(self):
        out = self.dir / "o.onnx"
        self.run_ok("convert", GOOD, "-o", out)
        path = self.dir / "o.kv.json"
        manifest = json.loads(path.read_text())
        manifest["caches"][0]["axis"] = 1
        path.write_text(json.dumps(manifest))
        codes = [f["code"] for f in self.document("check", out, code=1)["models"][0]["findings"]]
        self.assertIn("KV130", codes)
        path.write_text("{")
        self.fails(3, "check", out)
        self.fails(3, "check", out, "--manifest", self.dir / "gone.json")


class Explain(Case):
    def test_every_code_of_the_table(self):
        table = (ROOT / "lib" / "base" / "findings.cc").read_text()
        codes = sorted(set(part[:5] for part in table.split('{"')[1:] if part.startswith("KV")))
        self.assertGreater(len(codes), 30)
        for code in codes:
            self.assertIn(code, self.run_ok("explain", code).stdout.decode())
        self.assertEqual(self.document("explain", codes[0])["code"], codes[0])

    def test_unknown_code_and_node(self):
        self.fails(2, "explain", "KV999")
        self.fails(2, "explain", GOOD, "--node", "no such node")

    def test_node(self):
        document = self.document("inspect", GOOD)
        node = document["attention"][0]["nodes"][0]
        self.assertTrue(self.run_ok("explain", GOOD, "--node", node).stdout)

    def test_node_of_an_operator_with_a_past(self):
        model = MODELS / "llama_genai_gqa" / "model.onnx"
        nodes = {name for attention in self.document("inspect", model)["attention"]
                 for name in attention["nodes"]}
        self.assertTrue(any("GroupQueryAttention" in name for name in nodes), nodes)
        for name in nodes:
            text = self.run_ok("explain", model, "--node", name).stdout.decode()
            self.assertTrue(text)
            if "GroupQueryAttention" in name:
                self.assertIn(f"{name} is read as ", text)
                self.assertIn("attention_op: matches", text)


class Run(Case):
    STEPS = MODELS / "llama_optimum" / "steps"

    def test_recorded_steps(self):
        self.run_ok("run", GOOD, "--inputs", self.STEPS / "00", "--expect", self.STEPS / "00")
        document = self.document("run", GOOD, "--steps", self.STEPS, "--expect", self.STEPS)
        self.assertTrue(document["equal"])
        self.assertEqual(len(document["steps"]), len(list(self.STEPS.iterdir())))

    def test_differences_are_found(self):
        wrong = self.dir / "wrong"
        shutil.copytree(self.STEPS / "00", wrong)
        tensor = onnx.load_tensor(wrong / "output_0.pb")
        values = numpy_helper.to_array(tensor).copy()
        values.flat[7] += 0.5
        onnx.save_tensor(numpy_helper.from_array(values), wrong / "output_0.pb")
        run = self.run_ok("run", GOOD, "--inputs", wrong, "--expect", wrong, code=1)
        self.assertIn(b"element 7", run.stdout)
        self.run_ok("run", GOOD, "--inputs", wrong, "--expect", wrong, "--atol", "1")

    def test_caches_are_threaded_where_a_step_lacks_them(self):
        steps = self.dir / "steps"
        shutil.copytree(self.STEPS, steps)
        names = [i.name for i in onnx.load(GOOD).graph.input]
        for step in sorted(steps.iterdir())[1:]:
            for k, name in enumerate(names):
                if "past" in name:
                    (step / f"input_{k}.pb").unlink()
        document = self.document("run", GOOD, "--steps", steps, "--expect", steps)
        self.assertTrue(document["equal"])
        self.assertEqual(len(document["aliasing"]), 4)

    def test_outputs_are_written_and_read_back(self):
        out = self.dir / "out"
        self.run_ok("run", GOOD, "--inputs", self.STEPS / "00", "--outputs", out)
        self.assertEqual(len(list(out.iterdir())), 5)
        self.run_ok("run", GOOD, "--inputs", self.STEPS / "00", "--expect", out, "--rtol", "0",
                    "--atol", "0")

    def test_npy_inputs(self):
        path = self.dir / "m.onnxtxt"
        path.write_text('<ir_version: 10, opset_import: ["" : 18]> '
                        "g (float[2,3] x, int64[2] n) => (float[2,3] y) "
                        "{ f = Cast <to = 1> (n) c = Unsqueeze (f, a) y = Add (x, c) }"
                        .replace("=> (float[2,3] y) ", "=> (float[2,3] y) <int64[1] a = {1}> "))
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.save(self.dir / "x.npy", x)
        np.save(self.dir / "n.npy", np.array([10, 20]))
        self.run_ok("run", path, "--inputs", self.dir, "--outputs", self.dir / "o")
        y = numpy_helper.to_array(onnx.load_tensor(self.dir / "o" / "output_0.pb"))
        np.testing.assert_array_equal(y, x + np.array([[10], [20]]))
        for bad in (x.astype(">f4"), np.asfortranarray(x), x.astype(np.complex64), x[:1]):
            np.save(self.dir / "x.npy", bad)
            self.fails(3, "run", path, "--inputs", self.dir)
        (self.dir / "x.npy").write_bytes((self.dir / "n.npy").read_bytes()[:70])
        self.fails(3, "run", path, "--inputs", self.dir)

    def test_a_sequence_is_no_tensor(self):
        sequence = onnx.SequenceProto(name="s", elem_type=onnx.SequenceProto.TENSOR)
        sequence.tensor_values.append(numpy_helper.from_array(np.zeros((2, 3), np.float32)))
        (self.dir / "input_0.pb").write_bytes(sequence.SerializeToString())
        self.assertIn("a sequence", self.fails(3, "run", GOOD, "--inputs", self.dir)[0])

    def test_what_is_no_tensor_takes_no_memory(self):
        sequence = onnx.SequenceProto(name="a", elem_type=onnx.SequenceProto.TENSOR)
        optional = onnx.OptionalProto(name="opt_in", elem_type=onnx.OptionalProto.SEQUENCE,
                                      sequence_value=sequence)
        huge = TensorProto(dims=[1 << 40], data_type=TensorProto.FLOAT, raw_data=b"")
        negative = TensorProto(dims=[-1], data_type=TensorProto.FLOAT, raw_data=b"")
        for proto in (optional, huge, negative):
            (self.dir / "input_0.pb").write_bytes(proto.SerializeToString())
            self.assertIn("input_0.pb is no TensorProto: its shape takes more data than the file",
                          self.fails(3, "run", GOOD, "--inputs", self.dir)[0])

    def test_the_rest_of_the_last_byte_is_no_element(self):
        model = helper.make_model(
            helper.make_graph(
                [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT4)], "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
                [helper.make_tensor_value_info("y", TensorProto.INT4, [3])]),
            opset_imports=[helper.make_opsetid("", 21)])
        onnx.save(model, self.dir / "m.onnx")
        np.save(self.dir / "x.npy", np.array([1, -2, 3], np.float32))
        out = self.dir / "out"
        self.run_ok("run", self.dir / "m.onnx", "--inputs", self.dir, "--outputs", out)
        tensor = onnx.load_tensor(out / "output_0.pb")
        self.assertEqual(tensor.raw_data, bytes([0xe1, 0x03]))
        tensor.raw_data = bytes([0xe1, 0x73])
        onnx.save_tensor(tensor, out / "output_0.pb")
        self.run_ok("run", self.dir / "m.onnx", "--inputs", self.dir, "--expect", out)

    def test_bad_folders(self):
        self.fails(2, "run", GOOD)
        self.fails(3, "run", GOOD, "--inputs", self.dir / "gone")
        self.fails(3, "run", GOOD, "--steps", self.dir)
        self.fails(3, "run", GOOD, "--inputs", self.STEPS / "00", "--expect", self.dir)
        (self.dir / "input_99.pb").write_bytes(b"")
        self.fails(3, "run", GOOD, "--inputs", self.dir)
        (self.dir / "file").write_bytes(b"")
        self.fails(5, "run", GOOD, "--inputs", self.STEPS / "00", "--outputs", self.dir / "file")

    def test_operator_without_kernel_is_inconclusive(self):
        node = helper.make_node("Nothing", ["x"], ["y"], domain="nowhere")
        model = helper.make_model(
            helper.make_graph([node], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])]),
            opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("nowhere", 1)])
        onnx.save(model, self.dir / "m.onnx")
        np.save(self.dir / "x.npy", np.zeros(1, np.float32))
        self.assertIn("Nothing", self.fails(4, "run", self.dir / "m.onnx", "--inputs", self.dir)[0])


class Bench(Case):
    FLAGS = ("--context", "4,9", "--repetitions", "2", "--threads", "1")

    def test_document(self):
        out = self.dir / "o.onnx"
        self.run_ok("convert", GOOD, "-o", out)
        for model in (GOOD, out):
            document = self.document("bench", model, *self.FLAGS)
            self.assertEqual(list(document), ["schema", "machine", "model", "cases"])
            self.assertEqual(list(document["machine"]),
                             ["cpu", "isa", "threads", "read_gbs", "fma_gflops"])
            self.assertEqual([c["context"] for c in document["cases"]], [4, 9])
            for case in document["cases"]:
                self.assertEqual(list(case), ["batch", "context", "capacity", "new_tokens",
                                              "step_us", "rounds", "bytes_touched",
                                              "read_fraction", "cache_bytes_copied", "memory"])
                self.assertEqual(case["rounds"], 2)
                self.assertGreater(case["step_us"]["min"], 0)
                self.assertEqual(case["cache_bytes_copied"], 0)

    def test_weights_as_they_are(self):
        document = self.document("bench", GOOD, *self.FLAGS, "--no-pack")
        self.assertGreater(document["cases"][0]["step_us"]["min"], 0)

    def test_formats(self):
        csv = self.run_ok("bench", GOOD, *self.FLAGS, "--format", "csv").stdout.decode()
        self.assertEqual(len(csv.splitlines()), 3)
        self.assertIn("| 1 | 9 |", self.run_ok("bench", GOOD, *self.FLAGS).stdout.decode())

    def test_capacity_that_is_too_small(self):
        out = self.dir / "o.onnx"
        self.run_ok("convert", GOOD, "-o", out)
        self.fails(2, "bench", out, *self.FLAGS, "--capacity", "5")

    def test_no_cache(self):
        path = self.dir / "m.onnxtxt"
        path.write_text('<ir_version: 10, opset_import: ["" : 18]> '
                        "g (float[2] x) => (float[2] y) { y = Relu(x) }")
        self.fails(1, "bench", path)

    def test_inputs_that_cannot_be_guessed(self):
        path = self.dir / "m.onnxtxt"
        path.write_text('<ir_version: 10, opset_import: ["" : 18]> '
                        "g (float[B,P,4] past, float[B,S,4] x, int64[K] pick) => "
                        "(float[B,T,4] present, float[B,K,4] y) "
                        "{ present = Concat<axis = 1>(past, x) "
                        "far = Constant<value = int64[1] {1000}>() at = Add(pick, far) "
                        "y = Gather<axis = 1>(present, at) }")
        lines = self.fails(4, "bench", path, "--context", "4", "--repetitions", "1")
        self.assertIn("pick [1]", lines[0])


if __name__ == "__main__":
    unittest.main()
