"""Caches of float32 that hold float16 numbers, as float16 converters leave them that keep the types of
inputs and outputs: converted, equal in ONNX Runtime, and wrong variants that verify tells apart."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.transformers.float16 import convert_float_to_float16

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
KVLIFT = os.environ["KVLIFT"]
HEADS, SIZE, SLOTS = 2, 8, 12


def source(half=TensorProto.FLOAT16, rounds_new_rows=True, multiplies_in_half=False):
    """A decoder step of one attention that computes in a half type; its interface is float32."""
    def cast(x, to):
        nodes.append(helper.make_node("Cast", [x], [f"{x}_{to}"], name=f"{x}_{to}", to=to))
        return f"{x}_{to}"

    nodes = []
    add = lambda op, inputs, output, **kwargs: nodes.append(
        helper.make_node(op, inputs, [output], name=output, **kwargs))
    for name in ("k", "v"):
        if multiplies_in_half:
            rows = f"row_{name}"
            add("Cast", ["factor"], f"factor_{name}", to=half)
            add("Mul", [cast(f"new_{name}", half), f"factor_{name}"], rows)
        else:
            add("Mul", [f"new_{name}", "factor"], f"row_{name}")
            rows = cast(f"row_{name}", half)
        add("Concat", [cast(f"past_{name}", half), rows], f"all_{name}", axis=2)
        if rounds_new_rows:
            add("Cast", [f"all_{name}"], f"present_{name}", to=TensorProto.FLOAT)
        else:
            wide = cast(f"past_{name}_{half}", TensorProto.FLOAT)
            add("Concat", [wide, f"row_{name}"], f"present_{name}", axis=2)
    add("Transpose", ["all_k"], "keys", perm=[0, 1, 3, 2])
    add("MatMul", [cast("q", half), "keys"], "product")
    add("Shape", ["past_k"], "p", start=2, end=3)
    add("Shape", ["all_k"], "t", start=2, end=3)
    add("Squeeze", ["p"], "from")
    add("Squeeze", ["t"], "to")
    add("Range", ["from", "to", "one"], "rows")
    add("Range", ["zero", "to", "one"], "columns")
    add("Unsqueeze", ["rows", "axis"], "row")
    add("LessOrEqual", ["columns", "row"], "sees")
    add("Where", ["sees", "none", "low"], "mask")
    add("Mul", ["product", "scale"], "scaled")
    add("Add", ["scaled", "mask"], "scores")
    add("Softmax", ["scores"], "weights", axis=-1)
    add("MatMul", ["weights", "all_v"], "context")
    add("Cast", ["context"], "y", to=TensorProto.FLOAT)
    value = lambda name, rows: helper.make_tensor_value_info(
        name, TensorProto.FLOAT, ["B", HEADS, rows, SIZE])
    numbers = [("factor", TensorProto.FLOAT, 1.37), ("scale", half, 0.35), ("none", half, 0.0),
               ("low", half, -np.inf)]
    constants = [helper.make_tensor(name, kind, [], [x]) for name, kind, x in numbers]
    constants += [onnx.numpy_helper.from_array(np.int64(x), n) for n, x in (("zero", 0), ("one", 1))]
    constants.append(onnx.numpy_helper.from_array(np.array([1], np.int64), "axis"))
    graph = helper.make_graph(
        nodes, "step", [value(n, "S") for n in ("q", "new_k", "new_v")] +
        [value(n, "P") for n in ("past_k", "past_v")],
        [value("y", "S"), value("present_k", "P + S"), value("present_v", "P + S")], constants)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])


class HalfCaches(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)

    def kvlift(self, code, *args):
        run = subprocess.run([KVLIFT, *map(str, args)], capture_output=True, text=True,
                             timeout=300, check=False)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stdout

    def converted(self, model, *args):
        before, after = self.dir / "before.onnx", self.dir / "after.onnx"
        onnx.save(model, before)
        rounding = args or ("--rounding", "free")
        out = self.kvlift(0, "convert", before, "-o", after, "--json", "--force",
                          "--max-seq-len", SLOTS, *rounding)
        return before, after, json.loads(out)

    def verdict(self, code, before, after):
        out = json.loads(self.kvlift(code, "verify", before, after, "--json"))
        return out["verdict"], out["assumptions"]

    def test_the_caches_are_converted_and_the_assumption_is_said(self):
        for half in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
            with self.subTest(half=half):
                before, after, out = self.converted(source(half))
                self.assertEqual([c["converted"] for c in out["caches"]], [True, True])
                self.assertEqual([a["converted"] for a in out["attention"]], [True])
                codes = [p["code"] for p in out["preconditions"]]
                self.assertEqual(codes.count("KV311"), 2)
                verdict, assumptions = self.verdict(0, before, after)
                self.assertEqual(verdict, "equal")
                held = {a["subject"] for a in assumptions if a["kind"] == "number_type"}
                self.assertEqual(held, {"past_k", "past_v"})
                model = onnx.load(after)
                self.assertEqual({i.type.tensor_type.elem_type for i in model.graph.input
                                  if "past" in i.name}, {TensorProto.FLOAT})

    def test_attentions_stay_unless_roundings_are_free(self):
        before, after, out = self.converted(source(), "--rounding", "keep")
        self.assertEqual([c["converted"] for c in out["caches"]], [True, True])
        self.assertEqual([a["reason"]["code"] for a in out["attention"]], ["KV248"])
        self.assertEqual(self.verdict(0, before, after)[0], "equal")

    def test_steps_in_onnxruntime_are_the_same_bits_where_attentions_stay(self):
        for multiplies_in_half in (False, True):
            with self.subTest(multiplies_in_half=multiplies_in_half):
                before, after, _ = self.converted(source(multiplies_in_half=multiplies_in_half),
                                                  "--rounding", "keep")
                for y, rows in self.differences(before, after):
                    np.testing.assert_array_equal(*y)
                    for pair in rows:
                        np.testing.assert_array_equal(*pair)

    def test_models_of_onnxruntimes_converter(self):
        """Those are refused of which ONNX Runtime would leave out a rounding that it keeps in the source."""
        for name, text in (("gpt2_optimum", None), ("llama_dynamic_dynamo", None),
                           ("bloom_optimum", "would compute in float32 there"),
                           ("toy_scatter_ts", "needs one write index for all sequences")):
            with self.subTest(name=name):
                model = onnx.load(ROOT / "testdata/models" / name / "model.onnx")
                path = self.dir / f"{name}.onnx"
                onnx.save(convert_float_to_float16(model, keep_io_types=True), path)
                out = json.loads(self.kvlift(0 if text is None else 1, "convert", path, "-o",
                                             self.dir / "after.onnx", "--force", "--json"))
                if text is None:
                    self.assertTrue(all(c["converted"] for c in out["caches"]))
                    self.assertEqual({a["reason"]["code"] for a in out["attention"]}, {"KV248"})
                    continue
                codes = {c["reason"]["code"] for c in out["caches"]}
                self.assertIn("KV248", codes)
                self.assertIn(text, json.dumps(out))

    def test_steps_in_onnxruntime_differ_by_roundings_of_half_precision_only(self):
        before, after, _ = self.converted(source())
        for y, rows in self.differences(before, after):
            np.testing.assert_allclose(*y, rtol=4e-3, atol=4e-3)
            for pair in rows:
                np.testing.assert_allclose(*pair, rtol=1e-3)

    def differences(self, before, after):
        """Runs both models; returns the outputs and the valid rows of the caches of each step in pairs."""
        old, new = (onnxruntime.InferenceSession(p, providers=["CPUExecutionProvider"])
                    for p in (before, after))
        rng = np.random.default_rng(1)
        pasts = {n: np.zeros((2, HEADS, 0, SIZE), np.float32) for n in ("past_k", "past_v")}
        buffers = {n: np.zeros((2, HEADS, SLOTS, SIZE), np.float32) for n in pasts}
        for tokens in (5, 1, 1, 3, 1, 1):
            fed = {n: rng.standard_normal((2, HEADS, tokens, SIZE), np.float32)
                   for n in ("q", "new_k", "new_v")}
            length = pasts["past_k"].shape[2]
            want = old.run(["y", "present_k", "present_v"], {**fed, **pasts})
            index = {"write_indices": np.full(2, length, np.int64)}
            got = new.run(["y", "present_k", "present_v"], {**fed, **buffers, **index})
            rows = []
            for name, old_rows, slots in zip(pasts, want[1:], got[1:]):
                rows.append((old_rows, slots[:, :, :length + tokens]))
                np.testing.assert_array_equal(slots[:, :, length + tokens:], 0)
                pasts[name], buffers[name] = old_rows, slots
            yield (want[0], got[0]), rows

    def test_new_rows_that_are_not_rounded_are_not_proved(self):
        """The difference is that of one rounding to half precision, so runs alone do not tell."""
        before, after, _ = self.converted(source())
        model = onnx.load(after)
        for node in model.graph.node:
            if node.op_type == "TensorScatter" and node.output[0] == "present_v":
                node.input[1] = "row_v"
        onnx.save(model, after)
        self.assertEqual(self.verdict(4, before, after)[0], "equal as tested")

    def test_new_rows_of_another_factor_differ(self):
        before, after, _ = self.converted(source())
        model = onnx.load(after)
        for node in model.graph.node:
            if node.op_type == "TensorScatter" and node.output[0] == "present_v":
                node.input[1] = "new_v"
        onnx.save(model, after)
        self.assertEqual(self.verdict(1, before, after)[0], "different")

    def test_rows_that_are_read_in_another_half_type_are_not_proved(self):
        before, after, _ = self.converted(source())
        model = onnx.load(after)
        attention = next(n for n in model.graph.node if n.op_type == "Attention")
        read = next(n for n in model.graph.node if attention.input[2] in n.output)
        self.assertEqual(read.op_type, "Cast")
        twice = [helper.make_node("Cast", [read.input[0]], ["coarse"], to=TensorProto.BFLOAT16),
                 helper.make_node("Cast", ["coarse"], ["coarse_rows"], to=TensorProto.FLOAT16)]
        attention.input[2] = "coarse_rows"
        at = list(model.graph.node).index(read)
        nodes = list(model.graph.node)
        del model.graph.node[:]
        model.graph.node.extend(nodes[:at] + twice + nodes[at:])
        onnx.save(model, after)
        self.assertNotIn(self.verdict(4, before, after)[0], ("equal", "different"))

    def test_a_present_of_unrounded_rows_is_no_cache_of_half_numbers(self):
        path = self.dir / "before.onnx"
        onnx.save(source(rounds_new_rows=False), path)
        out = json.loads(self.kvlift(1, "convert", path, "-o", self.dir / "x.onnx", "--json"))
        self.assertEqual({c["reason"]["code"] for c in out["caches"]}, {"KV202"})
        self.assertFalse((self.dir / "x.onnx").exists())


if __name__ == "__main__":
    unittest.main()
