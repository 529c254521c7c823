"""Makes pairs of one model in its growing and its static form, as the exporter mobius-onnx writes
them at tiny size, and judges them by `kvlift verify`, without a manifest.

usage: mobius_pairs.py make DIR [TYPE ...]     writes DIR/TYPE/{growing,static}.onnx
       mobius_pairs.py judge DIR               verifies all pairs of DIR; KVLIFT names the tool

`make` needs the packages of requirements.txt; weights are random numbers that depend on the name of
the weight alone, so that both forms have the same. `judge` prints a line per pair and a summary, and
exits with 1 if a verdict is not the one that EXPECTED names.
"""
import hashlib
import json
import os
import subprocess
import sys

# Model types whose two forms differ, or of which one has no caches, as version 0.1.0 of the exporter
# writes them; the others are equal, or equal as tested.
EXPECTED = {
    "bloom": ("inconclusive", "the static form has no caches"),
    "diffllama": ("inconclusive", "the static form has presents without pasts"),
    "gemma4_text": ("different", "the static form stores other values from the first token on"),
    "gemma4_unified_text": ("different", "the static form stores other values from the first token on"),
    "mpt": ("inconclusive", "the static form has no caches"),
}

SIZES = dict(vocab_size=96, max_position_embeddings=64, hidden_size=64, intermediate_size=128,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
             hidden_act="silu", pad_token_id=0, rope_type="default")
SLOTS = 48


def fill(model):
    import numpy as np
    import onnx_ir as ir
    for name, value in model.graph.initializers.items():
        if value.const_value is not None:
            continue
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        dims = [int(d) for d in value.shape]
        scale = 0.2 if len(dims) > 1 else 0.1
        numbers = np.random.default_rng(seed).normal(0, scale, dims)
        if len(dims) == 1 and name.endswith("weight"):
            numbers += 1  # of a norm
        value.const_value = ir.tensor(numbers.astype(value.dtype.numpy()), name=name)


def build(kind, static, path):
    import mobius
    import onnx_ir as ir
    from mobius._registry import registry
    from mobius.tasks import CausalLMTask
    registration = registry.get_registration(kind)
    task = registry.get_task(kind) or "text-generation"
    if task != "text-generation":
        raise ValueError(f"its task is {task}")
    maker = registry.get_config_class(kind) or mobius.ArchitectureConfig
    config = maker(**SIZES)
    chosen = CausalLMTask(static_cache=True, max_seq_len=SLOTS) if static else CausalLMTask()
    package = mobius.build_from_module(registration.module_class(config), config, chosen)
    model = package["model"]
    fill(model)
    ir.save(model, path)


def make(folder, kinds):
    from mobius._registry import registry
    made = 0
    for kind in kinds or registry.architectures():
        own = os.path.join(folder, kind)
        os.makedirs(own, exist_ok=True)
        try:
            for static, name in ((False, "growing"), (True, "static")):
                build(kind, static, os.path.join(own, name + ".onnx"))
            made += 1
        except Exception as error:  # an exporter fails in many ways, and each leaves out one pair
            with open(os.path.join(own, "left_out.txt"), "w", encoding="utf-8") as file:
                file.write(f"{type(error).__name__}: {error}\n")
            for name in ("growing", "static"):
                if os.path.exists(os.path.join(own, name + ".onnx")):
                    os.remove(os.path.join(own, name + ".onnx"))
    print(f"{made} pairs in {folder}")
    return 0


def verdict_of(folder):
    """Returns the verdict of one pair, or `invalid`, and a sentence."""
    run = subprocess.run([os.environ["KVLIFT"], "verify", os.path.join(folder, "growing.onnx"),
                          os.path.join(folder, "static.onnx"), "--format", "json", "--accept",
                          "tested"], capture_output=True, text=True, check=False)
    try:
        document = json.loads(run.stdout)
    except ValueError:
        return "invalid", (run.stderr.strip().splitlines() or ["no output"])[0]
    return document.get("verdict", "none"), document.get("summary", run.stderr.strip()[:200])


def judge(folder):
    wrong = 0
    counts = {}
    for kind in sorted(os.listdir(folder)):
        if not os.path.exists(os.path.join(folder, kind, "static.onnx")):
            continue
        verdict, text = verdict_of(os.path.join(folder, kind))
        counts[verdict] = counts.get(verdict, 0) + 1
        expected, reason = EXPECTED.get(kind, ("equal", ""))
        fits = verdict.startswith(expected)
        wrong += not fits
        print(f"{kind:24} {verdict:16} {reason if fits else 'UNEXPECTED ' + text}")
    print(", ".join(f"{n} {v}" for v, n in sorted(counts.items())) + f"; {wrong} unexpected")
    return 1 if wrong else 0


if __name__ == "__main__":
    command, where = sys.argv[1:3]
    sys.exit(make(where, sys.argv[3:]) if command == "make" else judge(where))
