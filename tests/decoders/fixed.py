"""Caches of a fixed capacity; writes.py spells the scatters, blends.py all other updates."""

from decoders import blends, writes


class Fixed:
    """Whole buffers in, whole buffers out; `write` puts new rows at the host's position."""

    growing = False
    reads_prefix = False
    layouts = ("BNSD", "BNSD")
    write = None
    outputs_new = False

    def __init__(self, b):
        self.b, self.net, self.spec = b, b.net, b.spec
        self.inputs = {}

    def shape(self, layout, role):
        spec = self.spec
        size = spec.head if role == "key" else spec.value_head
        return [{"B": "B", "N": spec.kv_heads, "S": spec.capacity, "D": size}[x] for x in layout]

    def open(self, layer):
        for role, layout in zip(("key", "value"), self.layouts):
            dims = self.shape(layout, role)
            self.declare(layer, role, dims, layout.index("S"))

    def declare(self, layer, role, dims, axis):
        b, name = self.b, f"{role}_cache_{layer}"
        self.net.input(name, self.spec.dtype, [b.symbol(d, name) for d in dims])
        init = [
            (self.spec.batch or "B") if d == "B" else "M" if i == axis else d
            for i, d in enumerate(dims)
        ]
        entry = {
            "input": name,
            "output": f"{name}_out",
            "layer": layer,
            "role": role,
            "axis": axis,
            "init": init,
        }
        b.caches.append(entry | ({"update": "write"} if self.outputs_new else {}))
        self.inputs[layer, role] = name
        return name

    def to_layout(self, x, layout):
        perm = ["BNSD".index(c) for c in layout]
        return x if perm == [0, 1, 2, 3] else self.net.transpose(x, *perm)

    def update(self, layer, k, v):
        b, full = self.b, []
        for role, layout, new in zip(("key", "value"), self.layouts, (k, v)):
            name, new = self.inputs[layer, role], self.to_layout(new, layout)
            out = type(self).write(b, name, new, layout)
            shown, dims = out, self.shape(layout, role)
            if self.outputs_new:
                shown, dims[layout.index("S")] = new, "S"
            b.presents.append(
                (shown, f"{name}_out", self.spec.dtype, [b.symbol(d, name) for d in dims])
            )
            full.append(self.read(out, layout))
        return full[0], full[1], self.layouts

    def read(self, out, layout):
        if not self.reads_prefix:
            return out
        return self.net.slice(out, 0, self.b.T, layout.index("S"))


def kind(write, layout="BNSD", prefix=False, new=False):
    """A class of caches with one way to write."""
    members = {
        "write": staticmethod(write),
        "layouts": (layout, layout),
        "reads_prefix": prefix,
        "outputs_new": new,
    }
    return type("Fixed_" + write.__name__, (Fixed,), members)


class OneTensor(Fixed):
    """S15: keys and values in one buffer [B,2,M,N,D] per layer, written by one scatter."""

    def open(self, layer):
        s = self.spec
        self.declare(layer, "key_value", ["B", 2, s.capacity, s.kv_heads, s.head], 2)

    def update(self, layer, k, v):
        net, b, s = self.net, self.b, self.spec
        name = self.inputs[layer, "key_value"]
        new = net.concat(*[net.unsqueeze(net.transpose(x, 0, 2, 1, 3), 1) for x in (k, v)], axis=1)
        moved = net.transpose(name, 2, 0, 1, 3, 4)
        index = net.unsqueeze(net.cast(net.cast(b.q(), "int32"), "int64"), 1)
        out = net.op("ScatterND", moved, index, net.transpose(new, 2, 0, 1, 3, 4))
        out = net.transpose(out, 1, 2, 0, 3, 4)
        dims = ["B", 2, s.capacity, s.kv_heads, s.head]
        b.presents.append((out, f"{name}_out", s.dtype, [b.symbol(d, name) for d in dims]))
        picked = [net.op("Gather", out, net.int0(i), axis=1) for i in (0, 1)]
        return picked[0], picked[1], ("BSND", "BSND")


class OneForAll(Fixed):
    """One buffer [L,2,B,N,M,D] for all layers, each part written by a slice of its own."""

    def open(self, layer):
        if layer == 0:
            s = self.spec
            self.declare(0, "key_value", [s.layers, 2, "B", s.kv_heads, s.capacity, s.head], 4)
            self.parts = []

    def update(self, layer, k, v):
        net, b, s = self.net, self.b, self.spec
        name = self.inputs[0, "key_value"]
        full = []
        for i, new in enumerate((k, v)):
            old = net.op(
                "Gather", net.op("Gather", name, net.int0(layer), axis=0), net.int0(i), axis=0
            )
            full.append(writes.put_first(b, old, new, "BNSD"))
        self.parts.append(
            net.unsqueeze(net.concat(*[net.unsqueeze(x, 0) for x in full], axis=0), 0)
        )
        if layer == s.layers - 1:
            dims = [s.layers, 2, "B", s.kv_heads, s.capacity, s.head]
            whole = net.concat(*self.parts, axis=0) if len(self.parts) > 1 else self.parts[0]
            b.presents.append((whole, f"{name}_out", s.dtype, [b.symbol(d, name) for d in dims]))
        return full[0], full[1], ("BNSD", "BNSD")


class Merged(Fixed):
    """S16: heads and head size on one axis, [1,M,N*D], batch one."""

    def open(self, layer):
        for role in ("key", "value"):
            self.declare(
                layer, role, [1, self.spec.capacity, self.spec.kv_heads * self.spec.head], 1
            )

    def update(self, layer, k, v):
        net, b, s, full = self.net, self.b, self.spec, []
        size = s.kv_heads * s.head
        slots = net.op(
            "Slice", net.const(range(s.capacity), "int64"), net.ints(0), b.S, net.ints(0)
        )
        at = net.unsqueeze(net.op("Add", slots, b.scalar_start()), -1 if s.opset >= 13 else 1)
        for role, new in (("key", k), ("value", v)):
            name = self.inputs[layer, role]
            rows = net.squeeze(net.reshape_to(net.transpose(new, 0, 2, 1, 3), 1, b.S, size), 0)
            out = net.unsqueeze(net.op("ScatterND", net.squeeze(name, 0), at, rows), 0)
            b.presents.append((out, f"{name}_out", s.dtype, [1, s.capacity, size]))
            full.append(net.reshape(out, 1, s.capacity, s.kv_heads, s.head))
        return full[0], full[1], ("BSND", "BSND")


class Paged(Fixed):
    """Blocks of slots, found through a table: a scatter that is no TensorScatter."""

    block = 4

    def open(self, layer):
        s = self.spec
        for role in ("key", "value"):
            self.declare(layer, role, [s.capacity // self.block, self.block, s.kv_heads, s.head], 0)
            self.b.caches[-1]["init"] = [s.capacity // self.block, self.block, s.kv_heads, s.head]

    def update(self, layer, k, v):
        net, b, s, full = self.net, self.b, self.spec, []
        blocks, size = s.capacity // self.block, self.block
        order = [(i * 5 + 2) % blocks for i in range(blocks)]
        table = net.table(order, "int64")
        every = net.const([t * size + i for t in order for i in range(size)], "int64")
        for role, new in (("key", k), ("value", v)):
            name = self.inputs[layer, role]
            flat = net.reshape(name, s.capacity, s.kv_heads, s.head)
            at = b.q()
            block = net.op("Gather", table, net.op("Div", at, net.int0(size)), axis=0)
            at = net.op(
                "Add", net.op("Mul", block, net.int0(size)), net.op("Mod", at, net.int0(size))
            )
            rows = net.squeeze(net.transpose(new, 0, 2, 1, 3), 0)
            out = net.op("ScatterND", flat, net.unsqueeze(at, 1), rows)
            dims = [blocks, size, s.kv_heads, s.head]
            b.presents.append((net.reshape(out, *dims), f"{name}_out", s.dtype, dims))
            full.append(net.unsqueeze(net.op("Gather", out, every, axis=0), 0))
        return full[0], full[1], ("BSND", "BSND")


class LatentFixed(Fixed):
    """A latent and a rotary part per layer, [B,1,M,r], from which keys and values are rebuilt."""

    sizes = (12, 4)

    def open(self, layer):
        for role, size in zip(("key", "value"), self.sizes):
            self.declare(layer, role, ["B", 1, self.spec.capacity, size], 2)

    def update(self, layer, k, v):
        net, b, s, full = self.net, self.b, self.spec, []
        flat = net.reshape_to(net.transpose(k, 0, 2, 1, 3), b.B, b.S, s.kv_heads * s.head)
        for role, size in zip(("key", "value"), self.sizes):
            name = self.inputs[layer, role]
            new = net.unsqueeze(net.op("MatMul", flat, net.weight(s.kv_heads * s.head, size)), 1)
            out = writes.put_first(b, name, new, "BNSD")
            b.presents.append(
                (
                    out,
                    f"{name}_out",
                    s.dtype,
                    [b.symbol(d, name) for d in ("B", 1, s.capacity, size)],
                )
            )
            full.append(net.squeeze(out, 1))
        both = net.concat(*full, axis=-1)
        k, v = [
            net.transpose(
                net.reshape_to(
                    net.op("MatMul", both, net.weight(sum(self.sizes), s.kv_heads * s.head)),
                    b.B,
                    s.capacity,
                    s.kv_heads,
                    s.head,
                ),
                0,
                2,
                1,
                3,
            )
            for _ in range(2)
        ]
        return k, v, ("BNSD", "BNSD")


class GatheredBack(Fixed):
    """S12: a scatter inside a function; what attention reads is gathered, invalid rows zeroed."""

    def update(self, layer, k, v):
        net, b, s, full = self.net, self.b, self.spec, []
        writes.add_functions(b)
        limit = net.reduce("ReduceMax", b.q(), 1)
        for role, new in (("key", k), ("value", v)):
            name = self.inputs[layer, role]
            out = net.op("CtxScatter", name, b.q(), new, domain=writes.CTX)
            b.presents.append(
                (out, f"{name}_out", s.dtype, [b.symbol(d, name) for d in self.shape("BNSD", role)])
            )
            slots = net.unsqueeze(net.const(range(s.capacity), "int64"), 0)
            bad = net.op("Greater", slots, limit)
            index = net.op("Where", bad, net.int0(0), slots)
            index = net.expand(
                net.unsqueeze(net.unsqueeze(index, 1), 3), b.B, s.kv_heads, s.capacity, 1
            )
            rows = net.op("GatherND", out, index, batch_dims=2)
            if role == "value":
                hidden = net.unsqueeze(net.unsqueeze(bad, 1), 3)
                rows = net.op("Where", hidden, net.const(0), rows)
            full.append(rows)
        return full[0], full[1], ("BNSD", "BNSD")


FIXED = {
    "S1": kind(writes.s1),
    "S2": kind(writes.s1, "BSND"),
    "S3": kind(writes.s3),
    "S4": kind(writes.s3, "BSND"),
    "S5": kind(writes.s5),
    "S5_bsnd": kind(writes.s5, "BSND"),
    "S6": kind(writes.s6, "BSND"),
    "S7": kind(writes.s7),
    "S8": kind(writes.s8),
    "S9": kind(writes.s9),
    "S9_bsnd": kind(writes.s9, "BSND"),
    "S9_add": kind(writes.s9_add),
    "S9_expand": kind(writes.s9_expand),
    "S10": kind(writes.s10),
    "S10_bsnd": kind(writes.s10, "BSND"),
    "S11": kind(writes.s11, new=True),
    "S11_whole": kind(writes.s11),
    "S12": GatheredBack,
    "S12_plain": kind(writes.s12),
    "S13": kind(writes.s13),
    "S14": kind(writes.s14),
    "S15": OneTensor,
    "S16": Merged,
    "S17": kind(writes.s17),
    "S17_bsnd": kind(writes.s17, "BSND"),
    "flat_rows": kind(writes.flat_rows),
    "one_for_all": OneForAll,
    "latent_fixed": LatentFixed,
    "paged": Paged,
    "R1": kind(blends.r1),
    "R2": kind(blends.r2),
    "R3": kind(blends.r3),
    "R4": kind(blends.r4),
    "R4_bsnd": kind(blends.r4, "BSND"),
    "R5": kind(blends.r5),
    "R5_bsnd": kind(blends.r5, "BSND"),
    "R6": kind(blends.r6),
    "R6_equal": kind(blends.r6_equal),
    "R7": kind(blends.r7),
    "R8": kind(writes.s5, prefix=True),
    "R8_bsnd": kind(writes.s5, "BSND", prefix=True),
    "S3_prefix": kind(writes.s3, prefix=True),
    "O8": kind(writes.tensor_scatter),
    "O8_circular": kind(writes.tensor_scatter_circular),
    "miss_reduction": kind(writes.miss_reduction),
    "miss_stride": kind(writes.miss_stride),
    "miss_reversed_slots": kind(writes.miss_reversed_slots),
    "miss_offset_value": kind(writes.miss_head_shift),
    "miss_decayed_buffer": kind(writes.miss_decayed),
    "miss_second_write": kind(writes.miss_second_write),
    "miss_negative": kind(writes.miss_negative),
}
