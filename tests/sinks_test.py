"""A model full of hostile names through every command and format: they stay data in each sink."""

import ast
import hashlib
import html.parser
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import tokenize
import unittest

import numpy as np
import onnx
import yaml
from onnx import helper, numpy_helper

from support import schemas

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
KVLIFT = os.environ["KVLIFT"]
MODEL = ROOT / "testdata" / "models" / "llama_optimum" / "model.onnx"
# What acts in a terminal, a workflow's log, HTML, JSON, XML, DOT, Markdown, shells, paths, Python.
CANARIES = ("\x1b]0;x\a", "\n::error::x\n::set-env name=A::b", "</script><img src=x onerror=al()>",
            '"}];//', "\u202ertl", "a%0Ab,c:d", "long" * 400, "]]>&<!--", "\x9b31m\r",
            "\ufffe\u2028\u2066", "`$(touch owned)`", "../../owned", "\\N\\l\"];x[label=<b>",
            "'''\"\"\"\\", "|<b>|[x](javascript:al())", "nul\0nul", "__import__('os')", "//host/x",
            "\ud55c\0\U0001f600")
BRIEFLY = ("--context", "16", "--capacity", "32", "--repetitions", "1")
ACTS = [*(chr(c) for c in range(0x20) if c != 0x0a), "\x7f", *(chr(c) for c in range(0x80, 0xa0)),
        "\u202e", "\u2028", "\u2066", "\ufffe"]


def kvlift(*args, cwd=None):
    return subprocess.run([KVLIFT, *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=300, check=False, cwd=cwd)


def hostile(k):
    return f"{CANARIES[k % len(CANARIES)]}{k}"


def rename(model):
    """Renames all values, nodes and symbols; gives the new names of inputs and outputs."""
    names, symbols = {}, {}

    def new(name):
        return names.setdefault(name, hostile(len(names))) if name else ""

    graph = model.graph
    for node in graph.node:
        node.name = hostile(len(node.name) + len(names))
        node.doc_string = hostile(1)
        node.input[:] = [new(name) for name in node.input]
        node.output[:] = [new(name) for name in node.output]
    for value in [*graph.initializer, *graph.input, *graph.output]:
        value.name = new(value.name)
        value.doc_string = hostile(2)
    del graph.value_info[:]
    for value in [*graph.input, *graph.output]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param and "+" not in dim.dim_param:
                dim.dim_param = symbols.setdefault(dim.dim_param, hostile(len(symbols)))
            elif dim.dim_param:
                dim.dim_param = " + ".join(
                    symbols.setdefault(part, hostile(len(symbols)))
                    for part in dim.dim_param.split(" + "))
    graph.name, model.producer_name, model.doc_string = hostile(0), hostile(2), hostile(4)
    helper.set_model_props(model, {hostile(k): hostile(k + 1) for k in range(len(CANARIES))})
    return names


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.handlers = set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.handlers += [name for name, value in attrs
                          if name.startswith("on") or "javascript:" in (value or "")]


class Sinks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        model = onnx.load(MODEL)
        cls.names = rename(model)
        cls.before, cls.after = cls.dir / "before.onnx", cls.dir / "after.onnx"
        cls.before.write_bytes(model.SerializeToString())
        run = kvlift("convert", cls.before, "-o", cls.after)
        assert run.returncode == 0, run.stderr.decode()
        cls.manifest = json.loads((cls.dir / "after.kv.json").read_text(encoding="utf-8"))

    def run_safely(self, code, *args):
        """Its stdout; nothing acts on either stream, and nothing appears in the folder."""
        here = self.dir / "here"
        here.mkdir(exist_ok=True)
        run = kvlift(*args, cwd=here)
        self.assertEqual(run.returncode, code, run.stderr.decode())
        self.assertEqual(list(here.iterdir()), [])
        text, errors = run.stdout.decode("utf-8"), run.stderr.decode("utf-8")
        for character in ACTS:
            self.assertNotIn(character, text + errors)
        for line in (text + errors).splitlines():
            self.assertFalse(line.startswith("::set-env"), line)
        return text

    def test_manifest_is_what_the_model_says(self):
        inputs = [value.name for value in onnx.load(self.before).graph.input]
        kept = [entry["name"] for entry in self.manifest["inputs"] if entry["as"] != "control"]
        self.assertEqual(kept, inputs)
        stamped = {p.key: p.value for p in onnx.load(self.after).metadata_props}
        self.assertEqual(json.loads(stamped["kvlift.manifest"])["inputs"], self.manifest["inputs"])
        schemas.check_json(json.dumps(self.manifest))
        digest = hashlib.sha256(self.before.read_bytes()).hexdigest()
        self.assertEqual(self.manifest["source_sha256"], digest)
        self.assertEqual(json.loads(stamped["kvlift.manifest"])["source_sha256"], digest)

    def test_texts(self):
        node = onnx.load(self.before).graph.node[3].name
        for code, args in (
                (0, ("inspect", self.before, "--details", "--near-misses")),
                (0, ("convert", self.before, "-o", self.dir / "again.onnx", "--verbose")),
                (0, ("convert", self.before, "-o", self.dir / "x.onnx", "--dry-run")),
                (0, ("check", self.before, self.after)),
                (0, ("verify", self.before, self.after, "--verbose")),
                (1, ("verify", self.before, self.mutant(), "--manifest",
                     self.dir / "after.kv.json")),
                (0, ("diff", self.before, self.before)),
                (1, ("diff", self.before, self.after, "--verbose")),
                (0, ("bench", self.after, *BRIEFLY)),
                (0, ("bench", self.after, *BRIEFLY, "--format", "csv"))):
            with self.subTest(args=args):
                self.run_safely(code, *args)
        run = kvlift("explain", self.before, "--node", node.replace("\0", ""))
        for character in ACTS:
            self.assertNotIn(character, (run.stdout + run.stderr).decode())

    def mutant(self):
        """The converted model with a valid length of nothing."""
        path = self.dir / "mutant.onnx"
        model = onnx.load(self.after)
        for node in model.graph.node:
            if node.op_type == "TensorScatter":
                del node.input[2]
        path.write_bytes(model.SerializeToString())
        return path

    def test_documents(self):
        for code, args in (
                (0, ("inspect", self.before)), (0, ("check", self.after)),
                (0, ("verify", self.before, self.after)),
                (1, ("verify", self.before, self.mutant(), "--manifest",
                     self.dir / "after.kv.json")),
                (1, ("diff", self.before, self.after)),
                (0, ("convert", self.before, "-o", self.dir / "j.onnx", "--dry-run")),
                (0, ("bench", self.after, *BRIEFLY))):
            with self.subTest(args=args):
                text = self.run_safely(code, *args, "--json")
                self.assertTrue(text.isascii())
                schemas.check_json(text)
        caches = schemas.check_json(self.run_safely(0, "inspect", self.before, "--json"))["caches"]
        self.assertTrue({cache["input"] for cache in caches} <= set(self.names.values()))

    def test_formats(self):
        def junit(text):
            schemas.check_junit(text.encode())

        for name, check in (("github", str), ("junit", junit), ("sarif", schemas.check_sarif)):
            with self.subTest(format=name):
                check(self.run_safely(1, "check", self.wrong(), "--format", name))
        junit(self.run_safely(1, "verify", self.before, self.mutant(), "--manifest",
                              self.dir / "after.kv.json", "--format", "junit"))

    def test_metadata(self):
        self.run_safely(1, "metadata", self.after)
        static = self.dir / "static.onnx"
        kvlift("convert", self.before, "-o", static, "--target", "genai-static", "--max-seq-len",
               "32")
        io = yaml.safe_load(self.run_safely(0, "metadata", static))["model"]["io"]
        self.assertIn(io["token_input"], self.names.values())
        schemas.check_json(self.run_safely(0, "metadata", static, "--json"))

    def wrong(self):
        """A model in which each node is told about by check."""
        path = self.dir / "wrong.onnx"
        model = onnx.load(self.after)
        for node in model.graph.node:
            if node.op_type == "TensorScatter":
                node.attribute.append(helper.make_attribute("mode", "circular"))
                node.input[2] = node.input[1]
        path.write_bytes(model.SerializeToString())
        return path

    def test_report(self):
        out = self.dir / "report.html"
        self.run_safely(0, "report", self.before, self.after, "-o", out)
        text = out.read_text(encoding="utf-8")
        for character in ACTS:
            self.assertNotIn(character, text)
        page = Page()
        page.feed(text)
        self.assertEqual(page.handlers, [])
        self.assertFalse(page.tags & {"img", "iframe", "object", "link"}, page.tags)

    def test_generated_python(self):
        loop = self.dir / "loop.py"
        self.run_safely(0, "emit-loop", self.after, "-o", loop)
        text = loop.read_text(encoding="ascii")
        tree = ast.parse(text)
        strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        wanted = {entry["name"] for entry in self.manifest["inputs"]}
        self.assertTrue(wanted <= strings, wanted - strings)
        # A name is never an identifier, nor in a comment.
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.NAME, tokenize.COMMENT):
                for canary in ("touch", "owned", "__import__", "onerror"):
                    self.assertNotIn(canary, token.string)

    def test_generated_cpp(self):
        loop = self.dir / "loop.cpp"
        self.run_safely(0, "emit-loop", self.after, "-o", loop, "--lang", "cpp-ort")
        text = loop.read_text(encoding="ascii")
        literals = re.findall(r'"(?:[^"\\\n]|\\.)*"', text)
        read = {ast.literal_eval("b" + literal) for literal in literals}
        wanted = {entry["name"].encode() for entry in self.manifest["inputs"]}
        self.assertTrue(wanted <= read, wanted - read)
        code = re.sub(r'"(?:[^"\\\n]|\\.)*"', "", text)
        for canary in ("touch", "owned", "__import__", "onerror"):
            self.assertNotIn(canary, code)

    def test_files_are_never_named_by_the_model(self):
        feeds, outputs = self.dir / "feeds", self.dir / "outputs"
        feeds.mkdir()
        sizes = {}
        for k, value in enumerate(onnx.load(self.before).graph.input):
            shape = []
            for dim in value.type.tensor_type.shape.dim:
                sizes.setdefault(dim.dim_param, 2)
                shape.append(dim.dim_value or (4 if "+" in dim.dim_param else sizes[dim.dim_param]))
            kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            (feeds / f"input_{k}.pb").write_bytes(
                numpy_helper.from_array(np.ones(shape, kind), value.name).SerializeToString())
        self.run_safely(0, "run", self.before, "--inputs", feeds, "--outputs", outputs, "--trace")
        self.assertEqual(len(list(outputs.iterdir())), len(onnx.load(self.before).graph.output))
        for path in outputs.iterdir():
            self.assertRegex(path.name, r"^output_[0-9]+\.pb$")
        failure = self.dir / "failure"
        self.run_safely(1, "verify", self.before, self.mutant(), "--manifest",
                        self.dir / "after.kv.json", "--save-failure", failure)
        self.assertTrue(list(failure.iterdir()))
        for path in failure.rglob("*"):
            self.assertRegex(path.name, r"^[A-Za-z0-9_.]+$")


if __name__ == "__main__":
    unittest.main()
