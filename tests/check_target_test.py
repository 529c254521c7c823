"""`check --target` over the bundled decoders: what `convert --target` makes keeps to the rules of its
target, and the sources do not. Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from support import schemas  # noqa: E402

KVLIFT = os.environ["KVLIFT"]
MODELS = pathlib.Path(os.environ["KVLIFT_ROOT"], "testdata", "models")
TARGETS = ("ort", "genai", "genai-static", "tensorrt", "portable")
# Sources whose interface is kept and that stock onnxruntime-genai cannot be told about.
ODD = {("llama_dynamo_native_cache", "genai"): {"KV138"},
       ("toy_transposed_key_ts", "genai"): {"KV132"}}
FIXED = ("genai-static", "tensorrt", "portable")


def kvlift(*args):
    return subprocess.run([KVLIFT, *map(str, args)], capture_output=True, text=True, timeout=300)


def check(model, target):
    """Exit code and the codes of the errors."""
    run = kvlift("check", model, "--target", target, "--json")
    document = schemas.check_json(run.stdout)
    assert document["target"] == target
    findings = document["models"][0]["findings"]
    return run.returncode, {f["code"] for f in findings if f["severity"] == "error"}


class TargetTest(unittest.TestCase):
    def convert(self, name, target, folder):
        out = os.path.join(folder, f"{name}.{target}.onnx")
        size = ("--max-seq-len", "32") if target in FIXED else ()
        run = kvlift("convert", MODELS / name / "model.onnx", "-o", out, "--target", target, *size)
        return out if run.returncode == 0 else None

    def test_converted_models_keep_to_their_target(self):
        passed = dict.fromkeys(TARGETS, 0)
        for path in sorted(MODELS.glob("*/meta.json")):
            meta = json.loads(path.read_text())
            name = path.parent.name
            if meta["expect"] != "convert" or not meta.get("growing"):
                continue
            with tempfile.TemporaryDirectory() as folder:
                for target in TARGETS:
                    out = self.convert(name, target, folder)
                    if out is None:  # refused for this target, with a reason of its own
                        continue
                    with self.subTest(model=name, target=target):
                        odd = ODD.get((name, target), set())
                        self.assertEqual(check(out, target), (int(bool(odd)), odd))
                        passed[target] += 1
        self.assertGreaterEqual(min(passed.values()), 5, passed)

    def test_a_target_is_not_another(self):
        with tempfile.TemporaryDirectory() as folder:
            out = {t: self.convert("llama_optimum", t, folder) for t in TARGETS}
            self.assertEqual(check(out["genai"], "tensorrt"), (1, {"KV133", "KV139", "KV141"}))
            self.assertEqual(check(out["ort"], "genai"), (1, {"KV137"}))
            self.assertEqual(check(out["genai-static"], "tensorrt"), (1, {"KV132", "KV141"}))
            self.assertEqual(check(out["tensorrt"], "genai-static"),
                             (1, {"KV132", "KV137", "KV138"}))
            self.assertEqual(check(out["tensorrt"], "ort"), (0, set()))

    def test_sources_keep_to_none(self):
        for target in TARGETS:
            code, found = check(MODELS / "llama_optimum" / "model.onnx", target)
            self.assertEqual((code, found), (1, {"KV131"}), target)

    def test_a_control_that_the_target_does_not_fill(self):
        with tempfile.TemporaryDirectory() as folder:
            out = self.convert("llama_static_ts", "genai-static", folder)
            self.assertEqual(check(out, "genai-static"), (1, {"KV137"}))

    def test_unknown_targets(self):
        self.assertEqual(kvlift("check", "m.onnx", "--target", "tensor").returncode, 2)


if __name__ == "__main__":
    unittest.main()
