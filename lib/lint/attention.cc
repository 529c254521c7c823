#include <algorithm>

#include "fmt/format.h"
#include "lint/lint_nodes.h"
#include "lint/node_shapes.h"

namespace kvlift {
namespace {

constexpr size_t kQ = 0, kK = 1, kV = 2, kMask = 3, kPastK = 4, kPastV = 5, kNonpad = 6;

// Batch, heads, length and head size of Q, K or V, whether 4-D or 3-D with a head count. A member
// is absent if it is not a known number.
struct Operand {
  std::optional<int64_t> batch, heads, length, size;
};

class AttentionRules {
 public:
  AttentionRules(const Graph& graph, NodeId node, std::vector<Lint>* lints)
      : graph_(graph), node_(node), s_(graph, node), lints_(lints) {}

  void Run() {
    if (!s_.Has(kQ) || !s_.Has(kK) || !s_.Has(kV)) return;
    q_heads_ = HeadCount("q_num_heads");
    kv_heads_ = HeadCount("kv_num_heads");
    if (!RanksFit()) return;
    q_ = Read(kQ, q_heads_);
    k_ = Read(kK, kv_heads_);
    v_ = Read(kV, kv_heads_);
    Heads();
    Lengths();
    Past();
    Nonpad();
    Mask();
    Alignment();
  }

 private:
  void Add(std::string_view code, std::string text, Severity severity = Severity::kError) {
    AddLint(graph_, node_, code, std::move(text), lints_, severity);
  }

  std::optional<int64_t> HeadCount(std::string_view name) const {
    if (FindAttribute(graph_.node(node_), name) == nullptr) return std::nullopt;
    return IntAttribute(graph_.node(node_), name, 0);
  }

  bool RanksFit() {
    for (size_t input : {kQ, kK, kV}) {
      const int rank = s_.Rank(input);
      if (rank < 0) continue;
      const auto& heads = input == kQ ? q_heads_ : kv_heads_;
      if (rank == 3 && (!heads || *heads <= 0)) {
        Add("KV114", fmt::format("{} is 3-D: it needs {}", s_.Show(input),
                                 input == kQ ? "q_num_heads" : "kv_num_heads"));
        return false;
      }
      const auto hidden = rank == 3 ? s_.Extent(input, 2) : std::nullopt;
      if (hidden && *hidden % *heads != 0) {
        Add("KV114", fmt::format("{} cannot be split into {} heads", s_.Show(input), *heads));
        return false;
      }
      if (rank == 4 && Differ(heads, s_.Extent(input, 1))) {
        Add("KV114", fmt::format("{} has other heads than the {} of {}", s_.Show(input), *heads,
                                 input == kQ ? "q_num_heads" : "kv_num_heads"));
        return false;
      }
      if (rank != 3 && rank != 4) {
        Add("KV114", fmt::format("{} needs rank 3 or 4", s_.Show(input)));
        return false;
      }
    }
    return true;
  }

  Operand Read(size_t input, std::optional<int64_t> heads) const {
    Operand o;
    o.batch = s_.Extent(input, 0);
    if (s_.Rank(input) == 4) {
      o.heads = s_.Extent(input, 1);
      o.length = s_.Extent(input, 2);
      o.size = s_.Extent(input, 3);
    } else if (s_.Rank(input) == 3 && heads && *heads > 0) {
      o.heads = heads;
      o.length = s_.Extent(input, 1);
      if (const auto hidden = s_.Extent(input, 2)) o.size = *hidden / *heads;
    }
    return o;
  }

  static bool Differ(const std::optional<int64_t>& a, const std::optional<int64_t>& b) {
    return a && b && *a != *b;
  }

  void Heads() {
    if (Differ(q_.batch, k_.batch) || Differ(q_.batch, v_.batch) || Differ(k_.batch, v_.batch)) {
      Add("KV113",
          fmt::format("batches differ: {}, {}, {}", s_.Show(kQ), s_.Show(kK), s_.Show(kV)));
    }
    if (Differ(k_.heads, v_.heads)) {
      Add("KV110",
          fmt::format("{} and {} have different numbers of heads", s_.Show(kK), s_.Show(kV)));
    } else if (q_.heads && k_.heads && (*k_.heads <= 0 || *q_.heads % *k_.heads != 0)) {
      Add("KV110",
          fmt::format("{} query heads are no multiple of {} key heads", *q_.heads, *k_.heads));
    }
    if (Differ(q_.size, k_.size)) {
      Add("KV111",
          fmt::format("head sizes of queries ({}) and keys ({}) differ", *q_.size, *k_.size));
    }
  }

  void Lengths() {
    if (Differ(k_.length, v_.length)) {
      Add("KV112", fmt::format("{} keys, but {} values: {}, {}", *k_.length, *v_.length,
                               s_.Show(kK), s_.Show(kV)));
    }
  }

  bool HasOutput(size_t k) const {
    const auto outputs = graph_.outputs(node_);
    return k < outputs.size() && outputs[k] != kNoValue;
  }

  void Past() {
    const bool past = s_.Has(kPastK) || s_.Has(kPastV);
    const bool present = HasOutput(1) || HasOutput(2);
    if (s_.Has(kPastK) != s_.Has(kPastV)) {
      Add("KV118", "past_key and past_value go together");
    }
    if (s_.Has(kNonpad) && (past || present)) {
      Add("KV116", fmt::format("nonpad_kv_seqlen and {} exclude each other",
                               past ? "past_key/past_value" : "present_key/present_value"));
    } else if (present && !past) {
      Add("KV118", "present_key or present_value without a past: nothing is cached",
          Severity::kWarning);
    } else if (past && !present) {
      Add("KV118", "a past without present_key and present_value: the new keys are lost",
          Severity::kWarning);
    }
    PastFits(kPastK, k_);
    PastFits(kPastV, v_);
    if (Differ(s_.Extent(kPastK, 2), s_.Extent(kPastV, 2))) {
      Add("KV112", fmt::format("past keys and values differ in length: {}, {}", s_.Show(kPastK),
                               s_.Show(kPastV)));
    }
  }

  void PastFits(size_t input, const Operand& with) {
    if (!s_.Has(input) || s_.Rank(input) < 0) return;
    if (s_.Rank(input) != 4) {
      Add("KV118", fmt::format("{} needs rank 4", s_.Show(input)));
    } else if (Differ(s_.Extent(input, 0), with.batch) || Differ(s_.Extent(input, 1), with.heads) ||
               Differ(s_.Extent(input, 3), with.size)) {
      Add("KV118",
          fmt::format("{} does not fit {}", s_.Show(input), s_.Show(input == kPastK ? kK : kV)));
    }
  }

  void Nonpad() {
    if (!s_.Has(kNonpad)) return;
    const int32_t type = s_.ElemType(kNonpad);
    if (type != 0 && type != onnx::TensorProto::INT64) {
      Add("KV115", fmt::format("nonpad_kv_seqlen needs int64, found {}", ElementTypeName(type)));
    }
    if (s_.Rank(kNonpad) >= 0 && s_.Rank(kNonpad) != 1) {
      Add("KV115", fmt::format("nonpad_kv_seqlen needs rank 1, found {}", s_.Show(kNonpad)));
    } else if (Differ(s_.Extent(kNonpad, 0), q_.batch)) {
      Add("KV115", fmt::format("nonpad_kv_seqlen needs one length per sequence ({}), found {}",
                               *q_.batch, s_.Show(kNonpad)));
    }
  }

  void Mask() {
    if (!s_.Has(kMask) || s_.Rank(kMask) < 0) return;
    const int rank = s_.Rank(kMask);
    if (rank < 1 || rank > 4) {
      Add("KV117", fmt::format("the mask needs rank 1, 2, 3 or 4, found {}", s_.Show(kMask)));
      return;
    }
    const auto fits = [&](int from_end, const std::optional<int64_t>& want) {
      const auto have = s_.Extent(kMask, rank - from_end);
      return from_end > rank || !have || !want || *have == 1 || *have == *want;
    };
    std::optional<int64_t> keys = k_.length;
    if (keys && s_.Has(kPastK)) {
      const auto past = s_.Extent(kPastK, 2);
      keys = past ? std::optional<int64_t>(*keys + *past) : std::nullopt;
    }
    // From opset 24 on, a mask may have fewer columns than there are keys.
    const auto width = s_.Extent(kMask, rank - 1);
    const bool too_wide = width && keys && *width > *keys;
    const bool too_short = graph_.opset() < 24 && width && keys && *width < *keys && *width != 1;
    if (!fits(2, q_.length) || !fits(3, q_.heads) || !fits(4, q_.batch) || too_wide || too_short) {
      Add("KV117", fmt::format("the mask {} does not broadcast to batch, heads, queries, keys of "
                               "{} and {}",
                               s_.Show(kMask), s_.Show(kQ), s_.Show(kK)));
    }
    const int32_t type = s_.ElemType(kMask);
    if (type != 0 && type != onnx::TensorProto::BOOL && !IsFloatType(type)) {
      Add("KV117",
          fmt::format("the mask needs bool or a float type, found {}", ElementTypeName(type)));
    }
  }

  // Warns about is_causal where queries and keys differ in length: without a past or
  // nonpad_kv_seqlen, the causal mask is aligned top-left.
  void Alignment() {
    if (IntAttribute(graph_.node(node_), "is_causal", 0) == 0) return;
    if (s_.Has(kPastK) || s_.Has(kNonpad)) return;
    if (Differ(q_.length, k_.length)) {
      Add("KV119",
          fmt::format("is_causal with {} queries and {} keys lets query s see keys t <= s only",
                      *q_.length, *k_.length),
          Severity::kWarning);
    } else if (!(q_.length && k_.length) && KeysAreAppended()) {
      Add("KV119",
          fmt::format("is_causal with keys behind a past, {}, lets query s see keys t <= s only",
                      s_.Show(kK)),
          Severity::kWarning);
    }
  }

  // Returns true if the keys are a Concat of a graph input and other values along their sequence
  // axis.
  bool KeysAreAppended() const {
    const NodeId concat = graph_.producer(s_.Value(kK));
    if (concat == kNoNode || !graph_.Is(concat, "Concat") || s_.Rank(kK) < 0) return false;
    int64_t axis = IntAttribute(graph_.node(concat), "axis", 0);
    if (axis < 0) axis += s_.Rank(kK);
    const auto parts = graph_.inputs(concat);
    return parts.size() > 1 && axis == (s_.Rank(kK) == 4 ? 2 : 1) &&
           std::any_of(parts.begin(), parts.end(),
                       [&](ValueId v) { return v != kNoValue && graph_.is_graph_input(v); });
  }

  const Graph& graph_;
  NodeId node_;
  NodeShapes s_;
  std::vector<Lint>* lints_;
  std::optional<int64_t> q_heads_, kv_heads_;
  Operand q_, k_, v_;
};

}  // namespace

void LintAttention(const Graph& graph, NodeId node, std::vector<Lint>* lints) {
  AttentionRules(graph, node, lints).Run();
}

}  // namespace kvlift
