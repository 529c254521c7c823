"""Runs the code of docs/optimum.md or docs/olive.md with the real tool, as `tools/dev integration`.

    python tests/integration/pages.py optimum|olive

The blocks of Python and of sh are run in their order, in one folder that holds `tiny-llama` and
`tiny-gpt2`: small models with random weights, made here. Nothing is downloaded. Every converted
model is linted by the program, and takes a step in ONNX Runtime. Environment: KVLIFT_ROOT.
"""
import glob
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
# Packages that ask hubs, or report their use, must not.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OLIVE_DISABLE_TELEMETRY": "1",
           "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}


def make_models(folder):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        bos_token_id=1, eos_token_id=2)).save_pretrained(folder / "tiny-llama")
    GPT2LMHeadModel(GPT2Config(
        vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1,
        eos_token_id=2)).save_pretrained(folder / "tiny-gpt2")


def blocks(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```(python|sh)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(folder, language, code):
    print(f"-- {language}\n{code}", flush=True)
    command = [sys.executable, "-c", code] if language == "python" else ["bash", "-euc", code]
    subprocess.run(command, cwd=folder, check=True, timeout=1200)


def check_runs(path):
    """ONNX Runtime loads the model and takes one step."""
    import numpy
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)  # caches are copied here, which is no matter
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    types = {"tensor(int64)": numpy.int64, "tensor(float)": numpy.float32,
             "tensor(bool)": numpy.bool_, "tensor(float16)": numpy.float16}
    sizes = {"sequence_length": 1, "batch_size": 1}
    feeds = {}
    for value in session.get_inputs():
        shape = [d if isinstance(d, int) else sizes.get(d, 16 if "cache" in d or "capacity" in d
                                                        or "max" in d else 1) for d in value.shape]
        feeds[value.name] = numpy.zeros(shape, types[value.type])
        if value.name == "attention_mask":
            feeds[value.name] = numpy.ones(shape, types[value.type])
    outputs = session.run(None, feeds)
    assert numpy.isfinite(outputs[0]).all(), path
    print(f"{path.name}: one step in ONNX Runtime, {len(outputs)} outputs", flush=True)


def main(name):
    os.environ.update(OFFLINE, KVLIFT_ROOT=str(ROOT))
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    found = blocks(f"{name}.md")
    assert len(found) > 1, "the page has no code"
    with tempfile.TemporaryDirectory() as home:
        folder = pathlib.Path(home)
        make_models(folder)
        for language, code in found:
            run(folder, language, code)
        manifests = [pathlib.Path(p) for p in
                     glob.glob(str(folder / "**" / "*.kv.json"), recursive=True)]
        models = [m.with_name(m.name.replace(".kv.json", ".onnx")) for m in manifests
                  if ".olive-cache" not in str(m) and "cache" not in m.parts]
        assert models, "nothing was converted"
        for path in models:
            subprocess.run([os.path.join(os.path.dirname(sys.executable), "kvlift"), "check", path],
                           check=True)
            check_runs(path)
    print(f"{name}: {len(found)} blocks of docs/{name}.md ran, {len(models)} models converted")


if __name__ == "__main__":
    main(sys.argv[1])
