"""Caches that grow with every step: one Concat each for keys and values, in many layouts."""

from decoders.net import INT_MAX


def name_pair(spec, layer, role):
    """Input and output name of one cache tensor."""
    if spec.names == "plain":
        return f"past_{role}_{layer}", f"present_{role}_{layer}"
    if spec.names == "modelopt":
        return f"past_key_values.{layer}.{role}", f"present_key_values.{layer}.{role}"
    if spec.names == "winml":
        return f"past_{layer}_{role}", f"present_{layer}_{role}"
    if spec.names == "opaque":
        mark = {"key": "a", "value": "b", "key_value": "c"}[role]
        return f"s{layer * 7 + 3}{mark}", f"t{layer * 5 + 11}{mark}"
    return f"past_key_values.{layer}.{role}", f"present.{layer}.{role}"


class Growing:
    """Past and present of any length; P is read from the shape of a past."""

    growing = True
    reads_prefix = True
    update_kind = "full"

    def __init__(self, b):
        self.b, self.net, self.spec = b, b.net, b.spec
        self.inputs = {}

    def declare(self, layer, role, shape, axis, dtype=None, update=None):
        """shape: 'B', 'P' and numbers; returns the input."""
        b, spec = self.b, self.spec
        past, present = name_pair(spec, layer, role)
        dims = [b.symbol(d, f"{past}") for d in shape]
        self.net.input(past, dtype or spec.dtype, dims)
        init = [{"B": spec.batch or "B"}.get(d, d) if not isinstance(d, int) else d for d in shape]
        b.caches.append(
            {
                "input": past,
                "output": present,
                "layer": layer,
                "role": role,
                "axis": axis,
                "init": init,
            }
            | ({"update": update} if update else {})
        )
        self.inputs[layer, role] = (past, axis)
        return past

    def present(self, value, layer, role, shape, dtype=None):
        b, spec = self.b, self.spec
        _, name = name_pair(spec, layer, role)
        dims = [b.symbol({"P": "T"}.get(d, d) if isinstance(d, str) else d, name) for d in shape]
        b.presents.append((value, name, dtype or spec.dtype, dims))

    def length(self):
        """P as [1], from the shape of some past."""
        keys = list(self.inputs)
        pick = keys[min(1, len(keys) - 1)] if self.spec.length_from == "past_value" else keys[0]
        past, axis = self.inputs[pick]
        return self.net.dim(past, axis, self.spec.shape_style)


class Plain(Growing):
    """C1 and its kin: Concat(past, new) for keys and for values, on the sequence axis."""

    layouts = ("BNSD", "BNSD")
    axis_style = "negative"

    def shape(self, layout, role):
        spec = self.spec
        size = spec.head if role == "key" else spec.value_head
        return [{"B": "B", "N": spec.kv_heads, "S": "P", "D": size}[x] for x in layout]

    def open(self, layer):
        for role, layout in zip(("key", "value"), self.layouts):
            self.declare(layer, role, self.shape(layout, role), layout.index("S"))

    def to_layout(self, x, layout):
        perm = ["BNSD".index(c) for c in layout]
        return x if perm == [0, 1, 2, 3] else self.net.transpose(x, *perm)

    def append(self, past, new, axis):
        rank = 4
        style = axis - rank if self.axis_style == "negative" else axis
        return self.net.concat(past, new, axis=style)

    def update(self, layer, k, v):
        full = []
        for role, layout, new in zip(("key", "value"), self.layouts, (k, v)):
            past, axis = self.inputs[layer, role]
            full.append(self.append(past, self.to_layout(new, layout), axis))
            self.present(self.shown(full[-1], layer, axis), layer, role, self.shape(layout, role))
        return full[0], full[1], self.layouts

    def shown(self, full, layer, axis):
        return full


class SequenceSecond(Plain):
    layouts = ("BSND", "BSND")
    axis_style = "positive"


class SequenceFirst(Plain):
    layouts = ("SBND", "SBND")
    axis_style = "positive"


class KeyTransposed(Plain):
    layouts = ("BNDS", "BNSD")
    axis_style = "positive"


class Window(Plain):
    """C2: attention reads the whole Concat, present keeps the last W-1 rows of sliding layers."""

    def windowed(self, layer):
        return self.spec.mask[layer % len(self.spec.mask)] == "kept_window"

    def shown(self, full, layer, axis):
        if not self.windowed(layer):
            return full
        return self.net.slice(full, -(self.spec.window - 1), INT_MAX, axis)

    def declare(self, layer, role, shape, axis, dtype=None, update=None):
        self.b.prefix = "window_" if self.windowed(layer) else ""
        past = super().declare(layer, role, shape, axis, dtype, update)
        self.b.prefix = ""
        return past

    def length(self):
        """From a layer that keeps everything; else from the positions."""
        for (layer, role), (past, axis) in self.inputs.items():
            if not self.windowed(layer):
                return self.net.dim(past, axis, self.spec.shape_style)
        return self.b.length_by_position()


class Beam(Plain):
    """C15: the past is reordered by a beam index first."""

    def append(self, past, new, axis):
        index = self.b.host("beam_idx", "beam")
        return super().append(self.net.op("Gather", past, index, axis=0), new, axis)


class Reversed(Plain):
    """Near miss: new tokens in front."""

    def append(self, past, new, axis):
        return super().append(new, past, axis)


class Decayed(Plain):
    """Near miss: the past is scaled before it is kept."""

    def append(self, past, new, axis):
        return super().append(self.net.op("Mul", past, self.net.const(0.5)), new, axis)


class Padded(Plain):
    """C14: a zero slot, filled by an addition."""

    def append(self, past, new, axis):
        net = self.net
        wide = net.op("Pad", past, net.ints(0, 0, 0, 0, 0, 0, 1, 0))
        behind = net.dim(past, axis, self.spec.shape_style)
        zeros = net.ints(0, 0)
        pads = net.concat(zeros, behind, net.ints(0, 0, 0, 0, 0), axis=0)
        return net.op("Add", wide, net.op("Pad", new, pads))


class OnlyNew(Plain):
    """C12: the outputs are the new rows alone; the host appends them."""

    def open(self, layer):
        for role, layout in zip(("key", "value"), self.layouts):
            self.declare(layer, role, self.shape(layout, role), layout.index("S"), update="append")

    def update(self, layer, k, v):
        full = []
        for role, layout, new in zip(("key", "value"), self.layouts, (k, v)):
            past, axis = self.inputs[layer, role]
            new = self.to_layout(new, layout)
            full.append(self.append(past, new, axis))
            shape = ["S" if d == "P" else d for d in self.shape(layout, role)]
            self.present(new, layer, role, shape)
        return full[0], full[1], self.layouts


class OnlyNewTransposed(OnlyNew):
    layouts = ("BNDS", "BNSD")
