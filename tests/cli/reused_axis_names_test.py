"""Models that give one name (dim_param) to axes of different sizes, which runtimes do not compare.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""

import os
import pathlib
import unittest

import onnx

from support.tool import FolderTest, done, tool

MODELS = pathlib.Path(os.environ["KVLIFT_ROOT"]) / "testdata" / "models"

# What the sizes of the bundled models are called: new tokens, past tokens, and both together.
NEW, PAST, ALL = "sequence_length", "past_sequence_length", "past_sequence_length + sequence_length"
# Names that authors of exports give them instead.
REUSED = {
    "tokens and past": {NEW: "seq", PAST: "seq"},
    "all of them": {NEW: "seq", PAST: "seq", ALL: "seq"},
    "mask and past": {ALL: PAST},
    "mask and tokens": {ALL: NEW},
    "sequences and tokens": {"batch_size": "n", NEW: "n"},
}
# The mask is added to scores of P + S columns, so that no S but 0 fits the names.
ADDED_MASK = '''<ir_version: 10, opset_import: ["" : 18]>
  g (float[B,S,8] x, float[B,P] mask, float[B,2,P,4] past_k, float[B,2,P,4] past_v)
    => (float[B,S,8] y, float[B,2,T,4] present_k, float[B,2,T,4] present_v)
  { heads = Constant <value = int64[4] {0, 0, 2, 4}> ()
    flat = Constant <value = int64[3] {0, 0, 8}> ()
    axes = Constant <value = int64[2] {1, 2}> ()
    one = Constant <value = int64[1] {1}> ()
    zero = Constant <value = int64 {0}> ()
    unit = Constant <value = int64 {1}> ()
    two = Constant <value = int64 {2}> ()
    low = Constant <value = float {-inf}> ()
    none = Constant <value = float {0.0}> ()
    x4 = Reshape (x, heads) q = Transpose <perm = [0, 2, 1, 3]> (x4) k = Neg (q) v = Tanh (q)
    present_k = Concat <axis = 2> (past_k, k) present_v = Concat <axis = 2> (past_v, v)
    k_t = Transpose <perm = [0, 1, 3, 2]> (present_k) scores = MatMul (q, k_t)
    dims = Shape (present_k) t = Gather (dims, two)
    past_dims = Shape (past_k) p = Gather (past_dims, two)
    rows = Range (p, t, unit) columns = Range (zero, t, unit)
    rows2 = Unsqueeze (rows, one) seen = LessOrEqual (columns, rows2)
    causal = Where (seen, none, low)
    mask4 = Unsqueeze (mask, axes) masked = Add (scores, mask4) hidden = Add (masked, causal)
    w = Softmax (hidden) c = MatMul (w, present_v)
    c4 = Transpose <perm = [0, 2, 1, 3]> (c) y = Reshape (c4, flat) }'''


def with_names(model, names):
    for value in [*model.graph.input, *model.graph.output]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in names:
                dim.dim_param = names[dim.dim_param]
    del model.graph.value_info[:]
    return model


class ReusedAxisNamesTest(FolderTest):
    def converted(self, model, name):
        source, target = self.dir / f"{name}.onnx", self.dir / f"{name}.out.onnx"
        onnx.save(model, source)
        done("convert", source, "-o", target, "--accept", "proved", "--force")
        return source, target

    def operators(self, path):
        """How often the model has the operators that take the place of the caches' arithmetic."""
        nodes = [node.op_type for node in onnx.load(path).graph.node]
        return {name: nodes.count(name) for name in ("TensorScatter", "Attention", "Concat")}

    def test_conversions_have_the_operators_of_the_model_with_good_names(self):
        for name in ("llama_optimum", "gpt2_optimum", "whisper_decoder_with_past_optimum"):
            good, expected = self.converted(onnx.load(MODELS / name / "model.onnx"), "good")
            for reused, names in REUSED.items():
                with self.subTest(name, reused=reused):
                    model = with_names(onnx.load(MODELS / name / "model.onnx"), names)
                    source, target = self.converted(model, "reused")
                    self.assertEqual(self.operators(target), self.operators(expected))
                    for before, after in ((source, target), (good, source), (source, good)):
                        run = tool("verify", before, after)
                        self.assertEqual(run.returncode, 0, run.stdout[-1500:])
                        self.assertIn("verdict: equal (", run.stdout)

    def test_names_that_fit_steps_of_no_tokens_only(self):
        model = onnx.parser.parse_model(ADDED_MASK)
        source, target = self.converted(model, "reused")
        good = with_names(onnx.parser.parse_model(ADDED_MASK), {})
        good.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "T"
        _, expected = self.converted(good, "good")
        self.assertEqual(self.operators(target), self.operators(expected))
        run = tool("verify", source, target)
        self.assertIn("verdict: equal (", run.stdout)

    def test_a_mask_of_the_past_alone_has_its_name(self):
        """The name is right, so that the mask is as long as the past."""
        text = ADDED_MASK.replace("float[B,P] mask", "bool[B,P] mask").replace(
            "mask4 = Unsqueeze (mask, axes) masked = Add (scores, mask4)", """
    s1 = Shape <start = 1, end = 2> (x) b1 = Shape <start = 0, end = 1> (x)
    new = Concat <axis = 0> (b1, s1) shown = Expand (yes, new)
    all = Concat <axis = 1> (mask, shown) mask4 = Unsqueeze (all, axes)
    masked = Where (mask4, scores, least)""").replace("none = Constant", """
    yes = Constant <value = bool {1}> () least = Constant <value = float {-3.0e38}> ()
    none = Constant""")
        source = self.dir / "source.onnx"
        onnx.save(onnx.parser.parse_model(text), source)
        run = tool("verify", source, source)
        self.assertIn("verdict: equal (", run.stdout)

    def test_the_width_of_a_mask_that_only_a_broadcast_gives(self):
        """Its name is that of no other axis, and the past's length can be derived from it."""
        model = onnx.parser.parse_model(ADDED_MASK)
        model.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "columns"
        onnx.save(model, self.dir / "source.onnx")
        done("convert", self.dir / "source.onnx", "-o", self.dir / "out.onnx", "--control", "derived",
             "--accept", "proved")
        names = [value.name for value in onnx.load(self.dir / "out.onnx").graph.input]
        self.assertEqual(names, ["x", "mask", "past_k", "past_v"])

    def test_the_model_keeps_its_names_where_no_size_depends_on_them(self):
        """Only names that are reused are replaced, and the result says by which."""
        _, target = self.converted(onnx.load(MODELS / "llama_optimum" / "model.onnx"), "good")
        mask = next(i for i in onnx.load(target).graph.input if i.name == "attention_mask")
        self.assertNotIn("_of_", mask.type.tensor_type.shape.dim[1].dim_param)


if __name__ == "__main__":
    unittest.main()
