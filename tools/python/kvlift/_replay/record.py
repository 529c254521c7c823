"""Reads what `kvlift record` wrote: record.json and the arrays of each step."""

import hashlib
import io
import json
import os
import zipfile
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from .errors import RecordError

SCHEMA = "kvlift/record/1"
# Types that NumPy does not have are stored as unsigned integers; ONNX's numbers of these types.
STORED_AS_BITS = {"bfloat16": 16, "float8e4m3fn": 17, "float8e4m3fnuz": 18, "float8e5m2": 19,
                  "float8e5m2fnuz": 20, "float8e8m0": 24}


class Feed(NamedTuple):
    """A value of an input. Without an array, its elements do not matter."""

    name: str
    type: str
    array: Optional[str]
    shape: Tuple[int, ...] = ()


class Expected(NamedTuple):
    """What an output has to be, and how far each element may be from it (NaN: any number)."""

    name: str
    type: str
    array: str
    bound: str


class Run(NamedTuple):
    """A run of the source: of all sequences of a step, or of one of them."""

    sequences: List[int]
    inputs: List[Feed]
    rows: Dict[str, int]  # caches that go on from the run before: their rows


class Step(NamedTuple):
    file: str
    sha256: str
    past: List[int]  # of each sequence
    new_tokens: int
    order: List[int]  # of which sequence each one takes over the past; empty: its own
    before: List[Run]
    after: List[Feed]
    expect: List[Expected]


class Plan(NamedTuple):
    name: str
    shows: str
    capacity: int
    steps: List[Step]


class Cache(NamedTuple):
    """A cache of the converted model. Axes count from 0.

    If it is quantised, `scales` is the output with its scales, one per `group` elements.
    """

    id: str
    input: str
    output: str
    type: str
    axis: int
    batch_axis: int
    in_place: bool
    circular: bool
    grows: bool
    scales: str = ""
    group: int = 0


class SourceCache(NamedTuple):
    input: str
    output: str
    axis: int
    grows: bool


class OutputNode(NamedTuple):
    """Who computes an output."""

    name: str
    node: str
    operator: str


class ModelFile(NamedTuple):
    path: str
    outputs: List[OutputNode]


def _feeds(items: Any) -> List[Feed]:
    return [Feed(i["name"], i["type"], i.get("array"), tuple(i.get("shape", ()))) for i in items]


def _step(item: Any) -> Step:
    runs = [Run(list(r["sequences"]), _feeds(r["inputs"]),
                {p["input"]: int(p["rows"]) for p in r["past"]}) for r in item["before"]]
    expect = [Expected(e["name"], e["type"], e["array"], e["bound"]) for e in item["expect"]]
    return Step(item["file"], item["sha256"], [int(p) for p in item["past"]],
                int(item["new_tokens"]), list(item.get("order", [])), runs, _feeds(item["after"]),
                expect)


def _plans(items: Any) -> List[Plan]:
    return [Plan(p["name"], p["shows"], int(p["capacity"]), [_step(s) for s in p["steps"]])
            for p in items]


class Record:
    """A record. `before` and `after` replace the files that it refers to."""

    def __init__(self, folder: str, before: Optional[str] = None,
                 after: Optional[str] = None) -> None:
        self.folder = folder
        self.document = self._read_document()
        self.plans = _plans(self.document["plans"])
        self.lengths = _plans(self.document["lengths"])
        self.large = _plans(self.document["large"])
        fields = [{key: c[key] for key in Cache._fields
                   if key in c or key not in Cache._field_defaults}
                  for c in self.document["caches"]]
        self.caches = [Cache(**f) for f in fields]
        self.source_caches = [SourceCache(c["input"], c["output"], c["axis"], c["grows"])
                              for c in self.document["source_caches"]]
        self.half_types = bool(self.document["bounds"]["half_types"])
        self.doubtful = set(self.document["bounds"]["doubtful"])
        self.decisions = int(self.document["bounds"]["decisions"])
        self.assumptions = list(self.document["assumptions"])
        self.before = self._model(self.document["before"], before)
        self.after = self._model(self.document["after"], after)

    @property
    def path(self) -> str:
        return os.path.join(self.folder, "record.json")

    def _read_document(self) -> Dict[str, Any]:
        try:
            with open(self.path, encoding="utf-8") as file:
                document = json.load(file)
        except OSError as error:
            raise RecordError(f"{self.path}: {error.strerror}; "
                              "`kvlift record` writes one") from None
        except ValueError as error:
            raise RecordError(f"{self.path}: is damaged: {error}") from None
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema != SCHEMA:
            raise RecordError(f"{self.path}: is no record: its schema is {schema!r}, "
                              f"not {SCHEMA!r}")
        return document

    def _model(self, entry: Any, given: Optional[str]) -> ModelFile:
        path = given or os.path.normpath(os.path.join(self.folder, entry["path"]))
        try:
            with open(path, "rb") as file:
                digest = hashlib.sha256()
                while block := file.read(1 << 20):
                    digest.update(block)
        except OSError as error:
            raise RecordError(f"{path}: {error.strerror}") from None
        if digest.hexdigest() != entry["sha256"]:
            raise RecordError(f"{path}: is another model than the recorded one: "
                              "its SHA-256 differs")
        outputs = [OutputNode(o["name"], o["node"], o["operator"]) for o in entry["outputs"]]
        return ModelFile(path, outputs)

    def check_names(self, inputs: Set[str], outputs: Set[str]) -> None:
        """Raises RecordError if a step names what the converted model does not have."""
        steps = [s for plan in (*self.plans, *self.lengths, *self.large) for s in plan.steps]
        fed = {f.name for s in steps for f in s.after} | {c.input for c in self.caches}
        given = {e.name for s in steps for e in s.expect} | {c.output for c in self.caches}
        given |= {c.scales for c in self.caches if c.scales}
        for what, missing in (("input", fed - inputs), ("output", given - outputs)):
            if missing:
                raise RecordError(f"{self.path}: is damaged: the converted model has no {what} "
                                  f"{min(missing)}")

    def arrays(self, step: Step) -> Dict[str, Any]:
        """Returns the arrays of a step, by their names in its file."""
        import numpy as np

        inside = os.path.normpath(step.file)
        path = os.path.join(self.folder, inside)
        if os.path.isabs(inside) or inside.split(os.sep)[0] == os.pardir:
            raise RecordError(f"{self.path}: names a file outside the record: {step.file}")
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise RecordError(f"{path}: {error.strerror}") from None
        if hashlib.sha256(data).hexdigest() != step.sha256:
            raise RecordError(f"{path}: is truncated or of another record: its SHA-256 differs")
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        except (ValueError, OSError, zipfile.BadZipFile) as error:
            raise RecordError(f"{path}: is damaged: {error}") from None

    def check(self) -> None:
        """Raises RecordError if a step cannot be run, so that no model runs in vain."""
        for plan in self.plans:
            if plan.steps and not any(step.expect for step in plan.steps):
                raise RecordError(f"{self.path}: is damaged: nothing is expected of {plan.name}")
        for plan in (*self.plans, *self.lengths, *self.large):
            for step in plan.steps:
                self._check_step(step)
            fed = {f.name for f in plan.steps[0].after} if plan.steps else set()
            missing = [c.input for c in self.caches if c.input not in fed]
            if missing:
                raise RecordError(f"{self.path}: is damaged: the first step of {plan.name} "
                                  f"does not feed {missing[0]}")

    def _check_step(self, step: Step) -> None:
        arrays, path = self.arrays(step), os.path.join(self.folder, step.file)
        feeds = [*step.after, *(f for run in step.before for f in run.inputs)]
        named = [f.array for f in feeds if f.array is not None]
        named += [n for e in step.expect for n in (e.array, e.bound)]
        for name in named:
            if name not in arrays:
                raise RecordError(f"{path}: is damaged: it has no array {name}")
        if not step.past or step.new_tokens < 1 or min(step.past) < 0:
            raise RecordError(f"{self.path}: is damaged: {step.file} has no tokens")
