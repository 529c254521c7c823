"""Checks the includes of lib/ and rewrites/ against lib/LAYERS.txt, and that the check bites."""

import os
import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("KVLIFT_ROOT", pathlib.Path(__file__).parent.parent))

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
DEPS = re.compile(r"kvlift_folder\((\w+)(?:\s+NO_PCH)?(?:\s+DEPS\s+([^)]*))?\)")
# What only one place may do: pattern, where it may stand, what it is.
RESERVED = [
    (re.compile(r"^\s*#\s*(?:pragma\s+omp|include\s*<(?:omp|\w*intrin)\.h>)", re.MULTILINE),
     "lib/exec/", "OpenMP or intrinsics"),
    (re.compile(r"\bcatch\s*\("), "lib/onnxio/", "a catch clause"),
]


def read_layers(text):
    """Returns {folder: set of the folders it may include}; each line may name earlier ones only."""
    layers = {}
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        name, colon, allowed = line.partition(":")
        allowed = set(allowed.split())
        if not colon or name in layers or not allowed <= layers.keys():
            raise ValueError(f"LAYERS.txt: bad line: {line}")
        layers[name] = allowed
    return layers


def folders(root, layers):
    """Yields (layer, directory): the folders of lib/, and rewrites/ beside it."""
    for directory in sorted((root / "lib").iterdir()):
        if directory.is_dir():
            yield directory.name, directory
    if "rewrites" in layers and (root / "rewrites").is_dir():
        yield "rewrites", root / "rewrites"


def check_file(root, layers, layer, path):
    where = path.relative_to(root).as_posix()
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".h" and "#pragma once" not in text:
        yield f"{where}: header without #pragma once"
    for pattern, home, what in RESERVED:
        if not where.startswith(home) and pattern.search(text):
            yield f"{where}: {what} outside {home}"
    for quote, target in INCLUDE.findall(text):
        first = target.split("/")[0]
        if first in layers:
            if first != layer and first not in layers[layer]:
                yield f"{where}: {layer} may not include {target}"
            elif not (root / "lib" / target).is_file():
                yield f"{where}: no such header: {target}"
        elif quote == '"' and (path.parent / target).exists():
            yield f"{where}: include {target} by its path from the root of lib"
        elif ".." in target.split("/"):
            yield f"{where}: include of a parent folder: {target}"


def violations(root):
    layers = read_layers((root / "lib" / "LAYERS.txt").read_text(encoding="utf-8"))
    for layer, directory in folders(root, layers):
        if layer not in layers:
            yield f"{directory.relative_to(root)}: not in LAYERS.txt"
            continue
        for path in sorted(directory.rglob("*")):
            if path.suffix in (".h", ".cc"):
                yield from check_file(root, layers, layer, path)
        cmake = directory / "CMakeLists.txt"
        if cmake.is_file():
            for name, deps in DEPS.findall(cmake.read_text(encoding="utf-8")):
                for dep in deps.split():
                    if dep in layers and dep not in layers[name]:
                        yield f"lib/{name}/CMakeLists.txt: {name} may not link {dep}"


class Tree(unittest.TestCase):
    def test_repository_keeps_the_layers(self):
        self.assertEqual(list(violations(ROOT)), [])

    def test_every_folder_was_read(self):
        layers = read_layers((ROOT / "lib" / "LAYERS.txt").read_text(encoding="utf-8"))
        self.assertEqual({name for name, _ in folders(ROOT, layers)}, set(layers))
        seen = {path for _, d in folders(ROOT, layers) for path in d.rglob("*.h")}
        self.assertIn(ROOT / "lib" / "base" / "status.h", seen)


class SelfTest(unittest.TestCase):
    """Each case is a small tree with one fault, which must be found, or with none."""

    LAYERS = "base:\nir: base\nrewrite: base ir\nverify: base ir\nrewrites: rewrite  # note\n"

    def found(self, files, layers=LAYERS):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            defaults = {f"lib/{d}/{d}.h": "#pragma once\n" for d in ("base", "ir", "rewrite")}
            for path, text in {**defaults, "lib/LAYERS.txt": layers, **files}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            return list(violations(root))

    def test_clean_tree(self):
        self.assertEqual(self.found({
            "lib/ir/a.cc": '#include "ir/ir.h"\n#include "base/base.h"\n#include <vector>\n',
            "lib/verify/CMakeLists.txt": "kvlift_folder(verify DEPS base ir)\n",
            "rewrites/r.cc": '#include "rewrite/rewrite.h"\n#include "onnx/onnx_pb.h"\n',
        }), [])

    def test_include_of_a_later_layer(self):
        self.assertEqual(self.found({"lib/base/a.cc": '#include "ir/ir.h"\n'}),
                         ["lib/base/a.cc: base may not include ir/ir.h"])

    def test_include_of_a_sibling_layer(self):
        self.assertEqual(self.found({"lib/verify/v.cc": '#  include <rewrite/rewrite.h>\n'}),
                         ["lib/verify/v.cc: verify may not include rewrite/rewrite.h"])

    def test_include_in_a_nested_folder(self):
        self.assertEqual(self.found({"lib/ir/deep/a.h": '#pragma once\n#include "rewrite/rewrite.h"\n'}),
                         ["lib/ir/deep/a.h: ir may not include rewrite/rewrite.h"])

    def test_rewrites_are_read_too(self):
        self.assertEqual(self.found({"rewrites/r.cc": '#include "ir/ir.h"\n'}),
                         ["rewrites/r.cc: rewrites may not include ir/ir.h"])

    def test_relative_include(self):
        self.assertEqual(self.found({"lib/ir/a.cc": '#include "ir.h"\n'}),
                         ["lib/ir/a.cc: include ir.h by its path from the root of lib"])

    def test_missing_header(self):
        self.assertEqual(self.found({"lib/ir/a.cc": '#include "base/gone.h"\n'}),
                         ["lib/ir/a.cc: no such header: base/gone.h"])

    def test_link_of_a_sibling_layer(self):
        self.assertEqual(
            self.found({"lib/verify/CMakeLists.txt": "kvlift_folder(verify DEPS base rewrite)\n"}),
            ["lib/verify/CMakeLists.txt: verify may not link rewrite"])

    def test_unknown_folder(self):
        self.assertEqual(self.found({"lib/extra/a.cc": ""}), ["lib/extra: not in LAYERS.txt"])

    def test_header_without_guard(self):
        self.assertEqual(self.found({"lib/ir/a.h": ""}), ["lib/ir/a.h: header without #pragma once"])

    def test_reserved_means(self):
        self.assertEqual(
            self.found({"lib/ir/a.cc": "#include <immintrin.h>\n", "lib/base/b.cc": "catch (...)"}),
            ["lib/base/b.cc: a catch clause outside lib/onnxio/",
             "lib/ir/a.cc: OpenMP or intrinsics outside lib/exec/"])

    def test_layers_file_with_a_cycle(self):
        with self.assertRaises(ValueError):
            self.found({}, "base: ir\nir: base\n")


if __name__ == "__main__":
    unittest.main()
