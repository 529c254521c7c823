"""convert --freeze: static shapes, one file of weights, and the numbers of the unfrozen conversion.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import glob
import json
import os
import shutil
import tempfile
import unittest

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from onnx import TensorProto, shape_inference

from support.cases import session
from support.recorded import MODELS, metas
from support.schemas import check_json
from support.tool import done, tool

CAPACITY = 16
TOKENS = (1, 4)
LLAMA = os.path.join(MODELS, "llama_optimum", "model.onnx")
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64,
         "tensor(int32)": np.int32, "tensor(int8)": np.int8, "tensor(bool)": np.bool_}

# Models that declare a size themselves, or have further ones.
FREEZE = {"llama_optimum_merged": "batch=1,tokens=1",
          "toy_onehot_where_ts": "batch=1,tokens=1",
          "whisper_decoder_with_past_optimum": "batch=1,tokens=1|4,encoder_sequence_length=7",
          "llama_genai_gqa": "batch=1,tokens=1|4",
          "llama_genai_gqa_int8": "batch=1,tokens=1|4"}


def with_odd_dimensions(path):
    """Writes a decoder whose dimensions have no roles in their names, one of them of no token."""
    model = onnx.load(LLAMA)
    names = {"batch_size": "n", "sequence_length": "k", "past_sequence_length": "p"}
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = " + ".join(names.get(part, part)
                                           for part in dim.dim_param.split(" + "))
    model.graph.input.append(
        onnx.helper.make_tensor_value_info("more", TensorProto.FLOAT, ["extra"]))
    model.graph.output.append(
        onnx.helper.make_tensor_value_info("less", TensorProto.FLOAT, ["extra"]))
    model.graph.node.append(onnx.helper.make_node("Neg", ["more"], ["less"]))
    onnx.save(model, path)


def manifest_of(path):
    with open(path.removesuffix(".onnx") + ".kv.json", encoding="utf-8") as file:
        return json.load(file)


def open_dimensions(path):
    """Returns the values of a graph whose type is not static, by ONNX's inference too."""
    model = onnx.load(path, load_external_data=False)
    inferred = shape_inference.infer_shapes(model, data_prop=True)
    declared = {v.name: v for graph in (model.graph, inferred.graph)
                for values in (graph.input, graph.value_info, graph.output) for v in values}
    made = {name for node in model.graph.node for name in node.output if name}
    known = made & set(declared) | {v.name for v in model.graph.input}
    wrong = [name for name in made - known]
    for name in sorted(known):
        shape = declared[name].type.tensor_type
        if not shape.HasField("shape") or any(not d.HasField("dim_value") for d in shape.shape.dim):
            wrong.append(name)
    return wrong


def feeds_for(inputs, manifest, past, random):
    """Returns numbers for each input of a graph with static shapes, in a step behind `past` tokens."""
    feeds = {}
    caches = {c["input"] for c in manifest["caches"]}
    controls = {i["name"]: i["value"] for i in manifest["inputs"] if i["as"] == "control"}
    tokens = manifest["frozen"]["tokens"]
    for entry in inputs:
        shape, kind = entry.shape, TYPES[entry.type]
        if entry.name in controls:
            value = np.full(shape, past + (tokens if controls[entry.name] == "T" else 0))
        elif entry.name in caches or np.issubdtype(kind, np.floating):
            value = random.standard_normal(shape) if np.issubdtype(kind, np.floating) else \
                random.integers(-8, 8, shape)
        elif "mask" in entry.name:
            value = np.broadcast_to(np.arange(shape[-1]) < past + tokens, shape)
        elif "pos" in entry.name:
            value = np.broadcast_to(np.arange(past, past + tokens)[:shape[-1]] if shape else past,
                                    shape)
        elif entry.name == "total_sequence_length":
            value = np.full(shape, past + tokens)
        elif entry.name == "seqlens_k":
            value = np.full(shape, past + tokens - 1)
        else:
            value = random.integers(1, 8, shape)
        feeds[entry.name] = np.ascontiguousarray(value).astype(kind)
    return feeds


def run(model, feeds):
    return dict(zip([o.name for o in model.get_outputs()], model.run(None, feeds)))


class NotFrozenTest(unittest.TestCase):
    def test_a_size_of_the_model_is_no_frozen_one(self):
        """The source names the width of a head, and the conversion numbers it."""
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "o.onnx")
            source = os.path.join(MODELS, "llama_genai_gqa", "model.onnx")
            done("convert", source, "-o", out)
            text = done("verify", source, out)
            self.assertIn("\nfor all shapes ", text)
            self.assertNotIn("frozen", text)
            self.assertIn("assumed: kv_cache_dim = 16 in every step", text)
            document = json.loads(done("verify", source, out, "--json"))
            kinds = {a["kind"] for a in document["assumptions"] if a["subject"] == "kv_cache_dim"}
            self.assertEqual(kinds, {"dimension"})


    def test_plans_run_no_other_size_than_the_ledger_says(self):
        """One input of the first layer alone declares that there is one sequence."""
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(MODELS, "gpt2_optimum", "model.onnx")
            out = os.path.join(folder, "o.onnx")
            done("convert", source, "-o", out)
            model = onnx.load(out)
            positions, = [i for i in model.graph.input if i.name == "position_ids"]
            positions.type.tensor_type.shape.dim[0].dim_value = 1
            onnx.save(model, out)
            document = json.loads(done("verify", source, out, "--json"))
            self.assertIn("batch_size = 1 in every step, as the converted model declares",
                          [a["condition"] for a in document["assumptions"]])
            status = {plan["name"]: plan["status"] for plan in document["plans"]}
            self.assertEqual([status[name] for name in ("batch", "ragged", "nine sequences")],
                             3 * ["skipped"])
            self.assertIn("batch_size = 1", document["whole_because"])


class FreezeTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def at(self, name):
        return os.path.join(self.folder, name)

    def frozen(self, source, name, freeze, *flags):
        """Returns the paths of the graphs, and the document."""
        out = self.at(name + ".onnx")
        document = check_json(done("convert", source, "-o", out, "--freeze", freeze, "--json",
                                   "--max-seq-len", CAPACITY, *flags))
        self.assertEqual(document["status"], "converted")
        return [graph["model"] for graph in document["frozen"]], document

    def odd(self):
        """Returns a model that calls the tokens of its positions otherwise than those of its ids."""
        model = onnx.load(LLAMA)
        positions = [i for i in model.graph.input if i.name == "position_ids"][0]
        positions.type.tensor_type.shape.dim[1].dim_param = "other"
        onnx.save(model, self.at("odd.onnx"))
        return self.at("odd.onnx")

    def refused(self, code, text, *args):
        """Expects a refusal with a code of the exit and a text."""
        run_ = tool("convert", *args, "-o", self.at("refused.onnx"))
        self.assertEqual(run_.returncode, code, run_.stdout + run_.stderr)
        self.assertIn(text, run_.stdout + run_.stderr)
        self.assertEqual(glob.glob(self.at("refused*")), [])

    def close(self, actual, expected, what):
        np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64),
                                   atol=1e-4, rtol=1e-3, err_msg=what)

    def test_one_graph_is_the_output_itself(self):
        paths, document = self.frozen(LLAMA, "one", "batch=1,tokens=4")
        self.assertEqual(paths, [self.at("one.onnx")])
        self.assertEqual(sorted(document["outputs"]), sorted([self.at("one.onnx"),
                                                              self.at("one.kv.json")]))
        frozen = manifest_of(paths[0])["frozen"]
        self.assertEqual(frozen, {"batch": 1, "tokens": 4, "short_steps": "pad_right", "dims": [
            {"name": "batch_size", "size": 1}, {"name": "sequence_length", "size": 4}]})
        self.assertEqual(open_dimensions(paths[0]), [])
        operators = {node.op_type for node in onnx.load(paths[0]).graph.node}
        self.assertFalse(operators & {"Shape", "Range", "NonZero"}, operators)

    def test_graphs_share_one_file_of_weights(self):
        paths, document = self.frozen(LLAMA, "two", "batch=1,tokens=1|4")
        self.assertEqual(paths, [self.at("two.tokens1.onnx"), self.at("two.tokens4.onnx")])
        data = glob.glob(self.at("two.*.data"))
        self.assertEqual(len(data), 1)
        self.assertIn(data[0], document["outputs"])
        size = sum(t.ByteSize() for t in onnx.load(LLAMA).graph.initializer)
        self.assertLess(os.path.getsize(data[0]), size + 64 * 1024)
        named = []
        for path in paths:
            graph = onnx.load(path, load_external_data=False).graph
            for tensor in graph.initializer:
                self.assertLess(len(tensor.raw_data), 1024, tensor.name)
            named.append({t.name: sorted((e.key, e.value) for e in t.external_data)
                          for t in graph.initializer if t.external_data})
            done("check", path)
        shared = set(named[0]) & set(named[1])
        self.assertGreater(len(shared), 10)
        for name in shared:
            self.assertEqual(named[0][name], named[1][name])

    def test_companions_of_a_graph(self):
        paths, _ = self.frozen(LLAMA, "two", "batch=1,tokens=1|4")
        for path in paths:
            moves = path.removesuffix(".onnx") + ".moves.onnx"
            done("emit-maintenance", path, "-o", moves)
            done("emit-loop", path, "-o", path + ".py")
            session(moves)

    def test_external_weights_are_not_copied_for_each_graph(self):
        model = onnx.load(LLAMA)
        source = self.at("source.onnx")
        onnx.save(model, source, save_as_external_data=True, location="source.data",
                  size_threshold=256)
        self.frozen(source, "near", "batch=1,tokens=1|4")
        self.assertEqual([os.path.basename(p) for p in glob.glob(self.at("near.*.data"))], [])
        os.mkdir(self.at("far"))
        out = self.at("far/out.onnx")
        done("convert", source, "-o", out, "--freeze", "batch=1,tokens=1|4", "--max-seq-len", "16")
        self.assertEqual(len(glob.glob(self.at("far/*.data"))), 1)
        for path in glob.glob(self.at("far/*.onnx")):
            session(path)

    def test_bundled_models_in_onnx_runtime(self):
        random = np.random.default_rng(5)
        frozen = 0
        for meta in metas():
            name = meta["name"]
            source = os.path.join(MODELS, name, "model.onnx")
            plain = self.at(name + ".plain.onnx")
            flags = ("--max-seq-len", CAPACITY, "--accept", "unproved")
            # Attention over whole buffers is what --freeze needs; some models have none.
            if tool("convert", source, "-o", plain, "--read", "full", *flags).returncode != 0:
                continue
            with self.subTest(model=name):
                graphs = tool("convert", source, "-o", self.at(name + ".onnx"), "--freeze",
                              FREEZE.get(name, "batch=1,tokens=1|4"), "--json", *flags)
                document = check_json(graphs.stdout)
                self.assertEqual(document["status"], "converted", graphs.stdout[-3000:])
                unfrozen = session(plain)
                for graph in document["frozen"]:
                    path = graph["model"]
                    self.assertEqual(open_dimensions(path), [], path)
                    done("check", path)
                    model = session(path)
                    for past in (0, 5):
                        feeds = feeds_for(model.get_inputs(), manifest_of(path), past, random)
                        wanted = run(unfrozen, feeds)
                        for key, value in run(model, feeds).items():
                            self.close(value, wanted[key], f"{path}, {past}, {key}")
                    frozen += 1
        self.assertGreater(frozen, 20)

    def test_a_padded_prompt_and_tokens_behind_it(self):
        """The rows of padding tokens are overwritten, and real tokens are given the same."""
        self.padded_prompts(4, ("llama_optimum", "qwen2_optimum", "gemma2_optimum",
                                "gpt2_optimum"))

    def test_a_prompt_of_the_whole_buffer(self):
        """A graph whose step fills the buffers has no past; that for one token goes on."""
        self.padded_prompts(CAPACITY, ("llama_optimum", "gpt2_optimum"))
        out, _ = self.frozen(LLAMA, "whole", f"batch=1,tokens={CAPACITY}")
        text = done("verify", LLAMA, out[0], "--verbose")
        self.assertRegex(text, "decode steps: 0: a step fills the buffers")
        self.assertRegex(text, "verdict: equal ")

    def padded_prompts(self, width, names):
        random = np.random.default_rng(9)
        for name in names:
            with self.subTest(model=name):
                source = os.path.join(MODELS, name, "model.onnx")
                plain = self.at(name + ".plain.onnx")
                done("convert", source, "-o", plain, "--max-seq-len", CAPACITY)
                paths, _ = self.frozen(source, name, f"batch=1,tokens=1|{width}")
                self.assertEqual(manifest_of(paths[1])["frozen"]["short_steps"], "pad_right")
                one, long, unfrozen = session(paths[0]), session(paths[1]), session(plain)
                prompt, answer = random.integers(1, 8, 6), random.integers(1, 8, 3)
                caches = {c["output"]: c["input"] for c in manifest_of(paths[0])["caches"]}
                shapes = {i.name: i.shape for i in one.get_inputs()}
                begin = {name: random.standard_normal(shapes[name]).astype(np.float32)
                         for name in caches.values()}
                mine, theirs = dict(begin), dict(begin)

                def step(model, buffers, tokens, past, width):
                    padded = np.concatenate([tokens, random.integers(1, 8, width - len(tokens))])
                    feeds = {"input_ids": padded.reshape(1, -1),
                             "write_indices": np.array([past]),
                             "position_ids": np.arange(past, past + width).reshape(1, -1),
                             "attention_mask": (np.arange(CAPACITY) < past + len(tokens))
                             .astype(np.int64).reshape(1, -1)}
                    feeds = {i.name: feeds[i.name] for i in model.get_inputs() if i.name in feeds}
                    found = run(model, {**feeds, **buffers})
                    buffers.update({caches[key]: found[key] for key in caches})
                    return found["logits"][:, :len(tokens)]

                wanted = step(unfrozen, theirs, prompt, 0, 6)
                found = [step(long, mine, prompt[k:k + width], k, width)
                         for k in range(0, len(prompt), width)]
                self.close(np.concatenate(found, axis=1), wanted, name)
                for k, token in enumerate(answer):
                    wanted = step(unfrozen, theirs, token.reshape(1), 6 + k, 1)
                    self.close(step(one, mine, token.reshape(1), 6 + k, 1), wanted, name)

    def test_the_verdict_names_the_sizes(self):
        paths, document = self.frozen(LLAMA, "two", "batch=1,tokens=1|4")
        for path, graph in zip(paths, document["frozen"]):
            self.assertEqual(graph["equality"]["shown"], "proved")
            verdict = check_json(done("verify", LLAMA, path, "--json"))
            self.assertEqual(verdict["verdict"], "equal", verdict["reason"])
            sizes = {a["subject"]: a["condition"] for a in verdict["assumptions"]
                     if a["kind"] == "frozen_size"}
            self.assertEqual(set(sizes), {"batch_size", "sequence_length"})
            self.assertIn(f"sequence_length = {graph['tokens']}", sizes["sequence_length"])
            short = [p for p in verdict["plans"] if p["name"] == "short steps"]
            self.assertEqual([p["status"] for p in short],
                             ["within bound"] if graph["tokens"] > 1 else [])

    def test_short_steps_are_excluded_where_the_tokens_are_counted(self):
        model = onnx.load(LLAMA)
        for node in model.graph.node:
            node.output[:] = ["plain" if o == "logits" else o for o in node.output]
        made = onnx.helper.make_node
        model.graph.node.extend([
            made("Shape", ["input_ids"], ["counted"], start=1, end=2),
            made("Cast", ["counted"], ["count"], to=TensorProto.FLOAT),
            made("Mul", ["plain", "count"], ["logits"])])
        source = self.at("counts.onnx")
        onnx.save(model, source)
        paths, _ = self.frozen(source, "counted", "batch=1,tokens=1|4")
        for path in paths:
            manifest = manifest_of(path)
            self.assertEqual(manifest["frozen"]["short_steps"], "none")
            codes = {p["code"] for p in manifest["preconditions"]}
            self.assertNotIn("KV310", codes)
        self.assertIn("KV236", codes)
        verdict = json.loads(done("verify", source, paths[1], "--json"))
        self.assertEqual(verdict["verdict"], "equal")
        self.assertEqual([p["status"] for p in verdict["plans"] if p["name"] == "short steps"],
                         ["skipped"])
        plain, _ = self.frozen(LLAMA, "plain", "batch=1,tokens=4")
        self.assertIn("KV310", {p["code"] for p in manifest_of(plain[0])["preconditions"]})

    def test_a_spoilt_graph_is_told_apart(self):
        paths, _ = self.frozen(LLAMA, "two", "batch=1,tokens=1|4")
        for path in paths:
            for spoil in ("weight", "constant", "mask"):
                with self.subTest(path=path, spoil=spoil):
                    model = onnx.load(path)
                    self.spoil(model, spoil)
                    bad = self.at("bad.onnx")
                    onnx.save(model, bad)
                    shutil.copy(path.removesuffix(".onnx") + ".kv.json", self.at("bad.kv.json"))
                    run_ = tool("verify", LLAMA, bad, "--json", "--accept", "tested")
                    self.assertEqual(json.loads(run_.stdout)["verdict"], "different", run_.stdout)
                    self.assertEqual(run_.returncode, 1)

    @staticmethod
    def spoil(model, what):
        if what == "weight":
            tensor = max(model.graph.initializer, key=lambda t: len(t.raw_data))
            values = onnx.numpy_helper.to_array(tensor).copy()
            values.flat[: values.size // 2] += 1
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        elif what == "constant":
            attention = [n for n in model.graph.node if n.op_type == "Attention"][0]
            attention.attribute.append(onnx.helper.make_attribute("scale", 0.11))
        else:
            attention = [n for n in model.graph.node if n.op_type == "Attention"][-1]
            for attribute in attention.attribute:
                if attribute.name == "is_causal":
                    attribute.i = 0
            attention.input[3] = ""

    def test_targets(self):
        for target in ("spec", "ort", "portable", "tensorrt"):
            with self.subTest(target=target):
                paths, document = self.frozen(LLAMA, target, "batch=1,tokens=1|4", "--target",
                                              target)
                for path in paths:
                    self.assertEqual(open_dimensions(path), [])
                    done("check", path, "--target", target)
                    self.assertEqual(manifest_of(path)["read"], "full")
                for graph in document["frozen"]:
                    self.assertIn(graph["equality"]["shown"], ("proved", "tested"))
        for target in ("genai", "genai-static"):
            self.refused(2, f"target {target}", LLAMA, "--freeze", "batch=1,tokens=1", "--target",
                         target, "--max-seq-len", "16")

    def test_what_cannot_be_frozen_is_refused(self):
        capacity = ("--max-seq-len", "16")
        for text, freeze in (("needs NAME=NUMBER", "batch"), ("positive number", "batch=0"),
                             ("positive number", "tokens=1|x"), ("4 stands twice", "tokens=4|4"),
                             ("assigned twice", "batch=1,batch=2"),
                             ("only tokens take several", "batch=1|2"),
                             ("needs assignments", ""),
                             ("17 tokens do not fit", "batch=1,tokens=1|17")):
            self.refused(2, text, LLAMA, "--freeze", freeze, *capacity)
        for text, *flags in (("--read prefix", "--read", "prefix"),
                             ("--control derived", "--control", "derived")):
            self.refused(2, text, LLAMA, "--freeze", "batch=1,tokens=1", *capacity, *flags)
        self.refused(1, "give --max-seq-len", LLAMA, "--freeze", "batch=1,tokens=1")
        self.refused(1, "assign batch=N", LLAMA, "--freeze", "tokens=1", *capacity)
        self.refused(1, "assign tokens=N", LLAMA, "--freeze", "batch=1", *capacity)
        self.refused(1, "no input of the result declares a dimension nothing", LLAMA, "--freeze",
                     "batch=1,tokens=1,nothing=3", *capacity)
        self.refused(1, "contradict the model's operators", self.odd(), "--freeze",
                     "batch=1,tokens=4,other=7", *capacity)
        self.refused(1, "cannot be both", LLAMA, "--freeze", "batch=1,tokens=1,batch_size=2",
                     *capacity)
        single = os.path.join(MODELS, "toy_onehot_where_ts", "model.onnx")
        self.refused(1, "tokens=4 is asked for, and the model is made for 1", single, "--freeze",
                     "batch=1,tokens=4")
        merged = os.path.join(MODELS, "llama_optimum_merged", "model.onnx")
        self.refused(1, "could never continue", merged, "--freeze", "batch=1,tokens=4", *capacity)
        document = json.loads(tool("convert", LLAMA, "-o", self.at("no.onnx"), "--freeze",
                                   "batch=1,tokens=1", "--json").stdout)
        self.assertEqual({c["reason"]["code"] for c in document["caches"]}, {"KV260"})

    def test_dimensions_by_their_names(self):
        source = self.at("odd.onnx")
        with_odd_dimensions(source)
        capacity = ("--max-seq-len", "16")
        self.refused(1, "assign extra=N", source, "--freeze", "batch=2,tokens=3", *capacity)
        for freeze in ("batch=2,tokens=3,extra=5", "batch=2,k=3,tokens=3,more.shape[0]=5"):
            paths, _ = self.frozen(source, "named", freeze, "--accept", "unproved", "--force")
            self.assertEqual(open_dimensions(paths[0]), [])
            shapes = {i.name: i.shape for i in session(paths[0]).get_inputs()}
            self.assertEqual(shapes["input_ids"], [2, 3])
            self.assertEqual(shapes["more"], [5])
            self.assertEqual(shapes["attention_mask"], [2, CAPACITY])

    def test_batch_and_tokens_by_the_names_of_their_dimensions(self):
        want, _ = self.frozen(LLAMA, "want", "batch=1,tokens=4")
        for k, freeze in enumerate(("batch_size=1,sequence_length=4", "batch=1,sequence_length=4",
                                    "batch_size=1, tokens=4",
                                    "input_ids.shape[0]=1,input_ids.shape[1]=4")):
            with self.subTest(freeze):
                paths, _ = self.frozen(LLAMA, f"named{k}", freeze)
                shapes = [[(i.name, i.shape) for i in session(path).get_inputs()]
                          for path in (*want, *paths)]
                self.assertEqual(shapes[0], shapes[1])
        self.refused(1, "cannot be both", LLAMA, "--freeze", "batch=1,batch_size=2,tokens=4",
                     "--max-seq-len", "16")

    def test_nothing_is_written_unless_all_graphs_are(self):
        self.refused(1, "no input of the result declares", LLAMA, "--freeze", "batch=1,tokens=1|4,what=1",
                     "--max-seq-len", "16")
        out = self.at("kept.onnx")
        open(self.at("kept.tokens4.kv.json"), "w", encoding="utf-8").close()
        run_ = tool("convert", LLAMA, "-o", out, "--freeze", "batch=1,tokens=1|4", "--max-seq-len",
                    "16")
        self.assertEqual(run_.returncode, 5, run_.stderr)
        self.assertEqual(os.listdir(self.folder), ["kept.tokens4.kv.json"])


if __name__ == "__main__":
    unittest.main()
