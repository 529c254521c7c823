"""Decoders whose layers keep their rows by OpenPPL's KeyValueCache, built from the operator page.

They are run and held against a reference in numpy, converted, proved equal, and run once more as
what they became: by the program and, where it has the operators, by ONNX Runtime. Environment:
KVLIFT, the tool.
"""
import dataclasses
import importlib.util
import json
import os
import unittest

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto

from support.openppl import (GROUP, HEADS, LAYERS, SIZE, SLOTS, VOCABULARY, WIDTH, Model, Tested,
                             read, write)
from support.recorded import MODELS
from support.tool import done, tool


@dataclasses.dataclass(frozen=True)
class Form:
    name: str
    layout: int = 0
    quantised: bool = False
    repeat: int = 2
    domain: str = "pmx"
    start: tuple = ()  # shape of start_pos
    slots: object = SLOTS
    indices: tuple = tuple(range(LAYERS))

    def packed(self, batch, width, slots):
        if self.layout == 0:
            return [batch, LAYERS, 2, slots, HEADS, width]
        return [LAYERS, batch, 2, HEADS, slots, width]


FORMS = (
    Form("float"),
    Form("float_heads_first", layout=1, domain="opmx", start=(1,)),
    Form("float_alike", repeat=1, slots="max_tokens"),
    Form("int8", quantised=True),
    Form("int8_heads_first", layout=1, quantised=True, repeat=3),
)


class Decoder(Model):
    """Embeddings, layers with rotated heads, and a projection to logits."""

    def __init__(self, form):
        super().__init__()
        self.form = form
        self.rng = np.random.default_rng(7)
        self.heads = HEADS * form.repeat
        names = ["embed", "wq", "wk", "wv", "wo"]
        sizes = [(VOCABULARY, WIDTH), (WIDTH, self.heads * SIZE), (WIDTH, HEADS * SIZE),
                 (WIDTH, HEADS * SIZE), (self.heads * SIZE, WIDTH)]
        for layer in range(LAYERS):
            for name, size in list(zip(names, sizes))[1:]:
                self.weight(f"{name}{layer}", size)
        self.weight("embed", sizes[0], 1.0)
        self.weight("logits_w", (WIDTH, VOCABULARY))

    def weight(self, name, size, scale=0.3):
        self.weights[name] = (scale * self.rng.standard_normal(size)).astype(np.float32)

    def places(self):
        c = self.constant
        self.op("Shape", ["ids"], "ids_shape")
        self.op("Gather", ["ids_shape", c("one", 1)], "length")
        start = "start_pos"
        if self.form.start:
            start = self.op("Squeeze", ["start_pos"], "start_scalar")
        self.op("Add", [start, "length"], "total")
        self.mask_and_angles(start)

    def layer(self, n, x):
        c = self.constant
        def rows(name, heads):
            flat = self.op("MatMul", [x, f"w{name}{n}"], f"{name}_flat{n}")
            return self.op("Reshape", [flat, c(f"shape_{heads}", [0, 0, heads, SIZE])],
                           f"{name}{n}")
        q, k, v = rows("q", self.heads), rows("k", HEADS), rows("v", HEADS)
        q, k = self.rotated(q, f"q{n}", 3), self.rotated(k, f"k{n}", 3)
        form = self.form
        attributes = {"num_layer": LAYERS, "layer_idx": form.indices[n],
                      "cache_layout": form.layout, "num_repeat": form.repeat}
        tensors = ["cache"]
        if form.quantised:
            attributes.update(quant_bit=8, quant_group=GROUP)
            tensors.append("scale")
        keys, values = self.op("KeyValueCache", [k, v, "start_pos", *tensors],
                               [f"keys{n}", f"values{n}"], form.domain, **attributes)
        q = self.op("Transpose", [q], f"q_heads{n}", perm=[0, 2, 1, 3])
        keys = self.op("Transpose", [keys], f"keys_t{n}", perm=[0, 2, 3, 1])
        values = self.op("Transpose", [values], f"values_heads{n}", perm=[0, 2, 1, 3])
        scores = self.op("MatMul", [q, keys], f"scores{n}")
        scaled = self.op("Mul", [scores, c("factor", SIZE ** -0.5, np.float32)], f"scaled{n}")
        weights = self.op("Softmax", [self.op("Add", [scaled, "mask"], f"masked{n}")],
                          f"weights{n}", axis=-1)
        mixed = self.op("Transpose", [self.op("MatMul", [weights, values], f"mixed{n}")],
                        f"mixed_rows{n}", perm=[0, 2, 1, 3])
        flat = self.op("Reshape", [mixed, c("flat", [0, 0, self.heads * SIZE])], f"flat{n}")
        return self.op("Add", [x, self.op("MatMul", [flat, f"wo{n}"], f"projected{n}")], f"x{n}")

    def model(self):
        form = self.form
        self.places()
        x = self.op("Gather", ["embed", "ids"], "embedded")
        for n in range(LAYERS):
            x = self.layer(n, x)
        self.op("MatMul", [x, "logits_w"], "logits")
        kept = TensorProto.INT8 if form.quantised else TensorProto.FLOAT
        inputs = [("ids", TensorProto.INT64, ["batch", "length"]),
                  ("start_pos", TensorProto.INT64, form.start),
                  ("cache", kept, form.packed("max_batch", SIZE, form.slots))]
        if form.quantised:
            inputs.append(("scale", TensorProto.FLOAT,
                           form.packed("max_batch", SIZE // GROUP, form.slots)))
        outputs = [("logits", TensorProto.FLOAT, ["batch", "length", VOCABULARY])]
        return self.build(inputs, outputs, form.domain)


class Reference:
    """The same in numpy; the operator as its page has it, on tensors that it writes into."""

    def __init__(self, decoder, batch):
        self.form, self.weights, self.heads = decoder.form, decoder.weights, decoder.heads
        kept = np.int8 if self.form.quantised else np.float32
        self.cache = np.zeros(self.form.packed(batch, SIZE, SLOTS), kept)
        self.scale = np.zeros(self.form.packed(batch, SIZE // GROUP, SLOTS), np.float32)

    def part(self, tensor, layer, role):
        """[B, M, Nk, D] or its like, as a view."""
        if self.form.layout == 0:
            return tensor[:, layer, role]
        return tensor[layer, :, role].swapaxes(1, 2)

    def kept(self, layer, role, rows, start):
        end = start + rows.shape[1]
        cache, scale = (self.part(t, layer, role) for t in (self.cache, self.scale))
        if not self.form.quantised:
            cache[:, start:end] = rows
            found = cache[:, :end]
        else:
            groups = rows.reshape(*rows.shape[:-1], -1, GROUP)
            unit = np.abs(groups).max(-1, keepdims=True) / np.float32(127)
            unit = np.maximum(unit, np.float32(1e-5))
            cache[:, start:end] = np.rint(groups / unit).astype(np.int8).reshape(rows.shape)
            scale[:, start:end] = unit[..., 0]
            found = cache[:, :end] * np.repeat(scale[:, :end], GROUP, -1)
        return np.repeat(found, self.form.repeat, 2)

    def step(self, ids, start):
        w, length = self.weights, ids.shape[1]
        at = np.arange(start, start + length)
        cos, sin = w["cos_table"][at][:, None], w["sin_table"][at][:, None]
        mask = np.where(np.arange(start + length) <= at[:, None], 0, -np.inf)
        half = SIZE // 2
        turn = lambda r: r * cos + np.concatenate([-r[..., half:], r[..., :half]], -1) * sin
        x = w["embed"][ids]
        for n in range(LAYERS):
            q, k, v = ((x @ w[f"w{r}{n}"]).reshape(*ids.shape, -1, SIZE) for r in "qkv")
            keys = self.kept(n, 0, turn(k).astype(np.float32), start)
            values = self.kept(n, 1, v, start)
            scores = np.einsum("bshd,bthd->bhst", turn(q), keys) * SIZE ** -0.5 + mask
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            mixed = np.einsum("bhst,bthd->bshd", weights, values)
            x = x + mixed.reshape(*ids.shape, -1) @ w[f"wo{n}"]
        return x @ w["logits_w"]


class KeyValueCaches(Tested):
    BATCH, STEPS = 2, (6, 1, 3, 1)

    def saved(self, form):
        decoder = Decoder(form)
        path = self.path(f"{form.name}.onnx")
        onnx.save(decoder.model(), path)
        return decoder, path

    def steps(self, form):
        rng, start = np.random.default_rng(3), 0
        for length in self.STEPS:
            ids = rng.integers(0, VOCABULARY, (self.BATCH, length))
            yield ids, start, np.full(form.start, start, np.int64)
            start += length

    def test_runs_as_the_reference(self):
        for form in FORMS:
            with self.subTest(form.name):
                decoder, path = self.saved(form)
                reference = Reference(decoder, self.BATCH)
                steps, out = self.path(form.name, "in"), self.path(form.name, "out")
                write(os.path.join(steps, "0"), "cache", reference.cache)
                if form.quantised:
                    write(os.path.join(steps, "0"), "scale", reference.scale)
                for k, (ids, _, start_pos) in enumerate(self.steps(form)):
                    write(os.path.join(steps, str(k)), "ids", ids)
                    write(os.path.join(steps, str(k)), "start_pos", start_pos)
                done("run", path, "--steps", steps, "--outputs", out)
                for k, (ids, start, _) in enumerate(self.steps(form)):
                    want = reference.step(ids, start)
                    self.near(read(os.path.join(out, str(k)), 0), want, f"step {k}")
                    cache = read(os.path.join(out, str(k)), 1)
                    self.near(cache.astype(np.float32), reference.cache.astype(np.float32), "cache")

    def test_is_converted_and_proved(self):
        for form in FORMS:
            with self.subTest(form.name):
                decoder, path = self.saved(form)
                target = self.path(f"{form.name}.out.onnx")
                text = done("convert", path, "-o", target, "--verify")
                self.assertIn("verdict: equal (", text)
                with open(target.replace(".onnx", ".kv.json"), encoding="utf-8") as file:
                    manifest = json.load(file)
                caches = manifest["caches"]
                self.assertEqual(len(caches), LAYERS * 2 * (2 if form.quantised else 1))
                for cache in caches:
                    scales = cache["role"].endswith("_scale")
                    self.assertEqual(cache["source"]["input"], "scale" if scales else "cache")
                    self.assertEqual(len(cache["source"]["select"]), 2)
                    self.assertEqual(cache["dtype"], "int8" if form.quantised and not scales
                                     else "float32")
                nodes = onnx.load(target).graph.node
                ops = [node.op_type for node in nodes]
                self.assertEqual(ops.count("TensorScatter"), len(caches))
                self.assertEqual(ops.count("Attention"), LAYERS)
                self.assertNotIn("KeyValueCache", ops)
                self.assertFalse([node.name for node in nodes if "copies" in node.name])
                self.drive(form, decoder, target, manifest)

    def test_stays_packed(self):
        for form in FORMS:
            with self.subTest(form.name):
                decoder, path = self.saved(form)
                target = self.path(f"{form.name}.packed.onnx")
                text = done("convert", path, "-o", target, "--verify", "--cache-tensors", "packed")
                self.assertIn("verdict: equal (", text)
                self.assertNotIn("only tested", text)
                with open(target.replace(".onnx", ".kv.json"), encoding="utf-8") as file:
                    manifest = json.load(file)
                names = ["cache", "scale"] if form.quantised else ["cache"]
                self.assertEqual([c["input"] for c in manifest["caches"]], names)
                first = manifest["caches"][0]
                layouts = ("BNLKSD", "LBKNSD") if form.layout else ("BLKSND", "BLKSND")
                self.assertEqual((first["layout"], first["source"]["layout"]), layouts)
                self.assertEqual((first["role"], first["alias"]), ("key_value", "safe"))
                model = onnx.load(target)
                onnx.checker.check_model(model, full_check=True)
                ops = [node.op_type for node in model.graph.node]
                self.assertEqual(ops.count("TensorScatter"), len(names) * LAYERS * 2)
                self.assertEqual(ops.count("Attention"), LAYERS)
                self.assertEqual(done("check", target), "check: 0 errors, 0 warnings\n")
                self.drive(form, decoder, target, manifest)

    def test_what_stays_packed_is_written_in_place(self):
        for form in (FORMS[0], FORMS[4]):
            _, path = self.saved(form)
            target = self.path("packed.onnx")
            done("convert", path, "-o", target, "--force", "--cache-tensors", "packed")
            table = done("bench", target, "--context", "8")
            self.assertEqual(table.strip().splitlines()[-1].split("|")[-2].strip(), "0", table)

    def test_what_stays_packed_is_converted(self):
        _, path = self.saved(FORMS[1])
        done("convert", path, "-o", self.path("a.onnx"), "--cache-tensors", "packed")
        again = tool("convert", self.path("a.onnx"), "-o", self.path("b.onnx"))
        self.assertIn("nothing: no cache found", again.stdout)
        listed = json.loads(tool("inspect", self.path("a.onnx"), "--json").stdout)["caches"]
        self.assertEqual([(c["reason"]["code"], c["axis"]) for c in listed], [("KV222", 4)])

    def test_a_row_behind_a_part_is_no_row_of_the_next(self):
        """Neither the program nor ONNX Runtime writes there."""
        decoder, path = self.saved(FORMS[0])
        target = self.path("a.onnx")
        done("convert", path, "-o", target, "--cache-tensors", "packed")
        cache = Reference(decoder, self.BATCH).cache
        options = ort.SessionOptions()
        options.log_severity_level = 4
        session = ort.InferenceSession(target, options, providers=["CPUExecutionProvider"])
        for start in (SLOTS, SLOTS - 1, -1):
            feeds = {"ids": np.ones((self.BATCH, 2), np.int64), "cache": cache,
                     "start_pos": np.array(start, np.int64)}
            steps = self.path(str(start))
            for name, value in feeds.items():
                write(steps, name, value)
            run = tool("run", target, "--inputs", steps, "--outputs", self.path("out"))
            self.assertNotEqual(run.returncode, 0)
            self.assertIn("TensorScatter", run.stderr)
            with self.assertRaises(Exception):
                session.run(None, feeds)

    def drive(self, form, decoder, target, manifest):
        """The converted model in ONNX Runtime, against the reference."""
        reference = Reference(decoder, self.BATCH)
        feeds = ({"ids": ids, "start_pos": start_pos} for ids, _, start_pos in self.steps(form))
        driven = self.driven(target, manifest, self.BATCH, feeds)
        for (ids, start, _), got in zip(self.steps(form), driven, strict=True):
            self.near(got["logits"], reference.step(ids, start), f"ONNX Runtime from {start}")

    def test_emitted_loops_decode(self):
        """start_pos is a scalar in one form and a vector in the other."""
        for form in FORMS[:2]:
            for flags in ((), ("--cache-tensors", "packed")):
                with self.subTest(form.name, flags=flags):
                    decoder, path = self.saved(form)
                    target, script = self.path("loop.onnx"), self.path("loop.py")
                    done("convert", path, "-o", target, "--force", "--quiet", *flags)
                    done("emit-loop", target, "-o", script, "--force")
                    spec = importlib.util.spec_from_file_location("loop", script)
                    loop = importlib.util.module_from_spec(spec)
                    spec.loader.exec_module(loop)
                    runner = loop.Decoder(target, self.BATCH, SLOTS, threads=1)
                    reference = Reference(decoder, self.BATCH)
                    for ids, start, _ in self.steps(form):
                        got = runner.step(ids)["logits"]
                        self.near(got, reference.step(ids, start), f"from {start}")

    def test_inspect_lists_the_layers(self):
        _, path = self.saved(FORMS[3])
        document = json.loads(done("inspect", path, "--json"))
        caches = document["caches"] if "caches" in document else document["models"][0]["caches"]
        self.assertEqual([c["id"] for c in caches], ["0.key", "0.value", "1.key", "1.value"])
        for cache in caches:
            self.assertEqual((cache["input"], cache["output"]), ("cache", "present_cache"))
            self.assertEqual(cache["dtype"], "int8")

    def refused(self, form, code, *flags):
        _, path = self.saved(form)
        run = tool("convert", path, "-o", self.path("x.onnx"), *flags)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn(code, run.stdout + run.stderr)
        self.assertFalse(os.path.exists(self.path("x.onnx")))

    def test_what_is_no_cache_of_each_layer_is_refused(self):
        self.refused(dataclasses.replace(FORMS[0], indices=(0, 0)), "KV237")

    def test_a_packed_tensor_is_taken_apart_as_a_whole_or_not_at_all(self):
        self.refused(FORMS[0], "KV238", "--only", "cache.0.*")
        self.refused(FORMS[3], "KV243", "--quantize-cache", "int8:4")
        for flags in (("--quantize-cache", "int8:4"), ("--target", "tensorrt")):
            self.refused(FORMS[0], "KV246", "--cache-tensors", "packed", *flags)
        self.refused(FORMS[0], "KV229", "--cache-tensors", "packed", "--io-names", "static")

    def test_caches_of_their_own_are_not_packed(self):
        source = os.path.join(MODELS, "llama_optimum", "model.onnx")
        run = tool("convert", source, "-o", self.path("x.onnx"), "--cache-tensors", "packed")
        self.assertEqual(run.returncode, 1)
        self.assertIn("KV246  needs a source that keeps all layers in one tensor", run.stdout)

    def test_the_source_is_measured(self):
        for form in (FORMS[1], FORMS[3]):
            _, path = self.saved(form)
            done("bench", path, "--context", "8")

    def test_float_rows_may_be_quantised_on_the_way(self):
        _, path = self.saved(FORMS[1])
        text = done("convert", path, "-o", self.path("x.onnx"), "--quantize-cache", "int8:4",
                    "--verify")
        self.assertIn("verdict: equal within quantisation", text)


if __name__ == "__main__":
    unittest.main()
