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
import unittest

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from support.dynamic_batching import (FORMS, LETTERS, STARTS, Decoder, Form, Reference, starts_of,
                                      tensors_of)
from support.openppl import HEADS, LAYERS, SIZE, VOCABULARY, Model, Tested, read, write
from support.tool import done, tool


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
                self.drive(form, decoder, target, manifest)

    def drive(self, form, decoder, target, manifest):
        """The converted model in ONNX Runtime, against the reference."""
        reference = Reference(form, decoder.weights)
        feeds = ({"ids": ids, "start_pos": starts["start_pos"]}
                 for ids, _, starts in self.steps(form))
        driven = self.driven(target, manifest, 1, feeds)
        for (ids, start, _), got in zip(self.steps(form), driven, strict=True):
            want = reference.step(ids, start)
            self.near(got["logits"], want, f"ONNX Runtime from {start}")
            self.near(got["last_logits"], want[-1:], f"ONNX Runtime, last from {start}")

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

    def test_a_relation_that_says_otherwise_proves_nothing(self):
        _, path = self.saved(FORMS[0])
        target, manifest = self.path("x.onnx"), self.path("x.kv.json")
        done("convert", path, "-o", target)
        with open(manifest, encoding="utf-8") as file:
            relation = json.load(file)
        other = [{**d, "requires": "0, S"} if d["name"] == "kvstarts" else d
                 for d in relation["dropped"]]
        renamed = [{**d, "name": d["name"] + "2"} for d in relation["dropped"]]
        for dropped, code in ((other, "KV402"), (renamed, "KV403"), (other[1:], "KV403")):
            with open(manifest, "w", encoding="utf-8") as file:
                json.dump({**relation, "dropped": dropped}, file)
            run = tool("verify", path, target)
            self.assertIn(f"{code} ", run.stdout)
            self.assertIn("verdict: inconclusive", run.stdout)

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
        self.refused(form(kept=False, computed=("kvstarts",)), "KV249", "needs rows [S, Nk, D]")
        self.refused(form(later=1), "KV237", "one start_pos")
        self.refused(form(indices=(0, 0)), "KV237", "written once")


if __name__ == "__main__":
    unittest.main()
