"""Both models in ONNX Runtime: sessions, bound buffers, and steps with caches threaded."""

import contextlib
import ctypes
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import numpy as np

from .errors import Refused, UsageError
from .record import STORED_AS_BITS, Cache, Feed, Record, Run, Step

# Device memory as OrtValue calls it, by provider; all others use the host's.
DEVICES = {"CUDA": "cuda", "Tensorrt": "cuda", "NvTensorRTRTX": "cuda", "ROCM": "cuda",
           "MIGraphX": "cuda", "Dml": "dml", "CANN": "cann"}
SUFFIX = "ExecutionProvider"


class Settings(NamedTuple):
    """What a session is made with."""

    provider: str = "CPU"
    device: int = 0
    options: Dict[str, str] = {}
    threads: int = 0
    optimize: bool = True


def node_in(message: str) -> str:
    """Returns the name of the node that an error of ONNX Runtime speaks of; empty: of none."""
    for pattern in (r"Name:'([^']*)'", r"[Nn]ode:? ?\(([^()]+)\)", r"node with name '([^']*)'",
                    r"[Nn]ode:? ?\"([^\"]+)\""):
        found = re.search(pattern, message)
        if found and found.group(1):
            return found.group(1)
    return ""


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turns errors of ONNX Runtime, which has an exception of its own for each, into Refused."""
    try:
        yield
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise Refused(text, node_in(text)) from None


class Runtime:
    """ONNX Runtime with one provider. `ort` is the module onnxruntime."""

    def __init__(self, ort: Any, settings: Settings) -> None:
        self.ort, self.settings = ort, settings
        here = [name[:-len(SUFFIX)] for name in ort.get_available_providers()]
        wanted = settings.provider.lower().removesuffix(SUFFIX.lower())
        found = [name for name in here if name.lower() == wanted]
        if not found:
            raise UsageError(f"provider {settings.provider} is not in this onnxruntime "
                             f"{ort.__version__}; it has {', '.join(here)}")
        self.name = found[0]
        self.device = DEVICES.get(self.name, "cpu")
        self.device_id = settings.device if self.device != "cpu" else 0

    def session(self, model: Any, optimize: Optional[bool] = None,
                data_folder: Optional[str] = None) -> Any:
        """Returns a session of a model, a path or bytes; raises Refused if it is not loaded."""
        options = self.ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = self.settings.threads
        if not (self.settings.optimize if optimize is None else optimize):
            options.graph_optimization_level = self.ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        if data_folder is not None:
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", data_folder)
        given = dict(self.settings.options)
        if self.device != "cpu":
            given.setdefault("device_id", str(self.device_id))
        providers = [(self.name + SUFFIX, given)]
        with refusals():
            session = self.ort.InferenceSession(model, options, providers=providers)
        if session.get_providers()[0] != self.name + SUFFIX:
            raise UsageError(f"provider {self.settings.provider} does not start here; onnxruntime "
                             f"falls back to {session.get_providers()[0][:-len(SUFFIX)]}")
        return session

    def value(self, array: np.ndarray, type_name: str) -> Any:
        """Returns a tensor in the provider's memory."""
        array = np.ascontiguousarray(array).reshape(array.shape)
        # A tensor without elements has no place in the memory of a device.
        device = self.device if array.size else "cpu"
        if type_name not in STORED_AS_BITS:
            return self.ort.OrtValue.ortvalue_from_numpy(array, device, self.device_id)
        number = STORED_AS_BITS[type_name]
        host = self.ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, number)
        if device == "cpu":
            return host
        there = self.ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), number, device,
                                                               self.device_id)
        self.ort.copy_tensors([host], [there])
        return there

    def array_of(self, value: Any) -> np.ndarray:
        """Returns a copy of a tensor's elements in host memory."""
        number = value.element_type()
        if number not in STORED_AS_BITS.values():
            return np.array(value.numpy(), copy=True)
        shape = value.shape()
        if value.device_name() != "cpu":
            here = self.ort.OrtValue.ortvalue_from_shape_and_type(list(shape), number, "cpu", 0)
            self.ort.copy_tensors([value], [here])
            value = here
        bits = ctypes.c_uint16 if number == STORED_AS_BITS["bfloat16"] else ctypes.c_uint8
        count = int(np.prod(shape))
        memory = (bits * count).from_address(value.data_ptr()) if count else (bits * 0)()
        return np.array(memory, copy=True).reshape(shape)

    def run(self, session: Any, binding: Any) -> None:
        with refusals():
            binding.synchronize_inputs()
            session.run_with_iobinding(binding)
            binding.synchronize_outputs()


def feed_array(feed: Feed, arrays: Dict[str, np.ndarray], seed: int = 0) -> np.ndarray:
    """Returns the array of a feed, or small noise where its elements do not matter."""
    if feed.array is not None:
        return arrays[feed.array]
    if feed.type in STORED_AS_BITS:
        return np.zeros(feed.shape, np.uint16 if feed.type == "bfloat16" else np.uint8)
    noise = np.random.default_rng(seed).standard_normal(feed.shape, np.float32) / 8
    return noise.astype(feed.type)


class StepResult(NamedTuple):
    """What the converted model gave in one step."""

    outputs: Dict[str, np.ndarray]  # by name; caches are whole buffers
    before: Dict[str, np.ndarray]   # by output of a cache: its buffer before the step
    same_address: Dict[str, bool]   # by output of a cache that is updated in place
    feeds: Dict[str, np.ndarray]    # all inputs


class Converted:
    """The converted model: caches that the manifest calls safe are bound as past and as present.

    With `in_place` false each cache has two buffers, which take turns.
    """

    def __init__(self, runtime: Runtime, session: Any, caches: List[Cache],
                 in_place: bool = True) -> None:
        self.runtime, self.session, self.caches = runtime, session, caches
        self.in_place = in_place
        self.buffers: Dict[str, Any] = {}  # by input
        self.names = [o.name for o in session.get_outputs()]

    def bind(self, feeds: List[Feed], arrays: Dict[str, np.ndarray]) -> Any:
        """Returns a binding for a step; caches among the feeds replace the buffers."""
        runtime, by_input = self.runtime, {c.input: c for c in self.caches}
        binding = self.session.io_binding()
        self.held = []  # bound tensors must outlive the run
        for feed in feeds:
            value = runtime.value(feed_array(feed, arrays), feed.type)
            if feed.name in by_input:
                self.buffers[feed.name] = value
            else:
                self.held.append(value)
                binding.bind_ortvalue_input(feed.name, value)
        self.bound: Dict[str, Any] = {}  # by output: where a present goes that does not grow
        for cache in self.caches:
            past = self.buffers[cache.input]
            binding.bind_ortvalue_input(cache.input, past)
            if cache.grows:
                continue
            if self.in_place and cache.in_place:
                self.bound[cache.output] = past
            else:
                self.bound[cache.output] = runtime.value(np.zeros_like(runtime.array_of(past)),
                                                         cache.type)
        self.bind_outputs(binding)
        return binding

    def bind_outputs(self, binding: Any) -> None:
        """Binds all outputs; those whose shape the runtime finds are allocated anew in each run."""
        binding.clear_binding_outputs()
        growing = {c.output for c in self.caches if c.grows}
        for name in self.names:
            if name in self.bound:
                binding.bind_ortvalue_output(name, self.bound[name])
            elif name in growing:
                binding.bind_output(name, self.runtime.device, self.runtime.device_id)
            else:
                binding.bind_output(name)

    def step(self, step: Step, arrays: Dict[str, np.ndarray]) -> StepResult:
        with refusals():
            binding = self.bind(step.after, arrays)
        read = self.runtime.array_of
        before = {c.output: read(self.buffers[c.input]) for c in self.caches}
        feeds = {f.name: feed_array(f, arrays) for f in step.after}
        feeds.update({c.input: before[c.output] for c in self.caches})
        self.runtime.run(self.session, binding)
        values = dict(zip(self.names, binding.get_outputs()))
        same = {}
        for cache in self.caches:
            if self.in_place and cache.in_place and not cache.grows:
                past = self.buffers[cache.input]
                same[cache.output] = values[cache.output].data_ptr() == past.data_ptr()
            self.buffers[cache.input] = self.bound.get(cache.output, values[cache.output])
        # Bound buffers are read, not the values that ONNX Runtime returns for them: the next step
        # reads them, too.
        outputs = {name: read(value) for name, value in {**values, **self.bound}.items()}
        return StepResult(outputs, before, same, feeds)


class Source:
    """The source: each run is fed the presents of the run before it of the same sequences."""

    def __init__(self, runtime: Runtime, session: Any, record: Record) -> None:
        self.runtime, self.session = runtime, session
        self.caches = record.source_caches
        self.names = [o.name for o in session.get_outputs()]
        self.presents: Dict[tuple, Dict[str, np.ndarray]] = {}

    def run(self, run: Run, arrays: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
        binding = self.session.io_binding()
        held = []
        types = {f.name: f.type for f in run.inputs}
        feeds = {f.name: feed_array(f, arrays) for f in run.inputs}
        last = self.presents.get(tuple(run.sequences), {})
        for cache in self.caches:
            if cache.input not in run.rows:
                continue
            value = last[cache.output]
            if cache.grows:
                value = np.take(value, np.arange(run.rows[cache.input]), axis=cache.axis)
            feeds[cache.input] = value
        with refusals():
            for name, array in feeds.items():
                held.append(self.runtime.value(array, types.get(name, str(array.dtype))))
                binding.bind_ortvalue_input(name, held[-1])
            for name in self.names:
                binding.bind_output(name)
        self.runtime.run(self.session, binding)
        outputs = dict(zip(self.names, map(self.runtime.array_of, binding.get_outputs())))
        self.presents[tuple(run.sequences)] = outputs
        return outputs
