#!/usr/bin/env python3
"""Stock onnxruntime-genai on a decoder with growing caches, before and after conversion.

The model is that of llama.py with growing caches and an attention_mask. `kvlift convert --target
genai` (env KVLIFT: the binary) makes the other one, driven on one shared buffer. Both generate in one
process, greedily, token by token in turn; the minimum counts. The tokens must be equal.

  genai.py            prompts of 16, 512, 2048 and 4000 tokens
  genai.py --quick    a smaller model and short prompts
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime_genai as og

from llama import QUICK, SMALL, build

CAPACITY, STEPS, RUNS = 4200, 20, 2


def prepare(folder, size):
    """Folders of the original and of the converted model, as onnxruntime-genai loads them."""
    kvlift = os.environ.get("KVLIFT")
    if not kvlift:
        sys.exit("set KVLIFT to the kvlift binary")
    folders = [os.path.join(folder, name) for name in ("original", "converted")]
    for made in folders:
        os.mkdir(made)
    source, model = (os.path.join(made, "model-padded.onnx") for made in folders)
    build(source, size, form="padded")
    done = subprocess.run([kvlift, "convert", source, "-o", model, "--target", "genai", "--quiet"])
    if done.returncode != 0:
        sys.exit(f"kvlift convert: exit {done.returncode}")
    with open(model.replace(".onnx", ".genai.json"), encoding="utf-8") as file:
        config = json.load(file)
    config["model"].update(type="llama", vocab_size=size.vocab, context_length=CAPACITY,
                           bos_token_id=0, eos_token_id=0, pad_token_id=0)
    config["model"]["decoder"].update(
        filename=os.path.basename(model),
        session_options={"intra_op_num_threads": 1, "provider_options": []})
    for made in folders:
        config["search"]["past_present_share_buffer"] = made == folders[1]
        with open(os.path.join(made, "genai_config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
    return folders


def measure(models, prompt, steps):
    """Seconds of the prompt and of the fastest step, per model; the tokens must agree."""
    generators, firsts, fastest = [], [], [float("inf")] * len(models)
    for model in models:
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=CAPACITY, min_length=CAPACITY, do_sample=False)
        generators.append(og.Generator(model, params))
        start = time.perf_counter()
        generators[-1].append_tokens(prompt)
        generators[-1].generate_next_token()
        firsts.append(time.perf_counter() - start)
    for _ in range(steps):
        for k, generator in enumerate(generators):
            start = time.perf_counter()
            generator.generate_next_token()
            fastest[k] = min(fastest[k], time.perf_counter() - start)
    tokens = [np.asarray(generator.get_sequence(0)) for generator in generators]
    if not all((tokens[0] == other).all() for other in tokens[1:]):
        sys.exit(f"prompt of {len(prompt)}: other tokens")
    return np.array(firsts), np.array(fastest)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    size = QUICK if quick else SMALL
    prompts, steps, runs = ((16, 256), 4, 1) if quick else ((16, 512, 2048, 4000), STEPS, RUNS)
    with tempfile.TemporaryDirectory(prefix="kvlift-genai-bench-") as folder:
        models = [og.Model(f) for f in prepare(folder, size)]
        print(f"onnxruntime-genai {og.__version__}, 1 thread, minimum of {steps * runs} steps")
        print("prompt    step, original / converted   ratio   prompt ratio")
        for count in prompts:
            prompt = np.random.default_rng(count).integers(1, size.vocab, count).astype(np.int32)
            results = [measure(models, prompt, steps) for _ in range(runs)]
            first, step = (np.min([r[k] for r in results], axis=0) for k in range(2))
            print(f"{count:6}    {step[0] * 1e3:8.2f} / {step[1] * 1e3:.2f} ms"
                  f"{step[1] / step[0]:17.2f}{first[1] / first[0]:15.2f}", flush=True)


if __name__ == "__main__":
    main()
