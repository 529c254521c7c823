"""The C++ loop that emit-loop writes.

What it gives for each input is compared byte by byte with the Python loop, which is tested on
recorded steps. With ONNX Runtime's headers (in KVLIFT_ORT_INCLUDE, or where packages put them) it
also runs, on the library of the Python package, and says the same tokens; no package of Debian 12 or
of the Python index has those headers.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import glob
import importlib.util
import os
import subprocess
import tempfile
import unittest

import numpy as np
import onnxruntime as ort

from support.case_text import text_of_case
from support.recorded import MODELS, metas
from support.tool import done

COMPILER = os.environ.get("CXX", "c++")
CAPACITY = 24
HEADERS = (os.environ.get("KVLIFT_ORT_INCLUDE"), "/usr/include/onnxruntime",
           "/usr/include/onnxruntime/core/session", "/usr/local/include/onnxruntime",
           "/usr/local/include/onnxruntime/core/session")
PROGRAM = r"""
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>
%(model)s
int main() {
  using namespace kvloop;
  const Step step{%(batch)d, %(tokens)d, %(capacity)d, {%(ids)s}, {%(real)s}, {%(lengths)s}};
  try {
    Check(step);
  } catch (const CacheFull& full) {
    std::printf("%%s\n", full.what());
    return 0;
  }
  for (const Input& input : kInputs) {
    if (input.meaning == "given") continue;
    const Tensor made = MakeInput(input, step);
    for (char c : input.name) std::printf("%%02x", static_cast<unsigned char>(c));
    for (int64_t extent : made.shape) std::printf(" %%lld", static_cast<long long>(extent));
    std::printf(" : ");
    for (char c : made.bytes) std::printf("%%02x", static_cast<unsigned char>(c));
    std::printf("\n");
  }
}
"""


def compiled(folder, text, *flags):
    source, program = os.path.join(folder, "program.cpp"), os.path.join(folder, "program")
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    done = subprocess.run([COMPILER, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-o", program,
                           source, *flags], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return program


class Loops:
    """A converted model with its loops in both languages."""

    def __init__(self, name, folder, *flags):
        self.folder = folder
        self.path = os.path.join(folder, "out.onnx")
        source = os.path.join(folder, "source.onnxtxt")
        if name.endswith(".onnxtxt"):
            with open(source, "w", encoding="utf-8") as file:
                file.write(text_of_case(name.removesuffix(".onnxtxt")))
        else:
            source = os.path.join(MODELS, name, "model.onnx")
        done("convert", source, "-o", self.path, "--force", *flags)
        for lang, suffix in (("python-ort", ".py"), ("cpp-ort", ".cpp")):
            done("emit-loop", self.path, "-o", os.path.join(folder, "loop" + suffix), "--force",
                 "--lang", lang)
        spec = importlib.util.spec_from_file_location(name, os.path.join(folder, "loop.py"))
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        with open(os.path.join(folder, "loop.cpp"), encoding="ascii") as file:
            self.text = file.read()

    def program(self, **values):
        model = self.text.split("// ---- model")[1].split("// ---- runtime")[0]
        lists = {key: ", ".join(map(str, value)) for key, value in values.items()
                 if isinstance(value, list)}
        text = PROGRAM % {**values, **lists, "model": "//" + model}
        return subprocess.run([compiled(self.folder, text)], capture_output=True, text=True,
                              check=True, timeout=60).stdout.splitlines()

    def decoder(self, batch, capacity, lengths):
        """The Python decoder without a session."""
        decoder = object.__new__(self.module.Decoder)
        decoder.batch, decoder.capacity = batch, capacity
        decoder.lengths = np.array(lengths, np.int64)
        return decoder


class EmitLoopCppTest(unittest.TestCase):
    def compare(self, name, *flags):
        with tempfile.TemporaryDirectory() as folder:
            loops = Loops(name, folder, *flags)
            module = loops.module
            batch = module.BATCH or 2
            new = module.TOKENS or (1 if module.NEW_WITH_PAST else 3)
            capacity = module.CAPACITY or CAPACITY
            ragged = not module.UNIFORM and module.TOKENS is None
            lengths = [4 - b if ragged else 4 for b in range(batch)]
            real = [max(1, new - b) if ragged else new for b in range(batch)]
            tokens = np.arange(batch * new, dtype=np.int64).reshape(batch, new) + 5
            step = {"batch": batch, "tokens": new, "capacity": capacity,
                    "ids": tokens.flatten().tolist(), "real": real, "lengths": lengths}
            decoder = loops.decoder(batch, capacity, lengths)
            got = loops.program(**step)
            made = [(n, i) for n, i in module.INPUTS.items() if i.meaning != "given"]
            self.assertEqual(len(got), len(made))
            for line, (input_name, spec) in zip(got, made):
                want = decoder.value(spec, tokens, np.array(real))
                head, _, tail = line.partition(" : ")
                title, *shape = head.split()
                self.assertEqual(bytes.fromhex(title).decode(), input_name)
                self.assertEqual([int(n) for n in shape], list(want.shape), input_name)
                self.assertEqual(tail, want.tobytes().hex(), f"{name}: {input_name}")
            if not module.CIRCULAR:
                full = {**step, "lengths": [capacity - new + 1] * batch, "real": [new] * batch}
                self.assertEqual(loops.program(**full),
                                 [f"{capacity + 1} tokens do not fit into {capacity} slots"])
            return len(made)

    def test_inputs_are_those_of_the_python_loop(self):
        inputs = models = 0
        for meta in metas():
            if meta["expect"] == "convert" and not meta["name"].startswith("toy_"):
                with self.subTest(meta["name"]):
                    inputs += self.compare(meta["name"])
                    models += 1
        self.assertGreaterEqual(models, 8)
        self.assertGreaterEqual(inputs, 20)

    def test_inputs_of_trees(self):
        self.assertEqual(self.compare("llama_optimum", "--tree-mask"), 5)

    def test_inputs_of_targets(self):
        for target in ("ort", "genai", "genai-static", "tensorrt"):
            with self.subTest(target):
                self.assertGreater(self.compare("llama_optimum", "--target", target,
                                                "--max-seq-len", str(CAPACITY)), 0)

    def test_masks_that_the_conversion_took_for_granted(self):
        for name in ("per_token", "inverted"):
            with self.subTest(name):
                flags = ("--control", "derived", "--padding", "none")
                case = f"decomposed_attention_padding_none_{name}.onnxtxt"
                self.assertGreater(self.compare(case, *flags), 0)

    def test_tokens_are_those_of_the_python_loop(self):
        headers = next((h for h in HEADERS if h and os.path.exists(
            os.path.join(h, "onnxruntime_cxx_api.h"))), None)
        if headers is None:
            self.skipTest("no onnxruntime_cxx_api.h; KVLIFT_ORT_INCLUDE may say where it is")
        library = glob.glob(os.path.join(os.path.dirname(ort.__file__), "capi",
                                         "libonnxruntime.so.*"))[0]
        for name in ("llama_optimum", "gpt2_optimum", "llama_static_ts", "neg_past_read_twice_ts"):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                loops = Loops(name, folder)
                link = os.path.join(folder, "libonnxruntime.so.1")
                os.symlink(library, link)
                program = compiled(folder, loops.text, "-isystem", headers, link,
                                   "-Wl,-rpath," + folder)
                uniform = loops.module.UNIFORM or loops.module.TOKENS
                prompts = [[3, 14, 15], [6, 5, 4] if uniform else [6, 5]]
                if loops.module.BATCH == 1:
                    prompts = prompts[:1]
                if loops.module.TOKENS == 1 or loops.module.NEW_WITH_PAST == 1:
                    prompts = [prompt[:1] for prompt in prompts]
                asked = [f"--prompt={','.join(map(str, p))}".split("=") for p in prompts]
                done = subprocess.run([program, *sum(asked, []), "--new", "8", loops.path],
                                      capture_output=True, text=True, timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
                capacity = loops.module.CAPACITY or 256
                decoder = loops.module.Decoder(loops.path, len(prompts), capacity)
                want = decoder.generate(prompts, 8)
                self.assertEqual(done.stdout.split(), [",".join(map(str, row)) for row in want])


if __name__ == "__main__":
    unittest.main()
