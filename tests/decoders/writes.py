"""Scatters that write new rows into a buffer of fixed capacity.

Every function takes (build, cache, new rows, layout) with the new rows in the cache's layout.
"""

import numpy as np
import onnx
from onnx import helper

from decoders.net import INT_MAX

CTX = "com.example.cloud"


def int_tensor(*values):
    return onnx.numpy_helper.from_array(np.array(values, np.int64))


def guarded_expand(b, x, shape, rank):
    """TorchScript's Expand: sizes of -1 keep the size."""
    net = b.net
    ones = net.op("ConstantOfShape", net.ints(rank), value=int_tensor(1))
    keep = net.op("Equal", shape, net.op("Mul", ones, net.int0(-1)))
    return net.op("Expand", x, net.op("Where", keep, ones, shape))


def s1(b, cache, new, layout):
    """index_copy_ by TorchScript: ScatterElements with an expanded index."""
    net, axis = b.net, layout.index("S")
    others = [i for i in range(4) if i != axis]
    index = net.unsqueeze(b.q(), *others)
    count = net.op("Shape", b.q())
    shape = net.op("ScatterElements", net.op("Shape", cache), net.ints(axis), count, axis=0)
    return net.op("ScatterElements", cache, guarded_expand(b, index, shape, 4), new, axis=axis)


def s3(b, cache, new, layout):
    """cache[:, :, pos] = k by TorchScript: ScatterND with full leading coordinates."""
    return coordinates(b, cache, new, layout, b.q())


def coordinates(b, cache, new, layout, at):
    net, axis = b.net, layout.index("S")
    counts = [net.dim(cache, i) for i in range(axis)]
    ranges = [net.reshape(net.range(0, c), *[-1] + [1] * (axis - i)) for i, c in enumerate(counts)]
    shape = net.concat(*counts, net.op("Shape", at), axis=0)
    last = [net.unsqueeze(net.op("Expand", r, shape), axis + 1) for r in [*ranges, at]]
    index = net.concat(*last, axis=-1)
    tail = net.slice(net.op("Shape", cache), axis + 1, INT_MAX, 0)
    return net.op(
        "ScatterND", cache, index, net.op("Reshape", new, net.concat(shape, tail, axis=0))
    )


def s5(b, cache, new, layout):
    """cache[:, :, p:p+s] = k: the slots are a slice of all slots."""
    net, axis = b.net, layout.index("S")
    part = net.slice(cache, b.P, b.T, axis)
    new = net.op("Expand", new, net.op("Shape", part))
    slots = net.range(0, net.dim(cache, axis))
    return coordinates(
        b, cache, new, layout, net.op("Slice", slots, b.P, b.T, net.ints(0), net.ints(1))
    )


def s6(b, cache, new, layout):
    """cache[arange(B), pos] = k[:, 0] over [B,M,N,D]: one token, a slot per sequence."""
    net = b.net
    rows = net.range(0, b.B)
    index = net.concat(net.unsqueeze(rows, 1), net.unsqueeze(b.starts(), 1), axis=-1)
    return net.op("ScatterND", cache, index, net.squeeze(new, 1))


def s7(b, cache, new, layout):
    """cache[arange(B), :, pos] = k[:, :, 0] over [B,N,M,D], through two Transposes."""
    net = b.net
    index = net.concat(net.unsqueeze(net.range(0, b.B), 1), net.unsqueeze(b.starts(), 1), axis=-1)
    out = net.op("ScatterND", net.transpose(cache, 0, 2, 1, 3), index, net.squeeze(new, 2))
    return net.transpose(out, 0, 2, 1, 3)


def s8(b, cache, new, layout):
    """cache.scatter(2, pos[:, None, :, None].expand(...), k): a slot per sequence and token."""
    net, axis = b.net, layout.index("S")
    at = b.q() if b.per_batch else net.unsqueeze(b.q(), 0)
    index = net.unsqueeze(net.unsqueeze(at, 1), 3)
    return net.op(
        "ScatterElements", cache, net.op("Expand", index, net.op("Shape", new)), new, axis=axis
    )


def put_first(b, cache, new, layout, at=None, wide=False):
    net, axis = b.net, layout.index("S")
    perm = [axis, *[i for i in range(4) if i != axis]]
    back = [perm.index(i) for i in range(4)]
    index = net.unsqueeze(b.q() if at is None else at, 1)
    update = net.transpose(new, *perm)
    if wide:
        rest = net.op("Gather", net.op("Shape", cache), net.ints(*perm[1:]), axis=0)
        update = net.op("Expand", update, net.concat(net.op("Shape", b.q()), rest, axis=0))
        index = net.op("Concat", index, axis=-1)
    return net.transpose(net.op("ScatterND", net.transpose(cache, *perm), index, update), *back)


def s9(b, cache, new, layout):
    """index_put by dynamo: the sequence is brought to the front."""
    return put_first(b, cache, new, layout)


def s9_expand(b, cache, new, layout):
    return put_first(b, cache, new, layout, wide=True)


def s9_add(b, cache, new, layout):
    """The same into a zeroed buffer's sum: 0 + scatter."""
    net = b.net
    zero = onnx.numpy_helper.from_array(np.zeros(1, b.spec.dtype))
    zeros = net.op("ConstantOfShape", net.op("Shape", cache), value=zero)
    return net.op("Add", zeros, put_first(b, cache, new, layout))


def s10(b, cache, new, layout):
    """slice_scatter by dynamo: axes 0 and S are swapped."""
    net, axis = b.net, layout.index("S")
    perm = list(range(4))
    perm[0], perm[axis] = axis, 0
    every = net.range(
        0, net.unsqueeze(net.op("Gather", net.op("Shape", cache), net.int0(axis), axis=0), 0)
    )
    slots = net.op("Slice", every, b.P, b.T, net.ints(0), net.ints(1))
    out = net.op(
        "ScatterND", net.transpose(cache, *perm), net.unsqueeze(slots, 1), net.transpose(new, *perm)
    )
    return net.transpose(out, *perm)


def s11(b, cache, new, layout):
    """Three full coordinates, all expanded to [B,N,S]."""
    net = b.net
    shape = net.vector(b.B, b.spec.kv_heads, b.S)
    parts = [
        net.reshape(net.range(0, b.B), -1, 1, 1),
        net.reshape(net.range(0, b.spec.kv_heads), 1, -1, 1),
    ]
    parts.append(net.reshape(b.q(), 1, 1, -1))
    index = net.concat(*[net.unsqueeze(net.op("Expand", p, shape), 3) for p in parts], axis=3)
    return net.op("ScatterND", cache, index, new)


def batch_index(net, data, at, new):
    """Coordinates [B,N,S,3] for positions [B,S]."""
    shape = net.slice(net.op("Shape", new), 0, 3, 0)
    rows, heads = [net.range(0, net.dim(data, i)) for i in (0, 1)]
    parts = [net.unsqueeze(rows, 1, 2), net.unsqueeze(heads, 0, 2), net.unsqueeze(at, 1)]
    return net.concat(*[net.unsqueeze(net.op("Expand", p, shape), 3) for p in parts], axis=3)


def s12(b, cache, new, layout):
    """The scatter of efficient-transformers, not in a function."""
    net = b.net
    at = b.q() if b.per_batch else net.expand(net.unsqueeze(b.q(), 0), b.B, b.S)
    return net.op("ScatterND", cache, batch_index(net, cache, at, new), new)


def add_functions(b):
    """The model-local function CtxScatter(data, position_ids, updates)."""
    if b.net.functions:
        return
    inner = type(b.net)(b.spec.opset, b.spec.dtype, 0, "node")
    index = batch_index(inner, "data", "position_ids", "updates")
    out = inner.op("ScatterND", "data", index, "updates")
    b.net.functions.append(
        helper.make_function(
            CTX,
            "CtxScatter",
            ["data", "position_ids", "updates"],
            [out],
            inner.nodes,
            [helper.make_opsetid("", b.spec.opset)],
        )
    )


def s13(b, cache, new, layout):
    """A ring: slots modulo the capacity."""
    at = b.net.op("Mod", b.q(), b.net.int0(b.spec.capacity))
    return put_first(b, cache, new, layout, at=at)


def s14(b, cache, new, layout):
    """dynamic_update_slice by jax2onnx: a clamped start, one index per element."""
    net, spec, axis = b.net, b.spec, layout.index("S")
    start, m = b.scalar_start(), spec.capacity
    start = net.op(
        "Where", net.op("Less", start, net.int0(0)), net.op("Add", start, net.int0(m)), start
    )
    room = net.op("Sub", net.dim(cache, axis), net.dim(new, axis))
    start = net.op("Min", net.op("Max", net.unsqueeze(start, 0), net.ints(0)), room)
    shape = net.op("Shape", new)
    parts = []
    for i in range(4):
        steps = net.range(0, net.dim(new, i))
        if i == axis:
            steps = net.op("Add", steps, start)
        steps = net.reshape(steps, *[-1 if j == i else 1 for j in range(4)])
        parts.append(net.unsqueeze(net.op("Expand", steps, shape), 4))
    index = net.reshape(net.concat(*parts, axis=4), -1, 4)
    return net.op("ScatterND", cache, index, net.reshape(new, -1))


def s17(b, cache, new, layout):
    """TensorScatter lowered to ScatterElements: Range, Add, Mod, Expand."""
    net, axis = b.net, layout.index("S")
    starts = net.reshape(b.starts(), -1, *[1] * 3)
    steps = net.reshape(
        net.range(0, net.dim(new, axis)), *[-1 if i == axis else 1 for i in range(4)]
    )
    at = net.op("Add", starts, steps)
    return net.op(
        "ScatterElements", cache, net.op("Expand", at, net.op("Shape", new)), new, axis=axis
    )


def flat_rows(b, cache, new, layout):
    """cache.reshape(-1, D)[(b*N + n)*M + w + s] = update."""
    net, spec = b.net, b.spec
    size = net.dim(cache, 3)
    slots = net.unsqueeze(b.q(), *((1,) if b.per_batch else (0, 1)))
    row = net.reshape(net.op("Mul", net.range(0, b.B), net.int0(spec.kv_heads)), -1, 1, 1)
    row = net.op("Add", row, net.reshape(net.range(0, spec.kv_heads), 1, -1, 1))
    index = net.op("Add", net.op("Mul", row, net.int0(spec.capacity)), slots)
    index = net.reshape(index, -1, 1)
    rows = net.reshape_to(new, -1, size)
    out = net.op("ScatterND", net.reshape_to(cache, -1, size), index, rows)
    return net.op("Reshape", out, net.op("Shape", cache))


def tensor_scatter(b, cache, new, layout, mode="linear"):
    return b.net.op("TensorScatter", cache, new, b.starts(), axis=layout.index("S"), mode=mode)


def tensor_scatter_circular(b, cache, new, layout):
    return tensor_scatter(b, cache, new, layout, "circular")


# ---- near misses
def miss_reduction(b, cache, new, layout):
    """The rows are added to what stands there."""
    net, axis = b.net, layout.index("S")
    index = net.op(
        "Expand", net.unsqueeze(b.q(), *[i for i in range(4) if i != axis]), net.op("Shape", new)
    )
    return net.op("ScatterElements", cache, index, new, axis=axis, reduction="add")


def miss_stride(b, cache, new, layout):
    """Every second slot."""
    net = b.net
    at = net.op("Mod", net.op("Mul", b.q(), net.int0(2)), net.int0(b.spec.capacity - 1))
    return put_first(b, cache, new, layout, at=at)


def miss_reversed_slots(b, cache, new, layout):
    """From the end of the buffer towards its front."""
    net = b.net
    return put_first(b, cache, new, layout, at=net.op("Sub", net.int0(b.spec.capacity - 1), b.q()))


def miss_head_shift(b, cache, new, layout):
    """Written right, but the heads are rolled on the way."""
    net, out = b.net, put_first(b, cache, new, layout)
    last = net.slice(out, b.spec.kv_heads - 1, INT_MAX, 1)
    return net.concat(last, net.slice(out, 0, b.spec.kv_heads - 1, 1), axis=1)


def miss_decayed(b, cache, new, layout):
    """The old rows fade."""
    return put_first(b, b.net.op("Mul", cache, b.net.const(0.9)), new, layout)


def miss_second_write(b, cache, new, layout):
    """Slot 0 is overwritten, too."""
    net = b.net
    out = put_first(b, cache, new, layout)
    return put_first(b, out, net.slice(new, 0, 1, layout.index("S")), layout, at=net.ints(0))


def miss_negative(b, cache, new, layout):
    """Slots counted from the end: -M + position."""
    return put_first(b, cache, new, layout, at=b.net.op("Sub", b.q(), b.net.int0(b.spec.capacity)))
