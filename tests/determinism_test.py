"""The same input and flags give the same bytes, wherever and however the tool runs.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from support.case_text import text_of_case

KVLIFT = os.environ["KVLIFT"]
MODELS = pathlib.Path(os.environ["KVLIFT_ROOT"]) / "testdata" / "models"
# Decimal commas, a dotless i, and text that is not UTF-8.
LOCALES = {"de_DE.UTF-8": "UTF-8", "tr_TR.UTF-8": "UTF-8", "de_DE.ISO-8859-1": "ISO-8859-1"}


def make_locales(folder):
    """Locales that this system has or can make, as environments."""
    made = []
    for name, charmap in LOCALES.items():
        source = name.partition(".")[0]
        done = subprocess.run(["localedef", "-i", source, "-f", charmap, str(folder / name)],
                              capture_output=True, check=False) if shutil.which("localedef") else None
        if done is not None and (folder / name).is_dir():
            made.append({"LC_ALL": name, "LANG": name, "LOCPATH": str(folder)})
    known = subprocess.run(["locale", "-a"], capture_output=True, check=True).stdout.split()
    made += [{"LC_ALL": name.decode(errors="replace")} for name in known]
    return made


class Determinism(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)

    def run_all(self, name, model, threads="1", env=None, cwd=None, before=()):
        """What is written and printed for one model in a folder of its own."""
        folder = self.dir / name
        folder.mkdir(parents=True)
        (folder / "model.onnxtxt").write_text(model)

        def run(*args):
            done = subprocess.run(
                [*before, KVLIFT, *map(str, args), "--threads", threads], capture_output=True,
                timeout=300, check=False, cwd=cwd or folder,
                env={**os.environ, "LC_ALL": "C", "TZ": "UTC", **(env or {})})
            self.assertIn(done.returncode, (0, 1), done.stderr)
            return done.stdout

        place = "." if cwd is None else folder
        model, out = os.path.join(place, "model.onnxtxt"), os.path.join(place, "out.onnx")
        printed = [run("inspect", model, "--json"), run("inspect", model, "--details"),
                   run("convert", model, "-o", out, "--json", "--max-seq-len", "24")]
        if (folder / "out.onnx").exists():
            printed += [run("check", out), run("verify", model, out, "--json")]
        printed = [text.replace(os.fsencode(str(place)) + b"/", b"./") for text in printed]
        files = {p.name: p.read_bytes() for p in folder.iterdir()}
        return files, printed

    def same(self, first, other, what):
        self.assertEqual(first[0].keys(), other[0].keys(), what)
        for name, content in first[0].items():
            self.assertEqual(content, other[0][name], (what, name))
        for a, b in zip(first[1], other[1], strict=True):
            self.assertEqual(a, b, what)

    def test_every_model_twice(self):
        """Hash seeds and addresses differ from run to run."""
        for model in sorted(MODELS.glob("*/model.onnx")):
            name = model.parent.name
            with self.subTest(name):
                first, second = self.dir / name / "1.onnx", self.dir / name / "2.onnx"
                first.parent.mkdir()
                for out in (first, second):
                    subprocess.run([KVLIFT, "convert", model, "-o", out, "--quiet"], check=False,
                                   capture_output=True, timeout=300)
                self.assertEqual(first.exists(), second.exists())
                for suffix in (".onnx", ".kv.json"):
                    if first.exists():
                        self.assertEqual(first.with_suffix(suffix).read_bytes(),
                                         second.with_suffix(suffix).read_bytes())

    def test_environment(self):
        model = text_of_case("growing_concat_two_layers")
        first = self.run_all("first", model)
        self.assertIn("out.onnx", first[0])
        locales = self.dir / "locales"
        locales.mkdir()
        environments = make_locales(locales)
        self.assertTrue(environments)
        for n, env in enumerate(environments):
            self.same(first, self.run_all(f"locale{n}", model, env=env), env)
        for n, zone in enumerate(("Asia/Kathmandu", "America/New_York", ":bad")):
            self.same(first, self.run_all(f"zone{n}", model, env={"TZ": zone}), zone)
        self.same(first, self.run_all("home", model, env={"HOME": "/", "USER": "x", "PWD": "/x"}),
                  "user")

    def test_directories_threads_and_addresses(self):
        model = text_of_case("growing_concat_two_layers")
        first = self.run_all("first", model)
        self.same(first, self.run_all("a/b/other folder", model), "folder")
        self.same(first, self.run_all("absolute", model, cwd="/"), "working directory")
        for threads in ("2", "3"):
            self.same(first, self.run_all("threads" + threads, model, threads), threads)
        if subprocess.run(["setarch", "-R", "true"], capture_output=True, check=False).returncode == 0:
            self.same(first, self.run_all("fixed", model, before=("setarch", "-R")), "addresses")


if __name__ == "__main__":
    unittest.main()
