"""What a decoder is made of: each field is one dimension of choice, independent of the others."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Spec:
    name: str = "decoder"
    rows: tuple = ()  # ids of the pattern catalogue that this decoder covers
    # the architecture
    layers: int = 2
    hidden: int = 32
    q_heads: int = 4
    kv_heads: int = 2
    head: int = 8
    v_head: int = 0  # 0: as `head`
    vocab: int = 64
    norm: str = "rms"  # rms, layer, fused_rms
    positions: str = "rope"  # rope, rope_partial, rope_pairs, rope_op, learned, learned2, none
    qk_norm: str = ""  # "", before, after
    # caches and the host's interface
    cache: str = "C1"
    capacity: int = 24
    ids: str = "input_ids"  # or inputs_embeds
    position_input: str = ""  # growing: "", ids, ids3; fixed: pos_s, start, start1, start_b, pos_bs
    length_from: str = "past"  # past, past_value, present, mask
    names: str = "optimum"  # optimum, plain, modelopt, genai, opaque
    symbols: str = "shared"  # shared, independent, formula
    batch: int = 0  # 0: symbolic
    tokens: int = 0  # 0: symbolic
    # the mask: one per layer, repeated
    mask: tuple = ("M3",)
    mask_input: bool = True
    window: int = 6
    low: str = "min"  # min, inf, ten_thousand: what hides a key
    bias: str = ""  # "", alibi_mask, alibi_keys, alibi_distance, alibi_table, t5, t5_square
    # the attention
    scale: str = "after_mul"
    qk: str = "transpose"
    repeat: str = "expand"
    softcap: float = 0.0
    sinks: bool = False
    nan_guard: bool = False
    softmax_cast: bool = False
    dropout: bool = False
    cross: str = ""  # "", inputs, present: attention over an encoder's keys and values
    # the file
    opset: int = 17
    dtype: str = "float32"
    ids_dtype: str = "int64"
    constants: str = "initializer"
    shape_style: str = "gather"
    noise: tuple = ()  # identity, casts, order, names, infos, infer, merge, dead
    seed: int = 0
    steps: tuple = (5, 1, 1, 3, 1)
    # what is right
    expect: str = "convert"
    why: str = "a cache with standard masks"
    exporter: str = "onnx.helper, in the idiom of an exporter"
    family: str = "llama"
    features: tuple = ()  # flat, local, rotary, packed (GroupQueryAttention); raw_mask (O4); moe
    recorded_batch: int = 2
    optimise: str = ""  # basic, extended: what ONNX Runtime writes after optimising
    corpus: bool = True  # may outputs be judged by their dependence on each cached row?
    check: bool = True  # does ONNX's checker know all operators?

    @property
    def value_head(self):
        return self.v_head or self.head

    def but(self, **changes):
        return replace(self, **changes)
