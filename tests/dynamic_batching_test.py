"""KeyValueCache of OpenPPL's dynamic batching, built from the operator page.

The operator alone, of several sequences and in pages, is held against numpy; decoders of one
sequence are run, converted, proved equal, and run once more as what they became: by the program and
by ONNX Runtime. Environment: KVLIFT, the tool.
"""
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from key_value_cache_test import read, write
from support.tool import done, tool

LAYERS, HEADS, SIZE, VOCABULARY, WIDTH, SLOTS, GROUP = 2, 2, 8, 50, 32, 24, 4
LETTERS = ("MLRND", "LMRND", "LRMND", "LRNMD")  # of the packed tensor, by cache_layout


@dataclasses.dataclass(frozen=True)
class Form:
    name: str
    layout: int = 0
    quantised: bool = False
    repeat: int = 2
    domain: str = "pmx.dynamic_batching"
    slots: object = SLOTS
    # Where operands come from: inputs of the host, or computed from start_pos and the rows.
    computed: tuple = ()
    place: int = 0           # cachestarts, where it is computed
    flat: bool = False       # attention without an axis of sequences
    indices: tuple = tuple(range(LAYERS))
    later: int = 0           # what the second layer's start_pos has more
    kept: bool = True        # kvstarts, where it is computed, counts the rows that are kept
    sequences: int = 1
    mode: int = 0

    def packed(self, width, slots):
        sizes = {"M": slots, "L": LAYERS, "R": 2, "N": HEADS, "D": width}
        return [sizes[letter] for letter in LETTERS[self.layout]]

    def attributes(self, layer):
        found = {"num_layer": LAYERS, "layer_idx": self.indices[layer],
                 "cache_layout": self.layout, "num_repeat": self.repeat}
        if self.mode:
            found.update(cache_mode=self.mode, page_size=4)
        if self.quantised:
            found.update(quant_bit=8, quant_group=GROUP)
        return found


FORMS = (
    Form("float"),
    Form("float_computed", layout=1, domain="opmx.dynamic_batching",
         computed=("seqstarts", "kvstarts", "cachestarts")),
    Form("float_alike", layout=2, repeat=1, slots="max_tokens", computed=("cachestarts",)),
    Form("float_flat", layout=3, flat=True),
    Form("int8", quantised=True),
    Form("int8_heads_first", layout=3, quantised=True, repeat=3,
         domain="opmx.dynamic_batching"),
)


class Model:
    def __init__(self):
        self.nodes, self.weights = [], {}

    def constant(self, name, value, dtype=np.int64):
        self.weights.setdefault(name, np.array(value, dtype))
        return name

    def op(self, kind, inputs, outputs, domain="", **attributes):
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(kind, inputs, outputs, domain=domain, **attributes))
        return outputs[0] if len(outputs) == 1 else outputs

    def build(self, inputs, outputs, domain):
        info = lambda name, kind, shape: helper.make_tensor_value_info(name, kind, list(shape))
        graph = helper.make_graph(
            self.nodes, "decoder", [info(*i) for i in inputs], [info(*o) for o in outputs],
            [numpy_helper.from_array(w, name) for name, w in self.weights.items()])
        return helper.make_model(graph, ir_version=8, opset_imports=[
            helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)])


STARTS = ("seqstarts", "kvstarts", "cachestarts", "start_pos", "max_seqlen", "max_kvlen")


def starts_of(form):
    b = form.sequences
    places = [b, "pages"] if form.mode else [b]
    return dict(zip(STARTS, ([b + 1], [b + 1], places, [b], [], [])))


def tensors_of(form):
    kept = TensorProto.INT8 if form.quantised else TensorProto.FLOAT
    found = [("cache", kept, form.packed(SIZE, form.slots))]
    if form.quantised:
        found.append(("scale", TensorProto.FLOAT, form.packed(SIZE // GROUP, form.slots)))
    return found


class Decoder(Model):
    """One sequence [S]: embeddings, layers with rotated heads, logits; those of the last token."""

    def __init__(self, form):
        super().__init__()
        self.form, self.heads = form, HEADS * form.repeat
        rng = np.random.default_rng(7)
        sizes = {"wq": (WIDTH, self.heads * SIZE), "wk": (WIDTH, HEADS * SIZE),
                 "wv": (WIDTH, HEADS * SIZE), "wo": (self.heads * SIZE, WIDTH)}
        named = {f"{name}{n}": size for n in range(LAYERS) for name, size in sizes.items()}
        named.update(embed=(VOCABULARY, WIDTH), logits_w=(WIDTH, VOCABULARY))
        for name, size in named.items():
            scale = 1.0 if name == "embed" else 0.3
            self.weights[name] = (scale * rng.standard_normal(size)).astype(np.float32)

    def places(self):
        c, form = self.constant, self.form
        self.op("Shape", ["ids"], "length")
        if "seqstarts" in form.computed:
            self.op("Concat", [c("zero_1", [0]), "length"], "seqstarts", axis=0)
        if "kvstarts" in form.computed:
            self.op("Add", ["start_pos", "length"], "end")
            self.op("Concat", [c("zero_1", [0]), "end" if form.kept else "length"], "kvstarts",
                    axis=0)
        if "cachestarts" in form.computed:
            c("cachestarts", [form.place])
        # Positions as a host of the operator has them: of tokens from start_pos on, of all keys up
        # to the end that kvstarts gives.
        self.op("Gather", ["kvstarts", c("one", 1)], "total")
        self.op("Squeeze", ["start_pos"], "start")
        self.op("Range", ["start", "total", c("one", 1)], "places")
        self.op("Range", [c("zero", 0), "total", c("one", 1)], "keys_at")
        self.op("Unsqueeze", ["places", c("axis_1", [1])], "rows_at")
        self.op("LessOrEqual", ["keys_at", "rows_at"], "sees")
        self.op("Where", ["sees", c("open", 0, np.float32), c("low", -np.inf, np.float32)], "mask")
        angles = np.outer(np.arange(64), 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE))
        self.constant("cos_table", np.concatenate([np.cos(angles)] * 2, 1), np.float32)
        self.constant("sin_table", np.concatenate([np.sin(angles)] * 2, 1), np.float32)
        for name in ("cos", "sin"):
            self.op("Gather", [f"{name}_table", "places"], f"{name}_rows")
            self.op("Unsqueeze", [f"{name}_rows", c("axis_1", [1])], name)  # [S, 1, D]

    def rotated(self, x, name):
        c, half = self.constant, SIZE // 2
        first = self.op("Slice", [x, c("from_0", [0]), c("from_half", [half]), c("axis_2", [2])],
                        f"{name}_first")
        second = self.op("Slice", [x, c("from_half", [half]), c("to_end", [SIZE]),
                                   c("axis_2", [2])], f"{name}_second")
        turned = self.op("Concat", [self.op("Neg", [second], f"{name}_neg"), first],
                         f"{name}_turned", axis=2)
        return self.op("Add", [self.op("Mul", [x, "cos"], f"{name}_cos"),
                               self.op("Mul", [turned, "sin"], f"{name}_sin")], f"{name}_rotated")

    def layer(self, n, x):
        c, form = self.constant, self.form

        def rows(name, heads):
            flat = self.op("MatMul", [x, f"w{name}{n}"], f"{name}_flat{n}")
            return self.op("Reshape", [flat, c(f"shape_{heads}", [0, heads, SIZE])], f"{name}{n}")

        def heads_of(rows, name, perm):
            if form.flat:
                return self.op("Transpose", [rows], f"{name}{n}", perm=perm)
            apart = self.op("Unsqueeze", [rows, c("axis_0", [0])], f"{name}_apart{n}")
            return self.op("Transpose", [apart], f"{name}{n}", perm=[0] + [p + 1 for p in perm])

        q, k, v = rows("q", self.heads), rows("k", HEADS), rows("v", HEADS)
        q, k = self.rotated(q, f"q{n}"), self.rotated(k, f"k{n}")
        starts = list(STARTS)
        if n and form.later:
            starts[3] = self.op("Add", ["start_pos", c("later", [form.later])], "later_pos")
        tensors = [name for name, _, _ in tensors_of(form)]
        keys, values = self.op("KeyValueCache", [k, v, *starts, *tensors],
                               [f"keys{n}", f"values{n}"], form.domain, **form.attributes(n))
        q = heads_of(q, "q_heads", [1, 0, 2])
        keys, values = heads_of(keys, "keys_t", [1, 2, 0]), heads_of(values, "values_h", [1, 0, 2])
        scores = self.op("MatMul", [q, keys], f"scores{n}")
        scaled = self.op("Mul", [scores, c("factor", SIZE ** -0.5, np.float32)], f"scaled{n}")
        weights = self.op("Softmax", [self.op("Add", [scaled, "mask"], f"masked{n}")],
                          f"weights{n}", axis=-1)
        perm = [1, 0, 2] if form.flat else [0, 2, 1, 3]
        mixed = self.op("Transpose", [self.op("MatMul", [weights, values], f"mixed{n}")],
                        f"mixed_rows{n}", perm=perm)
        flat = self.op("Reshape", [mixed, c("flat", [-1, self.heads * SIZE])], f"flat{n}")
        return self.op("Add", [x, self.op("MatMul", [flat, f"wo{n}"], f"projected{n}")], f"x{n}")

    def model(self):
        c, form = self.constant, self.form
        self.places()
        x = self.op("Gather", ["embed", "ids"], "embedded")
        for n in range(LAYERS):
            x = self.layer(n, x)
        # The last token of each sequence.
        self.op("Gather", ["seqstarts", c("one_1", [1])], "ends")
        self.op("Sub", ["ends", c("one", 1)], "last")
        self.op("Gather", [x, "last"], "last_rows")
        self.op("MatMul", ["last_rows", "logits_w"], "last_logits")
        self.op("MatMul", [x, "logits_w"], "logits")
        starts = [(name, TensorProto.INT64, shape) for name, shape in starts_of(form).items()
                  if name not in form.computed]
        inputs = [("ids", TensorProto.INT64, ["length"]), *starts, *tensors_of(form)]
        outputs = [("logits", TensorProto.FLOAT, ["length", VOCABULARY]),
                   ("last_logits", TensorProto.FLOAT, [1, VOCABULARY])]
        return self.build(inputs, outputs, form.domain)


class Reference:
    """The operator as its page has it, on tensors that it writes into, and the decoder."""

    def __init__(self, form, weights=None):
        self.form, self.weights = form, weights
        kept = np.int8 if form.quantised else np.float32
        self.cache = np.zeros(form.packed(SIZE, SLOTS), kept)
        self.scale = np.zeros(form.packed(SIZE // GROUP, SLOTS), np.float32)

    def part(self, tensor, layer, role):
        """[M, Nk, D] or its like, as a view."""
        letters = LETTERS[self.form.layout]
        return tensor.transpose([letters.index(x) for x in "LRMND"])[layer, role]

    def kept(self, layer, role, rows, slots, added):
        """Rows of one sequence, whose keys and values are in these slots."""
        cache, scale = (self.part(t, layer, role) for t in (self.cache, self.scale))
        new = slots[len(slots) - added:]
        if not self.form.quantised:
            cache[new] = rows
            found = cache[slots]
        else:
            groups = rows.reshape(*rows.shape[:-1], -1, GROUP)
            unit = np.abs(groups).max(-1, keepdims=True) / np.float32(127)
            unit = np.maximum(unit, np.float32(1e-5))
            cache[new] = np.rint(groups / unit).astype(np.int8).reshape(rows.shape)
            scale[new] = unit[..., 0]
            found = cache[slots] * np.repeat(scale[slots], GROUP, -1)
        return np.repeat(found, self.form.repeat, 1)

    def step(self, ids, start):
        w, length = self.weights, len(ids)
        at = np.arange(start, start + length)
        slots = np.arange(start + length)
        cos, sin = w["cos_table"][at][:, None], w["sin_table"][at][:, None]
        mask = np.where(slots <= at[:, None], 0, -np.inf)
        half = SIZE // 2
        turn = lambda r: r * cos + np.concatenate([-r[..., half:], r[..., :half]], -1) * sin
        x = w["embed"][ids]
        for n in range(LAYERS):
            q, k, v = ((x @ w[f"w{r}{n}"]).reshape(length, -1, SIZE) for r in "qkv")
            keys = self.kept(n, 0, turn(k).astype(np.float32), slots, length)
            values = self.kept(n, 1, v, slots, length)
            scores = np.einsum("shd,thd->hst", turn(q), keys) * SIZE ** -0.5 + mask
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            mixed = np.einsum("hst,thd->shd", weights, values)
            x = x + mixed.reshape(length, -1) @ w[f"wo{n}"]
        return x @ w["logits_w"]


class Tested(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def near(self, got, want, what):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4, err_msg=what)


class Operator(Tested):
    """Of several sequences, in one piece or in pages."""
    PAST, ADDED = (5, 0, 2), (1, 4, 2)

    def slots(self, form, b, places):
        t = np.arange(self.PAST[b] + self.ADDED[b])
        return places[b] + t if form.mode == 0 else places[b, t // 4] + t % 4

    def check(self, form):
        rng = np.random.default_rng(5)
        places = np.array([16, 0, 5] if form.mode == 0 else [[20, 4], [8, -1], [0, 99]])
        ends = lambda lengths: np.concatenate([[0], np.cumsum(lengths)])
        total = np.add(self.PAST, self.ADDED)
        feeds = {"seqstarts": ends(self.ADDED), "kvstarts": ends(total), "cachestarts": places,
                 "start_pos": np.array(self.PAST), "max_seqlen": np.array(max(self.ADDED)),
                 "max_kvlen": np.array(max(total))}
        model = Model()
        reference = Reference(form)
        reference.cache[...] = rng.integers(-99, 99, reference.cache.shape)
        reference.scale[...] = rng.random(reference.scale.shape)
        for name, array in (("cache", reference.cache), ("scale", reference.scale)):
            feeds[name] = array.copy()
        inputs, outputs, want = [], [], []
        for n in range(LAYERS):
            rows = [rng.standard_normal((sum(self.ADDED), HEADS, SIZE)).astype(np.float32)
                    for _ in range(2)]
            feeds.update({f"k{n}": rows[0], f"v{n}": rows[1]})
            inputs += [(f"{r}{n}", TensorProto.FLOAT, ["rows", HEADS, SIZE]) for r in "kv"]
            names = [name for name, _, _ in tensors_of(form)]
            model.op("KeyValueCache", [f"k{n}", f"v{n}", *STARTS, *names],
                     [f"keys{n}", f"values{n}"], form.domain, **form.attributes(n))
            for role in range(2):
                first, parts = feeds["seqstarts"], []
                for b, added in enumerate(self.ADDED):
                    own = rows[role][first[b]:first[b + 1]]
                    parts.append(reference.kept(n, role, own, self.slots(form, b, places), added))
                want.append(np.concatenate(parts))
                outputs.append((f"{'keys' if role == 0 else 'values'}{n}", TensorProto.FLOAT,
                                ["all", HEADS * form.repeat, SIZE]))
        starts = [(name, TensorProto.INT64, shape) for name, shape in starts_of(form).items()]
        inputs += [*starts, *tensors_of(form)]
        path, folder = self.path("op.onnx"), self.path(form.name, "in", "0")
        onnx.save(model.build(inputs, outputs, form.domain), path)
        for name in (i[0] for i in inputs):
            write(folder, name, feeds[name])
        out = self.path(form.name, "out")
        done("run", path, "--steps", self.path(form.name, "in"), "--outputs", out)
        want += [reference.cache] + ([reference.scale] if form.quantised else [])
        for k, array in enumerate(want):
            self.near(read(os.path.join(out, "0"), k).astype(np.float32),
                      array.astype(np.float32), f"output {k}")

    def test_runs_as_the_reference(self):
        for layout in range(4):
            for mode in range(2):
                form = Form(f"op{layout}{mode}", layout=layout, mode=mode, sequences=3,
                            repeat=1 + layout % 2, quantised=(layout + mode) % 2 == 1)
                with self.subTest(f"layout {layout} mode {mode}"):
                    self.check(form)


class OneSequence(Tested):
    STEPS = (6, 1, 3, 1)

    def saved(self, form):
        decoder = Decoder(form)
        path = self.path(f"{form.name}.onnx")
        onnx.save(decoder.model(), path)
        return decoder, path

    def steps(self, form):
        rng, start = np.random.default_rng(3), 0
        for length in self.STEPS:
            ids, end = rng.integers(0, VOCABULARY, length), start + length
            values = ([0, length], [0, end], [0], [start], length, end)
            starts = {name: np.array(value, np.int64) for name, value in zip(STARTS, values)
                      if name not in form.computed}
            yield ids, start, starts
            start = end

    def test_runs_as_the_reference(self):
        for form in FORMS:
            with self.subTest(form.name):
                decoder, path = self.saved(form)
                reference = Reference(form, decoder.weights)
                steps, out = self.path(form.name, "in"), self.path(form.name, "out")
                write(os.path.join(steps, "0"), "cache", reference.cache)
                if form.quantised:
                    write(os.path.join(steps, "0"), "scale", reference.scale)
                for k, (ids, _, starts) in enumerate(self.steps(form)):
                    for name, array in {"ids": ids, **starts}.items():
                        write(os.path.join(steps, str(k)), name, array)
                done("run", path, "--steps", steps, "--outputs", out)
                for k, (ids, start, _) in enumerate(self.steps(form)):
                    want = reference.step(ids, start)
                    self.near(read(os.path.join(out, str(k)), 0), want, f"step {k}")
                    self.near(read(os.path.join(out, str(k)), 1), want[-1:], f"last of step {k}")
                    cache = read(os.path.join(out, str(k)), 2)
                    self.near(cache.astype(np.float32), reference.cache.astype(np.float32), "cache")

    def test_is_converted_and_proved(self):
        for form in FORMS:
            with self.subTest(form.name):
                decoder, path = self.saved(form)
                target = self.path(f"{form.name}.out.onnx")
                text = done("convert", path, "-o", target, "--verify")
                self.assertIn("verdict: equal (", text)
                self.assertEqual("assumed: kvstarts is [0, P + S]" in text,
                                 "kvstarts" not in form.computed)
                with open(target.replace(".onnx", ".kv.json"), encoding="utf-8") as file:
                    manifest = json.load(file)
                caches = manifest["caches"]
                self.assertEqual(len(caches), LAYERS * 2 * (2 if form.quantised else 1))
                letters = "".join(x for x in LETTERS[form.layout] if x not in "LR")
                for cache in caches:
                    scales = cache["role"].endswith("_scale")
                    self.assertEqual(cache["source"]["input"], "scale" if scales else "cache")
                    self.assertEqual(cache["source"]["layout"], letters.replace("M", "S"))
                    self.assertEqual(cache["layout"].replace("B", ""),
                                     cache["source"]["layout"])
                host = [name for name in STARTS if name not in form.computed + ("start_pos",)]
                self.assertEqual(sorted(d["name"] for d in manifest["dropped"]), sorted(host))
                assumed = [p["text"] for p in manifest["preconditions"] if p["code"] == "KV308"]
                self.assertEqual(len(assumed), len([h for h in host if not h.startswith("max")]))
                ops = [node.op_type for node in onnx.load(target).graph.node]
                self.assertEqual(ops.count("TensorScatter"), len(caches))
                self.assertEqual(ops.count("Attention"), LAYERS)
                self.assertNotIn("KeyValueCache", ops)
                self.drive(form, decoder, target, manifest)

    def drive(self, form, decoder, target, manifest):
        """The converted model in ONNX Runtime, against the reference."""
        options = ort.SessionOptions()
        options.log_severity_level = 3
        session = ort.InferenceSession(target, options, providers=["CPUExecutionProvider"])
        reference = Reference(form, decoder.weights)
        buffers = {}
        for cache in manifest["caches"]:
            groups = SIZE // GROUP if cache["role"].endswith("_scale") else SIZE
            sizes = {"B": 1, "S": SLOTS, "N": HEADS, "D": groups}
            buffers[cache["input"]] = np.zeros([sizes[x] for x in cache["layout"]],
                                               cache["dtype"])
        names = [output.name for output in session.get_outputs()]
        self.assertEqual({i.name for i in session.get_inputs()}, {"ids", "start_pos", *buffers})
        for ids, start, starts in self.steps(form):
            feeds = {"ids": ids, "start_pos": starts["start_pos"], **buffers}
            got = dict(zip(names, session.run(names, feeds)))
            want = reference.step(ids, start)
            self.near(got["logits"], want, f"ONNX Runtime from {start}")
            self.near(got["last_logits"], want[-1:], f"ONNX Runtime, last from {start}")
            for cache in manifest["caches"]:
                buffers[cache["input"]] = got[cache["output"]]

    def test_the_emitted_loop_drives_one_sequence(self):
        decoder, path = self.saved(FORMS[4])
        target, script = self.path("x.onnx"), self.path("loop.py")
        done("convert", path, "-o", target)
        done("emit-loop", target, "-o", script)
        prompt, count = [3, 1, 4, 1, 5], 8
        run = subprocess.run([sys.executable, script, target, "--prompt", "3,1,4,1,5", "--new",
                              str(count)], capture_output=True, text=True, check=True)
        reference, said = Reference(FORMS[4], decoder.weights), list(prompt)
        rows = reference.step(np.array(prompt), 0)
        for _ in range(count):
            said.append(int(rows[-1].argmax()))
            rows = reference.step(np.array(said[-1:]), len(said) - 1)
        self.assertEqual(run.stdout.split()[-1], ",".join(map(str, said[len(prompt):])))

    def test_the_source_is_measured_and_listed(self):
        for form in (FORMS[0], FORMS[5]):
            _, path = self.saved(form)
            done("bench", path, "--context", "8")
            caches = json.loads(done("inspect", path, "--json"))["caches"]
            self.assertEqual([c["id"] for c in caches], ["0.key", "0.value", "1.key", "1.value"])
            for cache in caches:
                self.assertEqual((cache["input"], cache["output"]), ("cache", "present_cache"))
                self.assertEqual(cache["dtype"], "int8" if form.quantised else "float32")

    def test_rows_may_be_quantised_and_placed_on_the_way(self):
        _, path = self.saved(FORMS[0])
        text = done("convert", path, "-o", self.path("x.onnx"), "--quantize-cache", "int8:4",
                    "--layout", "bnsd", "--verify")
        self.assertIn("verdict: equal within quantisation", text)

    def test_a_difference_is_shown_with_all_that_the_source_is_fed(self):
        _, path = self.saved(FORMS[0])
        target = self.path("x.onnx")
        done("convert", path, "-o", target)
        model = onnx.load(target)
        for tensor in model.graph.initializer:
            if tensor.name == "wv1":
                tensor.CopyFrom(numpy_helper.from_array(1.5 * numpy_helper.to_array(tensor), "wv1"))
        onnx.save(model, target)
        run = tool("verify", path, target, "--save-failure", self.path("found"))
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("verdict: differ", run.stdout)
        done("run", path, "--steps", self.path("found", "before"), "--outputs", self.path("again"))
        for k in range(3):
            want = read(self.path("found", "before", "00"), k)
            self.near(read(self.path("again", "00"), k), want, f"output {k}")

    def refused(self, form, code, text):
        _, path = self.saved(form)
        run = tool("convert", path, "-o", self.path("x.onnx"))
        self.assertNotEqual(run.returncode, 0)
        self.assertIn(code, run.stdout + run.stderr)
        self.assertIn(text, " ".join((run.stdout + run.stderr).split()))
        self.assertFalse(os.path.exists(self.path("x.onnx")))

    def test_what_is_no_sequence_from_the_first_slot_on_is_refused(self):
        form = lambda **more: dataclasses.replace(FORMS[0], **more)
        self.refused(form(sequences=3), "KV249", "needs one sequence")
        self.refused(form(mode=1), "KV249", "found pages")
        self.refused(form(computed=("cachestarts",), place=2), "KV249",
                     "needs cachestarts to be [0]")
        self.refused(form(kept=False, computed=("kvstarts",)), "KV249", "needs kvstarts to be")
        self.refused(form(later=1), "KV237", "one start_pos")
        self.refused(form(indices=(0, 0)), "KV237", "written once")


if __name__ == "__main__":
    unittest.main()
