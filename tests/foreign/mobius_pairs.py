"""Makes pairs of one model in its growing and its static form, as the exporter mobius-onnx writes
them at tiny size, and judges them by `kvlift verify`, without a manifest.

usage: mobius_pairs.py make DIR [TYPE ...]     writes DIR/TYPE/{growing,static}.onnx
       mobius_pairs.py judge DIR               verifies all pairs of DIR; KVLIFT names the tool

`make` needs the packages of requirements.txt; both forms have the same weights. `judge` prints a
line for each pair and a summary, and exits with 1 if a verdict is not the one that EXPECTED names.
"""
import json
import os
import subprocess
import sys

from mobius_models import configurations_of, package_of

STORES_OTHER_VALUES = "the static form stores other values from the first token on"
# Model types whose two forms differ, or of which one has no caches, as version 0.1.0 of the exporter
# writes them; the others are equal, or equal as tested.
EXPECTED = {
    "bloom": ("different", "runtimes refuse the static form: its pasts have rank 3"),
    "diffllama": ("inconclusive", "the static form has presents without pasts"),
    "gemma4_text": ("different", STORES_OTHER_VALUES),
    "gemma4_unified_text": ("different", STORES_OTHER_VALUES),
    "mpt": ("different", "runtimes refuse the static form: its pasts have rank 3"),
    "zamba2": ("inconclusive", "both forms read no cache"),
}

SLOTS = 48


def build(kind, own):
    """Writes both forms of the first configuration of which both can be built."""
    import onnx_ir as ir
    from mobius._registry import registry
    from mobius.tasks import CausalLMTask
    task = registry.get_task(kind) or "text-generation"
    if task != "text-generation":
        raise ValueError(f"its task is {task}")
    tasks = {"growing": CausalLMTask(), "static": CausalLMTask(static_cache=True, max_seq_len=SLOTS)}
    failure = None
    for configuration in configurations_of(kind):
        try:
            models = {n: package_of(kind, configuration, t)["model"] for n, t in tasks.items()}
        except Exception as error:  # an exporter fails in many ways
            failure = error
            continue
        for name, model in models.items():
            ir.save(model, os.path.join(own, name + ".onnx"))
        return
    raise failure


def make(folder, kinds):
    from mobius._registry import registry
    made = 0
    for kind in kinds or registry.architectures():
        own = os.path.join(folder, kind)
        os.makedirs(own, exist_ok=True)
        try:
            build(kind, own)
            made += 1
        except Exception as error:  # each leaves out one pair
            with open(os.path.join(own, "left_out.txt"), "w", encoding="utf-8") as file:
                file.write(f"{type(error).__name__}: {error}\n")
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
