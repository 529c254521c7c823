"""Finds the key/value caches of decoders in ONNX, rewrites them to TensorScatter and Attention, and
proves the result.

    source = kvlift.load("model.onnx")            # or bytes
    result = kvlift.convert(source, target="ort")
    if result.verify():                           # raises Inconclusive where nothing is proved
        result.save("out.onnx")

Models are given as a `Model`, a path, or bytes. What is returned as dict and list has the fields of
the documents that the program prints with --json (docs/schema). Work is done without the
interpreter's lock, so that threads run at once.
"""

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Union

from . import _native

__all__ = ["Conversion", "Error", "Finding", "Inconclusive", "Model", "Verdict", "caches", "check",
           "convert", "inspect", "load", "verify"]
__version__ = _native.version


class Error(Exception):
    """A model that cannot be read, an option that is unknown, a file that cannot be written.

    `code` is that of `kvlift explain CODE`, or empty.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(f"{message} [{code}]" if code else message)
        self.code = code


class Inconclusive(Error):
    """A verdict that is neither yes nor no was asked for a yes or no."""


_native.raise_failures_as(Error)

Model = _native.Model
ModelLike = Union[Model, str, "os.PathLike[str]", bytes, bytearray, memoryview]


class Finding(NamedTuple):
    """What `check` found, and where."""

    severity: str  # "error" or "warning"
    code: str
    text: str
    nodes: List[str]
    values: List[str]


class Verdict:
    """What `verify` says. True is proved equal, False is different; anything else is no bool."""

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


class Conversion:
    """What became of a model and of each of its caches."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self.document: Dict[str, Any] = json.loads(native.document())
        self.status: str = self.document["status"]  # "converted", "partial", "refused", "nothing"
        self.caches: List[Dict[str, Any]] = self.document["caches"]

    @property
    def model(self) -> Model:
        """The converted model.

        Inconclusive if less is shown of it than `accept` asks for; another Error if there is none,
        or if it is shown to differ from its source.
        """
        self._raise_inconclusive()
        return self._native.model()

    def _raise_inconclusive(self) -> None:
        if self._native.inconclusive:
            raise Inconclusive(f"neither equal nor different: {self._native.reason}")

    @property
    def equality(self) -> Optional[str]:
        """What is shown: "proved", "tested", "unproved", "different" or "inconclusive"."""
        return (self.document["equality"] or {}).get("shown")

    @property
    def manifest(self) -> Optional[Dict[str, Any]]:
        """How inputs and outputs correspond to those of the source."""
        return json.loads(self._native.manifest()) if self._native.has_model else None

    @property
    def genai_config(self) -> Optional[Dict[str, Any]]:
        """What belongs into genai_config.json, for target "genai"."""
        text = self._native.genai()
        return json.loads(text) if text else None

    def verify(self, *, full: bool = False, seed: int = 1, threads: int = 0,
               weights: str = "stored") -> Verdict:
        """Proves or disproves that the converted model does what its source does.

        `weights` is "stored", or "random[:SEED]": numbers are drawn for weights in files.

        The errors of `model`, too.
        """
        self._raise_inconclusive()
        return Verdict(json.loads(self._native.verify(full, seed, threads, weights)))

    def save(self, path: Union[str, "os.PathLike[str]"], *, force: bool = False) -> List[str]:
        """Writes the model, its manifest and what else belongs to it; returns the files' names.

        The errors of `model`, too.
        """
        self._raise_inconclusive()
        return self._native.save(os.fspath(path), force)

    def __bool__(self) -> bool:
        return self.status == "converted"

    def __repr__(self) -> str:
        done = sum(cache["converted"] for cache in self.caches)
        return f"<kvlift.Conversion {self.status}: {done} of {len(self.caches)} caches>"


def load(source: ModelLike, *, data_dir: Union[str, "os.PathLike[str]", None] = None,
         trust_links: bool = False) -> Model:
    """Reads a model. `data_dir`: where its external data may lie, instead of the model's folder."""
    if isinstance(source, Model):
        return source
    folders = [] if data_dir is None else [os.fspath(data_dir)]
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _native.load_bytes(bytes(source), folders, trust_links)
    return _native.load_file(os.fspath(source), folders, trust_links)


def inspect(model: ModelLike) -> Dict[str, Any]:
    """Caches, attention and what nearly matched."""
    return json.loads(_native.inspect(load(model)))


def caches(model: ModelLike) -> List[Dict[str, Any]]:
    """The caches of a model; those with a `reason` cannot be converted."""
    return inspect(model)["caches"]


def convert(model: ModelLike, *, target: str = "spec", max_seq_len: Optional[int] = None,
            control: str = "auto", mask: str = "auto", read: str = "auto", padding: str = "auto",
            io_names: str = "keep", layout: str = "keep", mode: str = "linear",
            rotary: str = "auto", window: str = "full", cache_tensors: str = "per-layer",
            quantize_cache: str = "", accept: str = "tested",
            tree_mask: bool = False, only: Sequence[str] = (),
            skip: Sequence[str] = (), allow_partial: bool = False) -> Conversion:
    """Rewrites the caches and proves the result; nothing is written.

    The options are those of `kvlift convert`. What the proof leaves open is tested by the quick
    plans of `verify`. A result that does not show what `accept` asks for has the status "refused",
    and its `model` raises.
    """
    flags = _native.ConvertFlags()
    flags.target, flags.control, flags.mask, flags.read = target, control, mask, read
    flags.padding, flags.io_names, flags.layout, flags.mode = padding, io_names, layout, mode
    flags.window, flags.accept = window, accept
    flags.rotary, flags.quantize_cache, flags.tree_mask = rotary, quantize_cache, tree_mask
    flags.cache_tensors = cache_tensors
    flags.only, flags.skip, flags.allow_partial = list(only), list(skip), allow_partial
    if max_seq_len is not None:
        flags.max_seq_len = str(max_seq_len)
    return Conversion(_native.convert(load(model), flags))


def _manifest_text(manifest: Any, model: ModelLike) -> Optional[str]:
    """JSON of a manifest that is given as dict or path, or that lies beside the model."""
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
    with open(manifest, encoding="utf-8") as file:
        return file.read()


def verify(before: ModelLike, after: ModelLike, *, manifest: Any = None, full: bool = False,
           seed: int = 1, threads: int = 0, weights: str = "stored") -> Verdict:
    """Proves or disproves that `after` does what `before` did.

    `manifest` says how they correspond: a dict, a path, the one beside `after` or in it; where there
    is none, the relation is inferred. `weights` is "stored", or "random[:SEED]": numbers are drawn
    for weights in files, and structure is what is judged.
    """
    return Verdict(json.loads(_native.verify(
        load(before), load(after), _manifest_text(manifest, after), full, seed, threads, weights)))


def check(model: ModelLike, *, manifest: Any = None, target: str = "spec") -> List[Finding]:
    """Lints a model by the operator texts, its manifest, and the rules of a target."""
    found = json.loads(_native.check(load(model), _manifest_text(manifest, model), target))
    return [Finding(**finding) for finding in found]
