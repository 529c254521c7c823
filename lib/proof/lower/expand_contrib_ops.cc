#include "proof/lower/expand_contrib_ops.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/operators/operator_traits.h"
#include "ir/tensor_data.h"
#include "onnxio/model/functional_form.h"
#include "proof/lower/contrib_expander.h"
#include "proof/lower/expand_contrib_masks.h"
#include "proof/lower/expand_contrib_rows.h"

namespace kvlift::plain {

using onnx::AttributeProto;
using onnx::NodeProto;
using onnx::TensorProto;

Expander::Expander(onnx::ModelProto model, bool lengths, const std::vector<SlidingPast>& sliding)
    : lengths_(lengths), sliding_(sliding) {
  plain_.model = std::move(model);
  for (const auto& input : graph().input()) {
    types_[input.name()] = input.type().tensor_type().elem_type();
    const auto& shape = input.type().tensor_type().shape();
    for (const auto& dim : shape.dim()) {
      dims_[input.name()].push_back(dim.has_dim_value() ? dim.dim_value() : -1);
    }
  }
  for (const auto& tensor : graph().initializer()) {
    dims_[tensor.name()] = {tensor.dims().begin(), tensor.dims().end()};
    constants_[tensor.name()] = &tensor;
    types_[tensor.name()] = tensor.data_type();
  }
}

ExpandedModel Expander::Run() {
  FindSlidingPasts();
  std::vector<NodeProto> nodes(graph().node().begin(), graph().node().end());
  graph().clear_node();
  for (const NodeProto& node : nodes) {
    if (node.output_size() > 0) producers_[node.output(0)] = &node;
    if (node.op_type() != "If") continue;
    for (const std::string& output : node.output()) producers_[output] = &node;
  }
  for (const NodeProto& node : nodes) {
    NoteElement(node);
    Writer writer(node, &graph());
    const bool done = node.output_size() > 0 && Expand(node, writer);
    std::vector<NodeProto> own = done ? writer.Take() : std::vector<NodeProto>{node};
    for (NodeProto& part : own) *graph().add_node() = std::move(part);
  }
  DropUnreadChoices();
  return std::move(plain_);
}

bool Expander::Expand(const NodeProto& node, Writer& w) {
  if (node.op_type() == "SimplifiedLayerNormalization") return Norm(node, w);
  if (node.op_type() == "Einsum") return Einsum(node, w);
  if (IsKeyValueCache(node)) return Packed(node, w);
  if (node.domain() != "com.microsoft") return false;
  if (node.op_type() == "MultiHeadAttention") return MultiHead(node, w);
  if (node.op_type() == "Attention") return Projected(node, w);
  return node.op_type() == "GroupQueryAttention" && lengths_ && GroupQuery(node, w);
}

// Records the type and shape of a result, as far as they are known: Identity keeps both, Cast keeps
// the shape, and a Gather of one element along axis 0 drops the first extent.
void Expander::NoteElement(const NodeProto& node) {
  if (node.op_type() == "Cast" && node.input_size() == 1 && node.output_size() == 1) {
    if (const auto own = dims_.find(node.input(0)); own != dims_.end()) {
      const std::vector<int64_t> dims = own->second;
      dims_[node.output(0)] = dims;
    }
    types_[node.output(0)] = static_cast<int32_t>(IntAttribute(node, "to", 0));
    return;
  }
  if (node.op_type() == "Identity" && node.input_size() == 1 && node.output_size() == 1) {
    const std::string &from = node.input(0), &to = node.output(0);
    // The value is copied first, because inserting into the map may move its entries.
    if (const auto own = dims_.find(from); own != dims_.end()) {
      const std::vector<int64_t> dims = own->second;
      dims_[to] = dims;
    }
    if (const auto own = types_.find(from); own != types_.end()) {
      const int32_t type = own->second;
      types_[to] = type;
    }
    if (const TensorProto* tensor = ConstantOf(from)) constants_[to] = tensor;
    return;
  }
  if (node.op_type() != "Gather" || node.input_size() != 2 || node.output_size() != 1) return;
  const auto whole = dims_.find(node.input(0));
  const TensorProto* index = ConstantOf(node.input(1));
  if (whole == dims_.end() || whole->second.empty() || index == nullptr) return;
  if (index->dims_size() != 0 || IntAttribute(node, "axis", 0) != 0) return;
  const std::vector<int64_t> dims(whole->second.begin() + 1, whole->second.end());
  dims_[node.output(0)] = dims;
}

bool Expander::Norm(const NodeProto& node, Writer& w) {
  if (node.output_size() != 1 || node.input_size() != 2) return false;
  NodeProto& norm =
      w.Node("RMSNormalization", {node.input().begin(), node.input().end()}, node.output(0));
  *norm.mutable_attribute() = node.attribute();
  return true;
}

std::string Expander::HeadsFirst(const std::string& x, bool heads_first, Writer& w) {
  if (!heads_first) return x;
  SetInts(&w.Node("Transpose", {x}), "perm", {0, 2, 1, 3});
  return w.Name();
}

// Repeats key/value heads: [B, T, Nk, D] becomes [B, T, Nk * repeat, D].
void Expander::Repeated(const std::string& rows, std::pair<int64_t, int64_t> heads, int64_t repeat,
                        const std::string& output, Writer& w) {
  if (repeat == 1) {
    w.Node("Identity", {rows}, output);
    return;
  }
  w.Node("Unsqueeze", {rows, w.Ints({3})});
  const std::string apart = w.Name();
  w.Node("Expand", {apart, w.Ints({1, 1, 1, repeat, 1})});
  const std::string copies = w.Name();
  w.Node("Reshape", {copies, w.Ints({0, 0, heads.first * repeat, heads.second})}, output);
}

// The head size of a past; negative if it is not declared.
int64_t Expander::Width(const NodeProto& node, int k) const {
  const auto it = Has(node, k) ? dims_.find(node.input(k)) : dims_.end();
  return it == dims_.end() || it->second.size() != 4 ? -1 : it->second[3];
}

// The last of the numbers of an int64 tensor; negative if it is not positive or not read.
int64_t Expander::LastOf(const TensorProto* shape) {
  if (shape == nullptr) return -1;
  const auto numbers = ReadInts(*shape);
  return numbers.ok() && !numbers->empty() && numbers->back() > 0 ? numbers->back() : -1;
}

// The last extent of a matrix product with a weight, of a Reshape to constants, and of what
// passes it on; negative if the value is not one of these.
int64_t Expander::Columns(const std::string& value, int depth) const {
  constexpr int kDeepest = 4;
  const auto it = producers_.find(value);
  if (it == producers_.end() || depth > kDeepest) return -1;
  const NodeProto& node = *it->second;
  const std::string& op = node.op_type();
  if (IsProductOfPackedWeights(op)) return IntAttribute(node, "N", -1);
  if (op == "MatMul" && node.input_size() == 2) {
    const auto weight = dims_.find(node.input(1));
    return weight == dims_.end() || weight->second.size() != 2 ? -1 : weight->second[1];
  }
  if (op == "Reshape" && node.input_size() == 2) return LastOf(ConstantOf(node.input(1)));
  if (op == "RotaryEmbedding" || op == "MRotaryEmbedding") return Columns(node.input(0), depth + 1);
  if (op != "Add" && op != "Cast" && op != "Identity") return -1;
  int64_t columns = -1;
  for (const std::string& input : node.input()) {
    columns = std::max(columns, Columns(input, depth + 1));
  }
  return columns;
}

// Writes an Attention over operands with a head axis, and its result as [B, S, columns], cast to
// `type` if that is not 0.
void Expander::Attend(const NodeProto& node, std::vector<std::string> operands, int64_t causal,
                      float softcap, int64_t columns, Writer& w, int32_t type) {
  NodeProto& attention = w.Node("Attention", std::move(operands));
  for (int k : {1, 2}) attention.add_output(Gives(node, k) ? node.output(k) : "");
  SetInt(&attention, "is_causal", causal);
  const float scale = FloatAttribute(node, "scale", 0);
  if (scale != 0) SetFloat(&attention, "scale", scale);
  if (softcap != 0) SetFloat(&attention, "softcap", softcap);
  if (type != 0) {
    const std::string result = w.Name();
    SetInt(&w.Node("Cast", {result}), "to", type);
  }
  SetInts(&w.Node("Transpose", {w.Name()}), "perm", {0, 2, 1, 3});
  const std::string rows = w.Name();
  w.Node("Reshape", {rows, w.Ints({0, 0, columns})}, node.output(0));
}

// Returns true if the node has no attribute of another meaning than what GroupQuery() writes.
bool Expander::HasKnownAttributes(const NodeProto& node) {
  static const auto& kRead = *new absl::flat_hash_set<std::string_view>{"num_heads",
                                                                        "kv_num_heads",
                                                                        "scale",
                                                                        "softcap",
                                                                        "do_rotary",
                                                                        "local_window_size",
                                                                        "smooth_softmax",
                                                                        "k_quant_type",
                                                                        "v_quant_type",
                                                                        "rotary_interleaved",
                                                                        "qk_norm_epsilon",
                                                                        "kv_cache_bit_width",
                                                                        "rotary_embedding_dim",
                                                                        "sliding_window_cache"};
  return std::all_of(node.attribute().begin(), node.attribute().end(), [](const AttributeProto& a) {
    if (kRead.contains(a.name())) return true;
    if (a.name() == "causal") return a.i() == 1;
    if (a.name() == "sliding_window_cache" && a.i() == 1) return true;
    return a.type() == AttributeProto::INT && a.i() <= 0;
  });
}

// Returns true if past and present of a GroupQueryAttention are one buffer: the past has a constant
// number of slots.
bool Expander::SharesBuffer(const NodeProto& node) const {
  constexpr int kPast = 3, kSlots = 2;
  const auto past = dims_.find(node.input(kPast));
  return past != dims_.end() && past->second.size() == 4 && past->second[kSlots] > 0;
}

bool Expander::GroupQuery(const NodeProto& node, Writer& w) {
  constexpr int kPast = 3, kLengths = 5, kTotal = 6, kCosines = 7, kPositions = 9, kScores = 10,
                kSink = 11, kScale = 12, kNorm = 14;
  const int64_t heads = IntAttribute(node, "num_heads", 0);
  const int64_t groups = IntAttribute(node, "kv_num_heads", 0);
  if (heads < 1 || groups < 1) return false;
  const int64_t columns = Columns(node.input(0)), parts = Has(node, 1) ? heads : heads + 2 * groups;
  int64_t width = Width(node, kPast);
  if (width > 0 && IntAttribute(node, "kv_cache_bit_width", 0) == 4) width *= 2;
  if (width < 1 && columns > 0 && columns % parts == 0) width = columns / parts;
  if (const auto norm = dims_.find(Has(node, kNorm) ? node.input(kNorm) : "");
      width < 1 && norm != dims_.end() && norm->second.size() == 1) {
    width = norm->second[0];
  }
  if (width < 1) return false;
  StoredForm kept[2];
  for (int side = 0; side < 2; ++side) {
    const TensorProto* tensor =
        Has(node, kScale + side) ? ConstantOf(node.input(kScale + side)) : nullptr;
    const int32_t type = TypeOf(node, {kPast + side, 1 + side});
    if (!ReadStoredForm(node, side, type, groups, width, tensor, &kept[side])) return false;
  }
  if (kept[0].type != kept[1].type) return false;
  if (!Has(node, kLengths) || !Has(node, kTotal) || node.output_size() > 3) return false;
  if (Has(node, 1) != Has(node, 2) || Has(node, kNorm) != Has(node, kNorm + 1)) return false;
  if (!HasKnownAttributes(node) || node.input_size() > kNorm + 2) return false;
  const bool sinks = Has(node, kSink) || IntAttribute(node, "smooth_softmax", 0) == 1;
  const int64_t window = IntAttribute(node, "local_window_size", -1);
  // A bias is not combined with the mask of a window, with the mask over quantised rows, or with
  // that of a sink.
  if (Has(node, kScores) && (window > 0 || kept[0].quantized() || sinks)) return false;
  const bool slides = IntAttribute(node, "sliding_window_cache", 0) == 1;
  if (slides && !HasSlidingPasts(node)) return false;
  std::string query = node.input(0), key = Has(node, 1) ? node.input(1) : "", value;
  if (key.empty()) {
    const int64_t end = (heads + groups) * width;
    const std::string packed = query;
    query = w.Columns(packed, 2, 0, heads * width);
    key = w.Columns(packed, 2, heads * width, end);
    value = w.Columns(packed, 2, end, end + groups * width);
  } else {
    value = node.input(2);
  }
  query = w.Heads(query, heads);
  key = w.Heads(key, groups);
  value = w.Heads(value, groups);
  for (int side = 0; side < 2 && Has(node, kNorm); ++side) {
    std::string& x = side == 0 ? query : key;
    NodeProto& norm = w.Node("RMSNormalization", {x, node.input(kNorm + side)});
    SetInt(&norm, "axis", -1);
    SetFloat(&norm, "epsilon", FloatAttribute(node, "qk_norm_epsilon", 1e-6F));
    x = w.Name();
  }
  const std::string& past = node.input(kPast);
  const std::string length = w.Extent(past, 2), tokens = w.Extent(node.input(0), 1);
  const bool buffer = !slides && SharesBuffer(node);
  if (buffer && Has(node, kScores)) return false;
  std::string first, slots;  // of the new rows in a buffer
  if (buffer) {
    first = FirstSlots(node.input(kLengths), node.input(kTotal), tokens, w);
    slots = SlotsOfRows(first, tokens, w);
  }
  if (IntAttribute(node, "do_rotary", 0) != 0) {
    if (!Has(node, kCosines) || !Has(node, kCosines + 1)) return false;
    const auto cosines = ChoiceOf(node.input(kCosines)), sines = ChoiceOf(node.input(kCosines + 1));
    const auto table = dims_.find(node.input(kCosines));
    const bool whole = table != dims_.end() && table->second.size() == 2;
    if (cosines.has_value() != sines.has_value() || (!cosines && !whole)) return false;
    const int64_t half = cosines ? cosines->yes->dims(1) : table->second[1];
    const int64_t named = IntAttribute(node, "rotary_embedding_dim", 0);
    if (named != 0 && named != 2 * half) return false;
    const bool given = Has(node, kPositions);
    const std::string positions = given    ? node.input(kPositions)
                                  : buffer ? slots
                                           : Positions(node.input(0), length, tokens, w);
    if (given) plain_.positions.push_back(positions);
    std::vector<std::string> tables = {node.input(kCosines), node.input(kCosines + 1), positions};
    if (cosines) tables = {ChosenRows(*cosines, positions, w), ChosenRows(*sines, positions, w)};
    for (std::string* x : {&query, &key}) {
      std::vector<std::string> operands = {*x};
      operands.insert(operands.end(), tables.begin(), tables.end());
      NodeProto& turned = w.Node("RotaryEmbedding", std::move(operands));
      if (2 * half != width) SetInt(&turned, "rotary_embedding_dim", 2 * half);
      if (const int64_t pairs = IntAttribute(node, "rotary_interleaved", 0); pairs != 0) {
        SetInt(&turned, "interleaved", pairs);
      }
      *x = w.Name();
    }
  }
  if (slides) GrowPasts(node);
  std::string mask = Has(node, kScores) ? node.input(kScores) : "";
  if (window > 0 && !buffer) mask = InWindow(window, length, tokens, w);
  if (!buffer) {
    plain_.claims.push_back({node.input(kLengths), past, node.input(0), 1});
    plain_.claims.push_back({node.input(kTotal), past, node.input(0), 0});
  }
  const float softcap = FloatAttribute(node, "softcap", 0);
  const bool quantised = kept[0].quantized();
  if (!quantised && !sinks && !buffer) {
    Attend(node, {query, key, value, mask, past, node.input(kPast + 1)}, 1, softcap, heads * width,
           w);
    return true;
  }
  // Quantised rows are read as float32, and queries are then cast to float32 as well.
  const int32_t type = quantised ? TypeOf(node, {0, kCosines}) : TypeOf(node, {kPast, 0});
  const bool narrow = quantised && type != TensorProto::FLOAT;
  for (std::string* x : {&query, &key, &value}) {
    if (!narrow) continue;
    SetInt(&w.Node("Cast", {*x}), "to", TensorProto::FLOAT);
    *x = w.Name();
  }
  std::string rows[] = {key, value};
  for (int side = 0; side < 2; ++side) {
    const std::string fresh = quantised ? RowsForCache(kept[side], rows[side], w) : rows[side];
    const std::string present = Gives(node, 1 + side) ? node.output(1 + side) : "";
    NodeProto& written =
        buffer ? w.Node("TensorScatter", {node.input(kPast + side), fresh, first}, present)
               : w.Node("Concat", {node.input(kPast + side), fresh}, present);
    SetInt(&written, "axis", 2);
    rows[side] = quantised ? RowsFromCache(kept[side], w.Name(), w) : w.Name();
  }
  std::string seen = buffer ? OfSlots(window, slots, length, w) : InOrder(length, tokens, w);
  if (!mask.empty()) {
    w.Node("And", {seen, mask});
    seen = w.Name();
  }
  if (sinks) {
    const int32_t own = quantised ? int32_t{TensorProto::FLOAT} : type;
    std::string sink = Has(node, kSink) ? node.input(kSink) : "";
    if (!sink.empty() && narrow) {
      SetInt(&w.Node("Cast", {sink}), "to", own);
      sink = w.Name();
    }
    seen = WithSink(seen, sink, heads, own, tokens, w);
    for (std::string& x : rows) x = WithZeros(x, groups, width, own, w);
  }
  NodeProto alone = node;
  alone.mutable_output()->DeleteSubrange(1, node.output_size() - 1);
  Attend(alone, {query, rows[0], rows[1], seen}, 0, softcap, heads * width, w, narrow ? type : 0);
  return true;
}

// Returns the constant that an initializer or a Constant node holds, also through Identity nodes;
// null if the value is not constant.
const TensorProto* Expander::ConstantOf(std::string name) const {
  for (auto it = producers_.find(name); it != producers_.end(); it = producers_.find(name)) {
    const NodeProto& node = *it->second;
    if (node.op_type() == "Constant") {
      const AttributeProto* value = FindAttribute(node, "value");
      return value == nullptr ? nullptr : &value->t();
    }
    if (node.op_type() != "Identity" || node.input_size() != 1) return nullptr;
    name = node.input(0);
  }
  const auto it = constants_.find(name);
  return it == constants_.end() ? nullptr : it->second;
}

// The element type of the first of these inputs that declares one; float32 if none does.
int32_t Expander::TypeOf(const NodeProto& node, std::initializer_list<int> inputs) const {
  for (int k : inputs) {
    const auto it = Has(node, k) ? types_.find(node.input(k)) : types_.end();
    if (it != types_.end() && it->second != 0) return it->second;
  }
  return TensorProto::FLOAT;
}
}  // namespace kvlift::plain

namespace kvlift {

ExpandedModel ExpandContribOps(onnx::ModelProto model, bool lengths,
                               const std::vector<SlidingPast>& sliding) {
  return plain::Expander(std::move(model), lengths, sliding).Run();
}

}  // namespace kvlift
