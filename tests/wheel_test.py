"""What wheels and `pip install .` rest on, without making any: what CMake says where something is
missing, the one recipe for ONNX, and the workflow that builds wheels. `tools/dev wheel --smoke`
makes and uses wheels. Environment: KVLIFT_ROOT, the repository.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
SCRIPTS = ROOT / "tools" / "dev.d"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


class Missing(unittest.TestCase):
    """Where something is missing, configuring ends with one line that says what to do."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def said_by_cmake(self, *options):
        done = subprocess.run(
            ["cmake", "-S", ROOT, "-B", self.folder / "build", "-G", "Ninja", *options],
            capture_output=True, text=True, timeout=300, check=False,
            env={**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), "PIP_NO_INDEX": "1"})
        self.assertNotEqual(done.returncode, 0)
        said = [line.strip() for line in done.stderr.splitlines() if "kvlift: " in line]
        self.assertEqual(len(said), 1, done.stderr)
        return said[0], done.stdout

    def test_libraries(self):
        said, _ = self.said_by_cmake("-DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON",
                                     "-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON")
        self.assertEqual(said, "kvlift: libraries are missing; on Debian: apt-get install "
                               "libfmt-dev libcli11-dev")

    def test_onnx_outside_pip(self):
        said, _ = self.said_by_cmake("-DCMAKE_DISABLE_FIND_PACKAGE_ONNX=ON")
        self.assertEqual(said, "kvlift: ONNX 1.23 or newer is missing; run: ./tools/dev setup")

    def test_onnx_that_cannot_be_downloaded_for_pip(self):
        said, printed = self.said_by_cmake("-DCMAKE_DISABLE_FIND_PACKAGE_ONNX=ON",
                                           "-DKVLIFT_PYTHON_MODULE=ON")
        self.assertRegex(said, r"^kvlift: ONNX 1\.23 or newer is missing and was not built: "
                               r"onnx: cannot download the source package of onnx [\d.]+$")
        self.assertIn("building it once, which takes some minutes", printed)
        self.assertEqual([path.name for path in (self.folder / "cache" / "kvlift").glob("work.*")],
                         [])


class Recipe(unittest.TestCase):
    def script(self, script, cache):
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PIP_NO_INDEX": "1"}
        return subprocess.run(["bash", SCRIPTS / script], capture_output=True, text=True,
                              timeout=60, check=False, env=environment)

    def test_there_is_one(self):
        """Setup and CMake run the same script, and nothing else names what is downloaded."""
        self.assertIn("dev.d/onnx.sh", (ROOT / "cmake/KvliftDependencies.cmake").read_text())
        self.assertRegex((SCRIPTS / "setup.sh").read_text(), r'(?m)^source .*/onnx\.sh"$')
        texts = {path: path.read_text(encoding="utf-8")
                 for path in [*SCRIPTS.glob("*.sh"), *ROOT.glob("cmake/*"), ROOT / "pyproject.toml",
                              ROOT / "tools" / "dev", *WORKFLOWS]}
        self.assertEqual([p.name for p, text in texts.items() if re.search(r"[0-9a-f]{64}", text)],
                         ["paths.sh"])
        self.assertEqual([p.name for p, text in texts.items() if "--no-binary onnx" in text],
                         ["onnx.sh"])

    def test_what_is_built_already_is_taken_without_network(self):
        with tempfile.TemporaryDirectory() as cache:
            home = subprocess.run(["bash", SCRIPTS / "paths.sh", "onnx"], text=True, check=True,
                                  capture_output=True, env={**os.environ, "XDG_CACHE_HOME": cache})
            done = self.script("onnx.sh", cache)
            self.assertEqual(done.returncode, 1)
            self.assertTrue(done.stderr.splitlines()[-1].startswith("onnx: cannot download"))
            pathlib.Path(home.stdout).mkdir(parents=True)
            pathlib.Path(home.stdout, ".complete").touch()
            done = self.script("onnx.sh", cache)
            self.assertEqual((done.returncode, done.stdout), (0, home.stdout), done.stderr)

    def test_another_archive_is_not_built(self):
        with tempfile.TemporaryDirectory() as cache:
            version = re.search(r"ONNX_VERSION=(.*)", (SCRIPTS / "paths.sh").read_text()).group(1)
            archive = pathlib.Path(cache, "kvlift", f"onnx-{version}.tar.gz")
            archive.parent.mkdir()
            archive.write_bytes(b"another archive")
            done = self.script("onnx.sh", cache)
            self.assertEqual(done.returncode, 1)
            self.assertIn("cannot download", done.stderr.splitlines()[-1])


class Workflows(unittest.TestCase):
    def test_they_are_workflows_by_the_schema_of_github(self):
        self.assertIn("wheels.yml", [path.name for path in WORKFLOWS])
        run = subprocess.run([sys.executable, "-m", "check_jsonschema", "--builtin-schema",
                              "vendor.github-workflows", *map(str, WORKFLOWS)],
                             capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_scripts_are_shell_and_take_no_values_into_their_text(self):
        scripts = [step["run"] for path in WORKFLOWS
                   for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
                   for step in job["steps"] if "run" in step]
        self.assertGreater(len(scripts), 1)
        for script in scripts:
            self.assertNotIn("${{", script)
            subprocess.run(["bash", "-n", "-c", script], check=True)

    def test_files_that_are_run_are_there(self):
        text = "\n".join([(ROOT / "pyproject.toml").read_text(encoding="utf-8"),
                          *(path.read_text(encoding="utf-8") for path in WORKFLOWS)])
        named = set(re.findall(r"\b(?:tools|testdata)/[\w./-]+", text)) - {"tools/python"}
        self.assertGreater(len(named), 3)
        for name in named:
            self.assertTrue((ROOT / name).exists(), name)

    def test_every_platform_has_a_job(self):
        jobs = yaml.safe_load((ROOT / ".github/workflows/wheels.yml").read_text())["jobs"]
        platforms = [row["platform"] for row in jobs["build"]["strategy"]["matrix"]["include"]]
        self.assertEqual(platforms,
                         ["linux-x86_64", "linux-aarch64", "macos-arm64", "windows-amd64"])


class Scripts(unittest.TestCase):
    def test_shellcheck(self):
        if shutil.which("shellcheck") is None:
            self.skipTest("no shellcheck")
        done = subprocess.run(["shellcheck", "-x", "tools/dev",
                               *map(str, sorted(SCRIPTS.glob("*.sh")))],
                              cwd=ROOT, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
