"""The commands that execute models: tensors read and written, steps chained, and what is measured.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

from support.schemas import check_json

KVLIFT = os.environ["KVLIFT"]
MODELS = os.path.join(os.environ["KVLIFT_ROOT"], "testdata", "models")
DONE, FINDINGS, USAGE, UNREADABLE, INCONCLUSIVE, UNWRITABLE = 0, 1, 2, 3, 4, 5

ADD = """<ir_version: 10, opset_import: ["" : 17]>
g (float[2,3] a, float[2,3] b) => (float[2,3] sum, float[2,3] twice) {
  sum = Add(a, b)
  twice = Add(sum, sum)
}"""
# One cache, and the sum of all that was ever appended to it.
GROWING = """<ir_version: 10, opset_import: ["" : 17]>
g (float[1,2,P,4] past, float[1,2,S,4] new) => (float[1,2,T,4] present, float[1,2,1,4] total) {
  axes = Constant <value = int64[1] {2}> ()
  present = Concat <axis = 2> (past, new)
  total = ReduceSum <keepdims = 1> (present, axes)
}"""


def bundled(name):
    return os.path.join(MODELS, name, "model.onnx")


def kvlift(*args):
    done = subprocess.run([KVLIFT, *map(str, args)], stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=300, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def write(path, content):
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return path


def write_tensor(path, array):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return write(path, numpy_helper.from_array(array, "t").SerializeToString())


def read_tensor(path):
    tensor = TensorProto()
    with open(path, "rb") as file:
        tensor.ParseFromString(file.read())
    return numpy_helper.to_array(tensor)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def at(self, *names):
        return os.path.join(self.folder, *names)

    def model(self, text, name="model.onnx"):
        proto = onnx.parser.parse_model(text)
        return write(self.at(name), proto.SerializeToString())

    def expect(self, code, *args):
        got, out, err = kvlift(*args)
        self.assertEqual(got, code, f"{args}\n{out}\n{err}")
        return out, err

    def one_line(self, err, code=None):
        """One line, which ends with the code; lines that are indented say why and what to do."""
        lines = [line for line in err.splitlines() if not line.startswith("  ")]
        self.assertEqual(len(lines), 1, err)
        self.assertTrue(lines[0].startswith("kvlift: "), err)
        if code is None:
            self.assertNotRegex(lines[0], r"\[KV\d+\]$")
        else:
            self.assertTrue(lines[0].endswith(f"[{code}]"), err)

    def files(self):
        return sorted(os.listdir(self.folder))


class Run(Case):
    A = np.arange(6, dtype=np.float32).reshape(2, 3)
    B = np.full((2, 3), 0.5, np.float32)

    def inputs(self, folder="in"):
        write_tensor(self.at(folder, "input_0.pb"), self.A)
        write_tensor(self.at(folder, "input_1.pb"), self.B)
        return self.at(folder)

    def expected(self, twice=None):
        write_tensor(self.at("want", "output_0.pb"), self.A + self.B)
        write_tensor(self.at("want", "output_1.pb"),
                     2 * (self.A + self.B) if twice is None else twice)
        return self.at("want")

    def test_outputs(self):
        model = self.model(ADD)
        self.expect(DONE, "run", model, "--inputs", self.inputs(), "--outputs", self.at("got"))
        np.testing.assert_array_equal(read_tensor(self.at("got", "output_0.pb")), self.A + self.B)
        np.testing.assert_array_equal(read_tensor(self.at("got", "output_1.pb")),
                                      2 * (self.A + self.B))
        self.assertEqual(sorted(os.listdir(self.at("got"))), ["output_0.pb", "output_1.pb"])

    def test_inputs_by_name(self):
        model = self.model(ADD)
        os.mkdir(self.at("npy"))
        for version in ((1, 0), (2, 0)):
            for name, array in (("a", self.A), ("b", self.B)):
                with open(self.at("npy", name + ".npy"), "wb") as file:
                    np.lib.format.write_array(file, array, version=version)
            self.expect(DONE, "run", model, "--inputs", self.at("npy"), "--expect",
                        self.expected())
        damaged = (np.asfortranarray(self.A), self.A.astype(">f4"), self.A.astype(np.complex64),
                   np.array(["text"]))
        for array in damaged:
            np.save(self.at("npy", "a.npy"), array)
            _, err = self.expect(UNREADABLE, "run", model, "--inputs", self.at("npy"))
            self.one_line(err, "KV034")
            self.assertIn("a.npy", err)
        np.save(self.at("npy", "a.npy"), self.A)
        with open(self.at("npy", "a.npy"), "rb") as file:
            whole = file.read()
        for cut in (3, 9, 60, len(whole) - 1):
            write(self.at("npy", "a.npy"), whole[:cut])
            self.one_line(self.expect(UNREADABLE, "run", model, "--inputs", self.at("npy"))[1],
                          "KV034")

    def test_expected_outputs(self):
        model, inputs = self.model(ADD), self.inputs()
        out, _ = self.expect(DONE, "run", model, "--inputs", inputs, "--expect", self.expected())
        self.assertIn("as expected", out)
        wrong = 2 * (self.A + self.B)
        wrong[1, 2] += 1
        want = self.expected(wrong)
        out, err = self.expect(FINDINGS, "run", model, "--inputs", inputs, "--expect", want)
        self.assertIn("twice", out + err)
        self.assertRegex(out.splitlines()[-1], "NOT as expected: twice: element 5 ")
        self.expect(DONE, "run", model, "--inputs", inputs, "--expect", want, "--atol", "2")
        self.expect(DONE, "run", model, "--inputs", inputs, "--expect", want, "--rtol", "0.5")
        for other in (wrong[:1], wrong.astype(np.float64), np.full_like(wrong, np.nan)):
            self.expect(FINDINGS, "run", model, "--inputs", inputs, "--expect",
                        self.expected(other), "--atol", "1e9")

    def test_tolerance_follows_the_element_type(self):
        for number, dtype, passes in ((1, np.float32, False), (10, np.float16, True)):
            model = self.model(f"""<ir_version: 10, opset_import: ["" : 18]>
                g (float[1] x) => (y) {{ y = Cast <to = {number}> (x) }}""")
            write_tensor(self.at("half", "input_0.pb"), np.ones(1, np.float32))
            write_tensor(self.at("near", "output_0.pb"), np.full(1, 1.0078125, dtype))
            self.expect(DONE if passes else FINDINGS, "run", model, "--inputs", self.at("half"),
                        "--expect", self.at("near"))

    def test_sequences_and_optional_values(self):
        rows = [np.arange(n, dtype=np.float32) for n in (2, 3)]
        sequence = numpy_helper.from_list(rows, "x")
        for declared, value in (
                ("seq(float[N])", sequence),
                ("seq(float[N])", numpy_helper.from_list([], "x", dtype=1)),
                ("seq(string)", onnx.SequenceProto(
                    elem_type=onnx.SequenceProto.TENSOR,
                    tensor_values=[helper.make_tensor("", TensorProto.STRING, [1], [b"a"])])),
                ("optional(seq(float[N]))", numpy_helper.from_optional(rows, "x")),
                ("optional(float[N])", numpy_helper.from_optional(rows[0], "x")),
                ("optional(float[N])", numpy_helper.from_optional(None, "x"))):
            with self.subTest(declared):
                model = self.model(f"""<ir_version: 10, opset_import: ["" : 18]>
                    g ({declared} x) => ({declared} y) {{ y = Identity (x) }}""")
                for name in ("input_0.pb", "output_0.pb"):
                    os.makedirs(self.at("in"), exist_ok=True)
                    write(self.at("in", name), value.SerializeToString())
                out, _ = self.expect(DONE, "run", model, "--inputs", self.at("in"), "--expect",
                                     self.at("in"), "--outputs", self.at("got"), "--json")
                self.assertTrue(check_json(out)["equal"])
                got = type(value)()
                with open(self.at("got", "output_0.pb"), "rb") as file:
                    got.ParseFromString(file.read())
                self.assertEqual(got.name, "y")
                read = (numpy_helper.to_list if isinstance(value, onnx.SequenceProto)
                        else numpy_helper.to_optional)
                self.assertEqual(got.elem_type, value.elem_type)
                self.assertEqual(str(read(got)), str(read(value)))

    def test_what_differs_in_a_sequence(self):
        model = self.model("""<ir_version: 10, opset_import: ["" : 18]>
            g (float[2] x) => (seq(float[2]) y) { y = SequenceConstruct (x, x) }""")
        write_tensor(self.at("in", "input_0.pb"), np.zeros(2, np.float32))
        os.makedirs(self.at("want"))
        for items, text in (([0, 0], None), ([0, 1], "item 1: element 0 is 0, expected 1"),
                            ([0], r"is sequence \[2\], expected sequence \[1\]")):
            value = numpy_helper.from_list([np.full(2, n, np.float32) for n in items], "y")
            write(self.at("want", "output_0.pb"), value.SerializeToString())
            code = DONE if text is None else FINDINGS
            out, _ = self.expect(code, "run", model, "--inputs", self.at("in"), "--expect",
                                 self.at("want"))
            if text is not None:
                self.assertRegex(out.splitlines()[-1], "NOT as expected: y: " + text)

    def test_values_of_another_kind_than_declared(self):
        sequence = numpy_helper.from_list([np.zeros(2, np.float32)], "x")
        doubles = numpy_helper.from_list([np.zeros(2)], "x")
        tensor = numpy_helper.from_array(np.zeros(2, np.float32), "x")
        huge = onnx.SequenceProto(elem_type=onnx.SequenceProto.TENSOR, tensor_values=[
            TensorProto(dims=[1 << 40], data_type=TensorProto.FLOAT)])
        mapped = onnx.SequenceProto(elem_type=onnx.SequenceProto.MAP,
                                    map_values=[onnx.MapProto(key_type=TensorProto.INT64)])
        for declared, value, text in (
                ("float[2]", sequence, "input_0.pb is no TensorProto but a sequence"),
                ("seq(float[2])", tensor, "input_0.pb is no SequenceProto"),
                ("seq(float[2])", mapped, "holds values that are neither tensors nor sequences"),
                ("seq(float[2])", doubles, "holds tensors of float64, float32 declared"),
                ("seq(float[2])", huge, "takes more data than the file"),
                ("optional(float[2])", tensor, "input_0.pb is no OptionalProto"),
                ("optional(float[2])", numpy_helper.from_optional([np.zeros(2, np.float32)], "x"),
                 "input_0.pb holds a sequence, a tensor declared"),
                ("optional(seq(float[2]))",
                 numpy_helper.from_optional(np.zeros(2, np.float32), "x"),
                 "input_0.pb holds a tensor, a sequence declared"),
                ("map(int64, float[2])", tensor, "x is a map; only tensors, sequences and")):
            with self.subTest(declared + text):
                model = self.model(f"""<ir_version: 10, opset_import: ["" : 18]>
                    g ({declared} x) => ({declared} y) {{ y = Identity (x) }}""")
                os.makedirs(self.at("in"), exist_ok=True)
                write(self.at("in", "input_0.pb"), value.SerializeToString())
                _, err = self.expect(UNREADABLE, "run", model, "--inputs", self.at("in"))
                self.one_line(err, "KV034")
                self.assertIn(text, err)
        os.makedirs(self.at("npy"))
        np.save(self.at("npy", "x.npy"), np.zeros(2, np.float32))
        model = self.model("""<ir_version: 10, opset_import: ["" : 18]>
            g (seq(float[2]) x) => (seq(float[2]) y) { y = Identity (x) }""")
        _, err = self.expect(UNREADABLE, "run", model, "--inputs", self.at("npy"))
        self.one_line(err, "KV034")
        self.assertIn("x.npy holds a tensor, a sequence declared", err)

    def test_test_data_of_onnx_is_judged_with_the_tolerance_of_onnx(self):
        model = self.model("""<ir_version: 10, opset_import: ["" : 18]>
            g (float[1] x) => (float[1] y) { y = Identity (x) }""")
        write_tensor(self.at("in", "input_0.pb"), np.full(1, 5e-6, np.float32))
        for folder, code in (("step", DONE), ("test_data_set_0", FINDINGS)):
            write_tensor(self.at(folder, "output_0.pb"), np.zeros(1, np.float32))
            for at in (self.at(folder), self.at(folder, "")):
                self.expect(code, "run", model, "--inputs", self.at("in"), "--expect", at)
        self.expect(DONE, "run", model, "--inputs", self.at("in"), "--expect",
                    self.at("test_data_set_0"), "--atol", "1e-5")

    def test_sizes_without_data_cost_no_memory(self):
        model = self.model("""<ir_version: 10, opset_import: ["" : 18]>
            g (float[N] x) => (float[N] y) { y = Identity (x) }""")
        os.makedirs(self.at("in"))
        for dtype in (TensorProto.FLOAT, TensorProto.STRING, TensorProto.COMPLEX128):
            with open(self.at("in", "input_0.pb"), "wb") as file:
                file.write(TensorProto(dims=[2**40], data_type=dtype).SerializeToString())
            _, err = self.expect(UNREADABLE, "run", model, "--inputs", self.at("in"))
            self.one_line(err, "KV034")
            self.assertRegex(err, "0 values or bytes|more data than the file")

    def test_json(self):
        out, _ = self.expect(DONE, "run", "--json", self.model(ADD), "--inputs", self.inputs(),
                             "--expect", self.expected())
        document = check_json(out)
        self.assertEqual(document["schema"], "kvlift/run/1")
        self.assertIs(document["equal"], True)
        self.assertEqual([o["name"] for o in document["steps"][0]["outputs"]], ["sum", "twice"])

    def test_missing_and_wrong_inputs(self):
        model = self.model(ADD)
        _, err = self.expect(USAGE, "run", model)
        self.one_line(err)
        write_tensor(self.at("one", "input_0.pb"), self.A)
        _, err = self.expect(USAGE, "run", model, "--inputs", self.at("one"))
        self.one_line(err)
        self.assertIn("b", err)
        write_tensor(self.at("many", "input_2.pb"), self.A)
        for folder in ("many", "none"):
            _, err = self.expect(UNREADABLE, "run", model, "--inputs", self.at(folder))
            self.one_line(err, "KV034")
        write(self.at("one", "input_1.pb"), b"\xff\xff\xff")
        self.one_line(self.expect(UNREADABLE, "run", model, "--inputs", self.at("one"))[1], "KV034")
        write_tensor(self.at("one", "input_1.pb"), self.B.astype(np.float64))
        self.one_line(self.expect(UNREADABLE, "run", model, "--inputs", self.at("one"))[1], "KV401")
        self.one_line(self.expect(UNREADABLE, "run", model, "--inputs", self.inputs(),
                                  "--expect", self.at("none"))[1], "KV034")
        self.one_line(self.expect(UNREADABLE, "run", model, "--steps", self.at("one"))[1], "KV034")

    def test_a_manifest_that_cannot_be_read_is_told_once(self):
        model = self.model(ADD)
        write(self.at("model.kv.json"), "{")
        for command in (("run", model, "--inputs", self.inputs()), ("bench", model)):
            self.one_line(self.expect(UNREADABLE, *command)[1], "KV033")

    def test_outputs_are_whole_or_absent(self):
        model, inputs = self.model(ADD), self.inputs()
        write(self.at("file"), "x")
        for target in (self.at("file"), self.at("file", "deep")):
            self.one_line(self.expect(UNWRITABLE, "run", model, "--inputs", inputs,
                                      "--outputs", target)[1], "KV501")
        os.makedirs(self.at("half", "output_1.pb"))
        self.expect(UNWRITABLE, "run", model, "--inputs", inputs, "--outputs", self.at("half"))
        self.assertEqual(os.listdir(self.at("half")), ["output_1.pb"])

        before = self.files()
        for step in ("00", "01"):
            self.inputs(os.path.join("steps", step))
        os.makedirs(self.at("want", "00"))
        os.makedirs(self.at("want", "01"))
        write_tensor(self.at("want", "00", "output_0.pb"), self.A)
        self.expect(UNREADABLE, "run", model, "--steps", self.at("steps"), "--expect",
                    self.at("want"), "--outputs", self.at("got"))
        self.assertEqual(self.files(), sorted(before + ["steps", "want"]))

    def test_operator_without_kernel(self):
        path = self.model("""<ir_version: 10, opset_import: ["" : 17, "com.nobody" : 1]>
            g (float[2] x) => (float[2] y) { y = com.nobody.Mystery(x) }""")
        write_tensor(self.at("in", "input_0.pb"), np.zeros(2, np.float32))
        _, err = self.expect(INCONCLUSIVE, "run", path, "--inputs", self.at("in"))
        self.one_line(err, "KV401")
        self.assertIn("com.nobody.Mystery-1", err)
        self.assertIn("node \"y\"", err)

    def test_operator_set_of_the_future(self):
        path = self.model("""<ir_version: 10, opset_import: ["" : 29]>
            g (float[2] x) => (float[2] y) { y = Relu(x) }""")
        write_tensor(self.at("in", "input_0.pb"), np.zeros(2, np.float32))
        _, err = self.expect(INCONCLUSIVE, "run", path, "--inputs", self.at("in"))
        self.one_line(err, "KV401")
        self.assertIn("Relu-29", err)

    def test_recorded_steps(self):
        for name in sorted(os.listdir(MODELS)):
            steps = os.path.join(MODELS, name, "steps")
            out, _ = self.expect(DONE, "run", bundled(name), "--steps", steps, "--expect", steps)
            self.assertIn("as expected", out)
        for name in ("llama_optimum", "toy_onehot_where_ts"):
            steps = os.path.join(MODELS, name, "steps")
            for flags in ((), ("--alias", "off"), ("--order", "fast"), ("--threads", "1")):
                out, _ = self.expect(DONE, "run", bundled(name), "--steps", steps, "--expect",
                                     steps, *flags)
                self.assertIn("as expected", out)

    def test_presents_become_the_next_pasts(self):
        model = self.model(GROWING)
        rows = [np.full((1, 2, n, 4), n, np.float32) for n in (3, 1, 2)]
        for step, new in enumerate(rows):
            write_tensor(self.at("steps", f"{step:02}", "input_1.pb"), new)
        write_tensor(self.at("steps", "00", "input_0.pb"), np.zeros((1, 2, 0, 4), np.float32))
        self.expect(DONE, "run", model, "--steps", self.at("steps"), "--outputs", self.at("got"))
        for step in range(3):
            present = read_tensor(self.at("got", f"{step:02}", "output_0.pb"))
            np.testing.assert_array_equal(present, np.concatenate(rows[:step + 1], axis=2))

    def test_converted_model_updates_in_place(self):
        self.expect(DONE, "convert", bundled("llama_optimum"), "-o", self.at("out.onnx"))
        graph = onnx.load(self.at("out.onnx")).graph
        names = [i.name for i in graph.input]
        source = {i.name: k for k, i in enumerate(onnx.load(bundled("llama_optimum")).graph.input)}
        recorded = os.path.join(MODELS, "llama_optimum", "steps")
        past, capacity = 0, 24
        for step in ("00", "01"):
            feeds = {n: read_tensor(os.path.join(recorded, step, f"input_{k}.pb"))
                     for n, k in source.items()}
            tokens = feeds["input_ids"].shape[1]
            for k, name in enumerate(names):
                if name == "write_indices":
                    value = np.full(feeds["input_ids"].shape[0], past, np.int64)
                elif name.startswith("past"):
                    if step != "00":
                        continue
                    b, n, _, d = feeds[name].shape
                    value = np.zeros((b, n, capacity, d), np.float32)
                elif name == "attention_mask":
                    value = np.zeros((feeds[name].shape[0], capacity), np.int64)
                    value[:, :past + tokens] = feeds[name]
                else:
                    value = feeds[name]
                write_tensor(self.at("steps", step, f"input_{k}.pb"), value)
            shutil.copy(os.path.join(recorded, step, "output_0.pb"), self.at("steps", step))
            past += tokens
        out, err = self.expect(DONE, "run", self.at("out.onnx"), "--steps", self.at("steps"),
                               "--expect", self.at("steps"), "--alias", "required", "--json",
                               "--trace")
        document = check_json(out)
        self.assertTrue(document["equal"])
        self.assertEqual([a["aliased"] for a in document["aliasing"]], [True] * 4)
        self.assertIn("in place", err)
        self.assertIn("TensorScatter", err)
        self.assertIn(f"[2, 2, {capacity}, 12]", err)


class Bench(Case):
    def test_json_before_and_after(self):
        source = bundled("llama_optimum")
        self.expect(DONE, "convert", source, "-o", self.at("out.onnx"))
        for path, growing in ((source, True), (self.at("out.onnx"), False)):
            out, _ = self.expect(DONE, "bench", path, "--json", "--context", "4,16", "--capacity",
                                 "64", "--batch", "2", "--repetitions", "2", "--threads", "1")
            document = check_json(out)
            self.assertEqual(document["schema"], "kvlift/bench/1")
            machine = document["machine"]
            self.assertEqual(list(machine), ["cpu", "isa", "threads", "read_gbs", "fma_gflops"])
            self.assertGreater(machine["read_gbs"], 0)
            self.assertGreater(machine["fma_gflops"], 0)
            self.assertEqual([c["context"] for c in document["cases"]], [4, 16])
            for case in document["cases"]:
                self.assertEqual(case["batch"], 2)
                self.assertEqual(case["new_tokens"], 1)
                self.assertEqual(case["rounds"], 2)
                self.assertGreater(case["bytes_touched"], 0)
                self.assertGreater(case["read_fraction"], 0)
                self.assertLessEqual(case["step_us"]["min"], case["step_us"]["median"])
                self.assertEqual(case["cache_bytes_copied"], 0, path)
                if not growing:
                    self.assertEqual(case["capacity"], 64)

    def test_formats(self):
        args = ("bench", bundled("llama_optimum"), "--context", "4", "--repetitions", "1")
        self.assertIn("| 4 |", self.expect(DONE, *args, "--format", "md")[0])
        lines = self.expect(DONE, *args, "--format", "csv")[0].splitlines()
        self.assertEqual(len(lines), 2)
        self.assertEqual(lines[0].count(","), lines[1].count(","))

    def test_branch_with_the_cache_is_measured(self):
        out, _ = self.expect(DONE, "bench", bundled("llama_optimum_merged"), "--context", "4",
                             "--repetitions", "1", "--json")
        self.assertEqual(check_json(out)["cases"][0]["context"], 4)

    def test_what_cannot_be_measured(self):
        for args in (("--context", "-1"), ("--batch", "0"), ("--repetitions", "0"),
                     ("--new-tokens", "-2"), ("--capacity", "-1")):
            _, err = self.expect(USAGE, "bench", bundled("llama_optimum"), *args)
            self.assertRegex(err, f"^kvlift: {args[0]}: needs .*, found {args[1]}\n")
        self.one_line(self.expect(FINDINGS, "bench", self.model(ADD))[1])  # there is no cache
        self.one_line(self.expect(USAGE, "bench", bundled("llama_optimum"), "--context", "64",
                                  "--capacity", "8")[1])


class Verify(Case):
    def test_equal_and_different(self):
        source = bundled("llama_optimum")
        self.expect(DONE, "convert", source, "-o", self.at("out.onnx"))
        out, _ = self.expect(DONE, "verify", source, self.at("out.onnx"), "--json")
        document = check_json(out)
        for key in ("schema", "verdict", "plans", "outputs", "controls", "coverage",
                    "counterexample"):
            self.assertIn(key, document)
        self.assertEqual(document["verdict"], "equal")
        self.assertIsNone(document["counterexample"])
        self.assertTrue(document["controls"])
        self.assertTrue(all(c["detected_by"] or c["equivalent"] or c["not_run"]
                            for c in document["controls"]))
        model = onnx.load(self.at("out.onnx"))
        for initializer in model.graph.initializer:
            if initializer.data_type == TensorProto.FLOAT and len(initializer.dims) == 2:
                array = numpy_helper.to_array(initializer) * 1.5
                initializer.CopyFrom(numpy_helper.from_array(array, initializer.name))
                break
        onnx.save(model, self.at("out.onnx"))
        out, _ = self.expect(FINDINGS, "verify", source, self.at("out.onnx"), "--json")
        document = check_json(out)
        self.assertEqual(document["verdict"], "different")
        self.assertIn("output", document["counterexample"])

    def test_equal_as_tested(self):
        """A fact is open: the exit code says so, unless that is accepted."""
        source = bundled("llama_optimum")
        self.expect(DONE, "convert", source, "-o", self.at("out.onnx"))
        model = onnx.load(self.at("out.onnx"))
        output = model.graph.output[0].name
        for node in model.graph.node:
            node.output[:] = ["plain" if name == output else name for name in node.output]
        model.graph.node.extend([helper.make_node("Sub", ["plain", "plain"], ["zero"], "sub"),
                                 helper.make_node("Add", ["plain", "zero"], [output], "add")])
        onnx.save(model, self.at("out.onnx"))
        out, _ = self.expect(INCONCLUSIVE, "verify", source, self.at("out.onnx"), "--json")
        document = check_json(out)
        self.assertEqual(document["verdict"], "equal as tested")
        self.assertTrue(document["reason"].startswith("KV410"))
        self.assertTrue(any(a["kind"] == "capacity" for a in document["assumptions"]))
        out, _ = self.expect(DONE, "verify", source, self.at("out.onnx"), "--accept", "tested")
        self.assertRegex(out.splitlines()[-1], "^verdict: equal as tested ")
        self.assertIn("assumed: ", out)

    def test_manifest_of_another_source(self):
        source = bundled("llama_optimum")
        self.expect(DONE, "convert", source, "-o", self.at("out.onnx"))
        with open(self.at("out.kv.json")) as file:
            manifest = json.load(file)
        manifest["source_sha256"] = "0" * 64
        with open(self.at("other.json"), "w") as file:
            json.dump(manifest, file)
        out, _ = self.expect(INCONCLUSIVE, "verify", source, self.at("out.onnx"), "--manifest",
                             self.at("other.json"), "--json")
        self.assertEqual(check_json(out)["reason"][:5], "KV412")

    def test_proof_before_writing(self):
        out, _ = self.expect(DONE, "convert", bundled("qwen2_optimum"), "-o", self.at("out.onnx"),
                             "--verify", "--json")
        self.assertEqual(check_json(out)["verify"]["verdict"], "equal")
        self.assertEqual(self.files(), ["out.kv.json", "out.onnx"])


class HostileNames(Case):
    def test_no_command_passes_them_to_the_terminal(self):
        evil = "\x1b]0;owned\x07\x1b[2J\u202eevil"
        proto = onnx.load(bundled("llama_optimum"))
        renamed = {v.name: v.name + evil for v in proto.graph.input}
        for value in proto.graph.input:
            value.name = renamed[value.name]
        for node in proto.graph.node:
            node.name += evil
            node.input[:] = [renamed.get(name, name) for name in node.input]
        path = write(self.at("evil.onnx"), proto.SerializeToString())
        texts = []
        for args in (("inspect", "--details", path), ("check", path),
                     ("convert", path, "-o", self.at("out.onnx")), ("verify", path, path),
                     ("explain", path, "--node", "none\x1b[2J"), ("run", path, "--trace"),
                     ("bench", path, "--context", "4", "--repetitions", "1")):
            _, out, err = kvlift(*args)
            self.assertNotRegex(out + err, "[\x00-\x09\x0b-\x1f\x7f\u202e]", args)
            texts.append(out + err)
        self.assertIn("\\x1b", texts[0])
        cache = check_json(self.expect(DONE, "inspect", "--json", path)[0])["caches"][0]
        self.assertIn(evil, cache["input"])


if __name__ == "__main__":
    unittest.main()
