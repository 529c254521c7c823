"""Pairs of small decoders that verify once judged wrongly.

Environment: KVLIFT, the tool.
"""

import json
import unittest

import numpy as np
import onnx
from onnx import helper, numpy_helper

from support.tool import FolderTest, done, tool

LAYER = '''
    q{l} = Mul (q0_{l}, four) k{l} = Neg (q0_{l}) v{l} = Tanh (q0_{l})
    present_k{l} = Concat <axis = 2> (past_k{l}, k{l})
    present_v{l} = Concat <axis = 2> (past_v{l}, v{l})
    kt{l} = Transpose <perm = [0, 1, 3, 2]> (present_k{l}) scores{l} = MatMul (q{l}, kt{l})
    masked{l} = Add (scores{l}, bias) w{l} = Softmax (masked{l}) c{l} = MatMul (w{l}, present_v{l})
    c4_{l} = Transpose <perm = [0, 2, 1, 3]> (c{l}) o{l} = Reshape (c4_{l}, flat)
    x{n} = Add (x{l}, o{l})'''
HEADS = '''
    x4_{l} = Reshape (x{l}, heads) q0_{l} = Transpose <perm = [0, 2, 1, 3]> (x4_{l})'''
TEXT = '''<ir_version: 10, opset_import: ["" : 18]>
  g (float[B,S,8] x{masks}, {pasts}) => (float[B,{rows},8] y, {presents})
  {{ heads = Constant <value = int64[4] {{0, 0, 2, 4}}> ()
    flat = Constant <value = int64[3] {{0, 0, 8}}> ()
    first = Constant <value = int64[1] {{0}}> ()
    one = Constant <value = int64[1] {{1}}> ()
    two = Constant <value = int64[1] {{2}}> ()
    axes = Constant <value = int64[2] {{0, 1}}> ()
    middle = Constant <value = int64[2] {{1, 2}}> ()
    last = Constant <value = int64[1] {{-1}}> ()
    end = Constant <value = int64[1] {{9223372036854775807}}> ()
    zero = Constant <value = int64 {{0}}> () unit = Constant <value = int64 {{1}}> ()
    none = Constant <value = float {{0.0}}> () low = Constant <value = float {{{low}}}> ()
    four = Constant <value = float {{0.5}}> () square = Constant <value = float {{2.0}}> ()
    small = Constant <value = float {{0.1}}> ()
    s1 = Shape <start = 1, end = 2> (x) p1 = Shape <start = 2, end = 3> (past_k0)
    t1 = Add (p1, s1) s = Squeeze (s1) p = Squeeze (p1) t = Squeeze (t1)
    rows = Range (p, t, unit) columns = Range (zero, t, unit)
    rows2 = Unsqueeze (rows, one) past_seen = LessOrEqual (columns, rows2)
    seen4 = Unsqueeze (past_seen, axes){mask}
    bias = Where (visible, none, low)
    {start}{layers}
    {tail} }}'''


def decoder(low="-10000.0", mask=True, more="", start="x0 = Identity (x)", last=False, layers=2):
    """A decoder whose mask is added to the scores."""
    padding = '''
    shown = Cast <to = 9> (attention_mask) shown4 = Unsqueeze (shown, middle)
    visible0 = And (seen4, shown4)''' if mask else "\n    visible0 = Identity (seen4)"
    tensors = [f"{kind}{l}" for l in range(layers) for kind in "kv"]
    tail = f"y = Slice (x{layers}, last, end, one)" if last else f"y = Identity (x{layers})"
    return onnx.parser.parse_model(TEXT.format(
        masks=", int64[B,T] attention_mask" if mask else "", rows="R" if last else "S", low=low,
        pasts=", ".join(f"float[B,2,P,4] past_{name}" for name in tensors),
        presents=", ".join(f"float[B,2,T,4] present_{name}" for name in tensors),
        mask=padding + (more or "\n    visible = Identity (visible0)"), start=start,
        layers="".join((HEADS + LAYER).format(l=l, n=l + 1) for l in range(layers)), tail=tail))


class JudgedPairsTest(FolderTest):
    def saved(self, name, model):
        onnx.save(model, self.dir / name)
        return self.dir / name

    def verify(self, before, after, *args):
        return tool("verify", self.saved("before.onnx", before), self.saved("after.onnx", after),
                    *args)

    def test_rows_of_padding_tokens_that_see_no_key_may_differ(self):
        """Two exports of a model hide keys by other numbers, which only such rows show."""
        run = self.verify(decoder(), decoder(low="-3.0e38"))
        self.assertRegex(run.stdout, r"\nverdict: equal")
        self.assertIn("assumed: rows of padding tokens are not compared", run.stdout)
        self.assertIn("verdict: different", self.verify(decoder(), decoder(low="-3.0")).stdout)

    def test_rows_of_padding_tokens_are_compared_where_they_are_equal(self):
        run = self.verify(decoder(), decoder())
        self.assertIn("verdict: equal (", run.stdout)
        self.assertNotIn("rows of padding tokens are not compared", run.stdout)

    def test_a_mask_that_is_ignored_for_one_key_or_for_some_sequences(self):
        exempt = {
            "key": "which = Constant <value = int64 {5}> () exempt = Equal (columns, which)",
            "sequences": """which = Constant <value = int64 {3}> ()
    b1 = Shape <start = 0, end = 1> (x) b = Squeeze (b1) numbers = Range (zero, b, unit)
    behind = Constant <value = int64[3] {1, 2, 3}> () late = GreaterOrEqual (numbers, which)
    exempt = Unsqueeze (late, behind)""",
        }
        for name, text in exempt.items():
            with self.subTest(name):
                wrong = decoder(more=f"""
    {text} loose = Or (shown4, exempt) visible = And (seen4, loose)""")
                self.assertIn("verdict: different", self.verify(decoder(), wrong).stdout)

    def test_the_last_token_alone_hides_nothing_in_the_last_layer(self):
        """So the mutant without the mask of that layer is the model itself."""
        before = decoder(mask=False, last=True, start="x0 = Pow (x, square)")
        after = decoder(mask=False, last=True, start="x0 = Mul (x, x)")
        run = self.verify(before, after)
        self.assertRegex(run.stdout, r"\nverdict: equal")

    def test_a_mask_that_depends_on_the_number_of_sequences(self):
        """Batches of sequences of one length do not show it."""
        source = decoder(mask=False, low="-3.4e38", more="""
    b1 = Shape <start = 0, end = 1> (x) five = Constant <value = int64[1] {5}> ()
    many = GreaterOrEqual (b1, five) few = Not (many)
    own = Equal (columns, rows2) own4 = Unsqueeze (own, axes) either = Or (few, own4)
    visible = And (visible0, either)""")
        before, out = self.saved("source.onnx", source), self.dir / "out.onnx"
        text = done("convert", before, "-o", out)
        self.assertIn("KV306", text)
        self.assertIn("takes all sequences of a batch together", text)
        manifest = json.loads((self.dir / "out.kv.json").read_text())
        manifest["uniform"] = False
        (self.dir / "out.kv.json").write_text(json.dumps(manifest))
        run = tool("verify", before, out)
        self.assertNotIn("verdict: equal", run.stdout)
        self.assertNotEqual(run.returncode, 0)

    def test_one_length_for_the_batch_is_in_the_ledger(self):
        """Positions come from the width of the mask, which is one number for the batch."""
        source = self.saved("source.onnx", decoder(start="""
    counted = CumSum (attention_mask, unit) negative = Neg (s1)
    new = Slice (counted, negative, end, one) place = Cast <to = 1> (new)
    place3 = Unsqueeze (place, two) shift = Mul (place3, small) x0 = Add (x, shift)"""))
        done("convert", source, "-o", self.dir / "out.onnx")
        manifest = json.loads((self.dir / "out.kv.json").read_text())
        self.assertTrue(manifest["uniform"])
        (self.dir / "out.kv.json").unlink()
        target = onnx.load(self.dir / "out.onnx")
        del target.metadata_props[:]
        onnx.save(target, self.dir / "out.onnx")
        run = tool("verify", source, self.dir / "out.onnx")
        if "verdict: equal" in run.stdout:
            self.assertIn("assumed: all sequences of a batch have the same number of past tokens",
                          run.stdout)

    def test_positions_rounded_to_half_precision(self):
        """Float16 does not tell positions above 2048 apart; lifting to float32 must keep that."""
        rounded = decoder(mask=False, layers=1, more="""
    ch = Cast <to = 10> (columns) cf = Cast <to = 1> (ch) rh = Cast <to = 10> (rows2)
    rf = Cast <to = 1> (rh) seen_h = LessOrEqual (cf, rf) visible = Unsqueeze (seen_h, axes)""")
        exact = decoder(mask=False, layers=1)
        self.assertIn("verdict: different", self.verify(rounded, exact).stdout)
        self.assertIn("verdict: different", self.verify(exact, rounded).stdout)
        self.assertRegex(self.verify(rounded, rounded).stdout, r"\nverdict: equal")

    def test_activations_that_a_runtime_may_round_to_int8(self):
        """accuracy_level 4 lets ONNX Runtime compute in int8, where a last bit becomes a step."""
        pair = []
        for level in (0, 4):
            model = decoder(layers=1)
            model.opset_import.add(domain="com.microsoft", version=1)
            model.graph.initializer.extend([
                numpy_helper.from_array(np.arange(64, dtype=np.uint8).reshape(8, 1, 8), "packed"),
                numpy_helper.from_array(np.full(8, 0.01, np.float32), "scales")])
            last = model.graph.node[-1]
            last.output[0] = "unpacked"
            model.graph.node.append(helper.make_node(
                "MatMulNBits", ["unpacked", "packed", "scales"], ["y"], domain="com.microsoft",
                K=8, N=8, bits=4, block_size=16, accuracy_level=level))
            pair.append(self.verify(model, model).stdout)
        self.assertNotIn("accuracy_level", pair[0])
        self.assertRegex(pair[1], r"assumed: .*accuracy_level 4 .*lets it round them to int8")
        for text in pair:
            self.assertRegex(text, r"\nverdict: equal")

    def test_steps_as_long_as_a_ring_takes(self):
        """A manifest that says that rings keep fewer rows permits longer steps than are right."""
        source = self.saved("source.onnx", decoder(mask=False, low="-3.4e38", more="""
    back = Sub (rows2, columns) five = Constant <value = int64 {5}> () near = Less (back, five)
    near4 = Unsqueeze (near, axes) visible = And (visible0, near4)"""))
        done("convert", source, "-o", self.dir / "out.onnx", "--window", "circular:16")
        manifest = json.loads((self.dir / "out.kv.json").read_text())
        self.assertEqual({c["ring"]["window"] for c in manifest["caches"]}, {4})
        for cache in manifest["caches"]:
            cache["ring"]["window"] = 1
        (self.dir / "wrong.json").write_text(json.dumps(manifest))
        run = tool("verify", source, self.dir / "out.onnx", "--manifest", self.dir / "wrong.json")
        self.assertIn("verdict: different", run.stdout)

    def test_positions_are_fed_to_inputs_with_tokens_only(self):
        source = self.saved("source.onnx", decoder())
        done("convert", source, "-o", self.dir / "out.onnx")
        manifest = json.loads((self.dir / "out.kv.json").read_text())
        control = next(i for i in manifest["inputs"] if i["as"] == "control")
        control["value"] = "P..T-1"
        (self.dir / "wrong.json").write_text(json.dumps(manifest))
        run = tool("verify", source, self.dir / "out.onnx", "--manifest", self.dir / "wrong.json")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("KV403", run.stdout)


if __name__ == "__main__":
    unittest.main()
