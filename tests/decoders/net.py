"""A graph under construction: operators spelled for an opset, constants, weights, interface."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

INT_MAX = 9223372036854775807
ELEM = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL,
}
AXES_AS_INPUT = {
    "Unsqueeze": 13,
    "Squeeze": 13,
    "ReduceSum": 13,
    "ReduceMax": 18,
    "ReduceMean": 18,
    "ReduceMin": 18,
}


class Net:
    """Builds one ModelProto. Every method that adds a node returns the name of its output."""

    def __init__(self, opset=17, dtype="float32", seed=0, constants="initializer"):
        self.opset, self.dtype, self.constants = opset, dtype, constants
        self.rng = np.random.default_rng(seed)
        self.nodes, self.inits, self.inputs, self.outputs, self.infos = [], [], [], [], []
        self.domains, self.functions, self.count = set(), [], 0
        self.known = {}

    # ---- values
    def fresh(self, stem):
        self.count += 1
        return f"{stem}_{self.count}"

    def const(self, value, dtype=None):
        array = np.asarray(value, dtype=dtype or self.dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key in self.known and self.constants == "initializer":
            return self.known[key]
        name = self.fresh("const")
        tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        if self.constants == "node":
            self.nodes.append(
                helper.make_node("Constant", [], [name], name=f"n_{name}", value=tensor)
            )
        else:
            self.inits.append(tensor)
        self.known[key] = name
        return name

    def ints(self, *values):
        return self.const(list(values), "int64")

    def int0(self, value):
        return self.const(value, "int64")

    def weight(self, *shape, gain=1.0):
        std = gain / np.sqrt(shape[0] if len(shape) > 1 else 1)
        value = (self.rng.standard_normal(shape) * std).astype(self.dtype)
        name = self.fresh("weight")
        self.inits.append(numpy_helper.from_array(value, name))
        return name

    def table(self, array, dtype=None):
        name = self.fresh("table")
        self.inits.append(numpy_helper.from_array(np.asarray(array, dtype or self.dtype), name))
        return name

    def input(self, name, dtype, shape):
        self.inputs.append(helper.make_tensor_value_info(name, ELEM[dtype], shape))
        return name

    def output(self, value, name, dtype, shape):
        """Declares `value` as graph output under `name`, by renaming its producer's output."""
        if any(value == v.name for v in [*self.inputs, *self.outputs]) or value in {
            t.name for t in self.inits
        }:
            self.nodes.append(
                helper.make_node("Identity", [value], [name], name=self.fresh("n_Identity"))
            )
        else:
            self.rename(value, name)
        self.outputs.append(helper.make_tensor_value_info(name, ELEM[dtype], shape))
        return name

    def rename(self, old, new):
        for node in self.nodes:
            for names in (node.input, node.output):
                for i, value in enumerate(names):
                    if value == old:
                        names[i] = new
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    raise ValueError("rename in front of a branch")

    # ---- operators
    def op(self, kind, *inputs, n=1, domain="", **attrs):
        if domain:
            self.domains.add(domain)
        outs = [self.fresh(kind) for _ in range(n)]
        node = helper.make_node(
            kind, [i or "" for i in inputs], outs, name=f"n_{outs[0]}", domain=domain, **attrs
        )
        self.nodes.append(node)
        return outs[0] if n == 1 else outs

    def axes_op(self, kind, x, axes, **attrs):
        if self.opset >= AXES_AS_INPUT[kind]:
            return self.op(kind, x, self.ints(*axes), **attrs)
        return self.op(kind, x, axes=list(axes), **attrs)

    def unsqueeze(self, x, *axes):
        return self.axes_op("Unsqueeze", x, axes)

    def squeeze(self, x, *axes):
        return self.axes_op("Squeeze", x, axes)

    def reduce(self, kind, x, *axes, keepdims=1):
        return self.axes_op(kind, x, axes, keepdims=keepdims)

    def transpose(self, x, *perm):
        return self.op("Transpose", x, perm=list(perm))

    def concat(self, *xs, axis):
        return self.op("Concat", *xs, axis=axis)

    def cast(self, x, dtype):
        return self.op("Cast", x, to=ELEM[dtype])

    def reshape(self, x, *dims):
        return self.op("Reshape", x, self.ints(*dims))

    def reshape_to(self, x, *dims):
        """dims: ints, or names of int64 [1] tensors."""
        if all(isinstance(d, int) for d in dims):
            return self.reshape(x, *dims)
        return self.op("Reshape", x, self.vector(*dims))

    def vector(self, *dims):
        return self.concat(*[self.ints(d) if isinstance(d, int) else d for d in dims], axis=0)

    def expand(self, x, *dims):
        return self.op("Expand", x, self.vector(*dims))

    def slice(self, x, start, end, axis, step=None):
        """start, end: ints, or names of int64 [1] tensors."""
        at = [self.ints(v) if isinstance(v, int) else v for v in (start, end)]
        return self.op("Slice", x, *at, self.ints(axis), *([self.ints(step)] if step else []))

    def split(self, x, sizes, axis):
        """A list of parts."""
        if len(sizes) == 1:
            return [x]
        if self.opset >= 13:
            return self.op("Split", x, self.ints(*sizes), n=len(sizes), axis=axis)
        return self.op("Split", x, n=len(sizes), axis=axis, split=list(sizes))

    def dim(self, x, axis, style="gather"):
        """Size of one axis as an int64 [1] tensor."""
        if style == "attr" and self.opset >= 15:
            return self.op("Shape", x, start=axis, end=axis + 1)
        shape = self.op("Shape", x)
        if style == "slice":
            return self.slice(shape, axis, axis + 1, 0)
        if style == "gather1":
            return self.op("Gather", shape, self.ints(axis), axis=0)
        return self.unsqueeze(self.op("Gather", shape, self.int0(axis), axis=0), 0)

    def scalar(self, x):
        """The only element of a [1] tensor, as a scalar."""
        return self.squeeze(x, 0)

    def range(self, start, end):
        """[start, end) of two [1] tensors or ints."""
        ends = [self.int0(v) if isinstance(v, int) else self.scalar(v) for v in (start, end)]
        return self.op("Range", *ends, self.int0(1))

    def less_equal(self, a, b):
        if self.opset >= 12:
            return self.op("LessOrEqual", a, b)
        return self.op("Not", self.op("Greater", a, b))

    def mean(self, x, axis):
        return self.reduce("ReduceMean", x, axis)

    # ---- the model
    def model(self, name="decoder"):
        graph = helper.make_graph(
            self.nodes, name, self.inputs, self.outputs, self.inits, value_info=self.infos
        )
        sets = [helper.make_opsetid("", self.opset)]
        sets += [helper.make_opsetid(d, 1) for d in sorted(self.domains)]
        ir = 8 if self.opset < 19 else 10
        return helper.make_model(
            graph,
            opset_imports=sets,
            ir_version=ir,
            functions=self.functions,
            producer_name="decoders",
        )


def check(model):
    """ONNX's checker and shape inference; contrib operators are left out of both."""
    onnx.checker.check_model(model)
    return onnx.shape_inference.infer_shapes(model, strict_mode=False)
