"""metadata: the ports of static caches as inference_metadata.yaml, read back by PyYAML.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import json
import os
import pathlib
import shutil
import tempfile
import unittest

import onnx
import yaml

from support.recorded import MODELS
from support.schemas import check_json
from support.tool import done, tool

LISTS = ("key_cache_inputs", "value_cache_inputs", "key_cache_outputs", "value_cache_outputs")
# What no file may confuse with its own syntax, or with another type than text.
ODD = ('"}: [', "a: b", "- c", "# d", "e\nf: g", "'h'", "\\", "null", "1.5", "yes", "~", "%YAML",
       "\t", " ", "&x *y !z", "\u2028\ufeff", "\x85\x9b", "\U0001f600", "{}", "\x1b]0;x\a")


def io_of(text):
    document = yaml.safe_load(text)
    assert list(document) == ["model"] and list(document["model"]) == ["io"], document
    return document["model"]["io"]


class MetadataTest(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)

    def static(self, name="llama_optimum", *flags):
        out = self.dir / f"{name}.onnx"
        run = tool("convert", os.path.join(MODELS, name, "model.onnx"), "-o", out, "--target",
                   "genai-static", "--max-seq-len", "32", "--accept", "unproved", "--force", *flags)
        return out if run.returncode == 0 else None

    def test_bundled_models(self):
        """Every static conversion is described as its manifest has it."""
        described = 0
        for name in sorted(os.listdir(MODELS)):
            path = self.static(name)
            if path is None:
                continue
            with self.subTest(model=name):
                manifest = json.loads(path.with_suffix(".kv.json").read_text())
                written = path.with_suffix(".inference_metadata.yaml")
                run = tool("metadata", path)
                roles = {cache["role"] for cache in manifest["caches"]}
                if any(c["source"]["kind"] != "concat" for c in manifest["caches"]):
                    # The interface of a fixed cache stays, and feeds no length.
                    self.assertIn(run.returncode, (0, 1), run.stderr)
                if run.returncode == 1:
                    self.assertIn("[KV254]", run.stderr)
                    self.assertFalse(written.exists())
                    continue
                self.assertEqual(roles, {"key", "value"})
                self.assertEqual(written.read_text(encoding="ascii"), run.stdout)
                self.check_against(manifest, io_of(run.stdout), path)
                described += 1
        self.assertGreaterEqual(described, 8)

    def check_against(self, manifest, io, path):
        model = onnx.load(path)
        inputs, outputs = ([v.name for v in values]
                           for values in (model.graph.input, model.graph.output))
        static = io["static_cache"]
        self.assertEqual(len({len(static[key]) for key in LISTS}), 1)
        for key in LISTS:
            role, _, end = key.split("_")
            wanted = [c[end[:-1]] for c in manifest["caches"] if c["role"] == role]
            self.assertEqual(sorted(static[key]), sorted(wanted))
            # The lists go by layer, whatever the order in the manifest.
            layers = {c[end[:-1]]: c["layer"] for c in manifest["caches"]}
            self.assertEqual([layers[name] for name in static[key]],
                             sorted(layers[name] for name in wanted))
        controls = {i["value"]: i["name"] for i in manifest["inputs"] if i["as"] == "control"}
        self.assertEqual(static["write_indices_input"], controls["P"])
        self.assertEqual(static["kv_sequence_length_input"], controls["T"])
        for key, name in io.items():
            if key.endswith("_input"):
                self.assertIn(name, inputs)
            if key.endswith("_output"):
                self.assertIn(name, outputs)
        if path.stem == "llama_dynamo_native_cache":  # its logits have a name of their own
            self.assertEqual(io.pop("logits_output"), "linear_14")
        # The other exporters name these so; the roles are told without the names.
        for key, name in (("token_input", "input_ids"), ("logits_output", "logits"),
                          ("position_ids_input", "position_ids"),
                          ("attention_mask_input", "attention_mask")):
            self.assertIn(io.get(key), (name, None))
        if "token_input" in io:
            self.assertEqual(io["sequence_source"], "token_ids")

    def test_a_decoder(self):
        io = io_of(done("metadata", self.static()))
        self.assertEqual(io["token_input"], "input_ids")
        self.assertEqual(io["logits_output"], "logits")
        self.assertEqual(io["position_ids_input"], "position_ids")
        self.assertEqual(io["attention_mask_input"], "attention_mask")
        self.assertEqual(io["static_cache"]["key_cache_inputs"], ["key_cache.0", "key_cache.1"])
        self.assertEqual(io["static_cache"]["value_cache_outputs"],
                         ["updated_value_cache.0", "updated_value_cache.1"])

    def renamed(self, path):
        """Writes the model with odd names in place of all; gives the new ones by the old."""
        model = onnx.load(path)
        names = {}

        def new(name):
            if name and name not in names:
                names[name] = f"{ODD[len(names) % len(ODD)]}{len(names)}"
            return names.get(name, "")

        graph = model.graph
        for value in [*graph.input, *graph.output]:
            value.name = new(value.name)
        for node in graph.node:
            node.input[:] = [new(name) for name in node.input]
            node.output[:] = [new(name) for name in node.output]
        for tensor in graph.initializer:
            tensor.name = new(tensor.name)
        del graph.value_info[:]
        del model.metadata_props[:]
        odd = self.dir / "odd.onnx"
        onnx.save(model, odd)
        return odd, names

    def test_odd_names(self):
        path = self.static()
        odd, names = self.renamed(path)
        plain = io_of(done("metadata", path))

        def renamed(value):
            if isinstance(value, dict):
                return {key: renamed(v) for key, v in value.items()}
            return [names[v] for v in value] if isinstance(value, list) else names[value]

        source = plain.pop("sequence_source")
        wanted = {**renamed(plain), "sequence_source": source}
        text = done("metadata", odd)
        self.assertTrue(text.isascii() and "\x1b" not in text)
        self.assertEqual(io_of(text), wanted)
        document = check_json(done("metadata", odd, "--json"))
        self.assertEqual(document["model"]["io"], wanted)

    def test_names_that_look_like_other_types(self):
        source = self.static()
        for name in ("null", "yes", "1.5", "~", "- a", "x: y", "#", "2001-01-01", "0x1f", "<<"):
            model = onnx.load(source)
            old, model.graph.input[0].name = model.graph.input[0].name, name
            for node in model.graph.node:
                node.input[:] = [name if i == old else i for i in node.input]
            path = self.dir / "named.onnx"
            onnx.save(model, path)
            text = done("metadata", path)
            self.assertIn(json.dumps(name), text)
            flat = [v for v in io_of(text).values() if isinstance(v, str)]
            self.assertIn(name, flat)

    def test_json(self):
        path = self.static()
        for flag in (("--json",), ("--format", "json")):
            document = check_json(done("metadata", path, *flag))
            self.assertEqual(document["status"], "named")
            self.assertEqual(document["model"], yaml.safe_load(done("metadata", path))["model"])
            self.assertEqual((document["outputs"], document["reason"]), ([], None))
            self.assertEqual((document["other_inputs"], document["other_outputs"]), ([], []))

    def test_what_has_no_role_is_named(self):
        path = self.static("gpt2_optimum")
        run = tool("metadata", path)
        document = check_json(done("metadata", path, "--json"))
        io = io_of(run.stdout)
        self.assertEqual(io["token_input"], "input_ids")
        self.assertNotIn("position_ids_input", io)
        self.assertEqual(document["other_inputs"], ["position_ids"])
        self.assertIn("inputs that the file does not name: position_ids", run.stderr)
        self.assertEqual(tool("metadata", path, "--quiet").stderr, "")

    def test_files(self):
        path = self.static()
        out = self.dir / "inference_metadata.yaml"
        self.assertEqual(done("metadata", path, "-o", out), f"wrote {out}\n")
        text = out.read_text()
        self.assertEqual(text, done("metadata", path))
        out.write_text("mine")
        for target, why in ((out, "exists; --force"), (path, "is an input"),
                            (self.dir, "is a folder"), (self.dir / "no" / "x", "")):
            run = tool("metadata", path, "-o", target)
            self.assertEqual((run.returncode, run.stdout), (5, ""), run.stderr)
            self.assertIn(why, run.stderr)
        for target in (path, path.with_suffix(".kv.json")):
            run = tool("metadata", path, "-o", target, "--force")
            self.assertEqual(run.returncode, 5)
            self.assertIn("is an input", run.stderr)
        self.assertEqual(out.read_text(), "mine")
        document = check_json(done("metadata", path, "-o", out, "--force", "--json"))
        self.assertEqual(document["outputs"], [str(out)])
        self.assertEqual(out.read_text(), text)
        self.assertEqual(tool("metadata", path, "-o", "-").returncode, 2)
        self.assertEqual(tool("metadata", path, "--format", "yaml").returncode, 2)
        self.assertEqual(tool("metadata", self.dir / "absent.onnx").returncode, 3)

    def test_refusals(self):
        spec = self.dir / "spec.onnx"
        source = os.path.join(MODELS, "llama_optimum", "model.onnx")
        done("convert", source, "-o", spec, "--accept", "unproved")
        out = self.dir / "none.yaml"
        for path, why in ((source, "no TensorScatter writes a cache"),
                          (spec, "nonpad_kv_seqlen of Attention")):
            run = tool("metadata", path, "-o", out)
            self.assertEqual((run.returncode, run.stdout), (1, ""), run.stderr)
            first = run.stderr.splitlines()[0]
            self.assertIn(why, first)
            self.assertIn("--target genai-static", first)
            self.assertTrue(first.endswith("[KV254]"), first)
            document = check_json(tool("metadata", path, "--json").stdout)
            self.assertEqual((document["status"], document["model"]), ("refused", None))
            self.assertEqual(document["reason"]["code"], "KV254")
        self.assertFalse(out.exists())

    def test_beside_a_conversion(self):
        source = os.path.join(MODELS, "llama_optimum", "model.onnx")
        out = self.dir / "out.onnx"
        flags = ("--target", "genai-static", "--max-seq-len", "32", "--accept", "unproved")
        document = check_json(done("convert", source, "-o", out, "--json", *flags))
        written = self.dir / "out.inference_metadata.yaml"
        self.assertIn(str(written), document["outputs"])
        self.assertIn(str(self.dir / "out.genai.json"), document["outputs"])
        self.assertEqual(document["outputs"][-1], str(out))
        self.assertEqual(written.read_text(), done("metadata", out))
        out.unlink()
        for name in ("out.kv.json", "out.genai.json"):
            (self.dir / name).unlink()
        run = tool("convert", source, "-o", out, *flags)
        self.assertEqual(run.returncode, 5)
        self.assertIn("out.inference_metadata.yaml exists; --force", run.stderr)
        done("convert", source, "-o", self.dir / "other.onnx", "--target", "genai", "--accept",
             "unproved")
        self.assertFalse((self.dir / "other.inference_metadata.yaml").exists())

    def test_a_conversion_that_the_file_cannot_describe(self):
        """The source has caches of a fixed size, whose interface stays: no length is an input."""
        source = os.path.join(MODELS, "toy_splice_ts", "model.onnx")
        out = self.dir / "toy.onnx"
        flags = ("--target", "genai-static", "--accept", "unproved", "--force")
        run = tool("convert", source, "-o", out, *flags)
        self.assertEqual(run.returncode, 0, run.stderr)
        first = run.stderr.splitlines()[0]
        self.assertIn(f"{self.dir / 'toy.inference_metadata.yaml'}: not written: ", first)
        self.assertTrue(first.endswith("[KV254]"), first)
        self.assertEqual(tool("convert", source, "-o", out, "--quiet", *flags).stderr, "")
        self.assertFalse((self.dir / "toy.inference_metadata.yaml").exists())


if __name__ == "__main__":
    unittest.main()
