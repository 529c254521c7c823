"""Checks the includes of lib/ and rewrites/ against lib/LAYERS.txt, and that the check bites."""

import os
import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("KVLIFT_ROOT", pathlib.Path(__file__).parent.parent))

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
LINKS = re.compile(r"target_link_libraries\(kvlift_(\w+)([^)]*)\)")
CONSTANT = re.compile(r"^(?:inline |static )?const(?:expr|init)? [\w:<>]+ (k[A-Z]\w*)", re.MULTILINE)
ENUMERATORS = re.compile(r"^enum (?!class|struct)[^{;]*\{([^}]*)\}", re.MULTILINE)
UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}  // namespace\n", re.MULTILINE | re.DOTALL)
MOST_SOURCES = 25  # in one folder
# What only one place may do: pattern, where it may stand, what it is.
RESERVED = [
    (re.compile(r"^\s*#\s*(?:pragma\s+omp|include\s*<(?:omp|\w*intrin)\.h>)", re.MULTILINE),
     "lib/exec/", "OpenMP or intrinsics"),
    (re.compile(r"\bcatch\s*\("), "lib/onnxio/", "a catch clause"),
]


def read_layers(text):
    """Returns {room: set of the rooms and folders it may include}; each line may name earlier ones
    only, and a folder stands for its rooms."""
    layers, known = {}, set()
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        name, colon, allowed = line.partition(":")
        allowed = set(allowed.split())
        if not colon or name in layers or not allowed <= known:
            raise ValueError(f"LAYERS.txt: bad line: {line}")
        layers[name] = allowed
        known |= {name, name.split("/")[0]}
    return layers


def room_of(layers, path):
    """The room of a file or header, given below lib/: the longest folder that has a line."""
    parts = path.split("/")[:-1]
    while parts and "/".join(parts) not in layers:
        parts.pop()
    return "/".join(parts)


def allows(layers, room, target):
    return room == target or bool({target, target.split("/")[0]} & layers[room])


def sources(root, layers):
    """Yields (path below lib/, path) of all sources of lib/, and of rewrites/ beside it."""
    for path in sorted((root / "lib").rglob("*")):
        if path.suffix in (".h", ".cc"):
            yield path.relative_to(root / "lib").as_posix(), path
    if "rewrites" in layers and (root / "rewrites").is_dir():
        for path in sorted((root / "rewrites").rglob("*")):
            if path.suffix in (".h", ".cc"):
                yield path.relative_to(root).as_posix(), path


def check_file(root, layers, room, path):
    where = path.relative_to(root).as_posix()
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".h" and "#pragma once" not in text:
        yield f"{where}: header without #pragma once"
    for pattern, home, what in RESERVED:
        if not where.startswith(home) and pattern.search(text):
            yield f"{where}: {what} outside {home}"
    folders = {name.split("/")[0] for name in layers}
    for quote, target in INCLUDE.findall(text):
        if target.split("/")[0] in folders:
            if not (root / "lib" / target).is_file():
                yield f"{where}: no such header: {target}"
            elif not allows(layers, room, room_of(layers, target)):
                yield f"{where}: {room} may not include {target}"
        elif quote == '"' and (path.parent / target).exists():
            yield f"{where}: include {target} by its path from the root of lib"
        elif ".." in target.split("/"):
            yield f"{where}: include of a parent folder: {target}"


def constants(text):
    """The constants and enumerators that a text declares outside functions and classes."""
    lists = " ".join(ENUMERATORS.findall(text))
    return set(CONSTANT.findall(text)) | set(re.findall(r"\bk[A-Z]\w*", lists))


def hidden_constants(root, layers):
    """Files of a library may be compiled as one (KVLIFT_UNITY), where a constant of an unnamed
    namespace would take the place of one that another file has from a header."""
    declared = {}
    for below, path in sources(root, layers):
        if path.suffix == ".h":
            names = declared.setdefault(below.split("/")[0], {})
            names.update(dict.fromkeys(constants(path.read_text(encoding="utf-8")), below))
    for below, path in sources(root, layers):
        if path.suffix == ".cc":
            parts = "".join(UNNAMED.findall(path.read_text(encoding="utf-8")))
            for name in sorted(constants(parts) & declared.get(below.split("/")[0], {}).keys()):
                yield f"lib/{below}: {name} hides that of {declared[below.split('/')[0]][name]}"


# A function at the start of a line, with its parameters.
FUNCTION = re.compile(r"^(?:inline |constexpr |static )*[A-Za-z_][\w:<>,&* ]*?[ &*>]([A-Z]\w+)"
                      r"\(([^()]*)\)", re.MULTILINE)
NAMESPACE = re.compile(r"^namespace (kvlift[\w:]*) \{", re.MULTILINE)
PLAIN = r"(int|bool|char|float|double|auto|\w+_t)$"


def functions(text):
    """The functions of a text, each as its name and the types of its parameters."""
    for name, parameters in FUNCTION.findall(text):
        types = []
        for parameter in re.split(r",(?![^<]*>)", parameters):
            parameter = " ".join(parameter.split("=")[0].split())
            if not re.search(PLAIN, parameter):
                parameter = re.sub(r"(?<=[ &*])[a-z_]\w*$", "", parameter)
            types.append(re.sub(r"\b(std|absl|sym|onnx)::|\s", "", parameter))
        yield name, tuple(types)


def hidden_functions(root, layers):
    """A function of an unnamed namespace would be called in the place of one that another file has
    from a header, if both take the same types."""
    declared = {}
    for below, path in sources(root, layers):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".h" and NAMESPACE.search(text):
            names = declared.setdefault((below.split("/")[0], NAMESPACE.search(text).group(1)), {})
            names.update(dict.fromkeys(functions(text), below))
    everywhere = {}
    for (_, namespace), names in declared.items():
        if namespace == "kvlift":
            everywhere.update(names)
    for below, path in sources(root, layers):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".cc" and NAMESPACE.search(text):
            own = declared.get((below.split("/")[0], NAMESPACE.search(text).group(1)), {})
            for function in sorted(set(functions("".join(UNNAMED.findall(text))))):
                header = own.get(function, everywhere.get(function))
                if header and allows(layers, room_of(layers, below), room_of(layers, header)):
                    yield f"lib/{below}: {function[0]} hides that of {header}"


def violations(root):
    layers = read_layers((root / "lib" / "LAYERS.txt").read_text(encoding="utf-8"))
    headers, counts = {}, {}
    for below, path in sources(root, layers):
        room = room_of(layers, below)
        if not room:
            yield f"{path.relative_to(root).as_posix()}: in no room of LAYERS.txt"
            continue
        if path.suffix == ".h" and headers.setdefault(path.name, path) != path:
            yield f"{path.relative_to(root).as_posix()}: a second header of this name"
        counts[path.parent] = counts.get(path.parent, 0) + 1
        yield from check_file(root, layers, room, path)
    for folder, count in counts.items():
        if folder != root / "rewrites" and count > MOST_SOURCES:
            yield f"{folder.relative_to(root).as_posix()}: {count} sources in one folder"
    yield from hidden_constants(root, layers)
    yield from hidden_functions(root, layers)
    yield from further_links(root, layers)


def further_links(root, layers):
    """The build links each room as its line says (cmake/KvliftRooms.cmake). A further link may stay
    in the folder, such as that of a table of operators to their files, and lead nowhere else."""
    folders = {name.split("/")[0] for name in layers}
    for cmake in sorted((root / "lib").rglob("CMakeLists.txt")):
        for room, links in LINKS.findall(cmake.read_text(encoding="utf-8")):
            for target in re.findall(r"\bkvlift_(\w+)", links):
                known = target.split("_")[0] in folders
                if known and target.split("_")[0] != room.split("_")[0]:
                    where = cmake.relative_to(root).as_posix()
                    yield f"{where}: kvlift_{room} links kvlift_{target}, which is of another folder"


class Tree(unittest.TestCase):
    def test_repository_keeps_the_layers(self):
        self.assertEqual(list(violations(ROOT)), [])

    def test_every_room_was_read(self):
        layers = read_layers((ROOT / "lib" / "LAYERS.txt").read_text(encoding="utf-8"))
        seen = dict(sources(ROOT, layers))
        self.assertEqual({room_of(layers, below) for below in seen}, set(layers))
        self.assertIn("base/status.h", seen)


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
            "lib/CMakeLists.txt": "kvlift_folder(ir)\n"
                                  "target_link_libraries(kvlift_ir_low PUBLIC kvlift_ir_high)\n",
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

    def test_link_of_another_folder(self):
        links = "target_link_libraries(kvlift_verify\n  PRIVATE kvlift_rewrite PkgConfig::utf8proc)\n"
        self.assertEqual(
            self.found({"lib/verify/CMakeLists.txt": links}),
            ["lib/verify/CMakeLists.txt: kvlift_verify links kvlift_rewrite, which is of another "
             "folder"])

    def test_hidden_constant(self):
        header = "#pragma once\nenum Input { kQuery, kPastKey = 3 };\nconstexpr int kMost = 8;\n"
        unnamed = "namespace {\nenum Other { kBias, kPastKey };\nconstexpr int kMost = 4;\n"
        unnamed += "}  // namespace\n"
        self.assertEqual(
            self.found({"lib/ir/a.h": header, "lib/ir/b.cc": unnamed, "lib/rewrite/c.cc": unnamed}),
            ["lib/ir/b.cc: kMost hides that of ir/a.h", "lib/ir/b.cc: kPastKey hides that of ir/a.h"])

    def test_functions_that_one_of_an_unnamed_namespace_hides(self):
        header = "#pragma once\nnamespace kvlift {\nbool IsInteger(int32_t type);\n}\n"
        source = "namespace kvlift {\nnamespace {\nbool IsInteger({}) {{\n}}\n}}  // namespace\n"
        for parameters, found in (("int32_t kind", True), ("int64_t type", False)):
            text = source.replace("{}", parameters).replace("{{", "{").replace("}}", "}")
            self.assertEqual(self.found({"lib/base/a.h": header, "lib/ir/b.cc": text}),
                             ["lib/ir/b.cc: IsInteger hides that of base/a.h"] if found else [])

    def test_unknown_folder(self):
        self.assertEqual(self.found({"lib/extra/a.cc": ""}),
                         ["lib/extra/a.cc: in no room of LAYERS.txt"])

    ROOMS = "base:\nir/low: base\nir/high: base ir/low\nrewrite: ir\n"

    def test_rooms_of_a_folder(self):
        files = {"lib/ir/low/a.h": "#pragma once\n", "lib/ir/high/b.h": "#pragma once\n",
                 "lib/ir/ir.h": ""}
        clean = {**files, "lib/ir/high/b.cc": '#include "ir/low/a.h"\n',
                 "lib/rewrite/r.cc": '#include "ir/high/b.h"\n'}
        self.assertEqual(self.found(clean, self.ROOMS), ["lib/ir/ir.h: in no room of LAYERS.txt"])
        upwards = {**files, "lib/ir/low/a.cc": '#include "ir/high/b.h"\n'}
        self.assertIn("lib/ir/low/a.cc: ir/low may not include ir/high/b.h",
                      self.found(upwards, self.ROOMS))

    def test_second_header_of_a_name(self):
        self.assertEqual(self.found({"lib/base/a.h": "#pragma once\n",
                                     "lib/ir/a.h": "#pragma once\n"}),
                         ["lib/ir/a.h: a second header of this name"])

    def test_crowded_folder(self):
        self.assertEqual(self.found({f"lib/ir/a{i}.cc": "" for i in range(25)}),
                         ["lib/ir: 26 sources in one folder"])

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
