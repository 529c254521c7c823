"""convert --tree-mask: trees of drafted tokens, and the loop that emit-loop --speculative writes.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from support.recorded import MODELS
from support.schemas import check_json
from support.tool import done, tool

CAPACITY = 48
TREES = ("llama_optimum", "qwen2_optimum", "gpt2_optimum", "llama_dynamic_dynamo")
REFUSED = (("llama_genai_gqa", ()), ("llama_static_ts", ()), ("gemma2_optimum", ()),
           ("bloom_optimum", ()), ("gpt_oss_optimum", ()), ("toy_transposed_key_ts", ()),
           ("llama_optimum", ("--target", "genai")), ("toy_fifo_shift_ts", ("--mode", "circular")))
# Parents of a tree's tokens: two branches that share their first token, and a third.
PARENTS = (-1, 0, 1, 0, 3, -1)


def source(name):
    return os.path.join(MODELS, name, "model.onnx")


def module_of(folder, path, *flags):
    script = path.removesuffix(".onnx") + ".py"
    done("emit-loop", path, "-o", script, "--force", *flags)
    name = os.path.basename(script).removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ancestors(k):
    path = [k]
    while PARENTS[path[0]] >= 0:
        path.insert(0, PARENTS[path[0]])
    return path


def tree():
    mask = np.zeros((len(PARENTS), len(PARENTS)), bool)
    for k in range(len(PARENTS)):
        mask[k, ancestors(k)] = True
    return mask


def positions_input(module):
    return next(n for n, i in module.INPUTS.items()
                if i.meaning == "positions" and "S" in i.axes)


class TreeMaskTest(unittest.TestCase):
    def convert(self, folder, name, *flags, file="tree.onnx"):
        path = os.path.join(folder, file)
        done("convert", source(name), "-o", path, "--quiet", "--force", *flags)
        return path

    def test_a_lower_triangle_is_the_source(self):
        for name in TREES:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "tree.onnx")
                document = check_json(done("convert", source(name), "-o", path, "--tree-mask",
                                           "--verify", "--json"))
                self.assertEqual(document["verify"]["verdict"], "equal")
                with open(path.removesuffix(".onnx") + ".kv.json", encoding="utf-8") as file:
                    manifest = check_json(file.read())
                entry = next(i for i in manifest["inputs"] if i["name"] == "tree_mask")
                self.assertEqual(entry, {"name": "tree_mask", "as": "control",
                                         "value": "lower_triangle", "dtype": "bool",
                                         "shape": ["B", "1|N", "S", "S"]})
                onnx.checker.check_model(onnx.load(path), full_check=True)
                self.assertEqual(done("check", path), "check: 0 errors, 0 warnings\n")

    def test_bits_of_the_model_without(self):
        random = np.random.default_rng(1)
        tokens = random.integers(0, 90, (2, 7))
        for name in TREES:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                plain = module_of(folder, self.convert(folder, name, file="plain.onnx"))
                trees = module_of(folder, self.convert(folder, name, "--tree-mask"))
                one = plain.Decoder(plain.MODEL, 2, CAPACITY, threads=1)
                two = trees.Decoder(trees.MODEL, 2, CAPACITY, threads=1)
                for part in (tokens[:, :5], tokens[:, 5:6], tokens[:, 6:]):
                    want, got = one.step(part)["logits"], two.step(part)["logits"]
                    np.testing.assert_array_equal(got, want)

    def test_each_branch_is_decoded_as_if_it_were_alone(self):
        random = np.random.default_rng(4)
        prompt = random.integers(0, 90, (2, 5))
        for name in TREES:
            for flags in ((), ("--target", "ort"), ("--mask", "explicit"), ("--read", "full"),
                          ("--padding", "none")):
                with self.subTest(name=name, flags=flags), \
                        tempfile.TemporaryDirectory() as folder:
                    path = self.convert(folder, name, "--tree-mask", *flags)
                    self.branches(module_of(folder, path), prompt, random)

    def branches(self, module, prompt, random):
        decoder = module.Decoder(module.MODEL, 2, CAPACITY, threads=1)
        # Sequences of different lengths: the second one holds two tokens less.
        decoder.step(prompt, real=[5, 3])
        tokens = random.integers(0, 90, (2, len(PARENTS)))
        depth = np.array([len(ancestors(k)) - 1 for k in range(len(PARENTS))])
        tree_input = next(n for n, i in module.INPUTS.items() if i.meaning == "tree")
        got = decoder.step(tokens, feeds={
            tree_input: np.broadcast_to(tree(), (2, 1, *tree().shape)),
            positions_input(module): np.array([[5], [3]]) + depth})["logits"]
        for k in range(len(PARENTS)):
            decoder.lengths[:] = (5, 3)  # nothing is committed
            want = decoder.step(tokens[:, ancestors(k)])["logits"][:, -1]
            np.testing.assert_allclose(got[:, k], want, rtol=0, atol=1e-4 * np.abs(want).max())

    def feeds(self, path):
        """Of a step of PARENTS' tree behind four tokens; caches hold noise."""
        random = np.random.default_rng(8)
        size, past = len(PARENTS), 4
        feeds = {"input_ids": random.integers(0, 90, (1, size)),
                 "attention_mask": np.ones((1, CAPACITY), np.int64),
                 "position_ids": np.array([[past + len(ancestors(k)) - 1 for k in range(size)]]),
                 "write_indices": np.array([past]), "tree_mask": tree()[None, None]}
        for value in onnx.load(path).graph.input:
            if value.name.startswith("past"):
                feeds[value.name] = random.standard_normal((1, 2, CAPACITY, 12)).astype(np.float32)
        return feeds

    def ran_by_ort(self, path, feeds):
        options = ort.SessionOptions()
        options.log_severity_level = 3
        return ort.InferenceSession(path, options).run(["logits"], feeds)[0]

    def ran_by_us(self, folder, path, feeds):
        for name, value in feeds.items():
            np.save(os.path.join(folder, name + ".npy"), value)
        done("run", path, "--inputs", folder, "--outputs", os.path.join(folder, "out"))
        tensor = onnx.TensorProto()
        with open(os.path.join(folder, "out", "output_0.pb"), "rb") as file:
            tensor.ParseFromString(file.read())
        return numpy_helper.to_array(tensor)

    def same(self, got, want):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * np.abs(want).max())

    def test_the_executor_draws_the_same_tree(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.convert(folder, "llama_optimum", "--tree-mask")
            feeds = self.feeds(path)
            self.same(self.ran_by_us(folder, path, feeds), self.ran_by_ort(path, feeds))

    def test_each_head_may_have_a_tree_of_its_own(self):
        heads, size = 4, len(PARENTS)
        with tempfile.TemporaryDirectory() as folder:
            plain = self.convert(folder, "llama_optimum", "--tree-mask")
            other = self.convert(folder, "llama_optimum", "--tree-mask", "--target", "ort",
                                 "--mask", "explicit", file="other.onnx")
            feeds = self.feeds(plain)
            alike = self.ran_by_us(folder, plain, feeds)
            feeds["tree_mask"] = np.repeat(feeds["tree_mask"], heads, 1)
            for path in (plain, other):
                self.same(self.ran_by_us(folder, path, feeds), alike)
                self.same(self.ran_by_ort(path, feeds), alike)
            chain = np.tri(size, dtype=bool)
            found = []
            for head in range(heads):
                own = np.repeat(tree()[None, None], heads, 1)
                own[:, head] = chain
                feeds["tree_mask"] = own
                found.append(self.ran_by_us(folder, plain, feeds))
                for path in (plain, other):
                    self.same(self.ran_by_ort(path, feeds), found[-1])
                self.same(self.ran_by_us(folder, other, feeds), found[-1])
            for k, one in enumerate(found):
                for unlike in [alike, *found[:k]]:
                    self.assertGreater(np.abs(one - unlike).max(), 1e-3 * np.abs(one).max())

    def test_models_that_cannot_draw_trees(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, flags in REFUSED:
                with self.subTest(name=name, flags=flags):
                    path = os.path.join(folder, "out.onnx")
                    run = tool("convert", source(name), "-o", path, "--tree-mask", "--json", *flags)
                    self.assertEqual(run.returncode, 1, run.stderr)
                    document = check_json(run.stdout)
                    self.assertEqual(document["status"], "refused")
                    codes = {c["reason"]["code"] for c in document["caches"] if c["reason"]}
                    self.assertEqual(codes, {"KV235"})
                    self.assertFalse(os.path.exists(path))

    def noisy(self, path, amount):
        """A draft that is often right, and often second to right."""
        model, random = onnx.load(path), np.random.default_rng(6)
        for tensor in model.graph.initializer:
            value = numpy_helper.to_array(tensor)
            if value.dtype == np.float32 and value.size > 64:
                noise = random.standard_normal(value.shape).astype(np.float32)
                tensor.CopyFrom(numpy_helper.from_array(
                    value + amount * value.std() * noise, tensor.name))
        out = path.removesuffix(".onnx") + "_noisy.onnx"
        onnx.save(model, out)
        return out

    def test_speculation_says_what_decoding_says(self):
        prompt, count = [5, 6, 7, 8, 9], 24
        with tempfile.TemporaryDirectory() as folder:
            path = self.convert(folder, "llama_optimum", "--tree-mask")
            trees = module_of(folder, path, "--speculative")
            plain = module_of(folder, self.convert(folder, "llama_optimum", file="plain.onnx"))
            want = plain.Decoder(plain.MODEL, 1, CAPACITY).generate([prompt], count)[0].tolist()
            other = module_of(folder, self.convert(folder, "gpt2_optimum", file="other.onnx"))
            noisy = self.noisy(plain.MODEL, 0.2)
            steps = {}
            for name, loop, model in (("same", plain, plain.MODEL), ("noisy", plain, noisy),
                                      ("other", other, other.MODEL)):
                for depth in (1, 4):
                    decoder = trees.Decoder(trees.MODEL, 1, CAPACITY)
                    draft = loop.Decoder(model, 1, CAPACITY)
                    speculator = trees.Speculator(decoder, draft, depth)
                    self.assertEqual(speculator.generate(prompt, count), want, (name, depth))
                    steps[name, depth] = speculator.steps
            # One step for depth and one token more.
            self.assertLessEqual(steps["same", 4], 6)
            self.assertLess(steps["noisy", 4], count - 1)
            self.assertLess(steps["same", 4], steps["noisy", 4])
            # As many tokens as fit, and not one more.
            decoder = trees.Decoder(trees.MODEL, 1, len(prompt) + count - 1)
            draft = plain.Decoder(noisy, 1, len(prompt) + count - 1)
            self.assertEqual(trees.Speculator(decoder, draft).generate(prompt, count), want)
            self.by_itself(trees, plain, path, noisy, prompt, count, want)

    def by_itself(self, trees, plain, path, noisy, prompt, count, want):
        run = subprocess.run(
            [sys.executable, trees.__file__, path, "--draft-loop", plain.__file__, "--draft", noisy,
             "--prompt", ",".join(map(str, prompt)), "--new", str(count), "--capacity", "64"],
            capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout, ",".join(map(str, want)) + "\n")

    def test_what_cannot_speculate_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            plain = self.convert(folder, "llama_optimum", file="plain.onnx")
            run = tool("emit-loop", plain, "--speculative")
            self.assertEqual(run.returncode, 4)
            self.assertIn("--tree-mask", run.stderr)
            path = self.convert(folder, "llama_optimum", "--tree-mask")
            self.assertEqual(tool("emit-loop", path, "--speculative", "--lang", "cpp-ort").returncode,
                             2)


if __name__ == "__main__":
    unittest.main()
