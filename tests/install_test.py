"""What `cmake --install` and the Debian package hold: a program that runs, and libraries that another
project links. Environment: KVLIFT, the tool in its build folder; KVLIFT_ROOT, the repository.
"""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

BUILD = os.path.dirname(os.path.dirname(os.environ["KVLIFT"]))
MODEL = os.path.join(os.environ["KVLIFT_ROOT"], "testdata", "models", "llama_optimum", "model.onnx")
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(host LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(kvlift 0.1 REQUIRED)
add_executable(host host.cc)
target_link_libraries(host PRIVATE kvlift::rewrites kvlift::rewrite kvlift::onnxio)
"""
HOST = """
#include <iostream>
#include "onnxio/model.h"
#include "rewrite/convert.h"
int main(int, char** argv) {
  const auto model = kvlift::LoadModel(argv[1], {});
  if (!model.ok()) return 3;
  const auto found = kvlift::Inspect(*model, kvlift::AllRules());
  if (!found.ok()) return 3;
  std::cout << found->caches.size() << " caches" << std::endl;
}
"""


def cached(name):
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as file:
        found = re.search(rf"^{name}:\w+=(.*)$", file.read(), re.MULTILINE)
    return found.group(1) if found else ""


@unittest.skipIf(cached("KVLIFT_SANITIZE"), "a build with sanitizers is not for installing")
class InstallTest(unittest.TestCase):
    def run_ok(self, *command, **options):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def check_program(self, usr):
        program = os.path.join(usr, "bin", "kvlift")
        self.assertRegex(self.run_ok(program, "version"), r"^kvlift \d")
        self.run_ok(program, "inspect", MODEL)
        for path in ("man/man1/kvlift.1", "bash-completion/completions/kvlift",
                     "zsh/vendor-completions/_kvlift", "fish/vendor_completions.d/kvlift.fish",
                     "doc/kvlift/LICENSE", "doc/kvlift/kvlift.cdx.json"):
            self.assertGreater(os.path.getsize(os.path.join(usr, "share", path)), 100, path)

    def test_program(self):
        with tempfile.TemporaryDirectory() as usr:
            self.run_ok("cmake", "--install", BUILD, "--prefix", usr, "--component", "program")
            self.check_program(usr)
            self.assertFalse(os.path.exists(os.path.join(usr, "include")))

    def test_libraries(self):
        with tempfile.TemporaryDirectory() as folder:
            usr, host = os.path.join(folder, "usr"), os.path.join(folder, "host")
            self.run_ok("cmake", "--install", BUILD, "--prefix", usr, "--component", "development")
            os.mkdir(host)
            for name, text in (("CMakeLists.txt", PROJECT), ("host.cc", HOST)):
                with open(os.path.join(host, name), "w", encoding="utf-8") as file:
                    file.write(text)
            self.run_ok("cmake", "-S", host, "-B", host, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                        f"-DCMAKE_PREFIX_PATH={usr}", f"-DONNX_DIR={cached('ONNX_DIR')}")
            self.run_ok("cmake", "--build", host)
            self.assertEqual(self.run_ok(os.path.join(host, "host"), MODEL), "4 caches\n")

    @unittest.skipIf(shutil.which("dpkg-deb") is None, "no dpkg-deb")
    def test_debian_package(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_ok("cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", folder)
            [package] = [f for f in os.listdir(folder) if f.endswith(".deb")]
            package = os.path.join(folder, package)
            fields = self.run_ok("dpkg-deb", "--field", package)
            self.assertIn("Package: kvlift\n", fields)
            for library in ("libprotobuf", "libssl", "libutf8proc"):
                self.assertIn(library, fields)
            root = os.path.join(folder, "root")
            self.run_ok("dpkg-deb", "--extract", package, root)
            self.check_program(os.path.join(root, "usr"))


if __name__ == "__main__":
    unittest.main()
