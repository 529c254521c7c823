"""Decoders whose cosines and sines an If chooses by the number of tokens, as onnxruntime-genai's
model builder writes LongRoPE (Phi-3, Phi-4): one table for short sequences, one for long ones.

They are converted and proved equal; then the source and what it became are run beside each other in
ONNX Runtime until the choice has changed. Environment: KVLIFT, the tool.
"""
import json
import os
import tempfile
import unittest

import numpy as np
import onnx
from onnx import helper, numpy_helper

from support.cases import session
from support.recorded import MODELS
from support.tool import done, tool

SOURCE = "llama_genai_gqa"
HEADS, SIZE, SLOTS, SHORT = 2, 16, 40, 12
STEPS = (4, 1, 3, 1, 2, 1, 1, 1, 5, 1, 1)


def branch(name, tables, inside):
    """A body that gives two tables, as Constant nodes or as initializers."""
    outputs = [helper.make_tensor_value_info(f"{name}_{role}", 1, None) for role in tables]
    tensors = [numpy_helper.from_array(table, f"{name}_{role}") for role, table in tables.items()]
    nodes = [] if inside else [helper.make_node("Constant", [], [t.name], value=t) for t in tensors]
    return helper.make_graph(nodes, name, [], outputs, initializer=tensors if inside else [])


def choose(model, inside=False, rows=(SHORT, 64)):
    """Lets an If choose the tables of the model: others for more than SHORT tokens."""
    graph, tables = model.graph, {}
    for tensor in list(graph.initializer):
        if tensor.name in ("cos_cache", "sin_cache"):
            tables[tensor.name] = numpy_helper.to_array(tensor)
            graph.initializer.remove(tensor)
    for value in list(graph.value_info):
        if value.name in tables:
            graph.value_info.remove(value)
    angles = np.arange(64)[:, None] / 9.0 ** np.arange(tables["cos_cache"].shape[1])[None]
    long = {"cos_cache": np.cos(angles).astype(np.float32),
            "sin_cache": np.sin(angles).astype(np.float32)}
    short = {role: table[:rows[0]] for role, table in tables.items()}
    long = {role: table[:rows[1]] for role, table in long.items()}
    nodes = [helper.make_node("Shape", ["attention_mask"], ["mask_shape"]),
             helper.make_node("Gather", ["mask_shape", "at_1"], ["tokens"]),
             helper.make_node("Greater", ["tokens", "short"], ["many"]),
             helper.make_node("If", ["many"], ["cos_cache", "sin_cache"],
                              then_branch=branch("long", long, inside),
                              else_branch=branch("short", short, inside))]
    for name, number in (("at_1", 1), ("short", SHORT)):
        graph.initializer.append(numpy_helper.from_array(np.array(number), name))
    kept = list(graph.node)
    del graph.node[:]
    graph.node.extend(nodes + kept)
    return model


class LongRope(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def saved(self, **options):
        path = os.path.join(self.folder, "source.onnx")
        onnx.save(choose(onnx.load(os.path.join(MODELS, SOURCE, "model.onnx")), **options), path)
        return path

    def converted(self, source, *options):
        target = os.path.join(self.folder, "target.onnx")
        text = done("convert", source, "-o", target, "--force", "--verify", *options)
        self.assertIn("verdict: equal (", text)
        self.assertNotIn("only tested", text)
        if not options:  # the choice is that of each sequence by itself
            self.assertRegex(text, r"ragged +bitwise")
        with open(target.replace(".onnx", ".kv.json"), encoding="utf-8") as file:
            return target, json.load(file)

    def drive(self, source, target, manifest):
        a, b = session(source), session(target)
        wanted = {i.name for i in b.get_inputs()}
        rows = {c["source"]["input"]: np.zeros((1, HEADS, 0, SIZE), np.float32)
                for c in manifest["caches"]}
        buffers = {c["input"]: np.zeros((1, HEADS, SLOTS, SIZE), np.float32)
                   for c in manifest["caches"]}
        rng, start, sides = np.random.default_rng(11), 0, set()
        for length in STEPS:
            total = start + length
            sides.add(total > SHORT)
            feeds = {"input_ids": rng.integers(1, 96, (1, length)),
                     "attention_mask": np.ones((1, total), np.int64)}
            want = dict(zip([o.name for o in a.get_outputs()], a.run(None, {**feeds, **rows})))
            feeds["write_indices"] = np.array([start])
            fed = {name: x for name, x in feeds.items() if name in wanted}
            got = dict(zip([o.name for o in b.get_outputs()], b.run(None, {**fed, **buffers})))
            np.testing.assert_allclose(got["logits"], want["logits"], rtol=0, atol=2e-5)
            for cache in manifest["caches"]:
                rows[cache["source"]["input"]] = want[cache["source"]["output"]]
                buffers[cache["input"]] = got[cache["output"]]
            start = total
        self.assertEqual(sides, {False, True})

    def test_is_proved_and_gives_what_onnx_runtime_gives(self):
        for inside in (False, True):
            for options in ((), ("--target", "genai")):
                with self.subTest(inside=inside, options=options):
                    source = self.saved(inside=inside)
                    target, manifest = self.converted(source, *options)
                    self.drive(source, target, manifest)
                    ops = {node.op_type for node in onnx.load(target).graph.node}
                    self.assertFalse(ops & {"If", "GroupQueryAttention"})

    def test_under_a_bound_that_the_tables_have_rows_for(self):
        for options in (("--max-seq-len", "64"), ("--max-seq-len", "30")):
            with self.subTest(options=options):
                self.converted(self.saved(), *options)

    def test_beside_a_layer_with_tables_of_its_own(self):
        plain = onnx.load(os.path.join(MODELS, SOURCE, "model.onnx"))
        model = onnx.load(self.saved())
        for tensor in plain.graph.initializer:
            if tensor.name in ("cos_cache", "sin_cache"):
                rows = numpy_helper.to_array(tensor)[:64]
                model.graph.initializer.append(numpy_helper.from_array(rows, "all_" + tensor.name))
        last = [n for n in model.graph.node if n.op_type == "GroupQueryAttention"][-1]
        last.input[7], last.input[8] = "all_cos_cache", "all_sin_cache"
        path = os.path.join(self.folder, "source.onnx")
        onnx.save(model, path)
        target, manifest = self.converted(path)
        self.drive(path, target, manifest)
        self.converted(path, "--max-seq-len", "64")

    def test_a_condition_on_the_past_alone(self):
        model = onnx.load(self.saved(rows=(SLOTS, 64)))
        for node in model.graph.node:
            if node.output[0] == "mask_shape":
                node.input[0] = "past_key_values.0.key"
            if node.output[0] == "tokens":
                node.input[1] = "at_2"
        model.graph.initializer.append(numpy_helper.from_array(np.array(2), "at_2"))
        path = os.path.join(self.folder, "source.onnx")
        onnx.save(model, path)
        target, manifest = self.converted(path)
        self.drive(path, target, manifest)

    def test_a_condition_of_any_rank(self):
        model = onnx.load(self.saved())
        model.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.int64), "ones"))
        node = next(n for n in model.graph.node if n.op_type == "If")
        at = list(model.graph.node).index(node)
        model.graph.node.insert(at, helper.make_node("Reshape", [node.input[0], "ones"], ["rank4"]))
        node.input[0] = "rank4"
        path = os.path.join(self.folder, "source.onnx")
        onnx.save(model, path)
        target, manifest = self.converted(path)
        self.drive(path, target, manifest)

    def test_what_else_an_if_gives_and_what_stands_behind_it(self):
        model = onnx.load(self.saved())
        node = next(n for n in model.graph.node if n.op_type == "If")
        for attribute in node.attribute:
            if attribute.name.endswith("_branch"):
                body, unused = attribute.g, f"{attribute.g.name}_unused"
                tensor = numpy_helper.from_array(np.zeros(3, np.float32), unused)
                body.node.append(helper.make_node("Constant", [], [unused], value=tensor))
                body.output.insert(0, helper.make_tensor_value_info(unused, 1, [3]))
        node.output.insert(0, "unused")
        node.output[1] = "chosen_cos"
        at = list(model.graph.node).index(node) + 1
        model.graph.node.insert(at, helper.make_node("Identity", ["chosen_cos"], ["cos_cache"]))
        path = os.path.join(self.folder, "source.onnx")
        onnx.save(model, path)
        target, manifest = self.converted(path)
        self.drive(path, target, manifest)

    def test_another_choice_is_another_model(self):
        source = self.saved()
        target, _ = self.converted(source)
        model = onnx.load(source)
        for tensor in model.graph.initializer:
            if tensor.name == "short":
                tensor.CopyFrom(numpy_helper.from_array(np.array(SHORT - 1), "short"))
        onnx.save(model, source)
        run = tool("verify", source, target)
        self.assertIn("verdict: different", run.stdout)

    def test_tables_of_other_widths_are_refused(self):
        model = onnx.load(self.saved())
        node = next(n for n in model.graph.node if n.op_type == "If")
        for attribute in node.attribute:
            if attribute.name == "else_branch":
                for inner in attribute.g.node:
                    table = numpy_helper.to_array(inner.attribute[0].t)[:, :4]
                    inner.attribute[0].t.CopyFrom(numpy_helper.from_array(np.array(table)))
        path = os.path.join(self.folder, "narrow.onnx")
        onnx.save(model, path)
        run = tool("convert", path, "-o", os.path.join(self.folder, "x.onnx"))
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("needs tables of cosines and sines of a constant width",
                      " ".join((run.stdout + run.stderr).split()))


if __name__ == "__main__":
    unittest.main()
