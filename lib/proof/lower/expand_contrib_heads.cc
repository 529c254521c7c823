// The part of Expander that expands MultiHeadAttention and Attention of com.microsoft, in which
// queries and keys have the same number of heads.
#include <algorithm>
#include <utility>

#include "ir/graph.h"
#include "proof/lower/contrib_expander.h"
#include "proof/lower/expand_contrib_masks.h"

namespace kvlift::plain {

using onnx::AttributeProto;
using onnx::NodeProto;

bool Expander::MultiHead(const NodeProto& node, Writer& w) {
  constexpr int kBias = 3, kPadding = 4, kScores = 5, kPast = 6, kMost = 8;
  const int64_t heads = IntAttribute(node, "num_heads", 0);
  const int64_t width = Width(node, kPast), value_width = Width(node, kPast + 1);
  if (heads < 1 || !Has(node, 1) || !Has(node, 2)) return false;
  // With a past, keys and values are [B, L, N * D]. Without one, they may have an axis of heads.
  const bool has_past = width >= 1 && value_width >= 1;
  if (!has_past && (Has(node, kPast) || Has(node, kPast + 1) || Has(node, kBias) ||
                    IsCausal(node) != 0 || !HasThreeAxes(node.input(0)) ||
                    !HasThreeAxes(node.input(1)) || !HasThreeAxes(node.input(2)))) {
    return false;
  }
  if (node.output_size() > 3) return false;
  if (!HasRank(node, kPadding, 2)) return false;
  for (int k = kMost; k < node.input_size(); ++k) {
    if (Has(node, k)) return false;
  }
  const int64_t widths[] = {heads * width, heads * width, heads * value_width};
  std::vector<std::string> operands;
  int64_t begin = 0;
  for (int k = 0; k < 3; ++k) {
    std::string x = node.input(k);
    if (Has(node, kBias)) {
      const std::string part = w.Columns(node.input(kBias), 0, begin, begin + widths[k]);
      w.Node("Add", {x, part});
      x = w.Name();
    }
    begin += widths[k];
    operands.push_back(w.Heads(x, heads));
  }
  operands.push_back(MaskOf(node, kPadding, kScores, TypeOf(node, {kPast, 0}), w));
  if (has_past) {
    operands.push_back(node.input(kPast));
    operands.push_back(node.input(kPast + 1));
  }
  Attend(node, std::move(operands), IsCausal(node), 0, has_past ? heads * value_width : -1, w);
  return true;
}

// Returns true if a value is seen to have three axes: it is declared so, or is made by a Reshape to
// three numbers, and nothing but operators that keep the axes stands behind that.
bool Expander::HasThreeAxes(const std::string& value, int depth) const {
  constexpr int kDeepest = 4;
  constexpr size_t kAxes = 3;
  if (const auto dims = dims_.find(value); dims != dims_.end()) return dims->second.size() == kAxes;
  const auto it = producers_.find(value);
  if (it == producers_.end() || depth > kDeepest) return false;
  const NodeProto& node = *it->second;
  if (node.op_type() == "Reshape" && node.input_size() == 2) {
    const TensorProto* shape = ConstantOf(node.input(1));
    return shape != nullptr && shape->dims_size() == 1 && shape->dims(0) == kAxes;
  }
  for (const char* op : {"RotaryEmbedding", "Cast", "Identity"}) {
    if (node.op_type() == op) return HasThreeAxes(node.input(0), depth + 1);
  }
  return false;
}

// Returns what a node adds to its scores: the input `scores`, and mask_filter_value where the input
// `padding`, [B, T], hides a key; empty if it has neither.
std::string Expander::MaskOf(const NodeProto& node, int padding, int scores, int32_t type,
                             Writer& w) {
  const std::string bias = Has(node, scores) ? node.input(scores) : "";
  if (!Has(node, padding)) return bias;
  const float low = FloatAttribute(node, "mask_filter_value", -10000);
  const std::string pads = OfPadding(node.input(padding), low, type, w);
  if (!bias.empty()) w.Node("Add", {bias, pads});
  return w.Name();
}

// Returns the attribute is_causal of a node of com.microsoft: ONNX Runtime treats any value of
// unidirectional other than 1 as 0.
int64_t Expander::IsCausal(const NodeProto& node) {
  return IntAttribute(node, "unidirectional", 0) == 1 ? 1 : 0;
}

// Returns true if an input is missing, or is declared with this rank.
bool Expander::HasRank(const NodeProto& node, int k, size_t rank) const {
  if (!Has(node, k)) return true;
  const auto dims = dims_.find(node.input(k));
  return dims != dims_.end() && dims->second.size() == rank;
}

bool Expander::Projected(const NodeProto& node, Writer& w) {
  constexpr int kRows = 0, kWeights = 1, kBias = 2, kPadding = 3, kPast = 4, kScores = 5, kMost = 6;
  const int64_t heads = IntAttribute(node, "num_heads", 0);
  if (heads < 1 || !Has(node, kRows) || !Has(node, kWeights) || !Has(node, kPast)) return false;
  if (!Gives(node, 0) || node.output_size() > 2) return false;
  if (!HasRank(node, kPast, 5) || !HasRank(node, kWeights, 2) || !HasRank(node, kPadding, 2)) {
    return false;
  }
  for (int k = kMost; k < node.input_size(); ++k) {
    if (Has(node, k)) return false;
  }
  const std::vector<int64_t> past = dims_.at(node.input(kPast));
  const int64_t columns = dims_.at(node.input(kWeights))[1], hidden = columns / 3;
  if (past[0] != 2 || past[2] != heads || past[4] < 1) return false;
  if (columns % 3 != 0 || hidden % heads != 0 || hidden / heads != past[4]) return false;
  for (const AttributeProto& a : node.attribute()) {
    const bool off = a.name() == "do_rotary" || a.name() == "past_present_share_buffer";
    if (off && a.i() != 0) return false;
  }
  const std::vector<int64_t> sizes = IntsAttribute(node, "qkv_hidden_sizes");
  if (std::any_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size != hidden; })) {
    return false;
  }
  w.Node("MatMul", {node.input(kRows), node.input(kWeights)});
  if (Has(node, kBias)) w.Node("Add", {w.Name(), node.input(kBias)});
  const std::string rows = w.Name();
  std::vector<std::string> operands;
  for (int64_t k = 0; k < 3; ++k) {
    operands.push_back(w.Heads(w.Columns(rows, 2, k * hidden, (k + 1) * hidden), heads));
  }
  operands.push_back(MaskOf(node, kPadding, kScores, TypeOf(node, {kPast, kRows}), w));
  for (int64_t k = 0; k < 2; ++k) {
    SetInt(&w.Node("Gather", {node.input(kPast), w.Ints({k}, true)}), "axis", 0);
    const std::string before = w.Name();
    operands.push_back(before);
  }
  std::vector<std::string> both;
  for (int k = 0; k < 2; ++k) {
    SetInt(&w.Node("Concat", {operands[4 + k], operands[1 + k]}), "axis", 2);
    w.Node("Unsqueeze", {w.Name(), w.Ints({0})});
    both.push_back(w.Name());
  }
  SetInt(&w.Node("Concat", std::move(both), Gives(node, 1) ? node.output(1) : ""), "axis", 0);
  NodeProto alone = node;
  if (alone.output_size() > 1) alone.mutable_output()->DeleteSubrange(1, 1);
  Attend(alone, std::move(operands), IsCausal(node), 0, hidden, w);
  return true;
}

}  // namespace kvlift::plain
