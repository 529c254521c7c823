"""The relation that `verify` infers where no manifest gives one.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""

import os
import pathlib
import unittest

import onnx
from onnx import TensorProto, helper

from support.tool import FolderTest, done, tool

MODELS = pathlib.Path(os.environ["KVLIFT_ROOT"]) / "testdata" / "models"
LLAMA = MODELS / "llama_optimum" / "model.onnx"


def renamed(model, names):
    """Gives values other names, wherever they stand."""
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]


class InferredRelationsTest(FolderTest):
    def verify(self, source, model):
        onnx.save(model, self.dir / "after.onnx")
        return tool("verify", source, self.dir / "after.onnx")

    def test_presents_that_exchanged_their_names(self):
        """A host takes outputs by their names."""
        for name in ("llama_optimum", "gpt_oss_optimum", "llama_genai_gqa",
                     "whisper_decoder_with_past_optimum"):
            source = MODELS / name / "model.onnx"
            presents = [o.name for o in onnx.load(source).graph.output if "present" in o.name]
            keys = [p for p in presents if p.endswith("key")]
            values = [p for p in presents if p.endswith("value")]
            for first, second in ((keys[0], values[0]), (keys[0], keys[1])):
                with self.subTest(name, first=first, second=second):
                    model = onnx.load(source)
                    renamed(model, {first: second, second: first})
                    run = self.verify(source, model)
                    self.assertEqual(run.returncode, 1, run.stdout[-1500:])

    def test_a_growing_cache_that_declares_one_name_for_both_sizes(self):
        """Runtimes only warn of such a name, and what the graph does tells that the cache grows."""
        model = onnx.load(LLAMA)
        past = next(i for i in model.graph.input if "past" in i.name)
        name = past.type.tensor_type.shape.dim[2].dim_param
        for present in model.graph.output:
            if "present" in present.name:
                present.type.tensor_type.shape.dim[2].dim_param = name
        onnx.save(model, self.dir / "before.onnx")
        for source in (LLAMA, self.dir / "before.onnx"):
            with self.subTest(source=source.name):
                run = self.verify(source, model)
                self.assertEqual(run.returncode, 0, run.stdout[-1500:])
                self.assertIn("verdict: equal", run.stdout)

    def test_a_buffer_whose_slots_have_another_name_in_the_present(self):
        model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["" : 18]>
            g (float[B,S,8] x, int64[1] start, float[B,2,past,4] past_k, float[B,2,past,4] past_v)
              => (float[B,S,8] y, float[B,2,total,4] present_k, float[B,2,total,4] present_v)
            { heads = Constant <value = int64[4] {0, 0, 2, 4}> ()
              flat = Constant <value = int64[3] {0, 0, 8}> ()
              one = Constant <value = int64[1] {1}> ()
              zero = Constant <value = int64 {0}> () unit = Constant <value = int64 {1}> ()
              none = Constant <value = float {0.0}> () low = Constant <value = float {-inf}> ()
              s1 = Shape <start = 1, end = 2> (x) s = Squeeze (s1) steps = Range (zero, s, unit)
              slots = Add (steps, start) slots2 = Unsqueeze (slots, one)
              x4 = Reshape (x, heads) rows_k = Transpose <perm = [1, 0, 2, 3]> (x4)
              rows_v = Tanh (rows_k)
              first_k = Transpose <perm = [2, 0, 1, 3]> (past_k)
              first_v = Transpose <perm = [2, 0, 1, 3]> (past_v)
              done_k = ScatterND (first_k, slots2, rows_k)
              done_v = ScatterND (first_v, slots2, rows_v)
              present_k = Transpose <perm = [1, 2, 0, 3]> (done_k)
              present_v = Transpose <perm = [1, 2, 0, 3]> (done_v)
              m1 = Shape <start = 2, end = 3> (past_k) m = Squeeze (m1)
              columns = Range (zero, m, unit) seen = LessOrEqual (columns, slots2)
              causal = Where (seen, none, low) q = Transpose <perm = [0, 2, 1, 3]> (x4)
              k_t = Transpose <perm = [0, 1, 3, 2]> (present_k) scores = MatMul (q, k_t)
              hidden = Add (scores, causal) w = Softmax (hidden) c = MatMul (w, present_v)
              c4 = Transpose <perm = [0, 2, 1, 3]> (c) y = Reshape (c4, flat) }''')
        onnx.save(model, self.dir / "before.onnx")
        run = self.verify(self.dir / "before.onnx", model)
        self.assertEqual(run.returncode, 0, run.stdout[-1500:])
        self.assertIn("verdict: equal", run.stdout)

    def test_a_tensor_of_several_caches_is_fed_as_a_whole(self):
        """Its other axes are of one size, so that only the names tell which is which."""
        model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["" : 18]>
            g (int64[B,S] ids, float[2,2,B,2,P,2] past)
              => (float[B,S,4] y, float[2,2,B,2,T,2] present)
            <float[9,4] table = {0.5,-0.7,0.9,1.1,-1.3,0.6,0.7,-0.4,0.3,0.8,-0.2,0.1,-0.9,0.4,0.2,
                0.6,1.2,-0.5,0.7,-0.8,0.9,0.1,-0.6,0.3,-0.1,0.5,0.8,-0.3,0.2,0.7,-0.4,0.9,0.6,-0.2,
                0.1,0.5}>
            { heads = Constant <value = int64[4] {0, 0, 2, 2}> ()
              flat = Constant <value = int64[3] {0, 0, 4}> ()
              zero = Constant <value = int64 {0}> () unit = Constant <value = int64 {1}> ()
              front = Constant <value = int64[1] {0}> () one = Constant <value = int64[1] {1}> ()
              none = Constant <value = float {0.0}> () low = Constant <value = float {-inf}> ()
              p1 = Shape <start = 4, end = 5> (past) s1 = Shape <start = 1, end = 2> (ids)
              t1 = Add (p1, s1) p = Squeeze (p1) t = Squeeze (t1) rows = Range (p, t, unit)
              columns = Range (zero, t, unit) rows2 = Unsqueeze (rows, one)
              seen = LessOrEqual (columns, rows2) causal = Where (seen, none, low)
              x0 = Gather (table, ids)''' + "".join(f'''
              x4_{l} = Reshape (x{l}, heads) q{l} = Transpose <perm = [0, 2, 1, 3]> (x4_{l})
              k{l} = Neg (q{l}) v{l} = Tanh (q{l}) both{l} = Gather (past, {at})
              old_k{l} = Gather (both{l}, zero) old_v{l} = Gather (both{l}, unit)
              keys{l} = Concat <axis = 2> (old_k{l}, k{l})
              values{l} = Concat <axis = 2> (old_v{l}, v{l})
              keys5_{l} = Unsqueeze (keys{l}, front) values5_{l} = Unsqueeze (values{l}, front)
              layer{l} = Concat <axis = 0> (keys5_{l}, values5_{l})
              layer6_{l} = Unsqueeze (layer{l}, front)
              turned{l} = Transpose <perm = [0, 1, 3, 2]> (keys{l})
              scores{l} = MatMul (q{l}, turned{l}) hidden{l} = Add (scores{l}, causal)
              w{l} = Softmax (hidden{l}) c{l} = MatMul (w{l}, values{l})
              c4_{l} = Transpose <perm = [0, 2, 1, 3]> (c{l}) o{l} = Reshape (c4_{l}, flat)
              x{l + 1} = Add (x{l}, o{l})''' for l, at in ((0, "zero"), (1, "unit"))) + '''
              present = Concat <axis = 0> (layer6_0, layer6_1) y = Identity (x2) }''')
        onnx.save(model, self.dir / "before.onnx")
        run = self.verify(self.dir / "before.onnx", model)
        self.assertEqual(run.returncode, 0, run.stdout[-1500:])
        self.assertRegex(run.stdout, r"cache +past +past \[LKBNSD\]")
        next(n for n in model.graph.node if n.op_type == "Neg").op_type = "Abs"
        run = self.verify(self.dir / "before.onnx", model)
        self.assertEqual(run.returncode, 1, run.stdout[-1500:])

    def test_the_batch_of_a_cache_that_no_rule_recognises_has_its_name(self):
        """A plan feeds as many sequences to the cache as to the tokens."""
        model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["" : 18]>
            g (int64[batch,seq] ids, int64[seq] positions, float[2,batch,24,4] past_0)
              => (float[batch,seq,8] logits, float[2,batch,24,4] present_0)
            <float[8] w = {0.5,-0.7,0.9,1.1,-1.3,0.6,0.7,-0.4}, int64[1] zero = {0},
             int64[1] two = {2}, float one = {1.0}, float low = {-9.0}, float high = {9.0}>
            { depth = Constant <value = int64 {24}> ()
              last = Constant <value = int64[4] {0, 0, 2, 4}> ()
              flat = Constant <value = int64[3] {0, 0, 8}> ()
              ends = Constant <value = float[2] {0.0, 1.0}> ()
              x0 = Cast <to = 1> (ids) x1 = Unsqueeze (x0, two) x2 = Mul (x1, w) x = Tanh (x2)
              x4 = Reshape (x, last) new = Transpose <perm = [2, 0, 1, 3]> (x4)
              hot = OneHot (positions, depth, ends) turned = Transpose (hot)
              rows = MatMul (turned, new) free = ReduceSum (hot, zero) kept = Sub (one, free)
              keep = Transpose (kept) near = Clip (past_0, low, high)
              old = Mul (near, keep)
              present_0 = Add (old, rows) s = Transpose <perm = [0, 1, 3, 2]> (present_0)
              p = MatMul (new, s) a = Softmax (p) y = MatMul (a, present_0)
              y4 = Transpose <perm = [1, 2, 0, 3]> (y) logits = Reshape (y4, flat) }''')
        onnx.save(model, self.dir / "before.onnx")
        run = self.verify(self.dir / "before.onnx", model)
        self.assertIn("past_0 [NBSD]", run.stdout)
        self.assertRegex(run.stdout, r"\nbatch +bitwise")

    def test_buffers_whose_rows_move_in_both_models(self):
        """No relation says so, and no rule for rows in place judges them."""
        model = MODELS / "toy_fifo_shift_ts" / "model.onnx"
        run = tool("verify", model, model)
        self.assertEqual(run.returncode, 4, run.stdout[-1500:])
        self.assertIn("verdict: inconclusive", run.stdout)

    def test_a_mask_that_is_gone_was_all_ones(self):
        model = onnx.load(LLAMA)
        mask = next(i for i in model.graph.input if i.name == "attention_mask")
        model.graph.input.remove(mask)
        names = {i.name: i for i in model.graph.input}
        tokens, past = names["input_ids"].name, names["past_key_values.0.key"].name
        made = [
            helper.make_node("Shape", [tokens], ["made_b"], start=0, end=1),
            helper.make_node("Shape", [tokens], ["made_s"], start=1, end=2),
            helper.make_node("Shape", [past], ["made_p"], start=2, end=3),
            helper.make_node("Add", ["made_p", "made_s"], ["made_t"]),
            helper.make_node("Concat", ["made_b", "made_t"], ["made_dims"], axis=0),
            helper.make_node("ConstantOfShape", ["made_dims"], ["attention_mask"],
                             value=helper.make_tensor("one", TensorProto.INT64, [1], [1]))]
        nodes = [*made, *model.graph.node]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        run = self.verify(LLAMA, model)
        self.assertIn("input   attention_mask of the source holds ones\n", run.stdout)
        self.assertIn("assumed: attention_mask is all ones\n", run.stdout)

    def test_an_input_that_is_gone_and_was_read(self):
        """Nothing says what the source would have to be fed."""
        source = onnx.load(LLAMA)
        source.graph.input.append(helper.make_tensor_value_info("factor", TensorProto.FLOAT, [1]))
        renamed(source, {"logits": "plain"})
        source.graph.node.append(helper.make_node("Mul", ["plain", "factor"], ["logits"]))
        before = self.dir / "before.onnx"
        onnx.save(source, before)
        run = self.verify(before, onnx.load(LLAMA))
        self.assertEqual(run.returncode, 4, run.stdout[-1500:])
        self.assertIn("KV403 the relation says that factor is not read, and the source reads it",
                      run.stdout)

    def test_an_input_that_nothing_read(self):
        source = onnx.load(LLAMA)
        source.graph.input.append(helper.make_tensor_value_info("idle", TensorProto.FLOAT, [1]))
        before = self.dir / "before.onnx"
        onnx.save(source, before)
        text = done("verify", before, LLAMA)
        self.assertIn("input   idle of the source is not read\n", text)


if __name__ == "__main__":
    unittest.main()
