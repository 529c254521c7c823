"""Finds the key/value caches of decoders in ONNX, rewrites them to TensorScatter and Attention, and
proves the result.

    source = kvlift.load("model.onnx")            # or bytes
    result = kvlift.convert(source, target="ort")
    if result.verify():                           # raises Inconclusive where nothing is proved
        result.save("out.onnx")

Models are given as a `Model`, a path, or bytes. Functions that return a dict or list return the
documents that the program prints with --json (docs/schema). Work releases the GIL, so that threads
run in parallel.
"""

import json
import operator
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

try:
    from . import _native
except ImportError as error:
    _native = None  # kvlift.replay does without
    _why_absent = str(error)

__all__ = ["Conversion", "Error", "Finding", "Inconclusive", "Model", "Verdict", "caches", "check",
           "convert", "inspect", "load", "metadata", "verify"]


class Error(Exception):
    """Raised for a model that cannot be read, an unknown option, or a file that cannot be written.

    `code` is a finding code, which `kvlift explain CODE` describes, or empty.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(f"{message} [{code}]" if code else message)
        self.code = code


class Inconclusive(Error):
    """Raised if a verdict that is neither "equal" nor "different" is used as a bool."""


class _Absent:
    """Stands for the native half of the package where it was not built: each use raises Error."""

    class Model:
        pass

    def __getattr__(self, name: str) -> Any:
        raise Error(f"this needs the native half of the package: {_why_absent}")


if _native is None:
    _native = _Absent()
    __version__ = ""
else:
    _native.raise_failures_as(Error)
    __version__ = _native.version

Model = _native.Model
ModelLike = Union[Model, str, "os.PathLike[str]", bytes, bytearray, memoryview]


class Finding(NamedTuple):
    """A finding of `check`, with the names of the nodes and values that it is about."""

    severity: str  # "error" or "warning"
    code: str
    text: str
    nodes: List[str]
    values: List[str]


class Verdict:
    """The verdict of `verify`. As a bool it is True if proved equal and False if different.

    Otherwise the conversion to bool raises Inconclusive.
    """

    def __init__(self, document: Dict[str, Any]) -> None:
        self.document = document
        # "equal", "equal within quantisation", "equal as tested", "different" or "inconclusive"
        self.kind: str = document["verdict"]
        self.reason: str = document.get("reason") or ""

    def __bool__(self) -> bool:
        if self.kind in ("inconclusive", "equal as tested"):
            raise Inconclusive(f"neither proved equal nor different: {self.reason}")
        return self.kind in ("equal", "equal within quantisation")

    def __repr__(self) -> str:
        return f"<kvlift.Verdict {self.kind}{': ' * bool(self.reason)}{self.reason}>"


def _path_bytes(path: Union[str, bytes, "os.PathLike[Any]"]) -> bytes:
    """Returns a path as the system takes it, which may be no valid UTF-8."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise Error(f"{path!r} names no file: it holds a null character")
    return name


def _patterns(given: Union[str, Sequence[str]]) -> List[str]:
    return [given] if isinstance(given, str) else list(given)


def _checked(seed: int, threads: int) -> Tuple[int, int]:
    """Returns both numbers. Raises Error if one of them is outside its range."""
    if not 0 <= operator.index(seed) < 2**64:
        raise Error(f"seed: needs a number from 0 to {2**64 - 1}, found {seed}")
    if not 0 <= operator.index(threads) <= 1024:
        raise Error(f"threads: needs a number from 0 to 1024, found {threads}")
    return operator.index(seed), operator.index(threads)


class Conversion:
    """The result of `convert`: the converted model, and what happened to each cache."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self.document: Dict[str, Any] = json.loads(native.document())
        # "converted", "partial", "refused", "nothing", or "stopped" where `stop_after` asked for it
        self.status: str = self.document["status"]
        self.caches: List[Dict[str, Any]] = self.document["caches"]

    @property
    def model(self) -> Model:
        """The converted model.

        Raises Inconclusive if less was shown than `accept` requires, and another Error if there is
        no converted model or if it differs from its source.
        """
        self._raise_inconclusive()
        return self._native.model()

    def _raise_inconclusive(self) -> None:
        if self._native.inconclusive:
            raise Inconclusive(f"neither equal nor different: {self._native.reason}")

    @property
    def equality(self) -> Optional[str]:
        """What was shown: "proved", "tested", "unproved", "different" or "inconclusive"."""
        return (self.document["equality"] or {}).get("shown")

    @property
    def manifest(self) -> Optional[Dict[str, Any]]:
        """How inputs and outputs correspond to those of the source."""
        return json.loads(self._native.manifest()) if self._native.has_model else None

    @property
    def genai_config(self) -> Optional[Dict[str, Any]]:
        """The fragment for genai_config.json, for target "genai"; else None."""
        text = self._native.genai()
        return json.loads(text) if text else None

    def verify(self, *, full: bool = False, seed: int = 1, threads: int = 0,
               weights: str = "stored") -> Verdict:
        """Proves or disproves that the converted model computes the same as its source.

        `weights` is "stored", or "random[:SEED]", which replaces weights in files by random
        numbers.

        Raises the errors of `model` too.
        """
        self._raise_inconclusive()
        return Verdict(json.loads(self._native.verify(full, *_checked(seed, threads), weights)))

    def save(self, path: Union[str, "os.PathLike[str]"], *, force: bool = False,
             external: str = "auto", dry_run: bool = False) -> List[str]:
        """Writes the model, its manifest and its other files; returns their names.

        `external` is about files of external data, as for `kvlift convert`: "keep" never copies
        them, "copy" always does, and "auto" copies those that do not lie in or below the folder of
        `path`. `dry_run` does everything but write. Raises the errors of `model` too.
        """
        self._raise_inconclusive()
        return self._native.save(_path_bytes(path), force, external, dry_run)

    def __bool__(self) -> bool:
        return self.status == "converted"

    def __repr__(self) -> str:
        done = sum(cache["converted"] for cache in self.caches)
        return f"<kvlift.Conversion {self.status}: {done} of {len(self.caches)} caches>"


def load(source: ModelLike, *, data_dir: Union[str, "os.PathLike[str]", None] = None,
         trust_links: bool = False) -> Model:
    """Reads a model. `data_dir`: the folder of external data, by default that of the model."""
    if isinstance(source, Model):
        return source
    folders = [] if data_dir is None else [_path_bytes(data_dir)]
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _native.load_bytes(bytes(source), folders, trust_links)
    return _native.load_file(_path_bytes(source), folders, trust_links)


def inspect(model: ModelLike) -> Dict[str, Any]:
    """Returns the caches and attentions of a model, and near misses."""
    return json.loads(_native.inspect(load(model)))


def caches(model: ModelLike) -> List[Dict[str, Any]]:
    """Returns the caches of a model; those with a `reason` cannot be converted."""
    return inspect(model)["caches"]


def convert(model: ModelLike, *, target: str = "spec", max_seq_len: Optional[int] = None,
            control: str = "auto", mask: str = "auto", read: str = "auto", padding: str = "auto",
            io_names: str = "keep", layout: str = "keep", mode: str = "linear",
            rotary: str = "auto", rounding: str = "keep", step_length: str = "any",
            window: str = "full", cache_tensors: str = "per-layer", quantize_cache: str = "",
            freeze: str = "", accept: str = "tested", tree_mask: bool = False,
            only: Union[str, Sequence[str]] = (), skip: Union[str, Sequence[str]] = (),
            allow_partial: bool = False, stop_after: str = "",
            dump_dir: Union[str, "os.PathLike[str]", None] = None) -> Conversion:
    """Rewrites the caches and proves the result; nothing is written but into `dump_dir`.

    The options are those of `kvlift convert`; those about the files that it writes are arguments
    of `Conversion.save`, and `Conversion.verify` takes the place of --verify. Facts that the proof
    leaves open are tested by the quick plans of `verify`. If less is shown than `accept` requires,
    the status is "refused" and `model` raises.

    `freeze` gives the model static shapes, "batch=1,tokens=4"; it takes one number of tokens, as a
    conversion is one model.

    The steps are lower, recognise, plan, emit, check and prove. `stop_after` ends behind one of
    them: then the status is "stopped", unless that step or an earlier one refused, and `model`
    raises. `dump_dir` is a folder that receives what each step made, as text; `document["dumps"]`
    lists the files.
    """
    flags = _native.ConvertFlags()
    flags.target, flags.control, flags.mask, flags.read = target, control, mask, read
    flags.padding, flags.io_names, flags.layout, flags.mode = padding, io_names, layout, mode
    flags.window, flags.accept = window, accept
    flags.rotary, flags.quantize_cache, flags.tree_mask = rotary, quantize_cache, tree_mask
    flags.cache_tensors, flags.rounding, flags.freeze = cache_tensors, rounding, freeze
    flags.step_length, flags.stop_after = step_length, stop_after
    if dump_dir is not None:
        flags.set_dump_dir(_path_bytes(dump_dir))
    flags.only, flags.skip = _patterns(only), _patterns(skip)
    flags.allow_partial = allow_partial
    if max_seq_len is not None:
        flags.max_seq_len = str(max_seq_len)
    return Conversion(_native.convert(load(model), flags))


def _manifest_text(manifest: Any, model: ModelLike) -> Optional[str]:
    """Returns the JSON of a manifest: a dict, a path, or the file beside the model; else None."""
    if isinstance(manifest, dict):
        return json.dumps(manifest)
    if manifest is None:
        if isinstance(model, Model):
            model = model.path
        if isinstance(model, (bytes, bytearray, memoryview)) or not os.fspath(model):
            return None
        manifest = os.path.splitext(os.fspath(model))[0] + ".kv.json"
        if not os.path.exists(manifest):
            return None
    try:
        with open(manifest, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise Error(f"{manifest}: {why}", "KV033") from error


def verify(before: ModelLike, after: ModelLike, *, manifest: Any = None, full: bool = False,
           seed: int = 1, threads: int = 0, weights: str = "stored") -> Verdict:
    """Proves or disproves that `after` computes the same as `before`.

    `manifest` says how they correspond: a dict or a path; by default the manifest beside `after` or
    in it. Without one, the relation is inferred. `weights` is "stored", or "random[:SEED]", which
    replaces weights in files by random numbers, so that only the structure is judged.
    """
    return Verdict(json.loads(_native.verify(
        load(before), load(after), _manifest_text(manifest, after), full,
        *_checked(seed, threads), weights)))


def check(model: ModelLike, *, manifest: Any = None, target: str = "spec") -> List[Finding]:
    """Lints a model by the operator texts, its manifest, and the rules of a target."""
    found = json.loads(_native.check(load(model), _manifest_text(manifest, model), target))
    return [Finding(**finding) for finding in found]


def metadata(model: ModelLike) -> str:
    """Returns the text of inference_metadata.yaml, which names the inputs and outputs of static
    caches.

    Raises Error with the code KV254 for a model that the file cannot describe.
    """
    return _native.metadata(load(model))
