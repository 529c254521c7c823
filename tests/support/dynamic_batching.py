"""Models with KeyValueCache of OpenPPL's dynamic batching, built from the operator page, and a
reference in numpy."""
import dataclasses

import numpy as np
from onnx import TensorProto

from support.openppl import GROUP, HEADS, LAYERS, SIZE, SLOTS, VOCABULARY, WIDTH, Model

LETTERS = ("MLRND", "LMRND", "LRMND", "LRNMD")  # axes of the packed tensor, by cache_layout


@dataclasses.dataclass(frozen=True)
class Form:
    name: str
    layout: int = 0
    quantised: bool = False
    repeat: int = 2
    domain: str = "pmx.dynamic_batching"
    slots: object = SLOTS
    # The operands come from inputs of the host, or are computed from start_pos and the rows.
    computed: tuple = ()
    place: int = 0  # computed cachestarts
    flat: bool = False  # attention without an axis of sequences
    indices: tuple = tuple(range(LAYERS))
    later: int = 0  # added to start_pos in the second layer
    kept: bool = True  # computed kvstarts counts the rows that are kept
    sequences: int = 1
    mode: int = 0

    def packed(self, width, slots):
        sizes = {"M": slots, "L": LAYERS, "R": 2, "N": HEADS, "D": width}
        return [sizes[letter] for letter in LETTERS[self.layout]]

    def attributes(self, layer):
        found = {"num_layer": LAYERS, "layer_idx": self.indices[layer],
                 "cache_layout": self.layout, "num_repeat": self.repeat}
        if self.mode:
            found.update(cache_mode=self.mode, page_size=4)
        if self.quantised:
            found.update(quant_bit=8, quant_group=GROUP)
        return found


FORMS = (
    Form("float"),
    Form("float_computed", layout=1, domain="opmx.dynamic_batching",
         computed=("seqstarts", "kvstarts", "cachestarts")),
    Form("float_alike", layout=2, repeat=1, slots="max_tokens", computed=("cachestarts",)),
    Form("float_flat", layout=3, flat=True),
    Form("int8", quantised=True),
    Form("int8_heads_first", layout=3, quantised=True, repeat=3,
         domain="opmx.dynamic_batching"),
)


STARTS = ("seqstarts", "kvstarts", "cachestarts", "start_pos", "max_seqlen", "max_kvlen")


def starts_of(form):
    b = form.sequences
    places = [b, "pages"] if form.mode else [b]
    return dict(zip(STARTS, ([b + 1], [b + 1], places, [b], [], [])))


def tensors_of(form):
    kept = TensorProto.INT8 if form.quantised else TensorProto.FLOAT
    found = [("cache", kept, form.packed(SIZE, form.slots))]
    if form.quantised:
        found.append(("scale", TensorProto.FLOAT, form.packed(SIZE // GROUP, form.slots)))
    return found


class Decoder(Model):
    """A decoder: embeddings, layers with RoPE, logits of the last token of each sequence."""

    def __init__(self, form):
        super().__init__()
        self.form, self.heads = form, HEADS * form.repeat
        rng = np.random.default_rng(7)
        sizes = {"wq": (WIDTH, self.heads * SIZE), "wk": (WIDTH, HEADS * SIZE),
                 "wv": (WIDTH, HEADS * SIZE), "wo": (self.heads * SIZE, WIDTH)}
        named = {f"{name}{n}": size for n in range(LAYERS) for name, size in sizes.items()}
        named.update(embed=(VOCABULARY, WIDTH), logits_w=(WIDTH, VOCABULARY))
        for name, size in named.items():
            scale = 1.0 if name == "embed" else 0.3
            self.weights[name] = (scale * rng.standard_normal(size)).astype(np.float32)

    def places(self):
        c, form = self.constant, self.form
        self.op("Shape", ["ids"], "length")
        if "seqstarts" in form.computed:
            self.op("Concat", [c("zero_1", [0]), "length"], "seqstarts", axis=0)
        if "kvstarts" in form.computed:
            self.op("Add", ["start_pos", "length"], "end")
            self.op("Concat", [c("zero_1", [0]), "end" if form.kept else "length"], "kvstarts",
                    axis=0)
        if "cachestarts" in form.computed:
            c("cachestarts", [form.place])
        # The positions as a host of the operator provides them: of tokens from start_pos on, and of
        # all keys up to the end that kvstarts gives.
        self.op("Gather", ["kvstarts", c("one", 1)], "total")
        self.op("Squeeze", ["start_pos"], "start")
        self.mask_and_angles("start")

    def layer(self, n, x):
        c, form = self.constant, self.form

        def rows(name, heads):
            flat = self.op("MatMul", [x, f"w{name}{n}"], f"{name}_flat{n}")
            return self.op("Reshape", [flat, c(f"shape_{heads}", [0, heads, SIZE])], f"{name}{n}")

        def heads_of(rows, name, perm):
            if form.flat:
                return self.op("Transpose", [rows], f"{name}{n}", perm=perm)
            apart = self.op("Unsqueeze", [rows, c("axis_0", [0])], f"{name}_apart{n}")
            return self.op("Transpose", [apart], f"{name}{n}", perm=[0] + [p + 1 for p in perm])

        q, k, v = rows("q", self.heads), rows("k", HEADS), rows("v", HEADS)
        q, k = self.rotated(q, f"q{n}", 2), self.rotated(k, f"k{n}", 2)
        starts = list(STARTS)
        if n and form.later:
            starts[3] = self.op("Add", ["start_pos", c("later", [form.later])], "later_pos")
        tensors = [name for name, _, _ in tensors_of(form)]
        keys, values = self.op("KeyValueCache", [k, v, *starts, *tensors],
                               [f"keys{n}", f"values{n}"], form.domain, **form.attributes(n))
        q = heads_of(q, "q_heads", [1, 0, 2])
        keys, values = heads_of(keys, "keys_t", [1, 2, 0]), heads_of(values, "values_h", [1, 0, 2])
        scores = self.op("MatMul", [q, keys], f"scores{n}")
        scaled = self.op("Mul", [scores, c("factor", SIZE ** -0.5, np.float32)], f"scaled{n}")
        weights = self.op("Softmax", [self.op("Add", [scaled, "mask"], f"masked{n}")],
                          f"weights{n}", axis=-1)
        perm = [1, 0, 2] if form.flat else [0, 2, 1, 3]
        mixed = self.op("Transpose", [self.op("MatMul", [weights, values], f"mixed{n}")],
                        f"mixed_rows{n}", perm=perm)
        flat = self.op("Reshape", [mixed, c("flat", [-1, self.heads * SIZE])], f"flat{n}")
        return self.op("Add", [x, self.op("MatMul", [flat, f"wo{n}"], f"projected{n}")], f"x{n}")

    def model(self):
        c, form = self.constant, self.form
        self.places()
        x = self.op("Gather", ["embed", "ids"], "embedded")
        for n in range(LAYERS):
            x = self.layer(n, x)
        # The last token of each sequence.
        self.op("Gather", ["seqstarts", c("one_1", [1])], "ends")
        self.op("Sub", ["ends", c("one", 1)], "last")
        self.op("Gather", [x, "last"], "last_rows")
        self.op("MatMul", ["last_rows", "logits_w"], "last_logits")
        self.op("MatMul", [x, "logits_w"], "logits")
        starts = [(name, TensorProto.INT64, shape) for name, shape in starts_of(form).items()
                  if name not in form.computed]
        inputs = [("ids", TensorProto.INT64, ["length"]), *starts, *tensors_of(form)]
        outputs = [("logits", TensorProto.FLOAT, ["length", VOCABULARY]),
                   ("last_logits", TensorProto.FLOAT, [1, VOCABULARY])]
        return self.build(inputs, outputs, form.domain)


class Reference:
    """The operator as on its page, which writes into its operands, and the decoder in numpy."""

    def __init__(self, form, weights=None):
        self.form, self.weights = form, weights
        kept = np.int8 if form.quantised else np.float32
        self.cache = np.zeros(form.packed(SIZE, SLOTS), kept)
        self.scale = np.zeros(form.packed(SIZE // GROUP, SLOTS), np.float32)

    def part(self, tensor, layer, role):
        """Returns keys or values of a layer as a view [M, Nk, D] (scales: another last axis)."""
        letters = LETTERS[self.form.layout]
        return tensor.transpose([letters.index(x) for x in "LRMND"])[layer, role]

    def kept(self, layer, role, rows, slots, added):
        """Attends with the rows of one sequence, whose keys and values are in these slots."""
        cache, scale = (self.part(t, layer, role) for t in (self.cache, self.scale))
        new = slots[len(slots) - added:]
        if not self.form.quantised:
            cache[new] = rows
            found = cache[slots]
        else:
            groups = rows.reshape(*rows.shape[:-1], -1, GROUP)
            unit = np.abs(groups).max(-1, keepdims=True) / np.float32(127)
            unit = np.maximum(unit, np.float32(1e-5))
            cache[new] = np.rint(groups / unit).astype(np.int8).reshape(rows.shape)
            scale[new] = unit[..., 0]
            found = cache[slots] * np.repeat(scale[slots], GROUP, -1)
        return np.repeat(found, self.form.repeat, 1)

    def step(self, ids, start):
        w, length = self.weights, len(ids)
        at = np.arange(start, start + length)
        slots = np.arange(start + length)
        cos, sin = w["cos_table"][at][:, None], w["sin_table"][at][:, None]
        mask = np.where(slots <= at[:, None], 0, -np.inf)
        half = SIZE // 2
        turn = lambda r: r * cos + np.concatenate([-r[..., half:], r[..., :half]], -1) * sin
        x = w["embed"][ids]
        for n in range(LAYERS):
            q, k, v = ((x @ w[f"w{r}{n}"]).reshape(length, -1, SIZE) for r in "qkv")
            keys = self.kept(n, 0, turn(k).astype(np.float32), slots, length)
            values = self.kept(n, 1, v, slots, length)
            scores = np.einsum("shd,thd->hst", turn(q), keys) * SIZE ** -0.5 + mask
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            mixed = np.einsum("hst,thd->shd", weights, values)
            x = x + mixed.reshape(length, -1) @ w[f"wo{n}"]
        return x @ w["logits_w"]
