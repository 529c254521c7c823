"""`kvlift record`, and `python -m kvlift.replay` of its records in ONNX Runtime on the CPU.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""

import contextlib
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
PACKAGE = ROOT / "tools" / "python"
sys.path.insert(0, str(PACKAGE))
import key_value_cache_test  # noqa: E402
from decoders.cases import build  # noqa: E402
from decoders.draw import random_spec  # noqa: E402
from kvlift import replay  # noqa: E402
from kvlift._replay import judge  # noqa: E402
from kvlift._replay.record import Cache  # noqa: E402
from kvlift._replay.runtime import Runtime, Settings  # noqa: E402
from support import dynamic_batching  # noqa: E402
from support.case_text import text_of_case  # noqa: E402
from support.schemas import check_json, check_junit  # noqa: E402
from support.tool import done, tool  # noqa: E402

MODELS = ROOT / "testdata" / "models"
# Caches that grow, in several layouts; softcap; a fixed buffer, which takes one token at a time.
EQUAL = ("gpt2_optimum", "gemma2_optimum", "qwen2_optimum", "bloom_optimum", "llama_static_ts",
         "toy_transposed_key_ts", "toy_splice_ts")


class SpoiltSession:
    """A session that changes one bit of an output's first element in each run."""

    spoilt = "logits"

    def __init__(self, model, options=None, providers=None):
        self.session = ort.InferenceSession(model, options, providers=providers)

    def __getattr__(self, name):
        return getattr(self.session, name)

    def run_with_iobinding(self, binding):
        self.session.run_with_iobinding(binding)
        names = [o.name for o in self.session.get_outputs()]
        if self.spoilt not in names:
            return
        value = binding.get_outputs()[names.index(self.spoilt)]
        array = np.array(value.numpy(), copy=True)
        array.reshape(-1).view(f"u{array.dtype.itemsize}")[0] ^= 1 << (8 * array.dtype.itemsize - 2)
        value.update_inplace(array)


class FirstOutput(SpoiltSession):
    @property
    def spoilt(self):
        return self.session.get_outputs()[0].name


class SpoiltScale(SpoiltSession):
    @property
    def spoilt(self):
        return next(o.name for o in self.session.get_outputs() if o.name.endswith("_scale"))


class SpoiltRuntime:
    """The module onnxruntime, with another class of sessions."""

    def __init__(self, session=SpoiltSession):
        self.InferenceSession = session

    def __getattr__(self, name):
        return getattr(ort, name)


def replayed(*arguments, runtime=None):
    """Returns exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = replay.main([str(a) for a in arguments], runtime)
    return code, out.getvalue(), err.getvalue()


def recorded(folder, source, *options):
    """Converts a model and records the pair; returns the record's folder."""
    out, to = pathlib.Path(folder) / "out.onnx", pathlib.Path(folder) / "record"
    done("convert", source, "-o", out, "--target", "ort", "--force")
    done("record", source, out, "-o", to, "--lengths", "16,64", "--force", *options)
    return to


class RecordTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.kept.cleanup)
        cls.folder = pathlib.Path(cls.kept.name)
        shutil.copy(MODELS / "llama_optimum" / "model.onnx", cls.folder)
        cls.record = recorded(cls.folder, cls.folder / "model.onnx")

    def copy(self):
        """Returns a copy of the folder with models and record, to be damaged."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        shutil.copytree(self.folder, folder.name, dirs_exist_ok=True)
        return pathlib.Path(folder.name) / "record"

    def refused(self, code, words, *arguments, runtime=None):
        """The replay ends with one line that says why."""
        got, out, err = replayed(*arguments, runtime=runtime)
        self.assertEqual((got, out), (code, ""), err)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn(words, err)

    def test_the_record(self):
        document = check_json((self.record / "record.json").read_text())
        self.assertEqual(document["verdict"], "equal")
        plans = {plan["name"]: plan for plan in document["plans"]}
        for name in ("prefill of 1", "decode", "batch", "ragged", "right pads", "left pads",
                     "last slot", "nine sequences", "long past"):
            self.assertIn(name, plans)
        lengths = {tuple(step["past"]) for plan in plans.values() for step in plan["steps"]}
        self.assertTrue(any(len(set(past)) > 1 for past in lengths), lengths)
        self.assertEqual([p["name"] for p in document["lengths"]], ["16 tokens", "64 tokens"])
        self.assertEqual(document["before"]["path"], "../model.onnx")
        self.assertGreater(document["bounds"]["computed"], 50)
        step = plans["decode"]["steps"][1]
        with np.load(self.record / step["file"]) as arrays:
            want = {e["name"]: arrays[e["array"]] for e in step["expect"]}
            bounds = {e["name"]: arrays[e["bound"]] for e in step["expect"]}
            fed = {f["name"] for f in step["after"]}
        self.assertEqual(want["logits"].shape[:2], (1, 1))
        self.assertEqual(want["present.0.key"].shape[2], 1)
        self.assertTrue((bounds["logits"] > 0).all() and (bounds["logits"] < 1e-3).all())
        self.assertNotIn("past_key_values.0.key", fed)  # it goes on from the last step
        # Rows of padding tokens are not compared.
        step = plans["left pads"]["steps"][0]
        with np.load(self.record / step["file"]) as arrays:
            [bound] = [arrays[e["bound"]] for e in step["expect"] if e["name"] == "logits"]
        self.assertTrue(np.isnan(bound).any() and not np.isnan(bound).all())

    def test_expected_values_are_the_sources(self):
        """ONNX Runtime gives them for the recorded feeds of the source."""
        document = json.loads((self.record / "record.json").read_text())
        session = ort.InferenceSession(str(self.folder / "model.onnx"))
        for plan in document["plans"]:
            step = plan["steps"][0]
            if len(step["before"]) != 1:
                continue
            with np.load(self.record / step["file"]) as arrays:
                feeds = {f["name"]: arrays[f["array"]] for f in step["before"][0]["inputs"]}
                [expect] = [e for e in step["expect"] if e["name"] == "logits"]
                want, bound = arrays[expect["array"]], arrays[expect["bound"]]
            [logits] = session.run(["logits"], feeds)
            judged = ~np.isnan(np.broadcast_to(bound, want.shape))
            np.testing.assert_allclose(logits[judged], want[judged], atol=1e-4, rtol=1e-4)

    def test_same_bytes(self):
        again = self.folder / "again"
        done("record", self.folder / "model.onnx", self.folder / "out.onnx", "-o", again,
             "--lengths", "16,64")
        self.addCleanup(shutil.rmtree, again)
        files = sorted(p.relative_to(again) for p in again.rglob("*") if p.is_file())
        self.assertGreater(len(files), 30)
        for name in files:
            self.assertEqual((again / name).read_bytes(), (self.record / name).read_bytes(), name)

    def test_equal(self):
        junit, document = self.folder / "replay.xml", self.folder / "replay.json"
        code, out, err = replayed(self.record, "--rounds", 3, "--junit", junit, "--json", document)
        self.assertEqual(code, 0, out + err)
        self.assertEqual(err, "")
        self.assertIn("verdict: equal\n", out)
        self.assertIn("4 of 4 caches came back in the buffer", out)
        found = check_json(document.read_text())
        self.assertEqual(found["verdict"], "equal")
        self.assertIsNone(found["found"])
        self.assertLessEqual({p["status"] for p in found["plans"]}, {"bitwise", "within bound"})
        self.assertTrue(all(p["ratio"] <= 1 for p in found["plans"]))
        self.assertEqual([t["tokens"] for t in found["times"]], [16, 64])
        self.assertGreater(found["times"][0]["after_us"]["min"], 0)
        self.assertTrue(all(c["same_address"] for c in found["caches"]))
        self.assertIn(found["in_place"]["copied"], ("no", "unclear"))
        self.assertGreater(found["in_place"]["bytes"], 10 << 20)
        root = check_junit(junit.read_bytes())
        self.assertEqual(root.get("failures"), "0")
        self.assertEqual(int(root.get("tests")), len(found["plans"]) + 1)

    def test_equal_for_several_models(self):
        for name in EQUAL:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                record = recorded(folder, MODELS / name / "model.onnx")
                code, out, err = replayed(record, "--rounds", 1)
                self.assertEqual(code, 0, out + err)

    def test_products_that_a_runtime_fuses(self):
        """ONNX Runtime rotates with fused multiplications and additions, which round once."""
        before = text_of_case("attention_op_group_query_rotary_packed")
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "model.onnx")
            onnx.save(onnx.parser.parse_model(before), source)
            record = recorded(folder, source)
            code, out, err = replayed(record, "--rounds", 1)
            self.assertEqual(code, 0, out + err)
            # Its tables have 16 positions, which no length reaches.
            self.assertNotIn("past tokens", out)

    def test_half_precision(self):
        with tempfile.TemporaryDirectory() as folder:
            spec = random_spec(25)
            self.assertEqual(spec.dtype, "float16")
            onnx.save(build(spec)[0], os.path.join(folder, "half.onnx"))
            record = recorded(folder, os.path.join(folder, "half.onnx"))
            document = check_json((record / "record.json").read_text())
            self.assertTrue(document["bounds"]["half_types"])
            code, out, err = replayed(record, "--rounds", 1)
            self.assertEqual(code, 0, out + err)
            code, out, _ = replayed(record, "--rounds", 1, runtime=SpoiltRuntime(FirstOutput))
            self.assertEqual(code, 1, out)

    def test_sources_that_the_runtime_lacks(self):
        """One tensor packs the caches of all layers; without or with an axis of sequences."""
        for module, form in ((dynamic_batching, dynamic_batching.FORMS[1]),
                             (dynamic_batching, dynamic_batching.FORMS[3]),
                             (key_value_cache_test, key_value_cache_test.FORMS[1])):
            with self.subTest(form.name), tempfile.TemporaryDirectory() as folder:
                source = os.path.join(folder, "model.onnx")
                onnx.save(module.Decoder(form).model(), source)
                record = recorded(folder, source)
                code, out, err = replayed(record, "--rounds", 1, "--json", "-")
                self.assertEqual(code, 0, out + err)
                self.assertIn("no times of the source: ", err)
                self.assertEqual(len(err.splitlines()), 1, err)
                times = check_json(out)["times"]
                self.assertEqual([t["before_us"] for t in times], [None] * len(times))

    def test_types_that_numpy_lacks(self):
        runtime = Runtime(ort, Settings())
        for name, dtype in (("bfloat16", np.uint16), ("float8e4m3fn", np.uint8)):
            for shape in ((2, 3), (), (2, 0, 3)):
                bits = np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape) + 250
                value = runtime.value(bits.astype(dtype), name)
                got = runtime.array_of(value)
                self.assertEqual(got.dtype, dtype)
                np.testing.assert_array_equal(got, bits.astype(dtype))
        for value, bits in ((1.0, 0x3F80), (-2.5, 0xC020), (0.0, 0)):
            self.assertEqual(judge.numbers(np.array([bits], np.uint16), "bfloat16")[0], value)

    def test_comparisons(self):
        want = np.array([1.0, np.inf, np.nan, 0.0], np.float32)
        bound = np.array([0.5, 0.0, np.nan, 0.0], np.float32)

        def differs(*got):
            got = np.array(got, np.float32)
            return judge.compare("x", got, want, bound, "float32")[1] is not None

        self.assertFalse(differs(1.5, np.inf, 3, -0.0))
        self.assertFalse(differs(1, np.inf, np.nan, 0))
        for wrong in ((1.51, np.inf, 3, 0), (np.nan, np.inf, 3, 0), (1, 7, 3, 0), (1, np.nan, 3, 0),
                      (1, -np.inf, 3, 0), (1, np.inf, 3, 1e-40)):
            self.assertTrue(differs(*wrong), wrong)
        # A NaN that is expected is no number, and hides no difference beside it.
        bound[2] = 0.5
        self.assertFalse(differs(1, np.inf, np.nan, 0))
        self.assertTrue(differs(1, np.inf, 3, 0))
        self.assertTrue(differs(100, np.inf, np.nan, 0))
        one = np.array(0.0, np.float32)
        self.assertIsNotNone(judge.compare("x", want[:3], want, one, "float32")[1])
        self.assertIsNotNone(judge.compare("x", want.astype(np.float64), want, one, "float32")[1])
        whole = np.array([1, 2])
        self.assertIsNone(judge.compare("x", whole, whole, one, "int64")[1])
        self.assertEqual(judge.compare("x", whole + [0, 1], whole, one, "int64")[1].element, (1,))

    def test_caches_that_the_conversion_quantises(self):
        """Rows are compared as they are read back, within what storing them may change."""
        for scheme, name in (("int8:channel", "llama_optimum"), ("int8:4", "gpt2_optimum")):
            with self.subTest(scheme=scheme), tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                source, out, to = MODELS / name / "model.onnx", folder / "o.onnx", folder / "r"
                done("convert", source, "-o", out, "--quantize-cache", scheme)
                done("record", source, out, "-o", to, "--lengths", "16")
                document = check_json((to / "record.json").read_text())
                self.assertEqual(document["verdict"], "equal within quantisation")
                names = {p["name"] for p in document["plans"]}
                self.assertLessEqual({"decode", "last slot", "given past"}, names)
                stored = [c for c in document["caches"] if "scales" in c]
                self.assertEqual(len(stored), len(document["caches"]) // 2)
                code, text, err = replayed(to, "--rounds", 1, "--json", folder / "found.json")
                self.assertEqual(code, 0, text + err)
                self.assertIn("verdict: equal\n", text)
                found = check_json((folder / "found.json").read_text())
                ratios = {o["name"]: o["ratio"] for o in found["outputs"]}
                self.assertLess(0, ratios[stored[0]["output"]])
                code, text, err = replayed(to, "--rounds", 0, runtime=SpoiltRuntime(SpoiltScale))
                self.assertEqual(code, 1, text + err)
                self.assertIn("verdict: different", text)

    def test_caches_of_float8_are_recorded(self):
        """ONNX Runtime's CPU provider has no TensorScatter of float8."""
        with tempfile.TemporaryDirectory() as folder:
            out, to = pathlib.Path(folder) / "out.onnx", pathlib.Path(folder) / "record"
            done("convert", self.folder / "model.onnx", "-o", out, "--quantize-cache", "fp8")
            done("record", self.folder / "model.onnx", out, "-o", to)
            check_json((to / "record.json").read_text())
            code, text, err = replayed(to, "--rounds", 0)
            self.assertEqual(code, 4, text + err)
            self.assertIn("does not load the converted model", text)
        values = np.arange(256, dtype=np.uint8).reshape(2, 128)
        scales = np.float32([[1, 2], [3, 4]])
        cache = Cache("0", "i", "o", "float8e4m3fn", 0, 0, True, False, False, "s", 64)
        wide = values.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        np.testing.assert_array_equal(judge.read_back(values, scales, cache),
                                      wide * np.repeat(scales, 64, axis=1))

    def test_caches_that_the_source_quantises(self):
        """A step of a stored row that rounding turns is a decision, and no difference."""
        with tempfile.TemporaryDirectory() as folder:
            record = recorded(folder, MODELS / "llama_genai_gqa_int8" / "model.onnx")
            code, text, err = replayed(record, "--rounds", 1, "--json", folder + "/found.json")
            found = check_json(pathlib.Path(folder, "found.json").read_text())
            self.assertEqual(code, 0 if found["verdict"] == "equal" else 4, text + err)
            self.assertIn(found["verdict"], ("equal", "inconclusive"), text)
            unlike = [p["name"] for p in found["plans"] if p["status"] == "different"]
            self.assertLess(len(unlike), len(found["plans"]) / 4, text)
            self.assertNotIn("refused", {p["status"] for p in found["plans"]})

    def test_rings(self):
        """Rows wrap around; the source shifts its buffer."""
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "model.onnx"
            shutil.copy(MODELS / "toy_fifo_shift_ts" / "model.onnx", source)
            out, record = source.with_name("out.onnx"), source.with_name("record")
            done("convert", source, "-o", out, "--mode", "circular", "--target", "ort")
            done("record", source, out, "-o", record, "--lengths", "16")
            document = json.loads((record / "record.json").read_text())
            self.assertTrue(all(c["circular"] for c in document["caches"]))
            names = [p["name"] for p in document["plans"]]
            self.assertIn("around the end", names)
            code, out, err = replayed(record, "--rounds", 1)
            self.assertEqual(code, 0, out + err)

    def test_a_runtime_that_flips_a_bit(self):
        document, junit = self.folder / "spoilt.json", self.folder / "spoilt.xml"
        code, out, _ = replayed(self.record, "--json", document, "--junit", junit,
                                runtime=SpoiltRuntime())
        self.assertEqual(code, 1, out)
        self.assertIn("verdict: different", out)
        found = check_json(document.read_text())
        first = found["found"]
        self.assertEqual((first["plan"], first["step"], first["output"]),
                         ("prefill of 1", 0, "logits"))
        self.assertEqual(first["element"], [0, 0, 0])
        [node] = [n for n in onnx.load(self.folder / "out.onnx").graph.node
                  if "logits" in n.output]
        self.assertEqual((first["node"], first["operator"]), (node.name, node.op_type))
        self.assertIn(node.name, out)
        # The source's logits are spoilt as well, and the node that gives them is the first.
        self.assertEqual(first["source"], "differs")
        self.assertEqual(first["wrong_node"]["node"], node.name)
        self.assertEqual((first["two_buffers"], first["not_optimized"]),
                         ("different", "different"))
        self.assertGreater(int(check_junit(junit.read_bytes()).get("failures")), 10)

    def test_a_runtime_that_spoils_a_row(self):
        class Session(SpoiltSession):
            spoilt = "present.1.value"

        document = self.folder / "row.json"
        code, out, _ = replayed(self.record, "--json", document, "--plan", "decode", "--plan",
                                "given past", runtime=SpoiltRuntime(Session))
        self.assertEqual(code, 1, out)
        found = check_json(document.read_text())
        self.assertEqual([p["name"] for p in found["plans"]], ["decode", "given past"])
        self.assertEqual({p["status"] for p in found["plans"]}, {"different"})
        self.assertEqual(found["found"]["output"], "present.1.value")
        # In "given past" the first slot holds a past token, and may have no other bit.
        self.assertIn("slot 0 of sequence 0 holds a past token and changed",
                      found["plans"][1]["note"])

    def test_a_runtime_that_does_not_bear_one_buffer(self):
        class Session(SpoiltSession):
            def run_with_iobinding(self, binding):
                shared = self.bound & set(self.past)
                self.session.run_with_iobinding(binding)
                if shared:
                    self.spoil(binding)

            def io_binding(self):
                binding = self.session.io_binding()
                self.bound, self.past = set(), []
                into, out = binding.bind_ortvalue_input, binding.bind_ortvalue_output

                def bind_in(name, value):
                    self.past.append(value.data_ptr())
                    into(name, value)

                def bind_out(name, value):
                    self.bound.add(value.data_ptr())
                    out(name, value)

                binding.bind_ortvalue_input, binding.bind_ortvalue_output = bind_in, bind_out
                return binding

            def spoil(self, binding):
                names = [o.name for o in self.session.get_outputs()]
                value = binding.get_outputs()[names.index("logits")]
                value.update_inplace(np.array(value.numpy()) + 1)

        document = self.folder / "shared.json"
        code, out, _ = replayed(self.record, "--json", document, "--plan", "decode",
                                runtime=SpoiltRuntime(Session))
        self.assertEqual(code, 1, out)
        found = check_json(document.read_text())["found"]
        self.assertIn(found["two_buffers"], ("bitwise", "within bound"))
        self.assertEqual(found["source"], "agrees")

    def test_what_rounding_may_turn(self):
        """A difference behind a decision is no verdict, unless another output differs, too."""
        record = self.copy()
        path = record / "record.json"
        text = path.read_text()
        path.write_text(text.replace('"doubtful": []', '"doubtful": ["logits"]'))
        self.assertNotEqual(path.read_text(), text)
        code, out, _ = replayed(record, "--plan", "decode", runtime=SpoiltRuntime())
        self.assertEqual(code, 4, out)
        self.assertIn("verdict: inconclusive (logits depends on a decision", out)

        class Session(SpoiltSession):
            spoilt = "present.1.value"

        code, out, _ = replayed(record, "--plan", "decode", runtime=SpoiltRuntime(Session))
        self.assertEqual(code, 1, out)

    def test_no_decision_makes_numbers_that_are_not_finite(self):
        record = self.copy()
        path = record / "record.json"
        path.write_text(path.read_text().replace('"doubtful": []', '"doubtful": ["logits"]'))

        class Session(SpoiltSession):
            number = np.nan

            def run_with_iobinding(self, binding):
                self.session.run_with_iobinding(binding)
                names = [o.name for o in self.session.get_outputs()]
                value = binding.get_outputs()[names.index(self.spoilt)]
                array = np.array(value.numpy(), copy=True)
                array.reshape(-1)[0] = self.number
                value.update_inplace(array)

        for number in (np.nan, np.inf):
            with self.subTest(number):
                Session.number = number
                code, out, _ = replayed(record, "--plan", "decode", runtime=SpoiltRuntime(Session))
                self.assertEqual(code, 1, out)
                self.assertIn("verdict: different", out)

    def test_without_onnx(self):
        with unittest.mock.patch.dict(sys.modules, {"onnx": None}):
            code, out, _ = replayed(self.record, "--plan", "decode", runtime=SpoiltRuntime())
        self.assertEqual(code, 1, out)
        self.assertIn("no node is named: the package onnx is not installed", out)
        self.assertIn("computed by node ", out)

    def test_a_model_that_the_runtime_refuses(self):
        record = self.copy()
        model = onnx.load(record.parent / "out.onnx")
        node = [n for n in model.graph.node if n.op_type == "TensorScatter"][0]
        node.attribute.append(onnx.helper.make_attribute("no_such_attribute", 1))
        onnx.save(model, record.parent / "out.onnx")
        path = record / "record.json"
        document = json.loads(path.read_text())
        document["after"]["sha256"] = hashlib.sha256(
            (record.parent / "out.onnx").read_bytes()).hexdigest()
        path.write_text(json.dumps(document))
        code, out, err = replayed(record, "--json", record / "replay.json")
        self.assertEqual(code, 4, out + err)
        self.assertIn("onnxruntime does not load the converted model", out)
        found = check_json((record / "replay.json").read_text())
        self.assertEqual(found["verdict"], "refused")
        self.assertEqual(found["found"]["plan"], "")
        self.assertIn("no_such_attribute", found["found"]["text"])

    def test_a_step_that_the_runtime_refuses(self):
        class Session(SpoiltSession):
            def run_with_iobinding(self, binding):
                raise RuntimeError("Non-zero status code returned while running Attention node. "
                                   "Name:'/kvlift/layers.0/Attention' Status Message: too small")

        code, out, _ = replayed(self.record, "--json", "-", "--plan", "decode",
                                runtime=SpoiltRuntime(Session))
        self.assertEqual(code, 4, out)
        found = check_json(out)
        self.assertEqual(found["verdict"], "refused")
        self.assertEqual(found["found"]["node"], "/kvlift/layers.0/Attention")
        self.assertTrue(found["found"]["source"].startswith("refused"))

    def test_usage(self):
        self.refused(2, "provider Nonesuch is not in this onnxruntime", self.record, "--provider",
                     "Nonesuch")
        self.refused(2, "it has ", self.record, "--provider", "CUDA")
        for wrong in (("--provider-option", "nothing"), ("--device", "-1"), ("--rounds", "x"),
                      ("--nonesuch",)):
            with self.subTest(wrong), contextlib.redirect_stderr(io.StringIO()) as err:
                with self.assertRaises(SystemExit) as end:
                    replay.main([str(self.record), *wrong])
                self.assertEqual(end.exception.code, 2)
                self.assertIn("kvlift.replay", err.getvalue())
        code, out, _ = replayed(self.record, "--plan", "nonesuch", "--rounds", 0)
        self.assertEqual(code, 4, out)
        self.assertIn("no plan was replayed", out)

    def test_records_that_are_refused(self):
        def nothing_expected(text):
            document = json.loads(text)
            for plan in document["plans"]:
                for step in plan["steps"]:
                    step["expect"] = []
            return json.dumps(document)

        self.refused(3, "`kvlift record` writes one", self.folder / "nonesuch")
        cases = {
            "record.json": [
                ("is damaged", lambda text: text[:len(text) // 2]),
                ("is no record", lambda text: '{"schema": "kvlift/verify/2"}'),
                ("is no record", lambda text: "[]"),
                ("'kvlift/record/9'", lambda text: text.replace(b"record/1", b"record/9")),
                ("is damaged: KeyError: 'plans'", lambda text: text.replace(b'"plans"', b'"plan"')),
                ("outside the record", lambda text: text.replace(b'"plan-001/', b'"../plan-001/')),
                ("no array bound.77", lambda text: text.replace(b'"bound.0"', b'"bound.77"')),
                ("no output other", lambda text: text.replace(b'"name": "logits"',
                                                              b'"name": "other"')),
                ("does not feed past_key_values.0.key",
                 lambda text: text.replace(b'"name": "past_key_values.0.key"', b'"name": "other"')),
                ("has no tokens",
                 lambda text: text.replace(b'"new_tokens": 1,', b'"new_tokens": 0,')),
                ("is damaged", lambda text: text.replace(b'"capacity"', b'"capacitance"')),
                ("is damaged", lambda text: text.replace(b'"bound.2"', b'"bound.0"')),
                ("is damaged: RecursionError", lambda text: b"[" * 100000),
                ("nothing is expected of prefill of 1", nothing_expected),
            ],
            "plan-002/step-001.npz": [("SHA-256 differs", lambda data: data[:-40]),
                                      ("SHA-256 differs", lambda data: b"\0" * len(data)),
                                      ("No such file", None)],
            "../out.onnx": [("another model than the recorded one", lambda data: data + b"\0"),
                            ("No such file", None)],
            "../model.onnx": [("another model than the recorded one", lambda data: data[:-1])],
        }
        for name, changes in cases.items():
            for words, change in changes:
                with self.subTest(name=name, words=words):
                    record = self.copy()
                    path = record / name
                    data = path.read_bytes()
                    path.unlink()
                    if change is not None:
                        changed = change(data)
                        path.write_bytes(changed.encode() if isinstance(changed, str) else changed)
                    self.refused(3, words, record)

    def test_models_that_have_moved(self):
        record = self.copy()
        for name in ("model.onnx", "out.onnx"):
            (record.parent / name).rename(record.parent / f"moved-{name}")
        code, out, err = replayed(record, "--rounds", 0, "--plan", "decode", "--before",
                                  record.parent / "moved-model.onnx", "--after",
                                  record.parent / "moved-out.onnx")
        self.assertEqual(code, 0, out + err)
        self.refused(3, "another model", record, "--before", record.parent / "moved-out.onnx")

    def test_files_that_cannot_be_written(self):
        self.refused(5, "No such file", self.record, "--plan", "decode", "--rounds", 0, "--quiet",
                     "--json", self.folder / "no" / "such.json")

    def test_one_document_goes_to_stdout(self):
        self.refused(2, "--json and --junit: only one document goes to stdout", self.record,
                     "--plan", "decode", "--rounds", 0, "--json", "-", "--junit", "-")

    def test_only_documents_of_a_replay_are_replaced(self):
        weights = self.folder / "weights.bin"
        weights.write_bytes(bytes(range(200)))
        for option in ("--json", "--junit"):
            self.refused(5, "is no document of a replay; nothing written", self.record, "--rounds", 0,
                         "--plan", "decode", "--quiet", option, weights)
        self.assertEqual(weights.read_bytes(), bytes(range(200)))
        documents = ("--json", self.folder / "twice.json", "--junit", self.folder / "twice.xml")
        for force in ((), (), ("--force",)):
            code, out, error = replayed(self.record, "--rounds", 0, "--plan", "decode", *documents,
                                        *force)
            self.assertEqual(code, 0, out + error)
        code, _, error = replayed(self.record, "--rounds", 0, "--plan", "decode", "--force",
                                  "--json", weights)
        self.assertEqual(code, 0, error)
        check_json(weights.read_text())

    def test_threads_have_a_limit(self):
        with self.assertRaises(SystemExit) as stopped:
            replayed(self.record, "--threads", 99999)
        self.assertEqual(stopped.exception.code, 2)

    def test_what_is_read_is_not_replaced(self):
        record = pathlib.Path(self.record) / "record.json"
        before = record.read_bytes()
        for option in ("--json", "--junit"):
            code, _, error = replayed(self.record, "--rounds", 0, option, record)
            self.assertEqual(code, 5)
            self.assertIn("record.json: is an input; nothing written", error)
        self.assertEqual(record.read_bytes(), before)

    def test_the_program(self):
        run = subprocess.run([sys.executable, "-m", "kvlift.replay", self.record, "--rounds", "0"],
                             env={**os.environ, "PYTHONPATH": str(PACKAGE)}, capture_output=True,
                             text=True, timeout=300)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertTrue(run.stdout.endswith("verdict: equal\n"))

    def test_without_onnxruntime(self):
        code = ("import sys; sys.modules['onnxruntime'] = None\n"
                "from kvlift import replay; sys.exit(replay.main(sys.argv[1:]))")
        run = subprocess.run([sys.executable, "-c", code, self.record],
                             env={**os.environ, "PYTHONPATH": str(PACKAGE)}, capture_output=True,
                             text=True, timeout=100)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("needs onnxruntime", run.stderr)
        self.assertEqual(len(run.stderr.splitlines()), 1, run.stderr)

    def test_without_the_native_half(self):
        code = ("import sys; sys.modules['kvlift._native'] = None\nimport kvlift\n"
                "try:\n    kvlift.load('model.onnx')\nexcept kvlift.Error as error:\n"
                "    print(error)")
        run = subprocess.run([sys.executable, "-c", code],
                             env={**os.environ, "PYTHONPATH": str(PACKAGE)}, capture_output=True,
                             text=True, timeout=100)
        self.assertIn("native half", run.stdout, run.stderr)


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.source, self.out = self.folder / "model.onnx", self.folder / "out.onnx"
        shutil.copy(MODELS / "gpt2_optimum" / "model.onnx", self.source)
        done("convert", self.source, "-o", self.out)
        self.to = self.folder / "record"

    def refused(self, code, words, *arguments):
        run = tool("record", *arguments)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        self.assertEqual(run.stdout, "")
        self.assertIn(words, run.stderr.splitlines()[0])
        return run

    def test_copies_of_the_models(self):
        done("record", self.source, self.out, "-o", self.to, "--copy", "--lengths", "16")
        self.source.unlink()
        self.out.unlink()
        moved = self.folder / "elsewhere"
        self.to.rename(moved)
        self.assertEqual({p.name for p in moved.glob("*.onnx")}, {"before.onnx", "after.onnx"})
        code, out, err = replayed(moved, "--rounds", 0)
        self.assertEqual(code, 0, out + err)

    def test_json(self):
        run = done("record", self.source, self.out, "-o", self.to, "--json", "--lengths", "16")
        self.assertEqual(check_json(run), json.loads((self.to / "record.json").read_text()))

    def test_lengths_that_do_not_fit(self):
        done("convert", self.source, "-o", self.out, "--max-seq-len", 64, "--force")
        document = check_json(done("record", self.source, self.out, "-o", self.to, "--json",
                                   "--lengths", "16,100"))
        self.assertEqual([p["name"] for p in document["lengths"]], ["16 tokens"])
        self.assertIn({"name": "100 tokens", "why": "the capacity is too small"},
                      document["skipped"])
        self.assertEqual(document["large"], [])
        code, out, err = replayed(self.to, "--rounds", 1)
        self.assertEqual(code, 0, out + err)

    def test_models_that_differ(self):
        model = onnx.load(self.out)
        node = [n for n in model.graph.node if n.op_type == "Attention"][-1]
        kept = [a for a in node.attribute if a.name != "scale"]
        del node.attribute[:]
        node.attribute.extend([*kept, onnx.helper.make_attribute("scale", 3.0)])
        wrong = self.folder / "wrong.onnx"
        onnx.save(model, wrong)
        self.refused(1, "not recorded: KV4", self.source, wrong, "-o", self.to)
        self.assertFalse(self.to.exists())

    def test_bad_input(self):
        self.to.mkdir()
        (self.to / "file").write_text("kept")
        self.refused(5, "is not empty; --force", self.source, self.out, "-o", self.to)
        self.assertEqual(os.listdir(self.to), ["file"])
        self.refused(3, "KV001", self.folder / "none.onnx", self.out, "-o", self.folder / "x")
        text = self.folder / "model.onnxtxt"
        text.write_text("no model")
        self.refused(2, "--copy", text, self.out, "-o", self.folder / "x")
        self.refused(2, "--lengths", self.source, self.out, "-o", self.folder / "x", "--lengths",
                     "-1")
        self.refused(5, "", self.source, self.out, "-o", self.source / "x")
        self.assertFalse((self.folder / "x").exists())


if __name__ == "__main__":
    unittest.main()
