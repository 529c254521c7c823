"""Models that hold TensorScatter already are converted to another form: layout, mask, read, names,
target. Each result is proved equal to the model that it was made of.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import json
import os
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime as ort
from onnx import parser

from support.recorded import MODELS
from support.tool import done, tool

ort.set_default_logger_severity(3)  # ONNX Runtime warns of each cache that it copies

CASES = os.path.join(os.path.dirname(MODELS), "rewrites")

FORMS = {
    "ort": ("--target", "ort"),
    "tensorrt": ("--target", "tensorrt"),
    "portable": ("--target", "portable"),
    "genai_static": ("--target", "genai-static"),
    "explicit": ("--mask", "explicit"),
    "full": ("--read", "full"),
    "names": ("--io-names", "static"),
    "bnsd": ("--layout", "bnsd"),
}

# Caches [B, M, Nk*D] with inputs for the write index and the number of valid keys, read by an
# Attention over operands of rank 3.
STATIC = """<ir_version: 11, opset_import: ["" : 24]>
decoder (float[B,S,16] q, float[B,S,8] k, float[B,S,8] v, float[B,32,8] key_in, float[B,32,8] value_in,
         int64[B] at, int64[B] valid)
     => (float[B,S,16] y, float[B,32,8] key_out, float[B,32,8] value_out)
{
  key_out = TensorScatter <axis = 1> (key_in, k, at)
  value_out = TensorScatter <axis = 1> (value_in, v, at)
  y = Attention <is_causal = 1, q_num_heads = 4, kv_num_heads = 2> (q, key_out, value_out, , , , valid)
}"""

# The same, and the graph counts the valid keys.
COUNTED = STATIC.replace(", int64[B] valid)", ")").replace("{\n", """
  <int64[1] rows = {1}>
{
  tokens = Shape <start = 1, end = 2> (q)
  valid = Add (at, tokens)
""".replace("\n  <int64[1] rows = {1}>", ""), 1)

# Statements that make a mask of the slots: token s of a step sees the slots up to at + s.
SEEN = """  shape = Shape <start = 2, end = 3> (q)
  tokens = Squeeze (shape)
  rows = Range (zero, tokens, one)
  rows2 = Unsqueeze (rows, behind)
  first = Unsqueeze (at, apart)
  places = Add (first, rows2)
  seen = LessOrEqual (slots, places)"""

# The same caches; the attention is written out, with a mask that the graph makes of the index.
WRITTEN_OUT = """<ir_version: 11, opset_import: ["" : 24]>
decoder (float[B,2,S,4] q, float[B,2,S,4] k, float[B,2,S,4] v, float[B,2,32,4] key_in,
         float[B,2,32,4] value_in, int64[B] at)
     => (float[B,2,S,4] y, float[B,2,32,4] key_out, float[B,2,32,4] value_out)
  <float half = {0.5}, float low = {-10000000.0}, int64 zero = {0}, int64 one = {1}, int64[1] last = {2},
   int64[32] slots = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31},
   int64[3] apart = {1,2,3}, int64[1] behind = {1}>
{
  key_out = TensorScatter <axis = 2> (key_in, k, at)
  value_out = TensorScatter <axis = 2> (value_in, v, at)
  turned = Transpose <perm = [0, 1, 3, 2]> (key_out)
  product = MatMul (q, turned)
  scores = Mul (product, half)
SEEN
  masked = Where (seen, scores, low)
  weights = Softmax <axis = -1> (masked)
  y = MatMul (weights, value_out)
}""".replace("SEEN", SEEN)

# An Attention over a buffer of 32 slots, whose mask has COLUMNS columns.
MASKED = """<ir_version: 11, opset_import: ["" : 24]>
decoder (float[B,2,S,4] q, float[B,2,S,4] k, float[B,2,S,4] v, float[B,2,32,4] key_in,
         float[B,2,32,4] value_in, int64[B] at)
     => (float[B,2,S,4] y, float[B,2,32,4] key_out, float[B,2,32,4] value_out)
  <int64 zero = {0}, int64 one = {1}, int64 columns = {COLUMNS}, int64[3] apart = {1,2,3},
   int64[1] behind = {1}>
{
  key_out = TensorScatter <axis = 2> (key_in, k, at)
  value_out = TensorScatter <axis = 2> (value_in, v, at)
  slots = Range (zero, columns, one)
SEEN
  y = Attention (q, key_out, value_out, seen)
}""".replace("SEEN", SEEN)

# The attention reads as many slots as the first sequence of the batch has valid keys.
OF_ONE_SEQUENCE = """<ir_version: 11, opset_import: ["" : 24]>
decoder (float[B,S,16] q, float[B,S,8] k, float[B,S,8] v, float[B,32,8] key_in, float[B,32,8] value_in,
         int64[B] at)
     => (float[B,S,16] y, float[B,32,8] key_out, float[B,32,8] value_out)
  <int64[1] from = {0}, int64[1] one = {1}, int64[1] axis = {1}>
{
  key_out = TensorScatter <axis = 1> (key_in, k, at)
  value_out = TensorScatter <axis = 1> (value_in, v, at)
  tokens = Shape <start = 1, end = 2> (q)
  valid = Add (at, tokens)
  length = Slice (valid, from, one)
  keys = Slice (key_out, from, length, axis)
  values = Slice (value_out, from, length, axis)
  y = Attention <q_num_heads = 4, kv_num_heads = 2> (q, keys, values)
}"""

# One index for all sequences, and keys up to the new one.
OF_ONE_INDEX = OF_ONE_SEQUENCE.replace("int64[B] at)", "int64[1] place)").replace("{\n", """{
  batch = Shape <start = 0, end = 1> (q)
  at = Expand (place, batch)
""", 1)

# The attention reads the rows up to the longest sequence's last, and the host's mask up to its end.
OF_HOST_WIDTH = """<ir_version: 11, opset_import: ["" : 24]>
decoder (float[B,2,S,4] q, float[B,2,S,4] k, float[B,2,S,4] v, float[B,2,32,4] key_in,
         float[B,2,32,4] value_in, int64[B] at, int64[B,columns] mask)
     => (float[B,2,S,4] y, float[B,2,32,4] key_out, float[B,2,32,4] value_out)
  <int64[1] from = {0}, int64[1] axis = {2}, int64 zero = {0}, int64 one = {1}, int64[2] apart2 = {1,2},
   int64[3] apart = {1,2,3}, int64[1] behind = {1}>
{
  key_out = TensorScatter <axis = 2> (key_in, k, at)
  value_out = TensorScatter <axis = 2> (value_in, v, at)
  step = Shape <start = 2, end = 3> (q)
  valid = Add (at, step)
  longest = ReduceMax (valid, from)
  keys = Slice (key_out, from, longest, axis)
  values = Slice (value_out, from, longest, axis)
  end = Squeeze (longest)
  slots = Range (zero, end, one)
  columns = Shape <start = 1, end = 2> (mask)
  last = Sub (columns, one)
  read = Min (slots, last)
  picked = Gather <axis = 1> (mask, read)
  bools = Cast <to = 9> (picked)
  shown = Unsqueeze (bools, apart2)
SEEN
  both = And (shown, seen)
  y = Attention (q, keys, values, both, , , valid)
}""".replace("SEEN", SEEN)


def seen(model, columns, past=3, tokens=2):
    """Returns y for two sequences whose mask has so many columns."""
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal((2, 2, tokens, 4), np.float32) for name in "qkv"}
    for name in ("key_in", "value_in"):
        feeds[name] = rng.standard_normal((2, 2, 32, 4), np.float32)
    feeds["at"] = np.full(2, past)
    feeds["mask"] = np.ones((2, columns), np.int64)
    feeds["mask"][1, 0] = 0
    return ort.InferenceSession(model).run(["y"], feeds)[0]


class Retarget(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def at(self, name):
        return os.path.join(self.folder, name)

    def saved(self, name, text):
        onnx.save(parser.parse_model(text), self.at(name))
        return self.at(name)

    def test_conversions_become_each_other(self):
        for model in ("llama_dynamic_ts", "gpt2_optimum", "qwen2_optimum", "llama_static_ts"):
            source = os.path.join(MODELS, model, "model.onnx")
            first = self.at(f"{model}.onnx")
            done("convert", source, "-o", first)
            for form, options in FORMS.items():
                with self.subTest(model=model, form=form):
                    again = self.at(f"{model}.{form}.onnx")
                    run = tool("convert", first, "-o", again, *options, "--accept", "proved")
                    self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
                    ops = [node.op_type for node in onnx.load(again).graph.node]
                    first_ops = [node.op_type for node in onnx.load(first).graph.node]
                    self.assertEqual(ops.count("TensorScatter"), first_ops.count("TensorScatter"))
                    self.assertEqual(ops.count("Attention"), first_ops.count("Attention"))

    def test_without_an_option_nothing_is_left_to_convert(self):
        model = self.saved("static.onnx", STATIC)
        run = tool("convert", model, "-o", self.at("x.onnx"), "--json")
        self.assertEqual(run.returncode, 1, run.stderr)
        document = json.loads(run.stdout)
        self.assertEqual(document["status"], "nothing")
        self.assertEqual({c["reason"]["code"] for c in document["caches"]}, {"KV222"})

    def test_a_static_export_of_another_tool(self):
        model = self.saved("static.onnx", STATIC)
        for form, options in FORMS.items():
            if form in ("tensorrt", "portable"):
                continue
            with self.subTest(form):
                out = self.at(f"{form}.onnx")
                run = tool("convert", model, "-o", out, *options, "--accept", "proved")
                self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
                ops = [node.op_type for node in onnx.load(out).graph.node]
                self.assertEqual((ops.count("TensorScatter"), ops.count("Attention")), (2, 1))

    def test_a_number_of_valid_keys_of_the_host_may_be_0(self):
        """Attention gives 0 then, and an additive mask would give the mean of all values."""
        model = self.saved("static.onnx", STATIC)
        counted = self.saved("counted.onnx", COUNTED)
        for target in ("tensorrt", "portable"):
            with self.subTest(target):
                run = tool("convert", model, "-o", self.at("x.onnx"), "--force", "--json", "--target",
                           target)
                self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
                kept, = json.loads(run.stdout)["attention"]
                self.assertFalse(kept["converted"])
                self.assertEqual(kept["reason"]["code"], "KV228")
                done("convert", counted, "-o", self.at(target + ".onnx"), "--target", target,
                     "--accept", "proved")
                shapes = [len(i.type.tensor_type.shape.dim)
                          for i in onnx.load(self.at(target + ".onnx")).graph.input]
                self.assertEqual(shapes.count(4), 2)

    def test_an_attention_that_is_written_out_is_converted_without_an_option(self):
        model = self.saved("written.onnx", WRITTEN_OUT)
        out = self.at("out.onnx")
        text = done("convert", model, "-o", out, "--accept", "proved")
        self.assertIn("2 of 2 caches, 1 of 1 attention", text)
        ops = [node.op_type for node in onnx.load(out).graph.node]
        self.assertEqual((ops.count("TensorScatter"), ops.count("Attention")), (2, 1))

    def test_a_mask_that_looks_up_new_tokens_at_the_key(self):
        """Its table is as wide as a step, and not as the buffer."""
        path = os.path.join(CASES, "decomposed_attention_mask_lookup_guarded.onnxtxt")
        with open(path, encoding="utf-8") as file:
            model = self.saved("lookup.onnx", file.read().partition("# ---- after\n")[2])
        out = self.at("out.onnx")
        for form in ("ort", "explicit", "full"):
            with self.subTest(form):
                done("convert", model, "-o", out, "--force", "--accept", "unproved", *FORMS[form])
                text = tool("verify", model, out).stdout
                self.assertRegex(text, "last slot +(bitwise|within bound)")
                self.assertNotIn("KV404", text)

    def test_keys_without_a_column_of_the_mask_stay_hidden(self):
        for columns in (8, 31, 32):
            model = self.saved("masked.onnx", MASKED.replace("COLUMNS", str(columns)))
            for form in ("ort", "portable", "explicit", "full"):
                with self.subTest(columns=columns, form=form):
                    out = self.at("out.onnx")
                    done("convert", model, "-o", out, "--force", "--accept", "proved", *FORMS[form])
                    self.assertIn("verdict: equal", tool("verify", model, out).stdout)

    def test_a_mask_of_one_column_is_not_read(self):
        """Runtimes repeat the column, or hide the other keys."""
        model = self.saved("masked.onnx", MASKED.replace("COLUMNS", "1"))
        run = tool("convert", model, "-o", self.at("x.onnx"), "--json", "--target", "portable")
        kept, = json.loads(run.stdout)["attention"]
        self.assertEqual(kept["reason"]["code"], "KV211", run.stdout)

    def test_a_length_of_one_sequence_is_that_of_the_batch(self):
        model = self.saved("one.onnx", OF_ONE_SEQUENCE)
        out = self.at("out.onnx")
        done("convert", model, "-o", out, "--target", "ort", "--accept", "proved")
        with open(self.at("out.kv.json"), encoding="utf-8") as file:
            self.assertTrue(json.load(file)["uniform"])
        self.assertIn("verdict: equal", tool("verify", model, out).stdout)

    def test_the_whole_buffer_is_read_up_to_the_keys_of_the_source(self):
        model = self.saved("index.onnx", OF_ONE_INDEX)
        for form in ("full", "explicit", "genai_static", "ort"):
            with self.subTest(form):
                out = self.at("out.onnx")
                done("convert", model, "-o", out, "--force", "--accept", "proved", *FORMS[form])
                self.assertIn("verdict: equal", tool("verify", model, out).stdout)

    def test_a_mask_of_the_hosts_width_is_read_up_to_its_end(self):
        model = self.saved("host.onnx", OF_HOST_WIDTH)
        for form in ("full", "explicit", "portable"):
            out = self.at("out.onnx")
            done("convert", model, "-o", out, "--force", *FORMS[form])
            for columns in (1, 4, 5, 6, 32):
                with self.subTest(form=form, columns=columns):
                    np.testing.assert_allclose(seen(out, columns), seen(model, columns), atol=1e-6)
            text = " ".join(tool("verify", model, out).stdout.split())
            self.assertIn("assumed: mask has as many columns as the caches have slots", text)

    def test_what_cannot_be_read_is_named(self):
        ring = self.saved("ring.onnx", STATIC.replace("<axis = 1>", '<axis = 1, mode = "circular">'))
        run = tool("convert", ring, "-o", self.at("x.onnx"), "--target", "ort")
        self.assertEqual(run.returncode, 1, run.stdout)
        self.assertIn("KV227", run.stdout + run.stderr)
        self.assertFalse(os.path.exists(self.at("x.onnx")))


if __name__ == "__main__":
    unittest.main()
