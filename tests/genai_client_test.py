#!/usr/bin/env python3
"""Stock onnxruntime-genai runs the bundled decoders and their `--target genai` conversions.

Per decoder with growing caches and an attention mask: converted by the tool (env KVLIFT), loaded
with a genai_config.json that differs from the original's in search.past_present_share_buffer alone
(the rest of OUT.genai.json is compared with what the original is run with), then greedy decoding of
24 tokens after a prompt of 5, batch 1 and 2. Tokens must be equal, logits within 1e-4 of their
maximum.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime_genai as og

sys.path.insert(0, os.path.join(os.environ["KVLIFT_ROOT"], "testdata", "export"))
from gqa_caches import slide  # noqa: E402

PROMPT, NEW, TOLERANCE = 5, 24, 1e-4
MAX_LENGTH = PROMPT + NEW + 3  # not the length that is reached: slots stay unused
SPECIAL = 0  # the token that ends and pads
LOCAL, WINDOW = "llama_genai_gqa", 8


def skip_reason(meta):
    """None if genai is expected to run the model and kvlift to convert it."""
    operator = meta["patterns"] == ["O2"]  # GroupQueryAttention, which `meta` lets be refused
    concat = meta["expect"] == "convert" and "C1" in meta["patterns"]
    if not meta.get("growing") or not (operator or concat):
        return "not a growing cache that is converted"
    inputs = {i["name"]: i for i in meta["inputs"]}
    if "attention_mask" not in inputs:
        return "no attention_mask"
    if any("encoder" in name for name in inputs):
        return "an encoder-decoder"
    if any(len(inputs[c["input"]]["shape"]) != 4 or c["axis"] != 2 for c in meta["caches"]):
        return "genai wants caches [B, Nk, S, D]"
    if any(inputs[c["input"]]["dtype"] != "float32" for c in meta["caches"]):
        return "not fp32"
    return None


def convert(kvlift, source, target):
    run = subprocess.run([kvlift, "convert", source, "-o", target, "--target", "genai"],
                         capture_output=True, text=True)
    if run.returncode != 0:
        raise AssertionError(f"convert: exit {run.returncode}: {run.stdout}{run.stderr}")
    return json.loads(Path(target).with_suffix(".genai.json").read_text())


def expected_decoder(meta):
    """model.decoder as somebody writes it by hand for the original; None if names forbid it."""
    decoder = {"head_size": meta["head_dim"], "num_attention_heads": meta["q_heads"],
               "num_key_value_heads": meta["kv_heads"], "num_hidden_layers": meta["layers"],
               "inputs": {}, "outputs": {"logits": meta["logits"]}}
    cached = {c["input"] for c in meta["caches"]}
    for name in (i["name"] for i in meta["inputs"]):
        if name not in cached:
            decoder["inputs"][name] = name
    for role in ("key", "value"):
        for side, kind in (("input", "past"), ("output", "present")):
            names = [c[side] for c in sorted(meta["caches"], key=lambda c: c["layer"])
                     if c["role"] == role]
            pattern = names[0].replace("0", "%d", 1)
            if [pattern.replace("%d", str(k)) for k in range(len(names))] != names:
                return None
            decoder[f"{side}s"][f"{kind}_{role}_names"] = pattern
    return decoder


def rename_caches(path, meta):
    """Gives the caches of the model at `path` names that a pattern can express; the new meta."""
    meta = json.loads(json.dumps(meta))
    new = {}
    for cache in meta["caches"]:
        new[cache["input"]] = f"past.{cache['layer']}.{cache['role']}"
        new[cache["output"]] = f"present.{cache['layer']}.{cache['role']}"
        cache["input"], cache["output"] = new[cache["input"]], new[cache["output"]]
    for described in meta["inputs"]:
        described["name"] = new.get(described["name"], described["name"])
    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        value.name = new.get(value.name, value.name)
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [new.get(name, name) for name in names]
    onnx.save(model, path)
    return meta


def write_config(folder, meta, decoder, share_buffer, more=None):
    config = {
        "model": {
            # Neither prompted nor, with min_length, generated: no early end, no padding.
            "bos_token_id": SPECIAL, "eos_token_id": SPECIAL, "pad_token_id": SPECIAL,
            "context_length": MAX_LENGTH, "type": "llama", "vocab_size": meta["vocab"],
            "decoder": {**decoder, **(more or {}), "filename": "model.onnx",
                        "session_options": {"intra_op_num_threads": 1, "provider_options": []}},
        },
        "search": {"do_sample": False, "min_length": MAX_LENGTH, "max_length": MAX_LENGTH,
                   "past_present_share_buffer": share_buffer},
    }
    (folder / "genai_config.json").write_text(json.dumps(config, indent=1))


def generate(folder, prompt, cache):
    """Tokens [B, PROMPT + NEW], the logits each new one was taken from, and in how many slots the
    output `cache` ends."""
    model = og.Model(str(folder))
    params = og.GeneratorParams(model)
    params.set_search_options(batch_size=len(prompt), max_length=MAX_LENGTH, do_sample=False)
    generator = og.Generator(model, params)
    generator.append_tokens(prompt.astype(np.int32))
    logits = []
    for _ in range(NEW):
        logits.append(np.array(generator.get_logits()))
        generator.generate_next_token()
    tokens = np.array([generator.get_sequence(k) for k in range(len(prompt))])
    return tokens, np.stack(logits), generator.get_output(cache).shape[2]


def compare(meta, original, converted, slides=False):
    """slides: the original's first cache is a buffer that drops rows."""
    worst = 0.0
    for batch in (1, 2):
        prompt = np.random.default_rng(batch).integers(1, meta["vocab"], (batch, PROMPT))
        cache = meta["caches"][0]["output"]
        tokens, logits, slots = generate(original, prompt, cache)
        got_tokens, got_logits, got_slots = generate(converted, prompt, cache)
        assert slots < PROMPT + NEW - 1 if slides else slots == PROMPT + NEW - 1, slots
        assert got_slots == MAX_LENGTH, f"the cache has {got_slots} slots, not {MAX_LENGTH}"
        assert tokens.shape == (batch, PROMPT + NEW), tokens.shape
        assert (tokens[:, :PROMPT] == prompt).all()
        step = next((k for k in range(NEW) if (tokens != got_tokens)[:, PROMPT + k].any()), None)
        assert step is None, f"batch {batch}: another token at step {step}"
        assert logits.shape == got_logits.shape and np.abs(logits).max() < 1e6
        worst = max(worst, float(np.abs(got_logits - logits).max() / np.abs(logits).max()))
    assert worst <= TOLERANCE, f"logits differ by {worst:.1e} of their maximum"
    return worst


def check(kvlift, source, meta, folder):
    """Returns a line that says how it went; raises AssertionError."""
    original, converted = folder / "original", folder / "converted"
    original.mkdir()
    converted.mkdir()
    paths = str(original / "model.onnx"), str(converted / "model.onnx")
    shutil.copy(source, paths[0])
    note = ""
    if expected_decoder(meta) is None:
        names = convert(kvlift, source, str(folder / "odd.onnx"))["model"]["decoder"]
        given = {*names["inputs"], *names["outputs"]}
        assert not any(k.startswith(("past_", "present_")) for k in given), given
        meta = rename_caches(paths[0], meta)
        note = ", caches renamed: no pattern with one number gives their names"
    fragment = convert(kvlift, *paths)
    decoder = expected_decoder(meta)
    assert fragment["search"] == {"past_present_share_buffer": True}, fragment["search"]
    assert fragment["model"]["decoder"] == decoder, fragment["model"]["decoder"]
    write_config(original, meta, decoder, False)
    write_config(converted, meta, decoder, True)
    return f"equal tokens, logits within {compare(meta, original, converted):.1e}{note}"


def check_sliding(kvlift, source, meta, folder):
    """The same for a local layer whose past is a buffer of a few slots: onnxruntime-genai is told of
    these by a section that the fragment removes."""
    original, converted = folder / "original", folder / "converted"
    original.mkdir()
    converted.mkdir()
    model = onnx.load(source)
    slide(model, (0,), WINDOW)
    onnx.save(model, str(original / "model.onnx"))
    fragment = convert(kvlift, str(original / "model.onnx"), str(converted / "model.onnx"))
    decoder = expected_decoder(meta)
    assert fragment["model"]["decoder"] == {**decoder, "sliding_window": None}, fragment
    write_config(original, meta, decoder, True,
                 {"sliding_window": {"window_size": WINDOW, "slide_key_value_cache": False,
                                     "slide_inputs": False, "layers": [0], "cache_slack": 0}})
    write_config(converted, meta, decoder, True)
    return f"equal tokens, logits within {compare(meta, original, converted, True):.1e}"


def main():
    kvlift = os.environ["KVLIFT"]
    failed = equal = 0
    models = Path(os.environ["KVLIFT_ROOT"], "testdata", "models")
    runs = [(path.parent.name, check, path.parent) for path in sorted(models.glob("*/meta.json"))]
    runs.append((f"{LOCAL}, local layer", check_sliding, models / LOCAL))
    for name, run, path in runs:
        meta = json.loads((path / "meta.json").read_text())
        if skip_reason(meta) is not None:
            continue
        with tempfile.TemporaryDirectory(prefix="kvlift-genai-") as folder:
            try:
                line = run(kvlift, path / "model.onnx", meta, Path(folder))
                equal += 1
            except Exception as error:  # genai raises RuntimeError
                failed += 1
                line = f"FAILED: {error}"
        print(f"{name:<32} {line}", flush=True)
    print(f"\nonnxruntime-genai {og.__version__}: {equal} equal, {failed} failed")
    return 1 if failed or equal < 5 else 0


if __name__ == "__main__":
    sys.exit(main())
