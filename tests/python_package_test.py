"""The Python package: a wheel by `pip wheel .`, installed into an empty environment, used there.

The wheel is made of the program and the libraries that are built already. Environment: KVLIFT, the
tool in its build folder; KVLIFT_ROOT, the repository; KVLIFT_PACKAGE_TEST=1 has the wheel compile
everything itself, as for a user, into build/wheel.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import onnx

ROOT = os.environ["KVLIFT_ROOT"]
BUILD = os.path.dirname(os.path.dirname(os.environ["KVLIFT"]))
MODELS = os.path.join(ROOT, "testdata", "models")
BUILT = () if os.environ.get("KVLIFT_PACKAGE_TEST") else (
    f"--config-settings=cmake.define.KVLIFT_BUILT={BUILD}",
    f"--config-settings=build-dir={BUILD}/wheel", "--config-settings=build.targets=kvlift_native")


def cached(name):
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as file:
        found = re.search(rf"^{name}:\w+=(.*)$", file.read(), re.MULTILINE)
    return found.group(1) if found else ""


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-6000:]}"
    return done.stdout


@unittest.skipIf(cached("KVLIFT_SANITIZE"), "a build with sanitizers is not for installing")
class PackageTest(unittest.TestCase):
    def test_package(self):
        with tempfile.TemporaryDirectory() as folder:
            # The tools to build with are those of the test environment: nothing is downloaded.
            run(sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation",
                "--wheel-dir", folder, "--disable-pip-version-check", *BUILT, cwd=folder,
                timeout=3000)
            [wheel] = [f for f in os.listdir(folder) if f.endswith(".whl")]
            clean = os.path.join(folder, "clean")
            run(sys.executable, "-m", "venv", clean)
            python = os.path.join(clean, "bin", "python")
            run(python, "-m", "pip", "install", "--no-index", "--no-deps",
                "--disable-pip-version-check", os.path.join(folder, wheel))
            version = run(os.path.join(clean, "bin", "kvlift"), "version")
            self.assertRegex(version, r"^kvlift \d")
            self.assertIn(version.split()[1], wheel)
            listed = run(python, "-m", "pip", "list", "--format", "freeze",
                         "--disable-pip-version-check")
            self.assertNotIn("numpy", listed)
            environment = {key: value for key, value in os.environ.items()
                           if not key.startswith("PYTHON")}
            external = os.path.join(folder, "external", "model.onnx")
            os.mkdir(os.path.dirname(external))
            onnx.save(onnx.load(os.path.join(MODELS, "llama_optimum", "model.onnx")), external,
                      save_as_external_data=True, location="weights.bin")
            print(run(python, "-m", "unittest", "-v", "python_package_cases", timeout=600,
                      cwd=os.path.join(ROOT, "tests", "support"),
                      env={**environment, "KVLIFT_MODELS": MODELS, "KVLIFT_EXTERNAL": external,
                           "PYTHONDONTWRITEBYTECODE": "1"}))
            with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
                [example] = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
            shutil.copy(os.path.join(MODELS, "llama_optimum", "model.onnx"), folder)
            self.assertEqual(run(python, "-c", example, cwd=folder, env=environment), "BNSD []\n")
            self.assertTrue(os.path.exists(os.path.join(folder, "out.kv.json")))
            site = run(python, "-c",
                       "import sysconfig; print(sysconfig.get_path('platlib'))").strip()
            # Beside others that bring an ONNX and a protobuf of their own.
            run(sys.executable, "-c",
                "import onnx, onnxruntime, sys; sys.path.insert(0, sys.argv[1]); import kvlift; "
                "model = onnx.load(sys.argv[2]); "
                "assert len(kvlift.caches(model.SerializeToString())) == 4; "
                "onnx.checker.check_model(kvlift.convert(sys.argv[2]).model.to_bytes())",
                site, os.path.join(MODELS, "llama_optimum", "model.onnx"))
            # The plugin for pytest, which is in the environment of these tests alone; and the
            # example of its page.
            with open(os.path.join(ROOT, "docs", "pytest.md"), encoding="utf-8") as file:
                [example] = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
            with open(os.path.join(folder, "test_example.py"), "w", encoding="utf-8") as file:
                file.write(example)
            pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
            environment = {**environment, "PYTHONPATH": site, "KVLIFT_MODELS": MODELS,
                           "PYTHONDONTWRITEBYTECODE": "1"}
            self.assertIn("2 passed", run(*pytest, "test_example.py", cwd=folder, env=environment))
            print(run(*pytest, "pytest_plugin_cases.py", env=environment, timeout=600,
                      cwd=os.path.join(ROOT, "tests", "support")))


if __name__ == "__main__":
    unittest.main()
