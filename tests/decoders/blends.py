"""Fixed buffers updated without a scatter: shifts, splices, selects, blends, additions."""

import numpy as np

from decoders.net import INT_MAX
from decoders.writes import put_first


def r1(b, cache, new, layout):
    """First in, first out."""
    net, axis = b.net, layout.index("S")
    return net.concat(net.slice(cache, b.S, INT_MAX, axis), new, axis=axis)


def r2(b, cache, new, layout):
    """Rolled by one, then the last slot is written at index -1."""
    net, axis = b.net, layout.index("S")
    rolled = net.concat(net.slice(cache, 1, INT_MAX, axis), net.slice(cache, 0, 1, axis), axis=axis)
    return put_first(b, rolled, new, layout, at=net.ints(-1))


def r3(b, cache, new, layout):
    """A window that is shifted by a gather only once it is full."""
    net, m, axis = b.net, b.spec.capacity, layout.index("S")
    full = net.cast(net.op("Greater", b.q(), net.int0(m - 1)), "int64")
    at = net.op("Sub", net.op("Add", net.const(np.arange(1, m + 1), "int64"), full), net.int0(1))
    shifted = net.op("Gather", cache, net.op("Mod", at, net.int0(m)), axis=axis)
    slot = net.op("Clip", b.q(), net.int0(0), net.int0(m - 1))
    return put_first(b, shifted, new, layout, at=slot)


def r4(b, cache, new, layout):
    """Splice: what is before, the new rows, what is behind."""
    net, axis = b.net, layout.index("S")
    return net.concat(
        net.slice(cache, 0, b.P, axis), new, net.slice(cache, b.T, INT_MAX, axis), axis=axis
    )


def slots_of(b, layout, rank=4):
    """0..M-1 along the sequence, and the starts of each sequence."""
    net, axis = b.net, layout.index("S")
    slots = net.reshape(
        net.range(0, b.spec.capacity), *[-1 if i == axis else 1 for i in range(rank)]
    )
    return slots, net.reshape(b.starts(), -1, *[1] * (rank - 1))


def r5(b, cache, new, layout):
    """One-hot select of one token."""
    net = b.net
    slots, at = slots_of(b, layout)
    return net.op("Where", net.op("Equal", slots, at), new, cache)


def blend(b, cache, new, hot):
    net = b.net
    kept = net.op("Mul", cache, net.op("Sub", net.const(1.0), hot))
    return net.op("Add", kept, net.op("Mul", new, hot))


def r6(b, cache, new, layout):
    """One-hot arithmetic."""
    net = b.net
    hot = net.op(
        "OneHot", b.starts(), net.int0(b.spec.capacity), net.const([0, 1], "int64"), axis=-1
    )
    return blend(b, cache, new, net.unsqueeze(net.unsqueeze(net.cast(hot, b.spec.dtype), 1), 3))


def r6_equal(b, cache, new, layout):
    net = b.net
    slots, at = slots_of(b, layout)
    return blend(b, cache, new, net.cast(net.op("Equal", slots, at), b.spec.dtype))


def r7(b, cache, new, layout):
    """The new rows, padded to the capacity, are added."""
    net, axis = b.net, layout.index("S")
    rest = net.op("Sub", net.ints(b.spec.capacity), b.T)
    zero = net.ints(0)
    front = [b.P if i == axis else zero for i in range(4)]
    back = [rest if i == axis else zero for i in range(4)]
    return net.op("Add", cache, net.op("Pad", new, net.concat(*front, *back, axis=0)))
