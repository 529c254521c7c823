"""Hundreds of malformed models, by class: each ends in one clear line and exit 3, quickly, in little
memory, and nothing is written."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import onnx
import onnx.parser
from onnx import TensorProto, helper

ROOT = pathlib.Path(os.environ.get("KVLIFT_ROOT", pathlib.Path(__file__).parent.parent))
KVLIFT = os.environ.get("KVLIFT") or "kvlift"
GOOD = (ROOT / "testdata" / "models" / "llama_optimum" / "model.onnx").read_bytes()
SECONDS = 10
KILOBYTES = 1 << 20


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, body):
    return varint(number << 3 | 2) + varint(len(body)) + body


def small(nodes=(), initializers=(), opset=18, functions=()):
    """x -> Relu -> y, with what is to be tried besides."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"]), *nodes], "g", [x], [y])
    graph.initializer.extend(initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset),
                                                    helper.make_opsetid("f", 1)])
    model.functions.extend(functions)
    return model


def reordered():
    """A cache that is turned over, rotated and filled up, again and again, in front of attention."""
    turn = ["t = Transpose<perm = [0, 1, 3, 2]>(x)", "x = Reshape(t, as_keys)"]
    rotate = ["a = Slice(x, one, far, two)", "b = Slice(x, zero, one, two)",
              "x = Concat<axis = 2>(a, b)"]
    reverse = ["x = Slice(x, last, first, two, last)"]
    fill = ["a = Slice(x, zero, p, two)", "x = Concat<axis = 2>(a, k)"]
    lines, name = [], "present_k"
    for count, line in enumerate((turn + rotate + reverse + fill + turn + turn) * 3):
        target, call = line.split(" = ", 1)
        call = re.sub(r"\bx\b", name, call)
        call = re.sub(r"\b([abt])\b(?=[,)])", lambda m: last[m[1]], call)
        last = {**(last if count else {}), target: f"{target}{count}"}
        lines.append(f"{target}{count} = {call}")
        name = f"x{count}" if target == "x" else name
    text = """<ir_version: 8, opset_import: ["" : 18]>
g (float[B,2,S,4] q, float[B,2,S,4] k, float[B,2,S,4] v, float[B,2,P,4] past_k,
   float[B,2,P,4] past_v) => (float[B,2,S,4] y, float[B,2,T,4] present_k, float[B,2,T,4] present_v)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] last = {-1},
 int64[1] far = {9223372036854775807}, int64[1] first = {-9223372036854775807},
 int64[4] as_keys = {0, 2, -1, 4}>
{
  p = Shape<start = 2, end = 3>(past_k)
  present_k = Concat<axis = 2>(past_k, k)
  present_v = Concat<axis = 2>(past_v, v)
  """ + "\n  ".join(lines) + f"""
  turned = Transpose<perm = [0, 1, 3, 2]>({name})
  scores = MatMul(q, turned)
  probs = Softmax<axis = -1>(scores)
  y = MatMul(probs, present_v)
}}"""
    return onnx.parser.parse_model(text)


def external(location="w.bin", offset="0", length="8", dims=(2,), extra=(), name="w"):
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims,
                         data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length), *extra):
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    return tensor


def function(name, calls, repeat=1):
    nodes = [helper.make_node(callee, ["a"], [f"b{i}"], domain="f" if callee != "Relu" else "")
             for i, callee in enumerate(calls * repeat)]
    nodes.append(helper.make_node("Identity", ["a"], ["b"]))
    return helper.make_function("f", name, ["a"], ["b"], nodes,
                                [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)])


def nested(depth):
    body = b""
    for _ in range(depth):
        body = field(1, field(5, field(6, body)))
    return field(7, body)


class Hostile(unittest.TestCase):
    count = 0

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        (self.dir / "w.bin").write_bytes(bytes(64))

    def refused(self, model, *needles, name="m.onnx", command="convert", flags=(), code=3):
        """Runs a command on the bytes, model or path, and checks how it ends."""
        path = self.dir / name
        if isinstance(model, onnx.ModelProto):
            model = model.SerializeToString()
        if isinstance(model, bytes):
            path.write_bytes(model)
        before = sorted(os.listdir(self.dir))
        start = time.monotonic()
        output = ["-o", str(self.dir / "out.onnx")] if command == "convert" else []
        with subprocess.Popen([KVLIFT, command, str(path), *output, *flags],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
            # Both are far below what a pipe holds.
            _, status, usage = os.wait4(run.pid, 0)
            run.returncode = os.waitstatus_to_exitcode(status)
            out, err = run.stdout.read(), run.stderr.read()
        self.assertEqual(run.returncode, code, (err[:500], out[:500]))
        self.assertEqual(out, b"")
        if code != 2:
            self.assertTrue(all(line.startswith(b"  ") for line in err.splitlines()[1:]), err)
        self.assertTrue(err.startswith(b"kvlift: "), err)
        self.assertLess(len(err), 5000)
        self.assertTrue(all(b >= 32 or b == 10 for b in err), err)
        for needle in needles:
            self.assertIn(needle, err.decode())
        self.assertLess(time.monotonic() - start, SECONDS)
        self.assertLess(usage.ru_maxrss, KILOBYTES)
        self.assertEqual(sorted(os.listdir(self.dir)), before)
        Hostile.count += 1

    def each(self, cases, *needles, **how):
        for k, case in enumerate(cases):
            with self.subTest(case=k):
                self.refused(case, *needles, **how)

    # ---- bytes
    def test_truncated(self):
        body = GOOD.index(b":") + 8  # inside the graph, which is one field
        step = (len(GOOD) - body) // 70
        self.each([GOOD[:cut] for cut in range(body, len(GOOD) - 40, step)], "KV002")

    def test_trailing_garbage(self):
        self.each([GOOD + tail for tail in (b"\0", b"\0\0\0", b"\xff", b"\xff" * 11, b"\x07",
                                            b"\x0e", b"\x3a\x05", b"\x3a\xff\xff\xff\xff\x0f",
                                            b"\x0c", b"\x0b", b"\x09\0")], "KV002")

    def test_wrong_lengths(self):
        lengths = [2**k for k in (20, 31, 32, 40, 62, 63)] + [2**64 - 1]
        self.each([b"\x08\x0a\x3a" + varint(n) + b"\x0a\x02\x22\x00" for n in lengths], "KV002")
        inner = [field(7, b"\x0a" + varint(n)) for n in (1, 2, 1 << 31, 1 << 63, 2**64 - 1)]
        inner += [field(7, field(5, b"\x4a" + varint(n))) for n in (1, 9, 1 << 31, 2**64 - 1)]
        inner += [field(7, field(1, field(5, field(6, b"\x0a" + varint(n))))) for n in (1, 1 << 40)]
        self.each(inner, "KV002")

    def test_wrong_tags(self):
        bad = [b"\x06", b"\x07", b"\x04", b"\x00\x00", b"\xff" * 10, b"\x80" * 11, b"\x08",
               b"\x09\x00", b"\x0d\x00", b"\x80\x80\x80\x80\x80\x01"]
        self.each([field(7, b) for b in bad], "KV002")
        self.each([field(7, field(1, b)) for b in bad], "KV002")
        self.each([field(7, field(5, b)) for b in bad], "KV002")

    def test_overwritten_parts(self):
        graph = GOOD.index(b":") + 8
        for k in range(24):
            at = graph + k * (len(GOOD) - graph - 300) // 24
            with self.subTest(at=at):
                # 0xff cannot end a tag, a length or a number within ten bytes.
                data = GOOD[:at] + b"\xff" * 300 + GOOD[at + 300:]
                run = subprocess.run([KVLIFT, "inspect", "-"], input=data, capture_output=True,
                                     timeout=SECONDS, check=False)
                self.assertIn(run.returncode, (0, 1, 3), run.stderr)

    def test_other_files(self):
        heads = [b"PK\x03\x04", b"GGUF\x03\0\0\0", b"\x89HDF\r\n\x1a\n", b"\x1f\x8b\x08\0",
                 b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", b"\x80\x02}q\0.",
                 b"\x80\x04\x95", b"\x7fELF\x02\x01\x01", b"ORTM", b"\x18\0\0\0ORTM\0\0",
                 b"\x1c\0\0\0TFL3\0\0", b"<html>", b"<?xml", b"{\"a\": 1}", b"ir_version: 8\n",
                 b"\x40\0\0\0\0\0\0\0{\"w\":1}", b""]
        self.each([head + b"\0" * 64 if head else head for head in heads], "KV003")
        noise = [bytes((k * 37 + i * i * 11) & 0xFF for i in range(200)) for k in range(20)]
        self.each([b"\x3a\x7f" + n[:90] for n in noise], "KV002")

    def test_no_graph(self):
        self.each([b"\x08\x0a", b"\x08\x0a\x12\x01x", field(8, b"")], "KV002")

    def test_kinds_of_files(self):
        os.mkfifo(self.dir / "pipe")
        (self.dir / "folder").mkdir()
        (self.dir / "loop").symlink_to("loop")
        for name in ("pipe", "folder", "loop", "missing", "w.bin/x", "folder/missing"):
            with self.subTest(name=name):
                self.refused(None, "KV001", name=name)

    # ---- external data
    def test_locations(self):
        bad = ["", "/etc/passwd", "../w.bin", "a/../../w.bin", "a/..", "..", "\\\\host\\share\\w",
               "C:\\w.bin", "c:w.bin", "\\w.bin", "..\\w.bin", "w.bin\0", "w\0.bin", "./../w.bin",
               "x" * 5000, "#kvlift/1", "#kvlift/999999"]
        self.each([small(initializers=[external(location=bad_one)]) for bad_one in bad], "KV004")
        dangling = TensorProto(name="w", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
        self.refused(small(initializers=[dangling]), "KV004")

    def test_numbers(self):
        sizes = ["-1", "-8", "0x8", "8.0", " 8", "8 ", "1e1", "", "+8", "9" * 30,
                 "18446744073709551616", "９"]
        self.each([small(initializers=[external(length=n)]) for n in sizes], "KV006")
        self.each([small(initializers=[external(offset=n)]) for n in sizes], "KV006")
        self.each([small(initializers=[external(length=n)])
                   for n in ("0", "4", "7", "9", "16", "1152921504606846976",
                             "9223372036854775807")], "KV006")
        self.each([small(initializers=[external(offset=n)])
                   for n in ("57", "64", "65", "4096", "9223372036854775800",
                             "9223372036854775807")], "KV006")

    def test_shapes_of_external_data(self):
        shapes = [(-1,), (-2, 2), (2**62, 4), (2**32, 2**32), (2**63 - 1, 2), (3,), (2, 2),
                  (2**40,), (1,), (0,)]
        self.each([small(initializers=[external(dims=d)]) for d in shapes], "KV006")
        self.each([small(initializers=[external(dims=(2**40,), length=None)]),
                   small(initializers=[external(dims=(17,), length=None)]),
                   small(initializers=[external(dims=(15,), length=None, offset="8")])], "KV006")
        strange = [external(), external(), external()]
        for tensor, kind in zip(strange, (0, TensorProto.STRING, 99)):
            tensor.data_type = kind
        self.each([small(initializers=[t]) for t in strange], "KV006")

    def test_keys(self):
        extras = [(("colour", "red"),), (("location", "w.bin"),), (("length", "8"),),
                  (("offset", "0"),), (("__class__", "x"),), (("", ""),), (("checksum", "a"),) * 2]
        self.each([small(initializers=[external(extra=e)]) for e in extras], "KV006")

    def test_errors_about_external_data_say_what_does_not_fit(self):
        os.symlink("w.bin", self.dir / "near")
        for tensor, text, flags in (
                (external(length="16"), "has 16 bytes, where its type and shape need 8", []),
                (external(offset="60"), 'is 8 bytes from byte 60 of "w.bin" on, which has 64', []),
                (external(offset="0x8"), 'the offset of its external data, "0x8", is no decimal', []),
                (external(extra=(("colour", "red"),)), 'has the key "colour"; location, offset', []),
                (external(location="../w.bin"), "leads out of the folder of the model", []),
                (external(location="near"), "a part of the path is a symbolic link, which check and "
                                            "--strict-links do not follow", ["--strict-links"])):
            with self.subTest(text=text):
                self.refused(small(initializers=[tensor]), 'tensor "w": ', text, flags=flags)

    def test_what_follows_an_error_holds_nothing_of_the_model(self):
        """SECURITY.md: a line with a code, and two indented lines that are those of the code."""
        (self.dir / "m.onnx").write_bytes(
            small(initializers=[external(location="../w.bin")]).SerializeToString())
        run = subprocess.run([KVLIFT, "inspect", self.dir / "m.onnx"], capture_output=True,
                             text=True, check=False)
        line, why, remedy = run.stderr.splitlines()
        self.assertTrue(line.endswith("[KV004]"), line)
        told = subprocess.run([KVLIFT, "explain", "KV004"], capture_output=True, text=True,
                              check=True).stdout
        for text in (why.removeprefix("  why: "), remedy.removeprefix("  do:  ")):
            self.assertIn(" ".join(text.split()), " ".join(told.split()))

    def test_links(self):
        outside = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, outside)
        (outside / "secret").write_bytes(bytes(64))
        (outside / "hard").write_bytes(bytes(64))
        os.symlink(outside / "secret", self.dir / "link")
        os.symlink(outside, self.dir / "folder")
        os.symlink("/dev/zero", self.dir / "zero")
        os.symlink("/proc/self/environ", self.dir / "proc")
        os.symlink("around", self.dir / "around")
        os.link(outside / "hard", self.dir / "hard")
        os.mkfifo(self.dir / "pipe")
        (self.dir / "sub").mkdir()
        self.each([small(initializers=[external(location=p)])
                   for p in ("link", "folder/secret", "zero", "proc", "around", "hard", "pipe",
                             "sub", ".", "sub/.", "./link")], "KV005")
        os.symlink("w.bin", self.dir / "near")
        self.refused(small(initializers=[external(location="near")]), "KV005",
                     flags=["--strict-links"])

    def test_every_place_of_a_tensor(self):
        bad = external(location="../w.bin")
        sparse = onnx.SparseTensorProto(dims=[2], values=bad)
        indices = onnx.SparseTensorProto(dims=[2], indices=bad)
        body = helper.make_graph([], "b", [], [])
        body.initializer.append(bad)
        attributes = [onnx.AttributeProto(name="a", type=4, t=bad),
                      onnx.AttributeProto(name="a", type=9, tensors=[external(), bad]),
                      onnx.AttributeProto(name="a", type=11, sparse_tensor=sparse),
                      onnx.AttributeProto(name="a", type=12, sparse_tensors=[indices]),
                      onnx.AttributeProto(name="a", type=5, g=body),
                      onnx.AttributeProto(name="a", type=10, graphs=[body])]
        models = [small([onnx.NodeProto(op_type="Relu", input=["x"], output=["z"], attribute=[a])])
                  for a in attributes]
        for kind in ("initialization", "algorithm"):
            model = small()
            getattr(model.training_info.add(), kind).CopyFrom(body)
            models.append(model)
        for a in attributes:
            default, inside = function("F", ["Relu"]), function("F", ["Relu"])
            default.attribute_proto.append(a)
            inside.node[0].attribute.append(a)
            models += [small(functions=[default]), small(functions=[inside])]
        for tensor in (sparse, indices):
            model = small()
            model.graph.sparse_initializer.append(tensor)
            models.append(model)
        self.each(models, "KV004")

    # ---- limits and structure
    def test_limits(self):
        relu = helper.make_node("Relu", ["x"], ["z"])
        wide = onnx.NodeProto(op_type="Relu", input=["x"], output=["z"])
        wide.attribute.extend(onnx.AttributeProto(name=f"a{i}", type=2, i=1) for i in range(4097))
        self.refused(small([relu] * 20), "KV011", "--max-nodes", flags=["--max-nodes", "20"])
        self.refused(small([wide]), "KV012")
        self.refused(small(functions=[function(f"F{i}", []) for i in range(10001)]), "KV013")
        chain = [function(f"F{i}", [f"F{i + 1}"]) for i in range(102)] + [function("F102", [])]
        self.refused(small(functions=chain), "KV014")
        self.each([nested(depth) for depth in (31, 32, 33, 60)], "KV015")
        self.refused(small(initializers=[TensorProto(name="w", data_type=1, dims=[1] * 65)]),
                     "KV016")
        typed = small()
        typed.graph.value_info.append(
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [1] * 65))
        self.refused(typed, "KV016")
        self.refused(small([helper.make_node("Relu", ["x"], ["z" * 65537])]), "KV017")
        self.refused(small([relu] * 100), "KV018", flags=["--max-parsed-bytes", "9000"])
        # A small file of a million empty parts.
        self.refused(field(7, b"\x6a\x00" * 1000000), "KV018",
                     flags=["--max-parsed-bytes", "100000000"])
        many = [external(location=f"w{i}.bin", name=f"w{i}") for i in range(4)]
        self.refused(small(initializers=many), "KV019", flags=["--max-data-files", "3"])
        self.refused(GOOD, "KV027", flags=["--max-analysis-steps", "1000"])
        self.refused(reordered(), "KV027", flags=["--max-analysis-steps", "2000000"])
        self.refused(GOOD, "KV010", flags=["--max-file-bytes", str(len(GOOD) - 1)])

    def test_two_gibibytes(self):
        with open(self.dir / "huge.onnx", "wb") as file:
            file.truncate(2**31)
        self.refused(None, "KV010", name="huge.onnx")

    def test_deep_messages(self):
        for depth in (100, 1000, 20000):
            with self.subTest(depth=depth):
                self.refused(nested(depth), "KV015")
            groups = b"\xfb\x07" * depth
            with self.subTest(groups=depth):
                self.refused(field(7, groups), "KV002")

    def test_functions(self):
        call = [helper.make_node("F0", ["x"], ["z"], domain="f")]
        self.refused(small(call, functions=[function("F0", ["F0"])]), "KV007")
        ring = [function(f"F{i}", [f"F{(i + 1) % 5}"]) for i in range(5)]
        self.refused(small(call, functions=ring), "KV007")
        self.refused(small(functions=[function("F0", []), function("F0", [])]), "KV007")
        for domain, name in (("", "LayerNormalization"), ("com.microsoft", "GroupQueryAttention"),
                             ("com.microsoft", "LayerNormalization")):
            named = function(name, [])
            named.domain = domain
            self.refused(small(functions=[named]), "KV007")
        calls = function("FastGelu", ["F0"])
        calls.domain = "com.microsoft"
        self.refused(small(functions=[calls, function("F0", [])]), "KV007")
        # 2^60 nodes once inlined.
        bomb = [function(f"F{i}", [f"F{i + 1}"], 2) for i in range(60)] + [function("F60", [])]
        self.refused(small(call, functions=bomb), "KV011")

    def test_text(self):
        head = '<ir_version: 10, opset_import: ["" : 18]>\n'
        texts = ["", "x", head, head + "g", head + "g (", head + "g (float[2] x) => (float[2] y) {",
                 head + "g (float[2] x) => (float[2] y) { y = }",
                 head + "g (float[2] x) => (float[2] y) { y = Relu(x }",
                 head + "g (float[99999999999999999999] x) => (float[2] y) { y = Relu(x) }",
                 head + "g (float[2] x) => (float[2] y) { y = Relu(x) } trailing",
                 head + "g (nonsense[2] x) => (float[2] y) { y = Relu(x) }",
                 "<ir_version: ten>", "<ir_version: 10, opset_import: [: 18]>",
                 head + "g (float[2] x) => (float[2] y) { y = Relu(x)\0 }", "\xff\xfe",
                 "(" * 100000, "<" * 100000, head + "g (float[2] x) => (float[2] y) {"
                 + "y = If (x) <then_branch = g () => () {" * 1000]
        self.each([t.encode("utf-8", "surrogateescape") for t in texts], name="m.onnxtxt")

    def test_graphs(self):
        twice = small([helper.make_node("Abs", ["x"], ["y"])])
        ring = small([helper.make_node("Abs", ["b"], ["a"]), helper.make_node("Abs", ["a"], ["b"])])
        unknown = small([helper.make_node("Abs", ["nowhere"], ["z"])])
        self.each([twice, unknown], "KV024")
        self.refused(ring, "KV025")
        default = small().opset_import[0]
        again, none, short = small(), small(), small([helper.make_node("Add", ["x"], ["z"])])
        again.opset_import.add(version=17)
        none.opset_import.remove(default)
        self.each([again, none], "KV023")
        self.refused(again, "imports the default domain twice, in versions 18 and 17")
        self.refused(short, "KV026")
        self.refused(small([helper.make_node("ReduceSum", ["x"], ["z"], keepdims=2)]), "KV032")

    def test_imports(self):
        """Every command names the versions that the file has, and none takes its pick."""
        commands = ("inspect", "check", "convert", "run", "bench")
        for domains, versions in ((("", ""), (17, 18)), (("", "ai.onnx"), (24, 17)),
                                  (("f", "f"), (1, 2))):
            model = small()
            del model.opset_import[:]
            imports = [*zip(domains, versions)] + ([] if "" in domains else [("", 18)])
            model.opset_import.extend(helper.make_opsetid(*pair) for pair in imports)
            name = 'the domain "f"' if domains[0] else "the default domain"
            for command in commands:
                with self.subTest(imports=imports, command=command):
                    self.refused(model, "KV023", command=command,
                                 *[f"imports {name} twice, in versions {versions[0]} and "
                                   f"{versions[1]}"])
        # A function has imports of its own.
        function = helper.make_function("f", "F", ["a"], ["b"],
                                        [helper.make_node("Abs", ["a"], ["b"])],
                                        [helper.make_opsetid("", 18), helper.make_opsetid("", 17)])
        self.refused(small([helper.make_node("F", ["x"], ["z"], domain="f")], functions=[function]),
                     'the function "F" imports the default domain twice, in versions 18 and 17')
        # Without nodes of the default domain ONNX asks for no import of it.
        model = small()
        del model.opset_import[0]
        self.refused(model, "which the Relu node of \"y\" is of", "KV023", command="check")
        model.graph.node[0].op_type, model.graph.node[0].domain = "Gelu", "com.microsoft"
        model.opset_import.add(domain="com.microsoft", version=1)
        onnx.checker.check_model(model)
        self.refused(model, "ONNX allows that, since no node is of that domain", "KV023",
                     command="check")

    def test_an_import_that_stands_twice_is_one(self):
        model = onnx.load_from_string(GOOD)
        model.opset_import.add(domain="ai.onnx", version=model.opset_import[0].version)
        path, out = self.dir / "twice.onnx", self.dir / "out.onnx"
        onnx.save(model, path)
        for args in (["check", path], ["convert", path, "-o", out]):
            run = subprocess.run([KVLIFT, *args], capture_output=True, check=False)
            self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([(i.domain, i.version) for i in onnx.load(out).opset_import], [("", 24)])

    # ---- what is computed
    @staticmethod
    def computing(nodes, **constants):
        """A model without inputs; constants are int64 lists, or bools."""
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph(nodes, "g", [], [y])
        for name, value in constants.items():
            kind = TensorProto.BOOL if isinstance(value, bool) else TensorProto.INT64
            shape = [] if isinstance(value, bool) else [len(value)]
            graph.initializer.append(helper.make_tensor(name, kind, shape, [value] if not shape
                                                        else value))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])

    def loop(self, body_nodes, scanned, **constants):
        info = helper.make_tensor_value_info
        body = helper.make_graph(
            body_nodes, "b", [info("i", TensorProto.INT64, []), info("p", TensorProto.BOOL, []),
                              info("v", TensorProto.FLOAT, None)],
            [info("q", TensorProto.BOOL, []), info("w", TensorProto.FLOAT, None),
             *([info("s", TensorProto.FLOAT, None)] if scanned else [])])
        nodes = [helper.make_node("ConstantOfShape", ["n"], ["x"]),
                 helper.make_node("Loop", ["", "c", "x"], ["y", *(["all"] if scanned else [])],
                                  body=body)]
        return self.computing(nodes, c=True, **constants)

    def test_sizes_that_are_computed(self):
        fill = helper.make_node("ConstantOfShape", ["n"], ["a"])
        last = helper.make_node("Tanh", ["a"], ["y"])
        sizes = [[2**31 + 1], [2**40], [2**62], [2**20, 2**20], [2**32, 2**32], [2**40, 0]]
        self.each([self.computing([fill, last], n=n) for n in sizes[:2] + sizes[5:]], "KV020",
                  command="run")
        self.each([self.computing([fill, last], n=n) for n in sizes], command="run")
        self.each([self.computing([fill, last], n=[n]) for n in (2000, 3000, 2**30)], "KV021",
                  command="run", flags=["--max-run-bytes", "4096"])
        self.refused(self.computing([helper.make_node("Expand", ["o", "n"], ["a"]),
                                     helper.make_node("Cast", ["a"], ["y"], to=1)],
                                    o=[1], n=[2**20, 2**20]), "KV020", command="run")
        twice = [helper.make_node("Identity", ["p"], ["q"]),
                 helper.make_node("Concat", ["v", "v"], ["w"], axis=0)]
        self.refused(self.loop(twice, False, n=[1]), "KV021", command="run",
                     flags=["--max-run-bytes", "100000000"])
        self.refused(self.loop(twice, False, n=[1]), "KV020", command="run",
                     flags=["--max-elements", "1000000"])

    def test_vectors_whose_length_alone_is_known(self):
        """ONNX's data propagation would make a dimension of each of their elements."""
        first = helper.make_tensor_value_info("first", TensorProto.INT64, [2**31 - 1])
        y = helper.make_tensor_value_info("y", TensorProto.INT64, [1])
        given = helper.make_model(
            helper.make_graph([helper.make_node("Gather", ["first", "zero"], ["y"])], "g", [first],
                              [y], [helper.make_tensor("zero", TensorProto.INT64, [1], [0])]),
            opset_imports=[helper.make_opsetid("", 18)])
        made = self.computing(
            [helper.make_node("Squeeze", [name], [name + "_0"]) for name in ("zero", "far", "one")]
            + [helper.make_node("Range", ["zero_0", "far_0", "one_0"], ["r"]),
               helper.make_node("Mul", ["r", "r"], ["s"]),
               helper.make_node("Gather", ["s", "zero"], ["i"]),
               helper.make_node("Cast", ["i"], ["y"], to=1)],
            zero=[0], far=[2**31 - 1], one=[1])
        for model in (given, made):
            path = self.dir / "m.onnx"
            path.write_bytes(model.SerializeToString())
            for command in ("check", "inspect"):
                start = time.monotonic()
                with subprocess.Popen([KVLIFT, command, str(path)], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL) as run:
                    _, status, usage = os.wait4(run.pid, 0)
                    run.returncode = os.waitstatus_to_exitcode(status)
                self.assertIn(run.returncode, (0, 1))
                self.assertLess(time.monotonic() - start, SECONDS)
                self.assertLess(usage.ru_maxrss, KILOBYTES)

    def test_equations_that_are_none(self):
        """ONNX's inference of Einsum never gets past such characters."""
        for k, equation in enumerate(("i*", "*", "i....", "......", "i-", "\xff")):
            node = helper.make_node("Einsum", ["x"], ["z"])
            node.attribute.add(name="equation", s=equation.encode(), type=onnx.AttributeProto.STRING)
            path = self.dir / f"m{k}.onnx"
            path.write_bytes(small([node]).SerializeToString())
            for command in (("check",), ("inspect",), ("convert", "-o", str(self.dir / "o.onnx"))):
                run = subprocess.run([KVLIFT, command[0], str(path), *command[1:]],
                                     stdin=subprocess.DEVNULL, capture_output=True, check=False,
                                     timeout=SECONDS)
                self.assertIn(run.returncode, (0, 1), run.stderr)

    def test_loops_without_end(self):
        same = [helper.make_node("Identity", ["p"], ["q"]),
                helper.make_node("Identity", ["v"], ["w"])]
        self.refused(self.loop(same, False, n=[1]), "KV022", command="run",
                     flags=["--max-step-seconds", "1"])
        gather = [*same, helper.make_node("Identity", ["v"], ["s"])]
        self.refused(self.loop(gather, True, n=[0]), "KV021", command="run",
                     flags=["--max-run-bytes", "100000000"])

    def test_a_proof_that_is_too_large_is_inconclusive(self):
        source, result = self.dir / "m.onnx", self.dir / "out.onnx"
        source.write_bytes(GOOD)
        subprocess.run([KVLIFT, "convert", source, "-o", result, "--quiet"], check=True)
        run = subprocess.run([KVLIFT, "verify", source, result, "--max-run-bytes", "4096"],
                             capture_output=True, text=True, timeout=SECONDS, check=False)
        self.assertEqual(run.returncode, 4, run)
        self.assertIn("--max-run-bytes", run.stdout)

    def test_sources_that_onnx_refuses_are_no_fault_of_the_result(self):
        for name in ("prove_input_of_four_bits.onnx", "prove_output_as_long_as_the_batch.onnx",
                     "prove_sequences_turned_into_tokens.onnx"):
            self.refused((ROOT / "testdata" / "fuzz" / name).read_bytes(), "KV101")

    def test_unknown_fields_are_told(self):
        (self.dir / "m.onnx").write_bytes(small().SerializeToString() + b"\xf8\x07\x01")
        run = subprocess.run([KVLIFT, "check", self.dir / "m.onnx"], capture_output=True,
                             timeout=SECONDS, check=False)
        self.assertIn("KV009", run.stdout.decode())

    def test_full_disk_and_other_places(self):
        self.assertEqual(self.dir.stat().st_mode & 0o777, 0o700)
        (self.dir / "m.onnx").write_bytes(GOOD)
        for out, needle in ((self.dir / "no" / "o.onnx", "KV501"), ("/dev/full/o.onnx", "KV501")):
            run = subprocess.run([KVLIFT, "convert", self.dir / "m.onnx", "-o", out],
                                 capture_output=True, timeout=SECONDS, check=False)
            self.assertEqual(run.returncode, 5, run.stderr)
            self.assertIn(needle, run.stderr.decode())

    def test_arguments(self):
        for flags in (["--max-nodes", "many"], ["--max-nodes", "-1"], ["--max-subgraph-depth", "31"],
                      ["--max-file-bytes", "2147483648"], ["--external", "move"]):
            with self.subTest(flags=flags):
                self.refused(GOOD, code=2, flags=flags)

    @classmethod
    def tearDownClass(cls):
        assert cls.count >= 300, f"only {cls.count} malformed inputs"


if __name__ == "__main__":
    unittest.main()
