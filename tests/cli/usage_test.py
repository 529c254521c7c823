"""What is said of wrong command lines: it names the word that is wrong, and what would be right.

Environment: KVLIFT, the tool.
"""
import os
import subprocess
import unittest

KVLIFT = os.environ["KVLIFT"]
M = "m.onnx"  # never read


def said(*args):
    """The lines on stderr of a run that ends with the exit code of wrong usage."""
    run = subprocess.run([KVLIFT, *args], capture_output=True, text=True, check=False)
    if run.returncode != 2 or bool(run.stdout) != ("--json" in args):
        raise AssertionError(f"{args}: {run.returncode}, {run.stdout}{run.stderr}")
    return run.stderr.splitlines()


class UsageTest(unittest.TestCase):
    def test_the_word_that_is_wrong_is_named(self):
        for args, line in (
                ((), "a command is required"),
                (("convrt", M), "convrt is no command"),
                (("--json", "convert"), "--json: a command is required in front of its options"),
                (("convert",), "model is required: The model to convert"),
                (("convert", M), "--output is required: Where to write the result"),
                (("convert", M, "-o"), "--output needs a value: Where to write the result"),
                (("convert", M, "-o", "x", "--read"), "--read needs a value: auto, prefix, full"),
                (("convert", M, "-o", "x", "--read", "all"),
                 "--read: all is none of auto, prefix, full"),
                (("convert", M, "n.onnx", "-o", "x"),
                 "n.onnx is one too many: convert takes model"),
                (("convert", M, "-o", "x", "--capacity", "3"),
                 "--capacity is no option of convert"),
                (("convert", M, "-o", "x", "--capacity=3"), "--capacity is no option of convert"),
                (("convert", M, "-o", "x", "-v"), "-v is no option of convert"),
                (("convert", M, "-o", "x", "--read", "full", "--read", "auto"),
                 "--read is given more than once"),
                (("verify", M), "after is required: The converted model"),
                (("verify", "a", "b", "c"), "c is one too many: verify takes before and after"),
                (("verify", "a", "b", "--seed", "-1"),
                 "--seed: needs a whole number from 0 on, found -1"),
                (("run", M, "--rtol", "x"), "--rtol: needs a number, found x"),
                (("run", M, "--rtol", "nan"), "--rtol: needs a number from 0 on, found nan"),
                (("run", M, "--rtol=-1e-3"), "--rtol: needs a number from 0 on, found -1e-3"),
                (("run", M, "--atol", "inf"), "--atol: needs a number from 0 on, found inf"),
                (("run", M, "--atol", "1e999"), "--atol: needs a number from 0 on, found 1e999"),
                (("run", M, "--atol", "-1"), "--atol: needs a number from 0 on, found -1"),
                (("run", M, "--inputs", "a", "--steps", "b"),
                 "--inputs and --steps exclude each other"),
                (("bench", M, "--context", "a"), "--context: needs a number, found a"),
                (("lower", M, "-o", "x", "--to", "where", "--opset", "5"),
                 "--opset: needs a whole number from 13 to 24, found 5"),
                (("record", "a", "b", "-o", "x", "--lengths", "x"),
                 "--lengths: needs a whole number from 0 to 1048576, found x"),
                (("check", M, "--max-nodes", "-1"),
                 "--max-nodes: needs a whole number from 0 on, found -1"),
                (("convert", M, "-o", "x", "--freeze"),
                 "--freeze needs a value: Static shapes: batch=1,tokens=1|128"),
                (("explain", "KV205", "x"), "x is one too many: explain takes code-or-model"),
                (("bench", M, "--batch", "0"), "--batch: needs a number above 0, found 0"),
                (("explain",), "code-or-model is required: A code such as KV203, or a model"),
                (("reduce", "a", "b", "c", "-o", "x"),
                 "model: at most 2 are taken: A model that is refused or crashes, or BEFORE and "
                 "AFTER that differ"),
                (("completion",), "shell is required: The shell"),
                (("completion", "tcsh"), "shell: tcsh is none of bash, zsh, fish"),
                (("version", "--json"), "--json is no option of version"),
                (("man", "x"), "x is one too many: man takes no operands"),
                (("fleet", "convert", "-o", "x"),
                 "source is required: A list or a folder; of merge, files of results"),
                (("fleet", "move", "a", "-o", "x"),
                 "command: move is none of convert, verify, check, merge"),
                (("fleet", "verify", "a", "-o", "x", "--", "--plam", "full"),
                 "--plam is no option of verify"),
        ):
            with self.subTest(args=args):
                self.assertEqual(said(*args)[0], f"kvlift: {line}")

    def test_suggestions(self):
        for args, word in ((("convrt", M), "convert"),
                           (("check", M, "--tagret", "ort"), "--target"),
                           (("check", M, "--target", "otr"), "ort")):
            self.assertIn(f"did you mean '{word}'?", said(*args))
        self.assertFalse(any("did you mean" in line for line in said("check", M, "--zzzzzzzzzzz")))


if __name__ == "__main__":
    unittest.main()
