"""Where positions enter: rotary embeddings in several spellings, learned tables."""

import numpy as np


def angles(b, size):
    """Positions times frequencies: [S,size/2] or [B,S,size/2], float32."""
    net = b.net
    inverse = 10000.0 ** (-np.arange(0, size, 2) / size)
    if b.batched_positions:
        column = net.cast(net.unsqueeze(b.positions, 2), "float32")
    else:
        column = net.cast(net.unsqueeze(b.positions, 1), "float32")
    return net.op("MatMul", column, net.const(inverse.reshape(1, -1), "float32"))


def cos_sin(b, size):
    """cos and sin over the whole head, as wide as [.,1,S,size]."""
    net = b.net
    if b.rope_tables is None:
        if b.spec.positions == "rope_table":
            m = b.longest
            grid = np.arange(m)[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)[None]
            grid = np.concatenate([grid, grid], -1)
            pair = [
                net.op("Gather", net.table(f(grid), "float32"), b.positions, axis=0)
                for f in (np.cos, np.sin)
            ]
        else:
            angle = angles(b, size)
            angle = net.concat(angle, angle, axis=-1)
            pair = [net.op("Cos", angle), net.op("Sin", angle)]
        pair = [net.cast(x, b.spec.dtype) if b.spec.dtype != "float32" else x for x in pair]
        if b.batched_positions:
            pair = [net.unsqueeze(x, 1) for x in pair]
        b.rope_tables = pair
    return b.rope_tables


def half_turned(b, x, size):
    net = b.net
    half = size // 2
    first, second = net.slice(x, 0, half, 3), net.slice(x, half, 9223372036854775807, 3)
    return net.concat(net.op("Neg", second), first, axis=-1)


def rope(b, x):
    """Rotates a [B,N,S,D] tensor."""
    net, spec = b.net, b.spec
    how, size = spec.positions, spec.head
    if how in ("rope", "rope_table"):
        cos, sin = cos_sin(b, size)
        return net.op("Add", net.op("Mul", x, cos), net.op("Mul", half_turned(b, x, size), sin))
    if how == "rope_partial":
        size //= 2
        turned, kept = net.slice(x, 0, size, 3), net.slice(x, size, 9223372036854775807, 3)
        cos, sin = cos_sin(b, size)
        turned = net.op(
            "Add", net.op("Mul", turned, cos), net.op("Mul", half_turned(b, turned, size), sin)
        )
        return net.concat(turned, kept, axis=-1)
    if how == "rope_pairs":
        return pairs(b, x)
    if how == "rope_op":
        cos, sin = b.op_tables()
        return net.op("RotaryEmbedding", x, cos, sin)
    return x


def pairs(b, x):
    """Neighbours are rotated together: [.., D/2, 2]."""
    net, d = b.net, b.spec.head
    if b.rope_tables is None:
        angle = angles(b, d)
        if b.batched_positions:
            angle = net.unsqueeze(angle, 1)
        b.rope_tables = [net.cast(net.op(f, angle), b.spec.dtype) for f in ("Cos", "Sin")]
    cos, sin = b.rope_tables
    even, odd = net.slice(x, 0, 9223372036854775807, 3, 2), net.slice(
        x, 1, 9223372036854775807, 3, 2
    )
    left = net.op("Sub", net.op("Mul", even, cos), net.op("Mul", odd, sin))
    right = net.op("Add", net.op("Mul", even, sin), net.op("Mul", odd, cos))
    both = net.concat(net.unsqueeze(left, 4), net.unsqueeze(right, 4), axis=4)
    return net.op("Reshape", both, net.op("Shape", x))


def learned(b):
    """[S,H] or [B,S,H] rows of a table; `learned2` skips its first two rows."""
    net, spec = b.net, b.spec
    table = net.table(net.rng.standard_normal((b.longest, spec.hidden)) * 0.5)
    at = b.positions
    if spec.positions == "learned2":
        at = net.op("Add", at, net.const(2, b.position_dtype))
    return net.op("Gather", table, at, axis=0)
