"""Tests of the installed package; python_package_test.py runs them in a separate environment.

Environment: KVLIFT_MODELS, the bundled models; KVLIFT_EXTERNAL, a model with external data.
"""
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import kvlift
import kvlift.optimum

MODELS = pathlib.Path(os.environ["KVLIFT_MODELS"])
LLAMA = MODELS / "llama_optimum" / "model.onnx"
GPT2 = MODELS / "gpt2_optimum" / "model.onnx"
REFUSED = MODELS / "neg_concat_reversed_ts" / "model.onnx"
EXTERNAL = pathlib.Path(os.environ["KVLIFT_EXTERNAL"])
GQA = MODELS / "llama_genai_gqa" / "model.onnx"


class Load(unittest.TestCase):
    def test_paths_bytes_and_models(self):
        model = kvlift.load(LLAMA)
        self.assertEqual(model.path, str(LLAMA))
        self.assertRegex(model.sha256, r"^[0-9a-f]{64}$")
        data = LLAMA.read_bytes()
        for source in (str(LLAMA), data, bytearray(data), memoryview(data), model):
            self.assertEqual(kvlift.load(source).sha256, model.sha256)
        self.assertEqual(kvlift.load(model.to_bytes()).to_bytes(), model.to_bytes())

    def test_errors_carry_a_code(self):
        for source, code in ((b"no model at all", "KV00"), ("/no/such/model.onnx", "KV001")):
            with self.assertRaises(kvlift.Error) as raised:
                kvlift.load(source)
            self.assertTrue(raised.exception.code.startswith(code), raised.exception.code)
        with self.assertRaises(TypeError):
            kvlift.load(7)

    def test_any_name_that_the_system_takes(self):
        with tempfile.TemporaryDirectory() as folder:
            odd = os.path.join(folder, os.fsdecode(b"\xff\xe9.onnx"))
            shutil.copy(LLAMA, odd)
            model = kvlift.load(odd)
            self.assertEqual(model.path, odd)
            out = os.path.join(folder, os.fsdecode(b"\xfe.onnx"))
            self.assertIn(out, kvlift.convert(model).save(out))
            self.assertTrue(kvlift.verify(odd, out))

    def test_a_null_character_ends_no_name(self):
        for call in (lambda: kvlift.load(f"{LLAMA}\0.txt"),
                     lambda: kvlift.load(LLAMA.read_bytes(), data_dir="a\0b"),
                     lambda: kvlift.check(LLAMA, manifest="a\0b")):
            with self.assertRaises(kvlift.Error):
                call()


class Program(unittest.TestCase):
    """The command `kvlift` of the package, which runs in Python's process."""

    def run_it(self, *words, by=None, **options):
        by = by or [os.path.join(os.path.dirname(sys.executable), "kvlift")]
        return subprocess.run([*by, *words], capture_output=True, timeout=300, check=False,
                              **options)

    def test_codes_and_streams(self):
        for by in (None, [sys.executable, "-m", "kvlift"]):
            done = self.run_it("check", LLAMA, by=by)
            self.assertEqual((done.returncode, done.stderr), (0, b""), done)
            self.assertIn(b"check: 0 errors", done.stdout)
            done = self.run_it("inspect", b"/no/such/\xff.onnx", by=by)
            self.assertEqual(done.returncode, 3)
            self.assertTrue(done.stderr.startswith(b"kvlift: /no/such/"), done.stderr)
            self.assertIn(b"[KV001]", done.stderr)

    def test_it_runs_itself_again(self):
        """Also beside files that have the names of modules."""
        with tempfile.TemporaryDirectory() as folder:
            for name in ("kvlift.py", "json.py"):
                pathlib.Path(folder, name).write_text("raise SystemExit('not this one')\n")
            os.mkdir(os.path.join(folder, "models"))
            shutil.copy(LLAMA, os.path.join(folder, "models"))
            done = self.run_it("fleet", "check", "models", "-o", "results", cwd=folder)
            self.assertEqual(done.returncode, 0, done)
            lines = pathlib.Path(folder, "results", "results.jsonl").read_text().splitlines()
            self.assertEqual(json.loads(lines[-1])["outcome"], "clean", lines)

    def test_a_closed_pipe_ends_it(self):
        line = f'"$0" explain KV121 | true; echo "${{PIPESTATUS[0]}}"'
        done = self.run_it("-c", line, os.path.join(os.path.dirname(sys.executable), "kvlift"),
                           by=["bash"])
        self.assertIn(done.stdout, (b"0\n", b"141\n"))
        self.assertEqual(done.stderr, b"")


class Pipelines(unittest.TestCase):
    """The hooks for other tools, as far as they need none; tests/integration has the rest."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_folder_of_an_export(self):
        (self.folder / "model.onnx").write_bytes(LLAMA.read_bytes())
        (self.folder / "other.onnx").write_bytes(GPT2.read_bytes())
        [made] = kvlift.optimum.convert_export(self.folder, target="ort")
        self.assertEqual(made, self.folder / "model_kvlift.onnx")
        self.assertTrue(kvlift.verify(LLAMA, made))
        with self.assertRaisesRegex(kvlift.Error, "model_kvlift"):
            kvlift.optimum.convert_export(self.folder)
        [other] = kvlift.optimum.convert_export(self.folder, files="other.onnx")
        self.assertTrue(kvlift.verify(GPT2, other))

    def test_nothing_is_written_of_what_is_refused(self):
        (self.folder / "model.onnx").write_bytes(REFUSED.read_bytes())
        with self.assertRaisesRegex(kvlift.Error, r"^refused: .*KV\d{3}"):
            kvlift.optimum.convert_export(self.folder)
        self.assertEqual([p.name for p in self.folder.iterdir()], ["model.onnx"])
        with self.assertRaises(ValueError):
            kvlift.optimum.convert_export(self.folder, accept="unproved")
        # Nor of another one of the same call.
        (self.folder / "other.onnx").write_bytes(GPT2.read_bytes())
        with self.assertRaises(kvlift.Error):
            kvlift.optimum.convert_export(self.folder, files=["other.onnx", "model.onnx"])
        self.assertEqual(len(list(self.folder.iterdir())), 2)

    def test_nothing_is_written_beside_what_exists(self):
        (self.folder / "model.onnx").write_bytes(LLAMA.read_bytes())
        (self.folder / "other.onnx").write_bytes(GPT2.read_bytes())
        (self.folder / "other_kvlift.kv.json").write_text("mine")
        before = sorted(self.folder.iterdir())
        with self.assertRaisesRegex(kvlift.Error, "other_kvlift.kv.json exists"):
            kvlift.optimum.convert_export(self.folder, files=["model.onnx", "other.onnx"])
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_files_lie_in_the_folder(self):
        (self.folder / "in").mkdir()
        (self.folder / "model.onnx").write_bytes(LLAMA.read_bytes())
        for name in ("../model.onnx", str(self.folder / "model.onnx")):
            with self.assertRaisesRegex(kvlift.Error, "is no name in the folder"):
                kvlift.optimum.convert_export(self.folder / "in", files=[name])

    def test_a_folder_without_decoders(self):
        (self.folder / "encoder.onnx").write_bytes(b"")
        with self.assertRaisesRegex(kvlift.Error, "no decoder here"):
            kvlift.optimum.convert_export(self.folder)

    def test_olive_is_optional(self):
        with self.assertRaisesRegex(ImportError, "pip install olive-ai"):
            import kvlift.olive  # noqa: F401


class Caches(unittest.TestCase):
    def test_caches(self):
        found = kvlift.caches(LLAMA)
        self.assertEqual([c["id"] for c in found], ["0.key", "0.value", "1.key", "1.value"])
        self.assertTrue(all(c["growing"] and not c["reason"] for c in found))
        self.assertTrue(all(c["reason"]["code"] for c in kvlift.caches(REFUSED)))
        self.assertEqual(len(kvlift.inspect(LLAMA)["attention"]), 2)


class Convert(unittest.TestCase):
    def test_converted(self):
        result = kvlift.convert(LLAMA, max_seq_len=64)
        self.assertTrue(result)
        self.assertEqual(result.status, "converted")
        self.assertEqual(result.manifest["capacity"]["value"], 64)
        self.assertIn("4 of 4", repr(result))
        self.assertEqual([f for f in kvlift.check(result.model) if f.severity == "error"], [])
        verdict = result.verify()
        self.assertTrue(verdict)
        self.assertEqual(verdict.kind, "equal")

    def test_bytes_in_bytes_out(self):
        data = LLAMA.read_bytes()
        converted = kvlift.convert(data).model.to_bytes()
        self.assertTrue(kvlift.verify(data, converted))  # the relation is in the model
        self.assertEqual(kvlift.convert(LLAMA).model.to_bytes(), converted)

    def test_what_is_shown(self):
        result = kvlift.convert(LLAMA, accept="proved")
        self.assertEqual(result.equality, "proved")
        self.assertEqual(result.manifest["equality"], "proved")
        self.assertIsNone(kvlift.convert(REFUSED).equality)

    def test_rule_of_trees(self):
        result = kvlift.convert(GQA, tree_mask=True)  # the model's positions follow the write index
        self.assertEqual(result.status, "refused")
        self.assertEqual({c["reason"]["code"] for c in result.caches}, {"KV235"})

    def test_refused(self):
        result = kvlift.convert(REFUSED)
        self.assertFalse(result)
        self.assertIsNone(result.manifest)
        with self.assertRaises(kvlift.Error):
            result.model  # pylint: disable=pointless-statement

    def test_options(self):
        result = kvlift.convert(LLAMA, only=["present.1.*"])
        self.assertEqual([c["converted"] for c in result.caches], [False, False, True, True])
        config = kvlift.convert(LLAMA, target="genai").genai_config
        self.assertTrue(config["search"]["past_present_share_buffer"])
        for wrong in ({"target": "x"}, {"max_seq_len": -1}, {"read": "all"}):
            with self.assertRaises(kvlift.Error):
                kvlift.convert(LLAMA, **wrong)

    def test_freeze(self):
        result = kvlift.convert(LLAMA, freeze="batch=1,tokens=4", max_seq_len=16)
        self.assertEqual(result.equality, "proved")
        self.assertEqual(result.manifest["frozen"]["tokens"], 4)
        self.assertTrue(kvlift.verify(LLAMA, result.model))
        refused = kvlift.convert(LLAMA, freeze="tokens=4", max_seq_len=16)
        self.assertEqual({c["reason"]["code"] for c in refused.caches}, {"KV260"})
        for wrong in ("tokens=4|1", "tokens", "batch=0"):
            with self.assertRaises(kvlift.Error):
                kvlift.convert(LLAMA, freeze=wrong, max_seq_len=16)

    def test_stop_after_a_step(self):
        with tempfile.TemporaryDirectory() as folder:
            dumps = pathlib.Path(folder) / "dumps"
            result = kvlift.convert(LLAMA, stop_after="plan", dump_dir=dumps)
            self.assertEqual(result.status, "stopped")
            self.assertFalse(result)
            self.assertEqual(result.document["stopped_after"], "plan")
            names = ["1-lower.onnxtxt", "2-recognise.txt", "3-plan.txt"]
            self.assertEqual(result.document["dumps"], [str(dumps / name) for name in names])
            self.assertEqual(sorted(os.listdir(dumps)), names)
            self.assertIsNone(result.manifest)
            whole = kvlift.convert(LLAMA, dump_dir=dumps)
            self.assertEqual(len(whole.document["dumps"]), 7)
            self.assertEqual(whole.model.to_bytes(), kvlift.convert(LLAMA).model.to_bytes())
            with self.assertRaises(kvlift.Error) as raised:
                kvlift.convert(LLAMA, dump_dir=dumps / "3-plan.txt")
            self.assertEqual(raised.exception.code, "KV501")
        proved = kvlift.convert(LLAMA, stop_after="prove")
        self.assertEqual(proved.equality, "proved")
        with self.assertRaisesRegex(kvlift.Error, "stopped after prove"):
            proved.model  # pylint: disable=pointless-statement
        with self.assertRaises(kvlift.Error):
            kvlift.convert(LLAMA, stop_after="parse")
        self.assertEqual(kvlift.convert(REFUSED, stop_after="emit").status, "refused")

    def test_every_option_of_the_program(self):
        program = pathlib.Path(sys.prefix) / "bin" / "kvlift"
        text = subprocess.run([program, "convert", "--help-all"], capture_output=True, text=True,
                              check=True).stdout
        groups = re.findall(r"^(?:Options|Operators):\n(.*?)\n\n", text, re.M | re.S)
        self.assertEqual(len(groups), 2)
        options = {name.replace("-", "_") for group in groups
                   for name in re.findall(r"^  (?:-\w, )?--([a-z-]+)", group, re.M)}
        elsewhere = {"help", "help_all", "output", "verify", "report"}
        known = {name for function in (kvlift.convert, kvlift.Conversion.save,
                                       kvlift.Conversion.verify)
                 for name in inspect.signature(function).parameters}
        self.assertEqual(options - elsewhere - known, set())

    def test_one_pattern_is_no_list_of_letters(self):
        for only in ("*.0.*", ["*.0.*"]):
            result = kvlift.convert(LLAMA, only=only, allow_partial=True)
            self.assertEqual([c["id"] for c in result.caches if c["converted"]],
                             ["0.key", "0.value"])

    def test_the_result_outlives_its_source(self):
        model = kvlift.convert(kvlift.load(LLAMA.read_bytes())).model
        self.assertEqual(len(kvlift.check(model)), 0)
        self.assertGreater(len(model.to_bytes()), 10000)

    def test_save(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.onnx"
            result = kvlift.convert(LLAMA, target="genai")
            names = [os.path.basename(n) for n in result.save(out)]
            self.assertEqual(names, ["out.kv.json", "out.genai.json", "out.onnx"])
            self.assertEqual(sorted(os.listdir(folder)), sorted(names))
            self.assertEqual(json.loads((out.parent / "out.kv.json").read_text()), result.manifest)
            self.assertEqual(out.read_bytes(), result.model.to_bytes())
            with self.assertRaises(kvlift.Error):
                result.save(out)
            self.assertEqual(result.save(out, force=True, dry_run=True),
                             [str(out.parent / name) for name in names])
            result.save(out, force=True)
            with self.assertRaises(kvlift.Error):
                kvlift.convert(out).save(out, force=True)
            self.assertTrue(kvlift.verify(LLAMA, out))


    def test_external_data(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "out").mkdir()
            shutil.copytree(EXTERNAL.parent, folder / "in")
            source = folder / "in" / EXTERNAL.name
            result = kvlift.convert(source)
            out = folder / "out" / "model.onnx"
            with self.assertRaisesRegex(kvlift.Error, "would lie outside"):
                result.save(out, external="keep")
            with self.assertRaisesRegex(kvlift.Error, "unknown word 'some'"):
                result.save(out, external="some")
            self.assertEqual(list(out.parent.iterdir()), [])
            self.assertEqual(len(result.save(out)), 3)
            beside = folder / "in" / "made.onnx"
            self.assertEqual(len(result.save(beside, dry_run=True)), 2)
            self.assertEqual(len(result.save(beside, external="copy", dry_run=True)), 3)
            self.assertTrue(kvlift.verify(source, out))


class Verify(unittest.TestCase):
    def test_a_model_is_equal_to_itself(self):
        for model in (LLAMA, GPT2):
            verdict = kvlift.verify(model, model)
            self.assertEqual(verdict.kind, "equal", verdict.reason)

    def test_numbers_outside_their_range(self):
        result = kvlift.convert(LLAMA)
        for options in ({"seed": -1}, {"seed": 2**70}, {"threads": -3}, {"threads": 10**6}):
            for call in (lambda o: kvlift.verify(LLAMA, result.model, manifest=result.manifest, **o),
                         lambda o: result.verify(**o)):
                with self.assertRaisesRegex(kvlift.Error, f"{next(iter(options))}: needs a number"):
                    call(options)

    def test_manifests_that_cannot_be_read(self):
        with tempfile.TemporaryDirectory() as folder:
            binary = pathlib.Path(folder) / "binary.json"
            binary.write_bytes(b"\xff\xfe")
            for manifest in ("nope.json", folder, binary):
                with self.assertRaises(kvlift.Error) as raised:
                    kvlift.verify(LLAMA, LLAMA, manifest=manifest)
                self.assertEqual(raised.exception.code, "KV033")

    def test_different_is_false(self):
        other = kvlift.convert(LLAMA)
        broken = json.loads(json.dumps(other.manifest))
        for cache in broken["caches"]:  # swap the keys and values of the layers
            cache["source"]["input"] = cache["source"]["input"].replace(
                ".0." if cache["layer"] == 0 else ".1.", ".1." if cache["layer"] == 0 else ".0.")
            cache["source"]["output"] = cache["source"]["output"].replace(
                ".0." if cache["layer"] == 0 else ".1.", ".1." if cache["layer"] == 0 else ".0.")
        verdict = kvlift.verify(LLAMA, other.model, manifest=broken)
        self.assertEqual(verdict.kind, "different")
        self.assertFalse(verdict)

    def test_inconclusive_is_no_bool(self):
        verdict = kvlift.verify(GPT2, kvlift.convert(LLAMA).model)
        self.assertEqual(verdict.kind, "inconclusive")
        self.assertTrue(verdict.reason)
        with self.assertRaises(kvlift.Inconclusive):
            bool(verdict)
        with self.assertRaises(kvlift.Error):
            if verdict:
                pass
        self.assertIn("inconclusive", repr(verdict))

    def test_others_run_meanwhile(self):
        source, ticks, done = kvlift.load(LLAMA), [], threading.Event()

        def tick():
            while not done.is_set():
                ticks.append(time.monotonic())
                time.sleep(0.001)

        watcher = threading.Thread(target=tick)
        watcher.start()
        start = time.monotonic()
        kvlift.convert(source).verify()
        end = time.monotonic()
        done.set()
        watcher.join()
        during = [t for t in ticks if start < t < end]
        self.assertGreater(len(during), 10)
        self.assertLess(max(b - a for a, b in zip(during, during[1:])), (end - start) / 2)

    def test_threads_at_once(self):
        results = []
        threads = [threading.Thread(target=lambda: results.append(
            kvlift.convert(LLAMA).model.to_bytes())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(results), 4)
        self.assertEqual(len(set(results)), 1)


class Check(unittest.TestCase):
    def test_targets(self):
        out = kvlift.convert(LLAMA).model
        self.assertEqual(kvlift.check(out), [])
        found = kvlift.check(out, target="tensorrt")
        self.assertIn("KV133", {f.code for f in found})
        self.assertTrue(all(f.severity == "error" and f.nodes for f in found))
        with self.assertRaises(kvlift.Error):
            kvlift.check(out, target="abacus")


class Metadata(unittest.TestCase):
    def test_ports(self):
        result = kvlift.convert(LLAMA, target="genai-static", max_seq_len=32)
        text = kvlift.metadata(result.model)
        self.assertIn('write_indices_input: "write_indices"\n', text)
        with tempfile.TemporaryDirectory() as folder:
            names = result.save(pathlib.Path(folder) / "out.onnx")
            self.assertEqual([os.path.basename(n) for n in names],
                             ["out.kv.json", "out.genai.json", "out.inference_metadata.yaml",
                              "out.onnx"])
            written = pathlib.Path(folder) / "out.inference_metadata.yaml"
            self.assertEqual(written.read_text(encoding="ascii"), text)
        with self.assertRaises(kvlift.Error) as raised:
            kvlift.metadata(LLAMA)
        self.assertEqual(raised.exception.code, "KV254")


if __name__ == "__main__":
    unittest.main()
