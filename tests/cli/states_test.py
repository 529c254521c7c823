"""States of convolutions and recurrences, and caches of cross-attention, beside caches: `inspect`
names them, `convert` keeps them. Attentions that stay are named by `convert`.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import onnx
import onnx.parser

from support.case_text import text_of_case

KVLIFT = os.environ["KVLIFT"]
STATES = {
    "growing_concat_convolution_in_front": "past_conv",
    "growing_concat_convolution_state": "past_conv",
    "growing_concat_recurrence_in_front": "past_state",
    "growing_concat_state_and_router": "past_state",
    "growing_concat_state_operator": "past_conv",
}


def kvlift(*args):
    done = subprocess.run([KVLIFT, *map(str, args)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class States(unittest.TestCase):
    def test_states_are_listed_and_kept(self):
        for case, state in STATES.items():
            with self.subTest(case), tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                source, target = folder / "a.onnx", folder / "b.onnx"
                onnx.save(onnx.parser.parse_model(text_of_case(case)), source)
                self.assertIn(f"KV226  {state} is ", kvlift("inspect", source))
                printed = kvlift("convert", source, "-o", target, "--verify")
                self.assertIn("verdict: equal", printed)
                manifest = json.loads((folder / "b.kv.json").read_text(encoding="utf-8"))
                self.assertEqual(len(manifest["caches"]), 2)
                kept = {i["name"]: i["as"] for i in manifest["inputs"]}
                self.assertEqual(kept[state], "same")
                self.assertIn("KV236", [p["code"] for p in manifest["preconditions"]])

    def converted(self, case, *options):
        """Converts a text case; returns what is printed and the manifest."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            onnx.save(onnx.parser.parse_model(text_of_case(case)), folder / "a.onnx")
            printed = kvlift("convert", folder / "a.onnx", "-o", folder / "b.onnx", "--verify",
                             *options)
            return printed, json.loads((folder / "b.kv.json").read_text(encoding="utf-8"))

    def test_caches_of_cross_attention_are_kept(self):
        printed, manifest = self.converted("growing_concat_cross_cache_stays")
        self.assertIn("verdict: equal", printed)
        self.assertEqual([c["input"] for c in manifest["caches"]], ["past_k", "past_v"])
        kept = {i["name"]: i["as"] for i in manifest["inputs"]}
        self.assertEqual(kept["past_cross_k"], "same")
        self.assertNotIn("KV236", [p["code"] for p in manifest["preconditions"]])

    def test_convert_says_why_an_attention_stays(self):
        printed, _ = self.converted("growing_concat_keep_before_quantization",
                                    "--padding", "none")
        self.assertIn("2 of 2 caches, 0 of 1 attentions", printed)
        self.assertRegex(printed, r"KV248 .*\n +at .*\n +do: .*--rounding free")


if __name__ == "__main__":
    unittest.main()
