"""What verify feeds to inputs that stand beside the caches: masks and rows of an encoder, the index
of the last token, biases of heads; and what it makes of outputs of integers that NaN chooses.

Each model is a text case with a few nodes more. Environment: KVLIFT, the tool; KVLIFT_ROOT, the
repository.
"""
import json
import os
import tempfile
import unittest

import numpy as np
import onnx
import onnx.compose
import onnx.parser
from onnx import helper, numpy_helper

from support.case_text import apply_edits, text_of_case
from support.tool import done, tool

PADDED = "decomposed_attention_padding"

ENCODER = """
   float[B,2,P,4] past_v
+  ,float[B,E,16] seen,
+  int64[B,E] seen_mask

-  int64[1] axes_2 = {2},
+  int64[1] axes_2 = {2},
+  int64 hidden_number = {0},

-  y = Reshape(context4, y_shape)
+  decoded = Reshape(context4, y_shape)
+  seen_dims = Shape(seen)
+  rows_at = Gather(seen_dims, one)
+  encoder_rows = Range(zero, rows_at, one)
+  gathered = Gather<axis = 1>(seen_mask, encoder_rows)
+  is_hidden = Equal(gathered, hidden_number)
+  is_hidden3 = Unsqueeze(is_hidden, axes_1)
+  seen_t = Transpose<perm = [0, 2, 1]>(seen)
+  cross = MatMul(decoded, seen_t)
+  cross_masked = Where(is_hidden3, low, cross)
+  cross_probs = Softmax<axis = -1>(cross_masked)
+  found = MatMul(cross_probs, seen)
+  y = Add(decoded, found)
"""

LAST_TOKEN = """
   float[B,2,P,4] past_v
+  ,int64[B] last

-  float[B,S,16] y,
+  float[B,16] y,

-  y = Reshape(context4, y_shape)
+  decoded = Reshape(context4, y_shape)
+  last_column = Unsqueeze(last, axes_1)
+  y = GatherND<batch_dims = 1>(decoded, last_column)
"""

CHOSEN = """
-  float[B,S,16] y,
+  float[B,S,16] y,
+  int64[B,S] token,

-  y = Reshape(context4, y_shape)
+  y = Reshape(context4, y_shape)
+  token = ArgMax<axis = -1, keepdims = 0>(y)
"""


# A bias of each of two key heads and two query heads that read it.
BIAS_OF_HEADS = """
   float[B,2,P,4] past_v
+  ,float[1,2,2,S,T] bias

+  int64[4] scores_in_front = {0, 2, 2, -1},
+  int64[3] heads_in_front = {0, 4, -1},
   int64[4] q_shape = {0, 0, 4, 4},

-  masked = Where(sees, scores, low)
+  %s
+  t1 = Unsqueeze(t, axes_0)
+  by_key_head_shape = Concat<axis = 0>(scores_in_front, t1)
+  by_key_head = Reshape(scores, by_key_head_shape)
+  biased = Add(by_key_head, bias_read)
+  by_head_shape = Concat<axis = 0>(heads_in_front, t1)
+  by_head = Reshape(biased, by_head_shape)
+  masked = Where(sees, by_head, low)
"""


def model_of(base, edits=""):
    text = text_of_case(base)
    return onnx.parser.parse_model(apply_edits(text, edits.strip("\n")) if edits else text)


def behind_another(last, first, shared):
    """The model `last`, whose queries, keys and values are computed from what `first` gives."""
    first = onnx.compose.add_prefix(first, "first_")
    for node in first.graph.node:
        node.input[:] = [n.removeprefix("first_") if n == "first_" + shared else n
                         for n in node.input]
    graph = last.graph
    for name, start, stop in (("q", 0, 16), ("k", 0, 8), ("v", 8, 16)):
        for role, number in (("from", start), ("to", stop)):
            graph.initializer.append(
                numpy_helper.from_array(np.array([number], np.int64), f"{name}_{role}"))
        graph.input.remove(next(i for i in graph.input if i.name == name))
    graph.initializer.append(numpy_helper.from_array(np.array([2], np.int64), "width_axis"))
    nodes = [*first.graph.node,
             *(helper.make_node("Slice", ["first_y", f"{n}_from", f"{n}_to", "width_axis"], [n])
               for n in "qkv"), *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(first.graph.initializer)
    graph.input.extend(i for i in first.graph.input if i.name != "first_" + shared)
    graph.output.extend(o for o in first.graph.output if o.name != "first_y")
    return last


class FedInputs(unittest.TestCase):
    def verdict(self, model, *flags):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "source.onnx")
            onnx.save(model, source)
            return done("convert", source, "-o", os.path.join(folder, "target.onnx"), "--verify",
                        *flags)

    def test_the_rows_and_the_mask_of_an_encoder_have_one_length(self):
        text = self.verdict(model_of("decomposed_attention_mask_selected", ENCODER))
        self.assertIn("verdict: equal (", text)
        self.assertIn("seen_mask holds 1 and 0, and 1 first", text)
        self.assertNotIn("only tested", text)

    def test_the_mask_of_a_fixed_number_of_encoder_rows(self):
        text = self.verdict(model_of("decomposed_attention_mask_selected",
                                     ENCODER.replace("[B,E", "[B,6")))
        self.assertIn("verdict: equal (", text)
        self.assertIn("seen_mask holds 1 and 0, and 1 first", text)
        self.assertNotIn("seen_mask holds the positions", text)

    def test_the_index_of_the_last_token(self):
        text = self.verdict(model_of("decomposed_attention_mask_selected", LAST_TOKEN))
        self.assertIn("verdict: equal (", text)
        self.assertIn("last holds S - 1", text)

    def test_a_bias_of_each_head_differs_from_head_to_head(self):
        base = "decomposed_attention_mask_selected"
        right = model_of(base, BIAS_OF_HEADS % "bias_read = Identity(bias)")
        with tempfile.TemporaryDirectory() as folder:
            source, target, claimed, relation = (os.path.join(folder, name) for name in (
                "source.onnx", "target.onnx", "target.kv.json", "relation.json"))
            onnx.save(right, source)
            self.assertIn("verdict: equal (", done("convert", source, "-o", target, "--verify"))
            with open(claimed, encoding="utf-8") as file:
                claims = json.load(file)
            del claims["source_sha256"]
            with open(relation, "w", encoding="utf-8") as file:
                json.dump(claims, file)
            onnx.save(model_of(base, BIAS_OF_HEADS %
                               "bias_read = Transpose<perm = [0, 2, 1, 3, 4]>(bias)"), source)
            text = tool("verify", source, target, "--manifest", relation).stdout
        self.assertIn("verdict: different", text)
        self.assertIn("y differs first at free masks", text)

    def test_slots_without_tokens_that_the_source_reads(self):
        read, hidden = ("attention reads", "slots without tokens, which the source reads")
        text = self.verdict(model_of("shifting_buffer_unmasked"), "--mode", "circular")
        self.assertIn("verdict: equal (", text)
        for words in (read, hidden):
            self.assertIn(words, text)
        text = self.verdict(model_of("shifting_buffer_mask_counts_back"), "--mode", "circular")
        self.assertIn("verdict: equal (", text)
        for words in (read, hidden):
            self.assertNotIn(words, text)

    def test_an_integer_that_nan_chooses_is_not_judged(self):
        # Rows of NaN in the first layer are values that the second multiplies by 0.
        text = self.verdict(
            behind_another(model_of(PADDED, CHOSEN), model_of(PADDED), "attention_mask"))
        self.assertIn("verdict: equal (", text)
        self.assertIn("the source gives NaN", text)


if __name__ == "__main__":
    unittest.main()
