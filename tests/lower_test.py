"""lower: converted models and models by hand, lowered each way, in ONNX Runtime and in kvlift.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import itertools
import json
import os
import shutil
import tempfile
import unittest

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from ort_models_test import Driver
from support.cases import session, source_of_case
from support.recorded import MODELS, steps_of
from support.schemas import check_json
from support.tool import done, tool

ORT_ERRORS = (ort_errors.InvalidArgument, ort_errors.Fail, ort_errors.RuntimeException)
WAYS = ("scatternd", "where", "attention-23", "decomposed")
REAL = ("llama_optimum", "qwen2_optimum", "gemma2_optimum", "gpt2_optimum", "bloom_optimum",
        "llama_static_ts", "whisper_decoder_with_past_optimum")
# All facts about the lowered model hold for all shapes.
PROVED = ("llama_optimum", "llama_static_ts")
# The plans run as well; they take seconds.
TESTED = ("llama_optimum", "llama_static_ts")

SCATTER = """<ir_version: 12, opset_import: ["" : 24]>
g (float[B,2,M,4] past, float[B,2,S,4] rows, int64[B] w) => (float[B,2,M,4] present)
{ present = TensorScatter%s(past, rows, w) }"""


def operators(path):
    return {node.op_type for node in onnx.load(path, load_external_data=False).graph.node}


def recorded_steps(name, path):
    """Yields what a conversion is fed in the recorded steps of its source, and what it gives."""
    with open(path.removesuffix(".onnx") + ".kv.json", encoding="utf-8") as file:
        growing = all(c["source"]["growing"] for c in json.load(file)["caches"])
    driver = Driver(path)
    for recorded, _ in steps_of(name):
        feeds = driver.feeds_for(recorded) if growing else recorded
        outputs = driver.run(feeds)
        yield feeds, outputs
        for cache in driver.caches.values():
            driver.buffers[cache["id"]] = outputs[cache["output"]].copy()


class LowerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def at(self, name):
        return os.path.join(self.folder, name)

    def converted(self, name, *flags):
        path = self.at(name + ".onnx")
        done("convert", os.path.join(MODELS, name, "model.onnx"), "-o", path, "--accept",
             "unproved", *flags)
        return path

    def lowered(self, path, to, *flags):
        out = path.removesuffix(".onnx") + f".{to}.onnx"
        document = check_json(done("lower", path, "-o", out, "--to", to, "--json", *flags))
        self.assertEqual(document["status"], "lowered")
        self.assertEqual(document["outputs"], [out])
        return out, document

    def text(self, name, text):
        path = self.at(name + ".onnx")
        onnx.save(onnx.parser.parse_model(text), path)
        return path

    def test_converted_models_in_onnx_runtime(self):
        compared = 0
        for name in REAL:
            path = self.converted(name)
            runs = list(recorded_steps(name, path))
            self.assertGreater(len(runs), 1)
            for to in WAYS:
                with self.subTest(model=name, to=to):
                    flags = () if name in TESTED else ("--accept", "unproved")
                    out, document = self.lowered(path, to, *flags)
                    if name in TESTED:
                        self.assertIn(document["equality"], ("proved", "tested"))
                    if name in PROVED:
                        self.assertEqual(document["equality"], "proved")
                    self.assertNotIn("TensorScatter", operators(out))
                    if to == "decomposed":
                        self.assertNotIn("Attention", operators(out))
                        self.assertEqual(document["opset"], 22)
                    if to == "attention-23":
                        self.assertEqual(document["opset"], 23)
                    done("check", out)
                    done("convert", out, "-o", self.at("back.onnx"), "--accept", "unproved",
                         "--force", "--allow-partial")
                    self.assertIn("TensorScatter", operators(self.at("back.onnx")))
                    lowered = session(out)
                    for feeds, wanted in runs:
                        names = [output.name for output in lowered.get_outputs()]
                        found = dict(zip(names, lowered.run(None, feeds)))
                        self.assertEqual(list(found), list(wanted))
                        for key, value in wanted.items():
                            np.testing.assert_allclose(found[key], value, atol=1e-4, rtol=1e-3,
                                                       err_msg=key)
                        compared += 1
        self.assertGreater(compared, 60)

    def test_a_lowered_model_is_still_the_conversion(self):
        path = self.converted("llama_optimum")
        source = os.path.join(MODELS, "llama_optimum", "model.onnx")
        other = os.path.join(MODELS, "qwen2_optimum", "model.onnx")
        for to in WAYS:
            with self.subTest(to):
                out, _ = self.lowered(path, to, "--accept", "unproved")
                proved = to in ("scatternd", "attention-23")
                run = tool("verify", source, out, "--accept", "proved" if proved else "tested",
                           "--quiet")
                self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotEqual(tool("verify", other, out, "--accept", "tested").returncode, 0)

    def test_rings(self):
        path = self.at("rings.onnx")
        done("convert", os.path.join(MODELS, "gemma2_optimum", "model.onnx"), "-o", path,
             "--window", "circular", "--accept", "unproved")
        for to in WAYS[:2]:
            with self.subTest(to):
                _, document = self.lowered(path, to)
                self.assertIn(document["equality"], ("proved", "tested"))

    def test_text_cases_are_proved(self):
        """Covers a cache in the order of the beams, and a clamped start."""
        for name in ("growing_concat_beams_of_present", "fixed_buffer_clamped_splice_both"):
            path = self.at(name + ".converted.onnx")
            done("convert", source_of_case(name, self.folder), "-o", path)
            for to in WAYS:
                with self.subTest(case=name, to=to):
                    _, document = self.lowered(path, to)
                    clamps_twice = to == "where" and name.startswith("fixed_buffer")
                    self.assertEqual(document["equality"], "tested" if clamps_twice else "proved")

    def test_scatters_in_onnx_runtime(self):
        random = np.random.default_rng(5)
        for mode, to in itertools.product(("linear", "circular"), WAYS[:2]):
            text = SCATTER % f'<mode = "{mode}">'
            path = self.text(mode, text)
            out, _ = self.lowered(path, to, "--accept", "unproved", "--force")
            for tokens, w in ((1, [0, 7]), (3, [5, 2]), (8, [0, 0])):
                if mode == "circular":
                    w = [w[0] + 6, w[1] + 16]
                past = random.standard_normal([2, 2, 8, 4]).astype(np.float32)
                rows = random.standard_normal([2, 2, tokens, 4]).astype(np.float32)
                wanted = past.copy()
                for b, s in itertools.product(range(2), range(tokens)):
                    wanted[b, :, (w[b] + s) % 8] = rows[b, :, s]
                found, = session(out).run(None, {"past": past, "rows": rows,
                                                 "w": np.array(w, np.int64)})
                np.testing.assert_array_equal(found, wanted)
            for w in ([-1, 0], [0, 7], [1 << 32, 0]) if mode == "linear" else ():
                with self.assertRaises(ORT_ERRORS):
                    session(out).run(None, {"past": past, "rows": rows[:, :, :2],
                                            "w": np.array(w, np.int64)})

    def test_a_lowered_model_of_older_opsets(self):
        path = self.converted("llama_optimum")
        for opset in (18, 20, 22):
            out, document = self.lowered(path, "decomposed", "--opset", str(opset), "--force",
                                         "--accept", "unproved")
            model = onnx.load(out)
            self.assertEqual(document["opset"], opset)
            self.assertEqual([i.version for i in model.opset_import if i.domain == ""], [opset])
            self.assertLessEqual(model.ir_version, 10)
            onnx.checker.check_model(model, full_check=True)
            session(out)

    def refused(self, path, code, *flags, exit_code=1):
        out = self.at("refused.onnx")
        run = tool("lower", path, "-o", out, *flags)
        self.assertEqual(run.returncode, exit_code, run.stdout + run.stderr)
        first = run.stderr.splitlines()[0]
        self.assertIn(code, first)
        self.assertFalse(os.path.exists(out))
        if exit_code == 1:
            document = check_json(tool("lower", path, "-o", out, "--json", *flags).stdout)
            self.assertEqual(document["status"], "refused")
            self.assertEqual(document["reason"]["code"], "KV253")

    def test_refusals(self):
        path = self.text("scatter", SCATTER % "")
        source = os.path.join(MODELS, "llama_optimum", "model.onnx")
        self.refused(source, "nothing to lower", "--to", "decomposed")
        self.refused(self.text("odd", SCATTER % "<stride = 2>"), "attribute stride", "--to",
                     "where")
        self.refused(path, "needs opset 15", "--to", "where", "--opset", "13")
        self.refused(path, "--opset", "--to", "where", "--opset", "25", exit_code=2)
        self.refused(path, "--to", "--to", "whre", exit_code=2)
        self.refused(self.at("absent.onnx"), "KV001", "--to", "where", exit_code=3)
        self.assertIn("did you mean 'where'", tool("lower", path, "-o", "x", "--to", "whre").stderr)

    def test_outputs_are_not_lost(self):
        path = self.text("scatter", SCATTER % "")
        flags = ("--to", "where", "--accept", "unproved")
        out = self.at("out.onnx")
        with open(out, "w", encoding="utf-8") as file:
            file.write("mine")
        self.assertEqual(tool("lower", path, "-o", out, *flags).returncode, 5)
        self.assertEqual(tool("lower", path, "-o", path, *flags, "--force").returncode, 5)
        self.assertEqual(tool("lower", path, "-o", self.at("no/out.onnx"), *flags).returncode, 5)
        with open(out, encoding="utf-8") as file:
            self.assertEqual(file.read(), "mine")
        done("lower", path, "-o", out, *flags, "--dry-run")
        with open(out, encoding="utf-8") as file:
            self.assertEqual(file.read(), "mine")
        done("lower", path, "-o", out, *flags, "--force")
        first = onnx.load(out).SerializeToString()
        done("lower", path, "-o", out, *flags, "--force")
        self.assertEqual(onnx.load(out).SerializeToString(), first)

    def test_masks_of_a_fixed_capacity(self):
        path = self.converted("llama_optimum", "--max-seq-len", "32")
        for way in ("attention-23", "decomposed"):
            with self.subTest(way=way):
                self.assertIn("mask", " ".join(i.name for i in onnx.load(path).graph.input))
                self.lowered(path, way)

    def test_one_length_for_all_sequences(self):
        path = self.converted("neg_past_read_twice_ts", "--allow-partial")
        with open(path.removesuffix(".onnx") + ".kv.json", encoding="utf-8") as file:
            self.assertTrue(json.load(file)["uniform"])
        self.lowered(path, "where")

    def test_half_precision(self):
        text = """<ir_version: 12, opset_import: ["" : 24]>
        g (float16[B,4,S,8] q, float16[B,2,M,8] k, float16[B,2,M,8] v, int64[B] n)
          => (float16[B,4,S,8] y)
        { y = Attention<is_causal = 1>(q, k, v, , , , n) }"""
        path = self.text("half", text)
        random = np.random.default_rng(9)
        q, k, v = (random.standard_normal([2, heads, rows, 8]).astype(np.float16)
                   for heads, rows in ((4, 3), (2, 9), (2, 9)))
        n = np.array([9, 4], np.int64)
        wanted = np.zeros([2, 4, 3, 8])
        for b, h, s in itertools.product(range(2), range(4), range(3)):
            end = n[b] - 3 + s + 1
            x = k[b, h // 2, :end].astype(float) @ q[b, h, s].astype(float) / np.sqrt(8)
            p = np.exp(x - x.max())
            wanted[b, h, s] = (p / p.sum()) @ v[b, h // 2, :end].astype(float)
        out, _ = self.lowered(path, "decomposed", "--accept", "unproved")
        self.assertEqual(onnx.load(out).graph.output[0].type.tensor_type.elem_type,
                         TensorProto.FLOAT16)
        found, = session(out).run(None, {"q": q, "k": k, "v": v, "n": n})
        np.testing.assert_allclose(found, wanted, atol=4e-3)


if __name__ == "__main__":
    unittest.main()
