#include "proof/graphs/operand_places.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "ir/operators/einsum_equation.h"
#include "ir/operators/operator_traits.h"
#include "proof/graphs/matrix_products.h"
#include "proof/lower/opset13.h"

namespace kvlift {
namespace {

using sym::Expr;

// Operators that compute each index of the first axis by itself, and the operands that have that
// axis. Attention is ONNX's: that of com.microsoft takes weights and a past with another first
// axis.
const absl::flat_hash_map<std::string_view, std::vector<int>>& RowOperands() {
  static const auto& kOperands = *new absl::flat_hash_map<std::string_view, std::vector<int>>{
      {"Attention", {0, 1, 2, 3, 4, 5, 6}},
      {"BatchNormalization", {0}},
      {"Conv", {0}},
      {"GroupNormalization", {0}},
      {"GroupQueryAttention", {0, 1, 2, 3, 4, 5, 9, 10}},
      {"InstanceNormalization", {0}},
      {"LRN", {0}},
      {"MultiHeadAttention", {0, 1, 2, 4, 5, 6, 7}}};
  return kOperands;
}

class PlaceReader {
 public:
  PlaceReader(sym::Forms& forms, NodeId node, int output)
      : forms_(forms),
        graph_(forms.graph()),
        pool_(forms.pool()),
        node_(node),
        output_(output),
        op_(graph_.node(node).op_type()),
        result_(forms.Of(graph_.outputs(node)[static_cast<size_t>(output)])) {}

  std::optional<std::vector<OperandPlace>> Run() {
    if (!result_.known_rank || IsTrainingNormalization(proto())) return std::nullopt;
    bool read = true;
    if (IsElementwise(graph_, node_)) {
      read = ReadAll([&](int k) { return Broadcast(k); });
    } else if (const auto product = ReadMatrixProduct(graph_, node_);
               product || Is({"MatMulInteger", "MatMulIntegerToFloat"})) {
      read = ReadMatrices(product.value_or(MatrixProduct{}));
    } else if (op_ == "QLinearMatMul") {
      read = ReadMatrices(MatrixProduct{}, 3);
    } else if (op_ == "Gemm" || op_ == "FusedGemm" || op_ == "QGemm") {
      read = ReadGemm(op_ == "QGemm" ? 3 : 1);
    } else if (op_ == "QLinearSoftmax") {
      const int64_t axis = IntAttribute(proto(), "axis", -1);
      const bool one = IntAttribute(proto(), "opset", 0) >= 13;  // else all axes from `axis` on
      read = one ? ReadAll([&](int k) { return k == 0 ? AlongOne(k, axis) : Whole(k, 0); })
                 : FromAxis(axis);
    } else if (absl::StartsWith(op_, "Reduce")) {
      read = ReadReduction();
    } else if (IsGlobalPool(proto())) {
      read = ReadPool();
    } else if (op_ == "ArgMax" || op_ == "ArgMin") {
      read = Reduced({IntAttribute(proto(), "axis", 0)});
    } else if (FlattensFromAxis(proto())) {
      read = FromAxis(IntAttribute(proto(), "axis", 1));
    } else if (Is({"Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "TopK"})) {
      read = AlongAxis(IntAttribute(proto(), "axis", -1));
    } else if (op_ == "Gather") {
      read = ReadLookup("axis", false);
    } else if (IsProductOfPackedWeights(op_)) {
      read = ReadAll([&](int k) { return k == 0 ? AlongOne(k, -1) : Whole(k, 0); });
    } else if (op_ == "GatedRMSNorm") {
      constexpr int kScale = 1, kGate = 2;
      read = ReadAll([&](int k) {
        return k == kScale ? Whole(k, 0) : k == kGate ? Broadcast(k) : AlongOne(k, -1);
      });
    } else if (Is({"LinearAttentionGate", "QLinearAdd", "QLinearLeakyRelu", "QLinearMul",
                   "QLinearSigmoid"})) {
      read = ReadAll([&](int k) { return Broadcast(k); });
    } else if (Is({"MoE", "QMoE"}) && proto().domain() == "com.microsoft") {
      read = ReadAll([&](int k) { return ReadOfTokens(k); });
    } else if (op_ == "GatherBlockQuantized") {
      read = ReadLookup("gather_axis", true);
    } else if (op_ == "Einsum" && proto().domain().empty()) {
      read = ReadEinsum();
    } else if (op_ == "CumSum") {
      const auto axis = forms_.Elements(Input(1));
      read = axis && axis->size() == 1 && axis->front()->kind() == sym::Kind::kInteger &&
             AlongAxis(axis->front()->value());
    } else if (Is({"QuantizeLinear", "DequantizeLinear"})) {
      read = ReadAll([&](int k) { return k == 0 ? Broadcast(k) : Scale(k); });
    } else if (Is({"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"})) {
      read = FromAxis(IntAttribute(proto(), "axis", -1));
    } else if (Is({"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})) {
      read = FromAxis(-1);
    } else if (op_ == "EmbedLayerNormalization") {
      read = output_ != 1 && ReadAll([&](int k) { return ReadEmbedded(k); });
    } else if (op_ == "GatherElements") {
      const int64_t axis = IntAttribute(proto(), "axis", 0);
      read = ReadAll([&](int k) { return k == 0 ? AlongOne(k, axis) : Broadcast(k); });
    } else if (op_ == "GatherND") {
      read = ReadLookupOfParts();
    } else if (op_ == "ScatterElements") {
      read = ReadAll([&](int k) { return AlongOne(k, IntAttribute(proto(), "axis", 0)); });
    } else if (op_ == "RotaryEmbedding" ||
               (op_ == "MRotaryEmbedding" && proto().domain() == "com.microsoft")) {
      read = ReadRotation();
    } else if (op_ == "Attention" && proto().domain() == "com.microsoft") {
      return std::nullopt;
    } else if (const auto rows = RowOperands().find(op_); rows != RowOperands().end()) {
      read = ReadAll([&](int k) { return Whole(k, IsRow(rows->second, k) ? 1 : 0); });
    } else {
      return std::nullopt;
    }
    if (!read) return std::nullopt;
    return std::move(places_);
  }

 private:
  bool Is(std::initializer_list<std::string_view> names) const {
    return std::find(names.begin(), names.end(), op_) != names.end();
  }

  const onnx::NodeProto& proto() const { return graph_.node(node_); }
  size_t rank() const { return result_.shape.size(); }

  ValueId Input(size_t k) const {
    const auto inputs = graph_.inputs(node_);
    return k < inputs.size() ? inputs[k] : kNoValue;
  }

  template <typename Read>
  bool ReadAll(const Read& read) {
    for (size_t k = 0; k < graph_.inputs(node_).size(); ++k) {
      if (Input(k) != kNoValue && !read(static_cast<int>(k))) return false;
    }
    return true;
  }

  // Adds an index that stands for all elements along an axis.
  Expr Taken(OperandPlace* place, Expr extent) {
    place->taken.push_back(extent);
    return pool_.Index(static_cast<int>(rank() + place->taken.size() - 1));
  }

  // The operand is broadcast: its axes are aligned with the last axes of the result.
  bool Broadcast(int k) {
    const sym::Form form = forms_.Of(Input(static_cast<size_t>(k)));
    if (!form.known_rank || form.shape.size() > rank()) return false;
    OperandPlace place{k, {}, {}};
    for (size_t axis = 0; axis < form.shape.size(); ++axis) {
      const int index = static_cast<int>(rank() - form.shape.size() + axis);
      place.at.push_back(form.shape[axis]->is_integer(1) ? pool_.Integer(0) : pool_.Index(index));
    }
    places_.push_back(std::move(place));
    return true;
  }

  // The operand is read at the result's first `kept` indices, and completely along its other axes.
  bool Whole(int k, size_t kept) {
    const sym::Form form = forms_.Of(Input(static_cast<size_t>(k)));
    if (!form.known_rank) return false;
    OperandPlace place{k, {}, {}};
    for (size_t axis = 0; axis < form.shape.size(); ++axis) {
      const bool one = form.shape[axis]->is_integer(1);
      place.at.push_back(axis >= kept ? Taken(&place, form.shape[axis])
                         : one        ? pool_.Integer(0)
                                      : pool_.Index(static_cast<int>(axis)));
    }
    places_.push_back(std::move(place));
    return true;
  }

  // Scales and zero points are one number, one per index of an axis, or one per block along an
  // axis.
  bool Scale(int k) {
    const sym::Form form = forms_.Of(Input(static_cast<size_t>(k)));
    if (!form.known_rank || form.shape.size() != rank()) return Whole(k, 0);
    OperandPlace place{k, {}, {}};
    for (size_t axis = 0; axis < rank(); ++axis) {
      const Expr extent = form.shape[axis];
      place.at.push_back(extent->is_integer(1)           ? pool_.Integer(0)
                         : extent == result_.shape[axis] ? pool_.Index(static_cast<int>(axis))
                                                         : Taken(&place, extent));
    }
    places_.push_back(std::move(place));
    return true;
  }

  // Returns true if the operand has a row for each index of the first axis.
  bool IsRow(absl::Span<const int> rows, int k) const {
    constexpr int kMask = 3, kPaddingMask = 4;
    const size_t own = forms_.Of(Input(static_cast<size_t>(k))).shape.size();
    // A mask with fewer axes than the scores is shared by all sequences.
    if (op_ == "Attention" && k == kMask) return own == 4;
    // The lengths of all sequences may stand one behind another on one axis.
    if (op_ == "MultiHeadAttention" && k == kPaddingMask && own < 2) return false;
    return std::find(rows.begin(), rows.end(), k) != rows.end();
  }

  // The operand is read at the result's indices, and completely along `axis`.
  bool AlongOne(int k, int64_t axis) {
    const sym::Form form = forms_.Of(Input(static_cast<size_t>(k)));
    if (!form.known_rank || form.shape.size() != rank()) return false;
    OperandPlace place{k, {}, {}};
    const auto along = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank()) : axis);
    for (size_t own = 0; own < rank(); ++own) {
      place.at.push_back(own == along ? Taken(&place, form.shape[own])
                                      : pool_.Index(static_cast<int>(own)));
    }
    places_.push_back(std::move(place));
    return true;
  }

  // Mixtures of experts compute each token by itself. The result is [B, S, H] or [B * S, H], as the
  // operand 0 is; router operands have a row for each token, [B * S, E].
  bool ReadOfTokens(int k) {
    constexpr int kTokens = 0, kRouter = 1, kRouterWeights = 14;
    if (k == kTokens) return AlongOne(k, -1);
    if (k != kRouter && k != kRouterWeights) return Whole(k, 0);
    const sym::Form form = forms_.Of(Input(static_cast<size_t>(k)));
    if (!form.known_rank || form.shape.size() != 2 || (rank() != 2 && rank() != 3)) return false;
    Expr token = pool_.Index(0);
    if (rank() == 3) token = pool_.Add(pool_.Mul(token, result_.shape[1]), pool_.Index(1));
    OperandPlace place{k, {}, {}};
    place.at = {token, Taken(&place, form.shape[1])};
    places_.push_back(std::move(place));
    return true;
  }

  // Returns the row of the tables that a RotaryEmbedding reads for a token, if it is one of sizes
  // and places alone; null if positions decide, which the tables are then read for completely.
  Expr RowOfTables(int positions, int token) {
    const ValueId operand = Input(static_cast<size_t>(positions));
    const sym::Form form = operand == kNoValue ? sym::Form() : forms_.Of(operand);
    if (!form.known_rank || form.shape.size() != 2) return nullptr;
    const Expr at[] = {form.shape[0]->is_integer(1) ? pool_.Integer(0) : pool_.Index(0),
                       form.shape[1]->is_integer(1) ? pool_.Integer(0) : pool_.Index(token)};
    const Expr row = forms_.At(operand, at, sym::Facts{});
    return row != nullptr && sym::LoadsOf(row).empty() ? row : nullptr;
  }

  // The rotated operand is [B, N, S, D] or [B, S, N * D], and is read along its last axis.
  // Positions are [B, S], or one for the first token in com.microsoft. Without positions tables are
  // [B, S, D / 2]; with them they are read completely. MRotaryEmbedding has positions [3, B, S].
  bool ReadRotation() {
    if (rank() < 3) return false;
    const bool streams = op_ == "MRotaryEmbedding";
    const int token = static_cast<int>(rank()) - (rank() == 4 ? 2 : 1) - (rank() == 3 ? 1 : 0);
    const int of_positions = proto().domain() == "com.microsoft" ? 1 : 3;
    const Expr row = streams ? nullptr : RowOfTables(of_positions, token);
    return ReadAll([&](int k) {
      if (k == 0) return Whole(k, rank() - 1);
      const sym::Form form = forms_.Of(Input(static_cast<size_t>(k)));
      const bool positions = k == of_positions;
      if (!form.known_rank) return false;
      const size_t own = form.shape.size();
      OperandPlace place{k, {}, {}};
      if (row != nullptr && positions) return true;
      if (row != nullptr && own == 2) {
        place.at = {row, Taken(&place, form.shape[1])};
        places_.push_back(std::move(place));
        return true;
      }
      if (positions && streams) {
        if (own != 3) return false;
        place.at = {Taken(&place, form.shape[0]), pool_.Index(0), pool_.Index(token)};
        places_.push_back(std::move(place));
        return true;
      }
      if (own != (positions ? 2u : 3u)) return Whole(k, 0);
      for (size_t axis = 0; axis < own; ++axis) {
        const bool one = form.shape[axis]->is_integer(1);
        place.at.push_back(axis == 2 ? Taken(&place, form.shape[axis])
                           : one     ? pool_.Integer(0)
                                     : pool_.Index(axis == 0 ? 0 : token));
      }
      places_.push_back(std::move(place));
      return true;
    });
  }

  // Input 0 is the left matrix and input `right` the right one.
  bool ReadMatrices(const MatrixProduct& product, int right = 1) {
    if (rank() < 2) return false;
    const int m = static_cast<int>(rank()) - 2;
    for (const int k : {0, right}) {
      const sym::Form form = forms_.Of(Input(static_cast<size_t>(k)));
      const size_t own = form.shape.size();
      if (!form.known_rank || own < 2 || own > rank()) return false;
      const bool turned = k == 0 ? product.left_transposed : product.right_transposed;
      OperandPlace place{k, {}, {}};
      for (size_t axis = 0; axis + 2 < own; ++axis) {
        const bool one = form.shape[axis]->is_integer(1);
        const int index = static_cast<int>(rank() - own + axis);
        place.at.push_back(one ? pool_.Integer(0) : pool_.Index(index));
      }
      // Products are summed along the last axis of the left operand and the last but one of the
      // right operand.
      const size_t summed = (k == 0) != turned ? own - 1 : own - 2;
      const Expr kept = pool_.Index(k == 0 ? m : m + 1);
      const Expr taken = Taken(&place, form.shape[summed]);
      place.at.push_back(summed == own - 1 ? kept : taken);
      place.at.push_back(summed == own - 1 ? taken : kept);
      places_.push_back(std::move(place));
    }
    // Scales and zero points of integer products are read completely.
    return ReadAll([&](int k) { return k == 0 || k == right || Whole(k, 0); });
  }

  // GatherND: the last axis of the indices holds an index for each axis of the table behind the
  // batch axes; the table is read completely along these axes.
  bool ReadLookupOfParts() {
    const sym::Form table = forms_.Of(Input(0)), which = forms_.Of(Input(1));
    if (!table.known_rank || !which.known_rank || which.shape.empty()) return false;
    const Expr width = which.shape.back();
    const auto batch = static_cast<size_t>(IntAttribute(proto(), "batch_dims", 0));
    if (width->kind() != sym::Kind::kInteger) return false;
    const size_t behind = batch + static_cast<size_t>(width->value()), own = table.shape.size();
    if (behind > own || own - behind > rank()) return false;
    OperandPlace rows{0, {}, {}}, places{1, {}, {}};
    for (size_t axis = 0; axis < own; ++axis) {
      const size_t index = axis < batch ? axis : rank() - (own - axis);
      const bool taken = axis >= batch && axis < behind;
      rows.at.push_back(taken ? Taken(&rows, table.shape[axis])
                              : pool_.Index(static_cast<int>(index)));
    }
    for (size_t axis = 0; axis + 1 < which.shape.size(); ++axis) {
      places.at.push_back(pool_.Index(static_cast<int>(axis)));
    }
    places.at.push_back(Taken(&places, width));
    places_.push_back(std::move(rows));
    places_.push_back(std::move(places));
    return true;
  }

  // Input 0 is the left matrix and input `right` the right one.
  bool ReadGemm(int right) {
    return ReadAll([&](int k) {
      if (k != 0 && k != right) return Broadcast(k);
      const sym::Form form = forms_.Of(Input(static_cast<size_t>(k)));
      if (!form.known_rank || form.shape.size() != 2) return false;
      const bool turned = IntAttribute(proto(), k == 0 ? "transA" : "transB", 0) != 0;
      const size_t summed = (k == 0) != turned ? 1 : 0;
      OperandPlace place{k, {}, {}};
      const Expr kept = pool_.Index(k == 0 ? 0 : 1), taken = Taken(&place, form.shape[summed]);
      place.at = summed == 1 ? std::vector<Expr>{kept, taken} : std::vector<Expr>{taken, kept};
      places_.push_back(std::move(place));
      return true;
    });
  }

  // Each operand is read at the result's index of each letter, and completely along the axes whose
  // letters the result lacks. Equations with a letter twice in a term are not read.
  bool ReadEinsum() {
    std::vector<size_t> ranks;
    for (ValueId input : graph_.inputs(node_)) {
      if (input == kNoValue || !forms_.Of(input).known_rank) return false;
      ranks.push_back(forms_.Of(input).shape.size());
    }
    const auto equation = ReadEinsumEquation(StringAttribute(proto(), "equation", ""), ranks);
    if (!equation || equation->result.size() != rank() || !equation->HasEachLabelOnce()) {
      return false;
    }
    const std::vector<std::string>& terms = equation->operands;
    const std::string& kept = equation->result;
    for (size_t k = 0; k < terms.size(); ++k) {
      const sym::Form form = forms_.Of(Input(k));
      OperandPlace place{static_cast<int>(k), {}, {}};
      for (size_t axis = 0; axis < form.shape.size(); ++axis) {
        const Expr extent = form.shape[axis];
        const size_t index = kept.find(terms[k][axis]);
        place.at.push_back(extent->is_integer(1)        ? pool_.Integer(0)
                           : index == std::string::npos ? Taken(&place, extent)
                                                        : pool_.Index(static_cast<int>(index)));
      }
      places_.push_back(std::move(place));
    }
    return true;
  }

  bool ReadReduction() {
    std::vector<int64_t> axes = IntsAttribute(proto(), "axes");
    if (Input(1) != kNoValue) {
      const auto elements = forms_.Elements(Input(1));
      if (!elements) return false;
      for (Expr e : *elements) {
        if (e->kind() != sym::Kind::kInteger) return false;
        axes.push_back(e->value());
      }
    }
    const sym::Form form = forms_.Of(Input(0));
    if (axes.empty() && IntAttribute(proto(), "noop_with_empty_axes", 0) == 0) {
      for (size_t k = 0; k < form.shape.size(); ++k) axes.push_back(static_cast<int64_t>(k));
    }
    return Reduced(std::move(axes));
  }

  bool ReadPool() {
    std::vector<int64_t> axes;
    for (size_t k = 2; k < forms_.Of(Input(0)).shape.size(); ++k) {
      axes.push_back(static_cast<int64_t>(k));
    }
    return Reduced(std::move(axes));
  }

  bool Reduced(std::vector<int64_t> axes) {
    const sym::Form form = forms_.Of(Input(0));
    if (!form.known_rank) return false;
    const auto own = static_cast<int64_t>(form.shape.size());
    for (int64_t& axis : axes) axis += axis < 0 ? own : 0;
    const bool keep = IntAttribute(proto(), "keepdims", 1) != 0;
    OperandPlace place{0, {}, {}};
    int next = 0;
    for (int64_t axis = 0; axis < own; ++axis) {
      const bool reduced = std::find(axes.begin(), axes.end(), axis) != axes.end();
      place.at.push_back(reduced ? Taken(&place, form.shape[static_cast<size_t>(axis)])
                                 : pool_.Index(next));
      if (!reduced || keep) ++next;
    }
    if (next != static_cast<int>(rank())) return false;
    places_.push_back(std::move(place));
    return true;
  }

  // EmbedLayerNormalization reads ids of words, segments and positions at the token's place, and
  // all of its tables and weights.
  bool ReadEmbedded(int k) {
    constexpr int kWords = 0, kSegments = 1, kMask = 7, kPositions = 8;
    if (k != kWords && k != kSegments && k != kMask && k != kPositions) return Whole(k, 0);
    const sym::Form form = forms_.Of(Input(static_cast<size_t>(k)));
    if (!form.known_rank || form.shape.size() != 2) return false;
    const bool shared = k == kPositions && form.shape[0]->is_integer(1);
    places_.push_back({k, {shared ? pool_.Integer(0) : pool_.Index(0), pool_.Index(1)}, {}});
    return true;
  }

  // Any row of the table may be read; the indices are read at the result's own place. A byte of a
  // packed table holds several numbers, so that the table, its scales and its zero points are read
  // completely.
  bool ReadLookup(const char* axis_name, bool packed) {
    const sym::Form table = forms_.Of(Input(0)), rows = forms_.Of(Input(1));
    if (!table.known_rank || !rows.known_rank) return false;
    int64_t axis = IntAttribute(proto(), axis_name, 0);
    if (axis < 0) axis += static_cast<int64_t>(table.shape.size());
    const auto own = static_cast<size_t>(axis);
    const size_t count = rows.shape.size();
    if (axis < 0 || own >= table.shape.size() || table.shape.size() + count != rank() + 1) {
      return false;
    }
    OperandPlace in_table{0, {}, {}}, in_rows{1, {}, {}};
    for (size_t k = 0; k < table.shape.size(); ++k) {
      const size_t index = k < own ? k : k + count - 1;
      in_table.at.push_back(k == own ? Taken(&in_table, table.shape[k])
                                     : pool_.Index(static_cast<int>(index)));
    }
    for (size_t k = 0; k < count; ++k) {
      in_rows.at.push_back(pool_.Index(static_cast<int>(own + k)));
    }
    if (packed && !Whole(0, 0)) return false;
    if (!packed) places_.push_back(std::move(in_table));
    places_.push_back(std::move(in_rows));
    return ReadAll([&](int k) { return k < 2 || Whole(k, 0); });
  }

  bool AlongAxis(int64_t axis) {
    const sym::Form form = forms_.Of(Input(0));
    if (!form.known_rank || form.shape.size() != rank()) return false;
    if (axis < 0) axis += static_cast<int64_t>(rank());
    OperandPlace place{0, {}, {}};
    for (size_t k = 0; k < rank(); ++k) {
      place.at.push_back(static_cast<int64_t>(k) == axis ? Taken(&place, form.shape[k])
                                                         : pool_.Index(static_cast<int>(k)));
    }
    places_.push_back(std::move(place));
    return true;
  }

  // Normalises over the axes from `axis` on: reads the operand and the weights completely along
  // these.
  bool FromAxis(int64_t axis) {
    const sym::Form rows = forms_.Of(Input(0));
    if (!rows.known_rank) return false;
    const auto own = static_cast<int64_t>(rows.shape.size());
    if (axis < 0) axis += own;
    if (axis < 0 || rank() != rows.shape.size()) return false;
    return ReadAll([&](int k) {
      const sym::Form form = forms_.Of(Input(static_cast<size_t>(k)));
      const bool is_rows = form.known_rank && form.shape.size() == rows.shape.size();
      return Whole(k, is_rows ? static_cast<size_t>(axis) : 0);
    });
  }

  sym::Forms& forms_;
  const Graph& graph_;
  sym::Pool& pool_;
  NodeId node_;
  int output_;
  const std::string& op_;
  sym::Form result_;
  std::vector<OperandPlace> places_;
};

}  // namespace

bool IsElementwise(const Graph& graph, NodeId node) {
  return FindElementwise(graph.node(node)) != nullptr;
}

std::optional<std::vector<OperandPlace>> OperandPlaces(sym::Forms& forms, NodeId node, int output) {
  return PlaceReader(forms, node, output).Run();
}

}  // namespace kvlift
