"""Caches that grow in other shapes: heads folded, packed, stacked, quantised, latent, shared."""

import numpy as np

from decoders.growing import (
    Beam,
    Decayed,
    Growing,
    KeyTransposed,
    OnlyNew,
    OnlyNewTransposed,
    Padded,
    Plain,
    Reversed,
    SequenceFirst,
    SequenceSecond,
    Window,
)


class Folded(Growing):
    """C5: Bloom before 4.44: heads folded into the batch, keys transposed."""

    def open(self, layer):
        n, d = self.spec.kv_heads, self.spec.head
        for role, shape, axis in (
            ("key", ["BN", d, "P"], 2),
            ("value", ["BN", "P", self.spec.value_head], 1),
        ):
            self.declare(layer, role, shape, axis)
            self.b.caches[-1]["init"][0] = n * 2  # recorded with a batch of two

    def update(self, layer, k, v):
        net, spec, b = self.net, self.spec, self.b
        n, d = spec.kv_heads, spec.head
        key = net.reshape_to(net.transpose(k, 0, 1, 3, 2), -1, d, b.S)
        value = net.reshape_to(v, -1, b.S, spec.value_head)
        key = net.concat(self.inputs[layer, "key"][0], key, axis=2)
        value = net.concat(self.inputs[layer, "value"][0], value, axis=1)
        self.present(key, layer, "key", ["BN", d, "P"])
        self.present(value, layer, "value", ["BN", "P", spec.value_head])
        width = net.dim(key, 2, spec.shape_style)
        return (
            net.reshape_to(key, b.B, n, d, width),
            net.reshape_to(value, b.B, n, width, spec.value_head),
            ("BNDS", "BNSD"),
        )


class Packed(Growing):
    """C6: keys and values side by side on the last axis, [B,P,2D] or [B,Nk,P,2D]."""

    heads = True

    def open(self, layer):
        d = self.spec.head + self.spec.value_head
        shape = ["B", self.spec.kv_heads, "P", d] if self.heads else ["B", "P", d]
        self.declare(layer, "key_value", shape, 2 if self.heads else 1)

    def update(self, layer, k, v):
        net, spec = self.net, self.spec
        past, axis = self.inputs[layer, "key_value"]
        new = net.concat(k, v, axis=3)
        if not self.heads:
            new = net.squeeze(new, 1)
        full = net.concat(past, new, axis=-2)
        d = spec.head + spec.value_head
        self.present(
            full, layer, "key_value", ["B", spec.kv_heads, "P", d] if self.heads else ["B", "P", d]
        )
        k, v = net.split(full, [spec.head, spec.value_head], -1)
        if not self.heads:
            k, v = net.unsqueeze(k, 1), net.unsqueeze(v, 1)
        return k, v, ("BNSD", "BNSD")


class PackedOne(Packed):
    heads = False


class Stacked(Growing):
    """C7: [2,B,N,P,D] per layer; picked by Gather, Split and Squeeze, or Slice and Squeeze."""

    pick = "gather"

    def open(self, layer):
        self.declare(layer, "key_value", [2, "B", self.spec.kv_heads, "P", self.spec.head], 3)

    def halves(self, past):
        net = self.net
        if self.pick == "gather":
            return [net.op("Gather", past, net.int0(i), axis=0) for i in (0, 1)]
        if self.pick == "split":
            return [net.squeeze(x, 0) for x in net.split(past, [1, 1], 0)]
        return [net.squeeze(net.slice(past, i, i + 1, 0), 0) for i in (0, 1)]

    def update(self, layer, k, v):
        net = self.net
        old = self.halves(self.inputs[layer, "key_value"][0])
        full = [net.concat(p, n, axis=-2) for p, n in zip(old, (k, v))]
        both = net.concat(*[net.unsqueeze(x, 0) for x in full], axis=0)
        self.present(both, layer, "key_value", [2, "B", self.spec.kv_heads, "P", self.spec.head])
        return full[0], full[1], ("BNSD", "BNSD")


class StackedSplit(Stacked):
    pick = "split"


class StackedSlice(Stacked):
    pick = "slice"


class StackedWhole(Stacked):
    """New keys and values are stacked first, one Concat appends both."""

    def update(self, layer, k, v):
        net = self.net
        new = net.concat(net.unsqueeze(k, 0), net.unsqueeze(v, 0), axis=0)
        both = net.concat(self.inputs[layer, "key_value"][0], new, axis=3)
        self.present(both, layer, "key_value", [2, "B", self.spec.kv_heads, "P", self.spec.head])
        return *self.halves(both), ("BNSD", "BNSD")


class AllLayers(Growing):
    """C8: one tensor for all layers, [L,2,B,P,N,D] or [L,2,B,N,P,D] or [2L,B,N,P,D]."""

    form = "BSND"

    def shape(self):
        spec = self.spec
        inner = ["B", "P", spec.kv_heads] if self.form == "BSND" else ["B", spec.kv_heads, "P"]
        outer = [2 * spec.layers] if self.form == "flat" else [spec.layers, 2]
        return [*outer, *inner, spec.head]

    def open(self, layer):
        if layer == 0:
            shape = self.shape()
            past = self.declare(0, "key_value", shape, shape.index("P"))
            self.b.caches[-1]["output"] = "presents"
            self.rename(past)
            self.fresh = []

    def rename(self, past):
        self.net.inputs[-1].name = "past_key_values"
        self.b.caches[-1]["input"] = "past_key_values"
        self.inputs[0, "key_value"] = ("past_key_values", self.inputs[0, "key_value"][1])

    def update(self, layer, k, v):
        net, spec = self.net, self.spec
        past = self.inputs[0, "key_value"][0]
        if self.form == "flat":
            old = [net.op("Gather", past, net.int0(2 * layer + i), axis=0) for i in (0, 1)]
        else:
            mine = net.op("Gather", past, net.int0(layer), axis=0)
            old = [net.op("Gather", mine, net.int0(i), axis=0) for i in (0, 1)]
        new = (
            (net.transpose(k, 0, 2, 1, 3), net.transpose(v, 0, 2, 1, 3))
            if self.form == "BSND"
            else (k, v)
        )
        full = [net.concat(p, n, axis=1 if self.form == "BSND" else 2) for p, n in zip(old, new)]
        rows = [net.unsqueeze(x, 0) for x in full]
        if self.form == "flat":
            self.fresh += rows
        else:
            self.fresh.append(net.unsqueeze(net.concat(*rows, axis=0), 0))
        if layer == spec.layers - 1:
            whole = net.concat(*self.fresh, axis=0)
            dims = [self.b.symbol("T" if d == "P" else d, "presents") for d in self.shape()]
            self.b.presents.append((whole, "presents", spec.dtype, dims))
        layout = "BSND" if self.form == "BSND" else "BNSD"
        return full[0], full[1], (layout, layout)


class AllLayersHeads(AllLayers):
    form = "BNSD"


class AllLayersFlat(AllLayers):
    form = "flat"


class Quantised(Plain):
    """C10: the cache holds bytes; quantised before the Concat, dequantised behind it."""

    def open(self, layer):
        for role in ("key", "value"):
            self.declare(layer, role, self.shape("BNSD", role), 2, dtype="uint8")

    def update(self, layer, k, v):
        net, full = self.net, []
        scale, zero = net.const(np.float32(0.03)), net.const(128, "uint8")
        for role, new in (("key", k), ("value", v)):
            past, axis = self.inputs[layer, role]
            whole = net.concat(past, net.op("QuantizeLinear", new, scale, zero), axis=axis)
            self.present(whole, layer, role, self.shape("BNSD", role), dtype="uint8")
            full.append(net.op("DequantizeLinear", whole, scale, zero))
        return full[0], full[1], ("BNSD", "BNSD")


class PerHead(Growing):
    """C12 with growing outputs: one cache per head."""

    def open(self, layer):
        for h in range(self.spec.kv_heads):
            for role, size in (("key", self.spec.head), ("value", self.spec.value_head)):
                past, present = f"past_{role}_{layer}_h{h}_in", f"past_{role}_{layer}_h{h}_out"
                b = self.b
                shape = ["B", 1, size, "P"] if role == "key" else ["B", 1, "P", size]
                self.net.input(past, self.spec.dtype, [b.symbol(d, past) for d in shape])
                axis = shape.index("P")
                b.caches.append(
                    {
                        "input": past,
                        "output": present,
                        "layer": layer,
                        "role": role,
                        "axis": axis,
                        "init": [
                            {"B": self.spec.batch or "B"}.get(d, d) if isinstance(d, str) else d
                            for d in shape
                        ],
                    }
                )
                self.inputs[layer, role, h] = (past, axis)

    def update(self, layer, k, v):
        net, spec, b, full = self.net, self.spec, self.b, []
        for role, new in (("key", k), ("value", v)):
            heads = []
            for h, piece in enumerate(net.split(new, [1] * spec.kv_heads, 1)):
                past, axis = self.inputs[layer, role, h]
                piece = net.transpose(piece, 0, 1, 3, 2) if role == "key" else piece
                whole = net.concat(past, piece, axis=axis)
                size = spec.head if role == "key" else spec.value_head
                shape = ["B", 1, size, "T"] if role == "key" else ["B", 1, "T", size]
                name = f"past_{role}_{layer}_h{h}_out"
                b.presents.append((whole, name, spec.dtype, [b.symbol(d, name) for d in shape]))
                heads.append(whole)
            full.append(net.concat(*heads, axis=1))
        return full[0], full[1], ("BNDS", "BNSD")


class Latent(Growing):
    """A compressed cache [B,P,r]: keys and values are rebuilt behind it."""

    rank = 12

    def open(self, layer):
        self.declare(layer, "key_value", ["B", "P", self.rank], 1)

    def update(self, layer, k, v):
        net, spec, b = self.net, self.spec, self.b
        size = spec.kv_heads * spec.head
        flat = net.reshape_to(net.transpose(k, 0, 2, 1, 3), b.B, b.S, size)
        latent = net.op("MatMul", flat, net.weight(size, self.rank))
        full = net.concat(self.inputs[layer, "key_value"][0], latent, axis=1)
        self.present(full, layer, "key_value", ["B", "P", self.rank])
        out = []
        for _ in range(2):
            wide = net.op("MatMul", full, net.weight(self.rank, size))
            out.append(
                net.transpose(
                    net.reshape_to(
                        wide, b.B, net.dim(full, 1, spec.shape_style), spec.kv_heads, spec.head
                    ),
                    0,
                    2,
                    1,
                    3,
                )
            )
        return out[0], out[1], ("BNSD", "BNSD")


class SharedLast(Plain):
    """Odd layers have no cache of their own and read the one of the layer before."""

    def open(self, layer):
        if layer % 2 == 0:
            super().open(layer)

    def update(self, layer, k, v):
        if layer % 2 == 0:
            self.last = super().update(layer, k, v)
        return self.last


class PastReadTwice(Plain):
    """Near miss: the old values are read again behind the append."""

    def update(self, layer, k, v):
        net = self.net
        full_k, full_v, layouts = super().update(layer, k, v)
        past = self.inputs[layer, "value"][0]
        extra = net.reduce("ReduceSum", past, 1, 2, 3, keepdims=0)
        self.b.extras.append(net.op("Mul", net.unsqueeze(extra, 1, 2), net.const(0.01)))
        return full_k, full_v, layouts


class KeysSummed(Plain):
    """Near miss: attention reads the keys plus a bias, not the cache itself."""

    def update(self, layer, k, v):
        full_k, full_v, layouts = super().update(layer, k, v)
        net = self.net
        return net.op("Tanh", full_k), full_v, layouts


class RopeBehind(Plain):
    """Near miss: keys are cached as they are and rotated when they are read."""

    rotates_later = True


class ValuesSwapped(Plain):
    """Names mislead: present.value holds the keys' Concat, present.key the values'."""

    def open(self, layer):
        super().open(layer)
        first, second = self.b.caches[-2:]
        first["output"], second["output"] = second["output"], first["output"]

    def present(self, value, layer, role, shape, dtype=None):
        super().present(value, layer, {"key": "value", "value": "key"}[role], shape, dtype)


class TwiceAppended(Plain):
    """Near miss: new rows are appended twice."""

    def append(self, past, new, axis):
        return self.net.concat(past, new, new, axis=axis)


GROWING = {
    "C1": Plain,
    "C2": Window,
    "C5": Folded,
    "C5b": KeyTransposed,
    "C6": Packed,
    "C6_one": PackedOne,
    "C7": Stacked,
    "C7_split": StackedSplit,
    "C7_slice": StackedSlice,
    "C7_whole": StackedWhole,
    "C8": AllLayers,
    "C8_heads": AllLayersHeads,
    "C8_flat": AllLayersFlat,
    "C9": SequenceSecond,
    "C9_first": SequenceFirst,
    "C10": Quantised,
    "C12": OnlyNewTransposed,
    "C12_plain": OnlyNew,
    "C12_heads": PerHead,
    "C14": Padded,
    "C15": Beam,
    "latent": Latent,
    "shared": SharedLast,
    "miss_reversed": Reversed,
    "miss_decayed": Decayed,
    "miss_past_read": PastReadTwice,
    "miss_keys_computed": KeysSummed,
    "miss_swapped": ValuesSwapped,
    "miss_twice": TwiceAppended,
}
