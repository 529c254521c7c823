"""Near misses: what looks like a cache, an append or a read of one, and is not, or not quite."""

from decoders.attention import MS
from decoders.fixed import Fixed
from decoders.growing import Plain
from decoders.net import INT_MAX
from decoders.writes import put_first


class OldRead(Plain):
    """Attention reads the past alone: new tokens are seen one step late."""

    def update(self, layer, k, v):
        super().update(layer, k, v)
        rows = [
            self.net.concat(
                self.inputs[layer, r][0], self.net.op("Mul", x, self.net.const(0.0)), axis=2
            )
            for r, x in (("key", k), ("value", v))
        ]
        return rows[0], rows[1], ("BNSD", "BNSD")


class KeptScaled(Plain):
    """What is kept is not what is read: present is the Concat times two thirds."""

    def shown(self, full, layer, axis):
        return self.net.op("Mul", full, self.net.const(0.66))


class FirstDropped(Plain):
    """The oldest row is dropped at every step, whatever the length."""

    def shown(self, full, layer, axis):
        return self.net.slice(full, 1, INT_MAX, axis)


class ReadReversed(Plain):
    """Attention reads the rows in reverse order; the mask does not follow."""

    def update(self, layer, k, v):
        k, v, layouts = super().update(layer, k, v)
        return (
            self.net.slice(k, -1, -INT_MAX, 2, -1),
            self.net.slice(v, -1, -INT_MAX, 2, -1),
            layouts,
        )


class Turned(Plain):
    """Keys are cached without positions and rotated when they are read."""

    def update(self, layer, k, v):
        net, b, s = self.net, self.b, self.spec
        k, v, layouts = super().update(layer, k, v)
        angle = net.op(
            "MatMul",
            net.unsqueeze(net.cast(b.keys(), s.dtype), 1),
            net.const([[10000.0 ** (-2 * i / s.head) for i in range(s.head // 2)]]),
        )
        wave = net.concat(angle, angle, axis=-1)
        half = s.head // 2
        swapped = net.concat(
            net.op("Neg", net.slice(k, half, INT_MAX, 3)), net.slice(k, 0, half, 3), axis=-1
        )
        k = net.op(
            "Add",
            net.op("Mul", k, net.op("Cos", wave)),
            net.op("Mul", swapped, net.op("Sin", wave)),
        )
        return k, v, layouts


class BatchRolled(Plain):
    """The sequences of a batch change places at every step."""

    def append(self, past, new, axis):
        net = self.net
        rolled = net.concat(net.slice(past, 1, INT_MAX, 0), net.slice(past, 0, 1, 0), axis=0)
        return super().append(rolled, new, axis)


class TokensKept(Plain):
    """The ids of all tokens are kept, too: an append that no attention reads."""

    def open(self, layer):
        super().open(layer)
        if layer == 0:
            b = self.b
            self.net.input(
                "past_ids",
                self.spec.ids_dtype,
                [b.symbol("B", "past_ids"), b.symbol("P", "past_ids")],
            )
            b.caches.append(
                {
                    "input": "past_ids",
                    "output": "present_ids",
                    "layer": 0,
                    "role": "ids",
                    "axis": 1,
                    "init": ["B", "P"],
                }
            )

    def update(self, layer, k, v):
        b = self.b
        if layer == 0:
            whole = self.net.concat("past_ids", b.tokens, axis=1)
            b.presents.append(
                (
                    whole,
                    "present_ids",
                    self.spec.ids_dtype,
                    [b.symbol(d, "present_ids") for d in ("B", "T")],
                )
            )
        return super().update(layer, k, v)


class Counted(Plain):
    """The length itself is a state that is handed on."""

    def open(self, layer):
        super().open(layer)
        if layer == 0:
            self.net.input("length", "int64", [1])
            self.b.caches.append(
                {
                    "input": "length",
                    "output": "next_length",
                    "layer": 0,
                    "role": "length",
                    "axis": 0,
                    "init": [1],
                }
            )

    def length(self):
        return "length"

    def update(self, layer, k, v):
        if layer == 0:
            self.b.presents.append(
                (self.net.op("Add", "length", self.b.S), "next_length", "int64", [1])
            )
        return super().update(layer, k, v)


class OneBeat(Plain):
    """Both layers append to the past of the first."""

    def open(self, layer):
        if layer == 0:
            super().open(layer)

    def update(self, layer, k, v):
        self.inputs.update({(layer, r): self.inputs[0, r] for r in ("key", "value")})
        if layer == 0:
            return super().update(layer, k, v)
        full = [self.append(*[self.inputs[0, r][0], x, 2]) for r, x in (("key", k), ("value", v))]
        return full[0], full[1], self.layouts


class PromptTuned(Plain):
    """Learned rows in front of each prompt, by a Concat with a constant; the cache is as usual."""

    def update(self, layer, k, v):
        net, s = self.net, self.spec
        k, v, layouts = super().update(layer, k, v)
        learned = [net.table(net.rng.standard_normal((1, s.kv_heads, 2, s.head))) for _ in range(2)]
        wide = net.vector(self.b.B, 1, 1, 1)
        return (
            *[net.concat(net.op("Expand", x, wide), y, axis=2) for x, y in zip(learned, (k, v))],
            layouts,
        )


class ScatterUnread(Fixed):
    """The buffer is written, but attention reads it as it was before."""

    def update(self, layer, k, v):
        b = self.b
        for role, new in (("key", k), ("value", v)):
            name = self.inputs[layer, role]
            out = put_first(b, name, new, "BNSD")
            b.presents.append(
                (
                    out,
                    f"{name}_out",
                    self.spec.dtype,
                    [b.symbol(d, name) for d in self.shape("BNSD", role)],
                )
            )
        return self.inputs[layer, "key"], self.inputs[layer, "value"], self.layouts


class ScatterZero(Fixed):
    """New rows are written into zeros: what the buffer held is lost."""

    def update(self, layer, k, v):
        b, net, full = self.b, self.net, []
        for role, new in (("key", k), ("value", v)):
            name = self.inputs[layer, role]
            out = put_first(b, net.op("Mul", name, net.const(0.0)), new, "BNSD")
            b.presents.append(
                (
                    out,
                    f"{name}_out",
                    self.spec.dtype,
                    [b.symbol(d, name) for d in self.shape("BNSD", role)],
                )
            )
            full.append(out)
        return full[0], full[1], self.layouts


class TwoWrites(Fixed):
    """Half of each row at one position, half one slot further."""

    def update(self, layer, k, v):
        b, net, full = self.b, self.net, []
        for role, new in (("key", k), ("value", v)):
            name = self.inputs[layer, role]
            out = put_first(b, name, new, "BNSD")
            out = put_first(
                b,
                out,
                new,
                "BNSD",
                at=net.op("Mod", net.op("Add", b.q(), net.int0(1)), net.int0(self.spec.capacity)),
            )
            b.presents.append(
                (
                    out,
                    f"{name}_out",
                    self.spec.dtype,
                    [b.symbol(d, name) for d in self.shape("BNSD", role)],
                )
            )
            full.append(out)
        return full[0], full[1], self.layouts


class Window31(Fixed):
    """C12 of static pipelines: M past slots, the new token behind; only new rows come out."""

    outputs_new = True
    layouts = ("BNDS", "BNSD")

    def update(self, layer, k, v):
        b, full = self.b, []
        for role, layout, new in zip(("key", "value"), self.layouts, (k, v)):
            name, new = self.inputs[layer, role], self.to_layout(new, layout)
            dims = self.shape(layout, role)
            dims[layout.index("S")] = "S"
            b.presents.append(
                (new, f"{name}_out", self.spec.dtype, [b.symbol(d, name) for d in dims])
            )
            full.append(self.net.concat(name, new, axis=layout.index("S")))
        return full[0], full[1], self.layouts


class MaskedDecoder(Plain):
    """O5: an operator that attends for one token and keeps its own cache."""

    def attend(self, layer, q, k, v, steps):
        from decoders.fused import flat

        b, net, s = self.b, self.net, self.spec
        past = [self.inputs[layer, r][0] for r in ("key", "value")]
        new = [flat(b, x, s.q_heads, s.head) for x in (q, k, v)]
        out, pk, pv = net.op(
            "DecoderMaskedMultiHeadAttention",
            *new,
            "",
            "",
            *past,
            net.cast(b.P, "int32"),
            n=3,
            domain=MS,
            num_heads=s.q_heads,
        )
        for value, role in ((pk, "key"), (pv, "value")):
            self.present(value, layer, role, self.shape("BNSD", role))
        return out


class InPlace(Fixed):
    """O6: an operator that changes its cache input and has no output for it."""

    def attend(self, layer, q, k, v, steps):
        from decoders import attention

        b, net = self.b, self.net
        rows = net.op(
            "KeyValueCache",
            k,
            v,
            b.P,
            self.inputs[layer, "key"],
            n=2,
            domain="pmx",
            num_layer=2,
            layer_idx=layer,
        )
        for role in ("key", "value"):
            name = self.inputs[layer, role]
            b.presents.append(
                (net.op("Identity", name), f"{name}_out", self.spec.dtype, self.shape("BNSD", role))
            )
        return attention.attend(b, q, *rows, ("BNSD", "BNSD"), [], layer)


MISSES = {
    "miss_old_read": OldRead,
    "miss_kept_scaled": KeptScaled,
    "miss_first_dropped": FirstDropped,
    "miss_read_reversed": ReadReversed,
    "miss_turned_later": Turned,
    "miss_batch_rolled": BatchRolled,
    "tokens_kept": TokensKept,
    "length_kept": Counted,
    "miss_one_past_two_layers": OneBeat,
    "prompt_tuned": PromptTuned,
    "miss_scatter_unread": ScatterUnread,
    "miss_scatter_into_zeros": ScatterZero,
    "miss_two_slots": TwoWrites,
    "C12_window": Window31,
    "O5": MaskedDecoder,
    "O6": InPlace,
}
