"""Makes the decoders that the exporter mobius-onnx can build, at tiny size, and converts each with
`kvlift convert --verify`.

usage: mobius_decoders.py make DIR PROVIDER TYPE    writes DIR/KIND__COMPONENT/model.onnx for all
           kinds of models; PROVIDER is an execution provider of the exporter (default, cuda), TYPE
           the type of the weights (float32, float16)
       mobius_decoders.py judge DIR                 converts all of them; KVLIFT names the tool

`make` needs the packages of requirements.txt. Some models that the exporter makes are not valid (see
mobius_models.py). `judge` leaves those out by what kvlift says of the source (KV402, or an invalid
model), prints a line for each model that is not converted and equal, and exits with 1 if these are
more than 3 percent.
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

from mobius_models import TASKS, configurations_of, package_of

WITHOUT_CACHES = {"image-classification", "audio-feature-extraction", "feature-extraction",
                  "object-detection", "audio-ctc", "ctc-asr", "codec"}


def first_that_builds(kind, provider, dtype):
    """The models of the first configuration that builds, by component, or the error of the last."""
    from mobius._registry import registry
    task = TASKS.get(kind) or registry.get_task(kind) or "text-generation"
    failure = None
    for configuration in configurations_of(kind):
        try:
            return package_of(kind, configuration, task, provider, dtype), None
        except Exception as error:  # an exporter fails in many ways
            failure = f"{type(error).__name__}: {error}"
    return {}, failure


def make(folder, provider, dtype):
    import onnx_ir as ir
    from mobius._registry import registry
    made = 0
    for kind in registry.architectures():
        if registry.get_task(kind) in WITHOUT_CACHES:
            continue
        package, failure = first_that_builds(kind, provider, dtype)
        if failure:
            print(f"{kind}: not built: {failure.splitlines()[0][:120]}")
        for component, model in package.items():
            if not any("past" in v.name or "cache" in v.name for v in model.graph.inputs):
                continue
            own = os.path.join(folder, f"{kind}__{component}")
            os.makedirs(own, exist_ok=True)
            ir.save(model, os.path.join(own, "model.onnx"))
            made += 1
    print(f"{made} models in {folder}")
    return 0


def convert(path):
    """Returns (result, what is said of it); the result is equal, tested, source, none or failed."""
    with tempfile.TemporaryDirectory() as scratch:
        run = subprocess.run([os.environ["KVLIFT"], "convert", path, "-o", os.path.join(scratch, "m.onnx"),
                              "--verify", "--json"], capture_output=True, text=True, check=False)
    document = json.loads(run.stdout) if run.stdout.startswith("{") else {}
    if run.returncode == 3:
        return "source", run.stderr.strip().splitlines()[0]
    verify = document.get("verify") or {}
    if run.returncode == 0 and document.get("caches"):
        return ("equal" if verify.get("verdict") == "equal" else "tested"), ""
    if verify.get("reason", "").startswith("KV402 no reading of the source"):
        return "source", verify["reason"]
    if not document.get("caches"):
        return "none", "no cache is read"
    return "failed", verify.get("reason") or run.stderr.strip()


def judge(folder):
    kinds = sorted(os.listdir(folder))
    paths = [os.path.join(folder, kind, "model.onnx") for kind in kinds]
    counts = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for kind, (result, text) in zip(kinds, pool.map(convert, paths)):
            counts[result] = counts.get(result, 0) + 1
            if result not in ("equal", "tested"):
                print(f"{kind:40} {result:8} {text[:160]}")
    failed = counts.get("failed", 0)
    valid = failed + counts.get("equal", 0) + counts.get("tested", 0)
    print(f"{folder}: " + ", ".join(f"{n} {r}" for r, n in sorted(counts.items())) +
          f"; {valid - failed} of {valid} that run are converted and equal")
    return 1 if not valid or failed > 0.03 * valid else 0


if __name__ == "__main__":
    command, where = sys.argv[1:3]
    sys.exit(make(where, *sys.argv[3:]) if command == "make" else judge(where))
