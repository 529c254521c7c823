"""Biases that depend on the distance of key and query: ALiBi in several spellings, T5's buckets."""

import numpy as np

from decoders.masks import column


def slopes(b, shape):
    n = b.spec.q_heads
    values = 2.0 ** (-4.0 * (np.arange(n) + 1) / n)
    return b.net.const(values.reshape(shape), b.spec.dtype)


def alibi_mask(b):
    """Bloom: places counted by the sum of the mask; [B,N,1,T]."""
    net, spec = b.net, b.spec
    mask = b.mask()
    places = net.op("Sub", net.op("CumSum", mask, net.int0(1)), net.const(1, spec.ids_dtype))
    places = net.cast(net.unsqueeze(net.op("Mul", places, mask), 1), spec.dtype)
    return net.unsqueeze(net.op("Mul", slopes(b, (1, -1, 1)), places), 2)


def alibi_keys(b):
    """MPT: places of the keys behind the last one, 1-T..0; [1,N,1,T]."""
    net = b.net
    places = net.range(net.op("Sub", net.ints(1), b.T), 1)
    return net.op(
        "Mul", net.reshape(net.cast(places, b.spec.dtype), 1, 1, 1, -1), slopes(b, (1, -1, 1, 1))
    )


def alibi_distance(b, absolute=False):
    net = b.net
    gap = net.op("Sub", b.keys(), column(b, b.q()))
    if absolute:
        gap = net.op("Neg", net.op("Abs", gap))
    return net.op("Mul", net.cast(gap, b.spec.dtype), slopes(b, (-1, 1, 1)))


def alibi_abs(b):
    return alibi_distance(b, absolute=True)


def alibi_table(b):
    """Baichuan: a constant [N,M,M] of which the last S rows of T are sliced."""
    net, m = b.net, b.longest
    n = b.spec.q_heads
    gap = np.arange(m)[None, :] - np.arange(m)[:, None]
    values = (2.0 ** (-4.0 * (np.arange(n) + 1) / n))[:, None, None] * np.minimum(gap, 0)
    rows = net.slice(net.table(values), b.P, b.T, 1)
    return net.unsqueeze(net.slice(rows, 0, b.T, 2), 0)


def buckets(b, gap):
    """T5's buckets of one direction: exact up to 4, logarithmic up to 16."""
    net, real = b.net, "float32"
    behind = net.op("Neg", net.op("Min", gap, net.op("Mul", gap, net.int0(0))))
    small = net.op("Less", behind, net.int0(4))
    ratio = net.op("Div", net.cast(behind, real), net.const(4.0, real))
    grown = net.op("Log", net.op("Max", ratio, net.const(0.1, real)))
    grown = net.op("Mul", net.op("Div", grown, net.const(np.log(4.0), real)), net.const(4.0, real))
    large = net.op("Add", net.cast(grown, "int64"), net.int0(4))
    large = net.op("Min", large, net.int0(7))
    return net.op("Where", small, behind, large)


def t5(b):
    net = b.net
    gap = net.op("Sub", b.keys(), column(b, b.q()))
    values = net.op("Gather", b.bias_table, buckets(b, gap), axis=0)
    if b.per_batch:  # [B,1,S,W,N]
        return net.squeeze(net.transpose(values, 0, 4, 2, 3, 1), 4)
    return net.unsqueeze(net.transpose(values, 2, 0, 1), 0)


def t5_square(b):
    """The whole T by T bias, its last S rows."""
    net = b.net
    place = net.range(0, b.T)
    gap = net.op("Sub", net.unsqueeze(place, 0), net.unsqueeze(place, 1))
    values = net.op("Gather", b.bias_table, buckets(b, gap), axis=0)
    values = net.unsqueeze(net.transpose(values, 2, 0, 1), 0)
    return net.slice(values, net.op("Neg", b.S), 9223372036854775807, 2)


BIASES = {
    "alibi_mask": alibi_mask,
    "alibi_keys": alibi_keys,
    "alibi_distance": alibi_distance,
    "alibi_abs": alibi_abs,
    "alibi_table": alibi_table,
    "t5": t5,
    "t5_square": t5_square,
}
