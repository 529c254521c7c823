"""verify A B where kvlift did not make B: static decoders written by hand, with other names, other
layouts and other ways to write; and wrong ones, which must not come out equal."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from support import schemas

KVLIFT = os.environ.get("KVLIFT") or "kvlift"

# Two layers; four query heads, two of the caches, of four elements each.
LAYERS = (0, 1)


def weights():
    rng = np.random.default_rng(5)
    tensors = {"table": rng.normal(size=(11, 16)), "head": rng.normal(size=(16, 11))}
    for k in LAYERS:
        tensors[f"wq{k}"] = rng.normal(size=(16, 16)) * 0.6
        tensors[f"wk{k}"] = rng.normal(size=(16, 8)) * 0.6
        tensors[f"wv{k}"] = rng.normal(size=(16, 8)) * 0.4
        tensors[f"wo{k}"] = rng.normal(size=(16, 16)) * 0.3
    angle = np.arange(64)[:, None] * np.array([1.0, 0.1])
    tensors["cosines"] = np.cos(angle)
    tensors["sines"] = np.sin(angle)
    return [numpy_helper.from_array(v.astype(np.float32), n) for n, v in tensors.items()]


def model(inputs, outputs, body, opset):
    text = f'<ir_version: 12, opset_import: ["" : {opset}]> g ({inputs}) => ({outputs}) {{ {body} }}'
    # The text form has no dots in names.
    proto = onnx.parser.parse_model(re.sub(r"(?<=[a-z])\.(?=\d)|(?<=\d)\.(?=[a-z])", "__", text))
    for value in (*proto.graph.input, *proto.graph.output):
        value.name = value.name.replace("__", ".")
    for node in proto.graph.node:
        node.input[:] = [name.replace("__", ".") for name in node.input]
        node.output[:] = [name.replace("__", ".") for name in node.output]
    used = {name for node in proto.graph.node for name in node.input}
    proto.graph.initializer.extend(t for t in weights() if t.name in used)
    return proto


CONSTANTS = """
  flat = Constant <value_ints = [0, 0, 16]> ()
  narrow = Constant <value_ints = [0, 0, 8]> ()
  heads = Constant <value_ints = [0, 0, 4, 4]> ()
  groups = Constant <value_ints = [0, 0, 2, 4]> ()
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  a0 = Constant <value_ints = [0]> ()
  a1 = Constant <value_ints = [1]> ()
  a2 = Constant <value_ints = [2]> ()
  a3 = Constant <value_ints = [3]> ()
  a01 = Constant <value_ints = [0, 1]> ()
  a13 = Constant <value_ints = [1, 3]> ()
  a123 = Constant <value_ints = [1, 2, 3]> ()
  half = Constant <value_float = 0.5> ()
  none = Constant <value_float = 0.0> ()
  low = Constant <value_float = -3.0e38> ()
"""


def layers(tokens, attend, positions):
    """`attend` gives y{k} [B,S,16] from q, key and value: [B,4,S,4] and twice [B,2,S,4], the
    first two turned by the `positions` [B,S] or [S]."""
    body = CONSTANTS + f"""
  news = Shape <start = 1, end = 2> ({tokens})
  count = Squeeze (news)
  x0 = Gather (table, {tokens})
  {positions}
  cosine = Gather (cosines, positions)
  sine = Gather (sines, positions)
"""
    for k in LAYERS:
        body += f"""
  q{k}f = MatMul (x{k}, wq{k})
  k{k}f = MatMul (x{k}, wk{k})
  v{k}f = MatMul (x{k}, wv{k})
  q{k}s = Reshape (q{k}f, heads)
  k{k}s = Reshape (k{k}f, groups)
  v{k}s = Reshape (v{k}f, groups)
  q{k}t = Transpose <perm = [0, 2, 1, 3]> (q{k}s)
  k{k}t = Transpose <perm = [0, 2, 1, 3]> (k{k}s)
  value{k} = Transpose <perm = [0, 2, 1, 3]> (v{k}s)
"""
        for name, to in ((f"q{k}t", f"q{k}"), (f"k{k}t", f"key{k}")):
            body += f"""
  {to}a, {to}b = Split <axis = -1, num_outputs = 2> ({name})
  {to}ac = Mul ({to}a, cosine)
  {to}as = Mul ({to}a, sine)
  {to}bc = Mul ({to}b, cosine)
  {to}bs = Mul ({to}b, sine)
  {to}l = Sub ({to}ac, {to}bs)
  {to}r = Add ({to}bc, {to}as)
  {to} = Concat <axis = -1> ({to}l, {to}r)
"""
        body += attend(k) + f"""
  o{k} = MatMul (y{k}, wo{k})
  x{k + 1} = Add (x{k}, o{k})
"""
    return body


def decomposed(k, keys, values, mask):
    return f"""
  keys{k}g = Unsqueeze ({keys}, a2)
  values{k}g = Unsqueeze ({values}, a2)
  keys{k}e = Concat <axis = 2> (keys{k}g, keys{k}g)
  values{k}e = Concat <axis = 2> (values{k}g, values{k}g)
  every{k} = Constant <value_ints = [0, 4, -1, 4]> ()
  keys{k}m = Reshape (keys{k}e, every{k})
  values{k}m = Reshape (values{k}e, every{k})
  turned{k} = Transpose <perm = [0, 1, 3, 2]> (keys{k}m)
  scores{k} = MatMul (q{k}, turned{k})
  scaled{k} = Mul (scores{k}, half)
  masked{k} = Add (scaled{k}, {mask})
  probs{k} = Softmax <axis = -1> (masked{k})
  mixed{k} = MatMul (probs{k}, values{k}m)
  merged{k} = Transpose <perm = [0, 2, 1, 3]> (mixed{k})
  y{k} = Reshape (merged{k}, flat)
"""


def growing():
    inputs = ["int64[B,S] input_ids"]
    outputs = ["float[B,S,11] logits"]
    for k in LAYERS:
        for role in ("key", "value"):
            inputs.append(f"float[B,2,P,4] past_key_values.{k}.{role}")
            outputs.append(f"float[B,2,T,4] present.{k}.{role}")
    positions = """
  pasts = Shape <start = 2, end = 3> (past_key_values.0.key)
  past = Squeeze (pasts)
  total = Add (past, count)
  positions = Range (past, total, one)
  columns = Range (zero, total, one)
  rows = Unsqueeze (positions, a1)
  see = LessOrEqual (columns, rows)
  bias = Where (see, none, low)
"""

    def attend(k):
        return f"""
  present.{k}.key = Concat <axis = 2> (past_key_values.{k}.key, key{k})
  present.{k}.value = Concat <axis = 2> (past_key_values.{k}.value, value{k})
""" + decomposed(k, f"present.{k}.key", f"present.{k}.value", "bias")

    body = layers("input_ids", attend, positions) + "logits = MatMul (x2, head)"
    return model(", ".join(inputs), ", ".join(outputs), body, 18)


def static(cache, attend, extra, positions, tokens="input_ids", logits="logits", names=None):
    names = names or ("key_cache", "value_cache", "updated_{}")
    inputs = [f"int64[B,S] {tokens}", *extra]
    outputs = [f"float[B,S,11] {logits}"]
    for k in LAYERS:
        for name in names[:2]:
            inputs.append(f"float{cache} {name}.{k}")
            outputs.append(f"float{cache} {names[2].format(name)}.{k}")
    body = layers(tokens, attend, positions) + f"{logits} = MatMul (x2, head)"
    return model(", ".join(inputs), ", ".join(outputs), body, 24)


AT = """
  at = Unsqueeze (write_indices, a1)
  steps = Range (zero, count, one)
  positions0 = Add (at, steps)
  positions = Unsqueeze (positions0, a1)
"""
CONTROLS = ["int64[B] write_indices", "int64[B] nonpad_kv_seqlen"]


def folded(causal=1, keys="key{k}n", index="write_indices", length="nonpad_kv_seqlen"):
    """Caches [B, M, Nk * D], attention in one operator."""

    def attend(k):
        return f"""
  key{k}h = Transpose <perm = [0, 2, 1, 3]> (key{k})
  key{k}n = Reshape (key{k}h, narrow)
  value{k}n = Identity (v{k}f)
  updated_key_cache.{k} = TensorScatter <axis = 1> (key_cache.{k}, {keys.format(k=k)}, {index})
  updated_value_cache.{k} = TensorScatter <axis = 1> (value_cache.{k}, value{k}n, {index})
  q{k}h = Transpose <perm = [0, 2, 1, 3]> (q{k})
  q{k}n = Reshape (q{k}h, flat)
  y{k} = Attention <is_causal = {causal}, q_num_heads = 4, kv_num_heads = 2, scale = 0.5>
    (q{k}n, updated_key_cache.{k}, updated_value_cache.{k}, , , , {length})
"""

    return attend


def sequence_second(k):
    """Caches [B, M, Nk, D], a mask of the model's own."""
    return f"""
  key{k}h = Transpose <perm = [0, 2, 1, 3]> (key{k})
  value{k}h = Identity (v{k}s)
  updated_key_cache.{k} = TensorScatter <axis = 1> (key_cache.{k}, key{k}h, write_indices)
  updated_value_cache.{k} = TensorScatter <axis = 1> (value_cache.{k}, value{k}h, write_indices)
  keys{k} = Transpose <perm = [0, 2, 1, 3]> (updated_key_cache.{k})
  values{k} = Transpose <perm = [0, 2, 1, 3]> (updated_value_cache.{k})
""" + decomposed(k, f"keys{k}", f"values{k}", "bias")


def mask_of_slots(cache_axis):
    return AT + f"""
  slots = Shape <start = {cache_axis}, end = {cache_axis + 1}> (key_cache.0)
  slot_count = Squeeze (slots)
  columns = Range (zero, slot_count, one)
  rows = Unsqueeze (positions0, a13)
  rows_last = Transpose <perm = [0, 1, 2, 3]> (rows)
  rows2 = Reshape (rows_last, row_shape)
  see = LessOrEqual (columns, rows2)
  bias = Where (see, none, low)
  row_shape = Constant <value_ints = [0, 1, -1, 1]> ()
"""


class ForeignTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        onnx.save(growing(), self.dir / "before.onnx")

    def verify(self, after, *flags, code=0):
        onnx.save(sorted_nodes(after), self.dir / "after.onnx")
        run = subprocess.run(
            [KVLIFT, "verify", self.dir / "before.onnx", self.dir / "after.onnx", "--json",
             *flags],
            capture_output=True, check=False, timeout=300)
        self.assertTrue(run.stdout, run.stderr)
        document = schemas.check_json(run.stdout)
        text = f"{document['verdict']}: {document.get('reason')}\n{document.get('relation')}"
        if code is not None:
            self.assertEqual(run.returncode, code, text)
        return document

    def test_folded_caches(self):
        document = self.verify(static("[B,M,8]", folded(), CONTROLS, AT))
        caches = document["relation"]["caches"]
        self.assertEqual([c["layout"] for c in caches], ["BS(ND)"] * 4)
        self.assertEqual(caches[0]["source"]["input"], "past_key_values.0.key")
        facts = [f for f in document["proof"]["facts"] if f["about"].endswith((".key", ".value"))]
        self.assertEqual(len(facts), 8)
        first = [f for f in facts if f["about"].startswith("0.")]
        self.assertTrue(all(f["status"] == "proved" for f in first), facts)
        self.assertFalse([f for f in facts if f["status"] == "refuted"], facts)

    def test_folded_caches_of_fixed_size(self):
        self.verify(static("[B,24,8]", folded(), CONTROLS, AT))

    def test_other_names_everywhere(self):
        after = static("[B,M,8]", folded(), CONTROLS, AT, "tokens", "scores")
        document = self.verify(after)
        inputs = {i["name"]: i for i in document["relation"]["inputs"]}
        self.assertEqual(inputs["tokens"]["source"], "input_ids")
        self.assertEqual(inputs["nonpad_kv_seqlen"]["value"], "T")

    def test_sequence_second(self):
        # The proof reads Attention only in a converted model; this one spells out its softmax over
        # all slots, which is no operator of the source's.
        document = self.verify(static("[B,M,2,4]", sequence_second, CONTROLS[:1],
                                      mask_of_slots(1)), "--accept", "tested")
        self.assertEqual(document["verdict"], "equal as tested")
        self.assertEqual(document["relation"]["caches"][0]["layout"], "BSND")

    def test_positions_from_the_host(self):
        after = static("[B,M,8]", folded(), [*CONTROLS, "int64[B,S] position_ids"],
                       "positions = Unsqueeze (position_ids, a1)")
        document = self.verify(after)
        inputs = {i["name"]: i for i in document["relation"]["inputs"]}
        self.assertEqual(inputs["position_ids"]["value"], "P..T-1")

    def test_scattered_by_positions(self):
        """A host's vector of slots, as static exports have it; one for the whole batch."""

        def attend(k):
            text = ""
            for role in ("key", "value"):
                text += f"""
  {role}{k}_m = Transpose <perm = [2, 0, 1, 3]> ({role}_cache.{k})
  {role}{k}_u = Transpose <perm = [2, 0, 1, 3]> ({role}{k})
  {role}{k}_w = ScatterND ({role}{k}_m, places, {role}{k}_u)
  updated_{role}_cache.{k} = Transpose <perm = [1, 2, 0, 3]> ({role}{k}_w)
"""
            return text + decomposed(k, f"updated_key_cache.{k}", f"updated_value_cache.{k}",
                                     "bias")

        positions = """
  positions = Identity (cache_position)
  places = Unsqueeze (cache_position, a1)
  slots = Shape <start = 2, end = 3> (key_cache.0)
  slot_count = Squeeze (slots)
  columns = Range (zero, slot_count, one)
  see = LessOrEqual (columns, places)
  bias = Where (see, none, low)
"""
        document = self.verify(static("[B,2,M,4]", attend, ["int64[S] cache_position"], positions),
                               code=None)
        inputs = {i["name"]: i for i in document["relation"]["inputs"]}
        self.assertEqual(inputs["cache_position"]["value"], "P..T-1")
        self.assertNotEqual(document["verdict"], "different", document)

    def test_wrong_ones_differ(self):
        wrong = {
            "keys that are not turned": folded(keys="k{k}f"),
            "no causal order": folded(causal=0),
            "keys in the values": folded(keys="value{k}n"),
            "every slot is seen": folded(length="all_slots"),
            "written one slot late": folded(index="late"),
        }
        more = AT + """
  late = Add (write_indices, one)
  like = Mul (nonpad_kv_seqlen, zero)
  slots = Shape <start = 1, end = 2> (key_cache.0)
  all_slots = Add (like, slots)
"""
        for name, attend in wrong.items():
            with self.subTest(name):
                document = self.verify(static("[B,M,8]", attend, CONTROLS, more), code=1)
                self.assertEqual(document["verdict"], "different")

    def test_another_order_on_the_folded_axis_is_not_equal(self):
        """Elements in front of heads: rows of caches are others than the relation says."""

        def attend(k):
            return folded()(k).replace(f"key{k}h = Transpose <perm = [0, 2, 1, 3]>",
                                       f"key{k}h = Transpose <perm = [0, 2, 3, 1]>")

        self.verify(static("[B,M,8]", attend, CONTROLS, AT), code=1)

    def test_a_manifest_corrects_it(self):
        after = static("[B,M,8]", folded(), CONTROLS, AT)
        relation = self.verify(after)["relation"]
        path = self.dir / "relation.json"
        path.write_text(json.dumps(relation))
        self.verify(after, "--manifest", path)
        for cache in relation["caches"]:
            cache["layout"] = "BS(DN)"
        path.write_text(json.dumps(relation))
        self.verify(after, "--manifest", path, code=1)
        relation["caches"][0]["layout"] = "B(SN)D"
        path.write_text(json.dumps(relation))
        self.assertIn("KV403", self.verify(after, "--manifest", path, code=4)["reason"])

    def test_a_failure_is_saved_in_the_sources_own_layout(self):
        folder = self.dir / "failure"
        self.verify(static("[B,M,8]", folded(causal=0), CONTROLS, AT), "--save-failure", folder,
                    code=1)
        run = subprocess.run([KVLIFT, "run", self.dir / "before.onnx", "--steps", folder / "before",
                              "--expect", folder / "before"], capture_output=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr + run.stdout)

    def test_text_shows_the_relation(self):
        onnx.save(sorted_nodes(static("[B,M,8]", folded(), CONTROLS, AT)), self.dir / "after.onnx")
        run = subprocess.run([KVLIFT, "verify", self.dir / "before.onnx", self.dir / "after.onnx"],
                             capture_output=True, check=False, text=True)
        self.assertIn("--manifest FILE corrects it", run.stdout)
        self.assertIn("write_indices is P [B]", run.stdout)


def sorted_nodes(proto):
    """The model with its nodes in an order in which they can run."""
    known = {i.name for i in proto.graph.input} | {t.name for t in proto.graph.initializer} | {""}
    left, done = list(proto.graph.node), []
    while left:
        ready = [n for n in left if known.issuperset(n.input)]
        assert ready, [n.output[0] for n in left]
        for node in ready:
            left.remove(node)
            done.append(node)
            known.update(node.output)
    del proto.graph.node[:]
    proto.graph.node.extend(done)
    return proto


if __name__ == "__main__":
    unittest.main()
