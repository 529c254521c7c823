"""The help of every command: it fits a screen, and its examples do what they say."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
KVLIFT = os.environ["KVLIFT"]
MODEL = ROOT / "testdata" / "models" / "llama_optimum"
LINES, COLUMNS = 40, 80


def help_of(*args):
    return subprocess.run([KVLIFT, *args], capture_output=True, check=True).stdout.decode()


def commands():
    listed = help_of("--help").split("Subcommands:")[1]
    return re.findall(r"^  ([a-z-]+)", listed, re.MULTILINE)


class Help(unittest.TestCase):
    def test_fits_a_screen(self):
        self.assertGreater(len(commands()), 9)
        for command in ("", *commands()):
            with self.subTest(command=command):
                lines = help_of(*[command] * bool(command), "--help").splitlines()
                self.assertLessEqual(len(lines), LINES)
                self.assertLessEqual(max(map(len, lines)), COLUMNS)

    def test_all_options_on_request(self):
        self.assertNotIn("--max-nodes", help_of("check", "--help"))
        text = help_of("check", "--help-all")
        for option in ("--max-nodes", "--data-dir", "--exit-zero"):
            self.assertIn(option, text)

    def test_every_example_works(self):
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        shutil.copy(MODEL / "model.onnx", folder)
        shutil.copytree(MODEL / "steps" / "00", folder / "step")
        (folder / "models").mkdir()
        shutil.copy(MODEL / "model.onnx", folder / "models")
        (folder / "kvlift").symlink_to(KVLIFT)
        subprocess.run([KVLIFT, "convert", MODEL / "model.onnx", "-o", folder / "static.onnx",
                        "--target", "genai-static", "--max-seq-len", "32"], capture_output=True,
                       timeout=300, check=True)
        env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        names = commands()
        # Those that need a converted model come behind the one that makes it.
        names.sort(key=lambda name: name != "convert")
        for command in names:
            examples = help_of(command, "--help").split("Example:\n")
            self.assertEqual(len(examples), 2, f"{command} has no example")
            for line in examples[1].strip().splitlines():
                with self.subTest(line=line.strip()):
                    self.assertTrue(line.strip().startswith(f"kvlift {command}"), line)
                    run = subprocess.run(["bash", "-c", line.strip()], cwd=folder, env=env,
                                         capture_output=True, timeout=300, check=False)
                    self.assertEqual(run.returncode, 0, run.stderr.decode())


if __name__ == "__main__":
    unittest.main()
