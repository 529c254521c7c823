"""Where weights are: in files that are there, in files that are not, in safetensors; and what verify
says of decoders of several layers, in half precision as well.

Environment: KVLIFT, the tool.
"""
import json
import os
import struct
import tempfile
import unittest

import onnx

from bench import llama
from support.tool import done, tool

DEEP = llama.Size(layers=6, hidden=64, q_heads=4, kv_heads=2, head=16, ffn=128, vocab=256)
DONE, INCONCLUSIVE = 0, 4


class WeightsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def at(self, name):
        return os.path.join(self.folder, name)

    def decoder(self, type_name, size=DEEP):
        """The path of a decoder whose weights are in model.data."""
        path = self.at("model-concat.onnx")
        llama.build(path, size, type_name, "padded")
        return path

    def verdict(self, source, converted, *flags, code=DONE):
        run = tool("verify", source, converted, "--json", *flags)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return json.loads(run.stdout)

    def test_layers_that_are_the_same_are_run_once(self):
        for type_name in ("fp32", "fp16", "bf16", "int4"):
            with self.subTest(type_name), tempfile.TemporaryDirectory() as self.folder:
                source, out = self.decoder(type_name), self.at("out.onnx")
                done("convert", source, "-o", out)
                report = self.verdict(source, out)
                self.assertEqual(report["verdict"], "equal")
                run = {layer["name"]: layer["others"] for layer in report["layers"] if layer["run"]}
                self.assertEqual(run, {"layer 0": [f"layer {k}" for k in range(1, 6)]})
                self.assertEqual(report["half_types"] is not None, type_name in ("fp16", "bf16"))
                whole = self.verdict(source, out, "--whole")
                self.assertEqual((whole["verdict"], whole["layers"]), ("equal", []))

    def test_files_that_are_not_there(self):
        for type_name in ("fp16", "int4"):
            with self.subTest(type_name), tempfile.TemporaryDirectory() as self.folder:
                source, out = self.decoder(type_name), self.at("out.onnx")
                os.remove(self.at("model.data"))
                done("convert", source, "-o", out)
                report = self.verdict(source, out, code=INCONCLUSIVE)
                self.assertIn("KV401", report["reason"])
                report = self.verdict(source, out, "--weights", "random:7")
                self.assertEqual((report["verdict"], report["weights"]), ("equal", "random:7"))
                self.assertTrue(any("drawn (seed 7)" in a["condition"]
                                    for a in report["assumptions"]))
                text = done("verify", source, out, "--weights", "random")
                self.assertIn("equal for drawn weights", text)

    def random_verdict(self, source, out):
        run = tool("verify", source, out, "--json", "--weights", "random")
        return json.loads(run.stdout)["verdict"]

    def test_drawn_weights_do_not_depend_on_which_files_are_there(self):
        """Small weights are copied into the conversion if their file is there."""
        size = llama.Size(layers=3, hidden=256, q_heads=4, kv_heads=2, head=64, ffn=128, vocab=256)
        for type_name in ("fp32", "fp16", "int4"):
            with self.subTest(type_name), tempfile.TemporaryDirectory() as self.folder:
                source, out = self.decoder(type_name, size), self.at("out.onnx")
                data, aside = self.at("model.data"), self.at("aside")
                for converted_with_file in (True, False):
                    if not converted_with_file:
                        os.rename(data, aside)
                    done("convert", source, "-o", out, "--force")
                    if not converted_with_file:
                        os.rename(aside, data)
                    self.assertEqual(self.random_verdict(source, out), "equal")
                    os.rename(data, aside)
                    self.assertEqual(self.random_verdict(source, out), "equal")
                    os.rename(aside, data)

    @staticmethod
    def two_alike(model):
        """Two weights in the file that have the same type and shape."""
        seen = {}
        for tensor in model.graph.initializer:
            if tensor.external_data:
                alike = seen.setdefault((tensor.data_type, tuple(tensor.dims)), tensor)
                if alike is not tensor:
                    return alike, tensor
        raise ValueError("no two weights are alike")

    def test_another_weight_is_found_with_drawn_weights(self):
        for type_name in ("fp32", "fp16"):
            for there in (True, False):
                with self.subTest(f"{type_name} {there}"), \
                     tempfile.TemporaryDirectory() as self.folder:
                    source, out = self.decoder(type_name), self.at("out.onnx")
                    done("convert", source, "-o", out)
                    model = onnx.load(out, load_external_data=False)
                    first, other = self.two_alike(model)
                    where = {e.key: int(e.value) for e in first.external_data
                             if e.key != "location"}
                    with open(self.at("model.data"), "r+b") as file:
                        file.seek(where["offset"])
                        file.write(bytes(range(16)) * (where["length"] // 16))
                    del first.external_data[:]
                    first.external_data.extend(other.external_data)
                    onnx.save(model, out)
                    if not there:
                        os.remove(self.at("model.data"))
                    self.assertEqual(self.random_verdict(source, out), "different")

    def test_check_says_what_it_could_not_see(self):
        source = self.decoder("fp16")
        self.assertNotIn("KV030", done("check", source))
        os.remove(self.at("model.data"))
        said = done("check", source)
        self.assertRegex(said, r"KV030: the numbers of \d+ tensors were not looked at: "
                               r"model\.data is not there")

    def test_the_manifest_says_that_weights_were_drawn(self):
        source, out = self.decoder("fp32"), self.at("out.onnx")
        done("convert", source, "-o", out, "--verify", "quick", "--weights", "random:3")
        with open(self.at("out.kv.json"), encoding="utf-8") as file:
            conditions = [a["condition"] for a in json.load(file)["assumptions"]]
        self.assertTrue(any("drawn (seed 3)" in c for c in conditions), conditions)

    def test_a_wrong_layer_is_found_with_drawn_weights(self):
        source, out = self.decoder("fp16"), self.at("out.onnx")
        done("convert", source, "-o", out)
        model = onnx.load(out, load_external_data=False)
        layer = [n for n in model.graph.node if n.op_type == "Attention"][3]
        layer.attribute.extend([onnx.helper.make_attribute("scale", 0.9)])
        onnx.save(model, out)
        os.remove(self.at("model.data"))
        run = tool("verify", source, out, "--json", "--weights", "random")
        self.assertNotEqual(json.loads(run.stdout)["verdict"], "equal")
        self.assertNotEqual(run.returncode, DONE)

    def test_reports_say_what_was_fed_and_run(self):
        source, out = self.decoder("fp16"), self.at("out.onnx")
        done("convert", source, "-o", out)
        report = self.verdict(source, out)
        conditions = [a["condition"] for a in report["assumptions"]]
        # Of token ids a layer reads the shape only.
        self.assertNotIn("input_ids holds the positions P..T-1", conditions)
        plans = {plan["name"]: plan["status"] for plan in report["plans"]}
        if plans.get("free positions") == "bitwise":
            self.assertNotIn("position_ids holds the positions P..T-1", conditions)
        sentences = report["assumed"]["P"].split("; ")
        self.assertEqual(len(sentences), len(set(sentences)))
        self.assertLess(len(sentences), 5, report["assumed"]["P"])
        self.assertIn("judged by computed bounds", done("verify", source, out))
        self.assertIsNone(report["half_types"]["not_run"])
        model = onnx.load(out, load_external_data=False)
        layer = [n for n in model.graph.node if n.op_type == "Attention"][3]
        layer.attribute.extend([onnx.helper.make_attribute("scale", 0.9)])
        onnx.save(model, out)
        wrong = tool("verify", source, out)
        self.assertIn("not run in their own types: they are not shown to be equal in float32",
                      wrong.stdout)
        self.assertNotIn("agree in 0 steps", wrong.stdout)

    def test_other_words_are_refused(self):
        for words in ("drawn", "random:", "random:x"):
            run = tool("verify", "a.onnx", "b.onnx", "--weights", words)
            self.assertEqual(run.returncode, 2)
            self.assertIn("random:SEED", run.stderr)

    def test_weights_in_safetensors(self):
        """External data may point behind the header of a safetensors file."""
        source = self.decoder("fp32")
        model = onnx.load(source, load_external_data=False)
        with open(self.at("model.data"), "rb") as file:
            data = file.read()
        entries, external = {}, [t for t in model.graph.initializer if t.external_data]
        for tensor in external:
            where = {e.key: e.value for e in tensor.external_data}
            begin = int(where["offset"])
            entries[tensor.name] = {"dtype": "F32", "shape": list(tensor.dims),
                                    "data_offsets": [begin, begin + int(where["length"])]}
        header = json.dumps(entries).encode()
        header += b" " * (-len(header) % 8)
        with open(self.at("model.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + data)
        for tensor in external:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = "model.safetensors"
                if entry.key == "offset":
                    entry.value = str(int(entry.value) + 8 + len(header))
        onnx.save(model, source)
        out = self.at("out.onnx")
        done("convert", source, "-o", out)
        self.assertEqual(self.verdict(source, out)["verdict"], "equal")


if __name__ == "__main__":
    unittest.main()
