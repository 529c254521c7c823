// Lowers Attention to MatMul, Softmax and MatMul:
//
//   x = (scale * Q) K^T, softcap * tanh(x / softcap), plus the mask, -inf at hidden keys
//   p = Softmax(x), and 0 where a query sees no key, since Softmax gives NaN there
//   Y = p V
//
// The operator's text scales both queries and keys by the root of the scale; here the queries alone
// are scaled, by all of it, because there are far more keys. Source: ONNX Attention-24 with the
// errata of ONNX 1.23.
#include <cmath>
#include <vector>

#include "fmt/format.h"
#include "lower/attention_operands.h"

namespace kvlift::lower {
namespace {

struct Heads {
  int64_t q = 0, kv = 0;
  int64_t size = 0, value_size = 0;  // 0: not known
};

// Returns the constant number of heads of one operand; 0 if it is not known.
int64_t HeadsOf(Lowering& l, const AttentionOperands& site, size_t input) {
  const char* name = input == kQuery ? "q_num_heads" : "kv_num_heads";
  if (site.rank3) return IntAttribute(l.graph().node(site.node), name, 0);
  return l.Constant(site.node, input, 1);
}

int64_t SizeOf(Lowering& l, const AttentionOperands& site, size_t input, int64_t heads) {
  if (!site.rank3) return l.Constant(site.node, input, 3);
  const int64_t width = l.Constant(site.node, input, 2);
  return heads > 0 && width % heads == 0 ? width / heads : 0;
}

// Reads the numbers of heads into *heads. Returns why the node cannot be decomposed; empty if it
// can.
std::string ReadHeads(Lowering& l, const AttentionOperands& site, Heads* heads) {
  const NodeId n = site.node;
  if (l.gives(n, kScores)) return "it gives qk_matmul_output";
  if (l.gives(n, kPresentKey) != l.gives(n, kPresentValue)) return "it gives one present alone";
  for (const int input : {kKey, kValue, kPastKey, kPastValue}) {
    if (l.has(n, input) && l.Type(n, input) != site.type) {
      return "its operands have several element types, or unknown ones";
    }
  }
  heads->q = HeadsOf(l, site, kQuery);
  heads->kv = HeadsOf(l, site, kKey);
  if (heads->q <= 0 || heads->kv <= 0 || heads->q % heads->kv != 0 ||
      HeadsOf(l, site, kValue) != heads->kv) {
    return "its numbers of heads are not known, or do not divide";
  }
  heads->size = SizeOf(l, site, kQuery, heads->q);
  heads->value_size = SizeOf(l, site, kValue, heads->kv);
  if (heads->size <= 0 || SizeOf(l, site, kKey, heads->kv) != heads->size ||
      heads->value_size <= 0) {
    return "its head sizes are not known, or differ";
  }
  return {};
}

class Decomposer {
 public:
  Decomposer(Lowering& l, const AttentionOperands& site, const Heads& heads)
      : l_(l), nodes_(l.nodes()), site_(site), heads_(heads) {}

  void Run() {
    const NodeId n = site_.node;
    const std::string shown = ShownKeys(l_, site_);
    l_.ScopeOf(n);
    const std::string q = Split(l_.in(n, kQuery), heads_.q, heads_.size, "query");
    const std::string k = Keys(kKey, kPastKey, kPresentKey, heads_.size, "key");
    const std::string v = Keys(kValue, kPastValue, kPresentValue, heads_.value_size, "value");
    const std::string scores = Scores(q, k);
    const std::string weights = Weights(Masked(scores, shown));
    if (!site_.rank3) {
      nodes_.AddNamed("MatMul", {weights, v}, "MatMul", l_.out(n, kResult));
      return;
    }
    const std::string result = nodes_.Add("MatMul", {weights, v}, "MatMul");
    const std::string rows = nodes_.Add("Transpose", {result}, "rows", {Perm({0, 2, 1, 3})});
    const std::string shape = nodes_.Int64s({0, 0, heads_.q * heads_.value_size});
    nodes_.AddNamed("Reshape", {rows, shape}, "joined_heads", l_.out(n, kResult));
  }

 private:
  static onnx::AttributeProto Perm(const std::vector<int64_t>& axes) {
    return MakeAttribute("perm", axes);
  }

  std::string Scalar(double value) { return nodes_.Scalar(value, site_.type); }

  std::string Cast(const std::string& x, int32_t from, int32_t to, std::string_view role) {
    if (from == to) return x;
    return nodes_.Add("Cast", {x}, role, {MakeAttribute("to", int64_t{to})});
  }

  // Returns [B, heads, S, D].
  std::string Split(const std::string& x, int64_t heads, int64_t size, const std::string& role) {
    if (!site_.rank3) return x;
    const std::string shape = nodes_.Int64s({0, 0, heads, size});
    const std::string split = nodes_.Add("Reshape", {x, shape}, role + "_heads");
    return nodes_.Add("Transpose", {split}, role + "_by_head", {Perm({0, 2, 1, 3})});
  }

  // Returns the keys or values of all query heads, [B, N, T, D], the past included.
  std::string Keys(size_t input, size_t past, size_t present, int64_t size,
                   const std::string& role) {
    const NodeId n = site_.node;
    std::string x = Split(l_.in(n, input), heads_.kv, size, role);
    if (site_.has_past || l_.gives(n, present)) {
      NodeBuilder::Inputs rows;
      if (site_.has_past) rows.push_back(l_.in(n, past));
      rows.push_back(x);
      const auto axis = MakeAttribute("axis", int64_t{2});
      if (l_.gives(n, present)) {
        nodes_.AddNamed("Concat", rows, "present_" + role, l_.out(n, present), {axis});
        x = l_.out(n, present);
      } else {
        x = nodes_.Add("Concat", rows, role + "_rows", {axis});
      }
    }
    const int64_t group = heads_.q / heads_.kv;
    if (group == 1) return x;
    const std::string one = l_.Unsqueeze(x, {2}, role + "_group");
    const std::string each =
        nodes_.Add("Expand", {one, nodes_.Int64s({1, 1, group, 1, 1})}, role + "_of_each");
    const std::string shape = l_.Join(
        {l_.Extent(n, kQuery, 0), l_.Literal(heads_.q), KeyLength(l_, site_), l_.Literal(size)},
        role + "_shape");
    // A length of 0 is meant as such.
    return nodes_.Add("Reshape", {each, shape}, role + "_of_queries",
                      {MakeAttribute("allowzero", int64_t{1})});
  }

  std::string Scores(const std::string& q, const std::string& k) {
    const auto& node = l_.graph().node(site_.node);
    const double scale = FindAttribute(node, "scale") != nullptr
                             ? FloatAttribute(node, "scale", 1)
                             : 1 / std::sqrt(static_cast<double>(heads_.size));
    const std::string scaled = nodes_.Add("Mul", {q, Scalar(scale)}, "scaled");
    const std::string columns = nodes_.Add("Transpose", {k}, "columns", {Perm({0, 1, 3, 2})});
    std::string x = nodes_.Add("MatMul", {scaled, columns}, "scores");
    if (const double softcap = FloatAttribute(node, "softcap", 0); softcap != 0) {
      const std::string cap = Scalar(softcap);
      x = nodes_.Add("Tanh", {nodes_.Add("Div", {x, cap}, "over_cap")}, "bent");
      x = nodes_.Add("Mul", {x, cap}, "capped");
    }
    return x;
  }

  // Adds the mask of the node, and hides the keys for which `shown` is false; an empty name hides
  // none.
  std::string Masked(std::string x, std::string shown) {
    if (site_.has_mask) {
      const std::string mask = MaskForAllKeys(l_, site_);
      if (site_.float_mask) {
        x = nodes_.Add("Add", {x, mask}, "biased");
      } else {
        shown = shown.empty() ? mask : nodes_.Add("And", {shown, mask}, "mask");
      }
    }
    if (shown.empty()) return x;
    return nodes_.Add("Where", {shown, x, Scalar(kHidden)}, "masked");
  }

  std::string Weights(const std::string& scores) {
    const auto& node = l_.graph().node(site_.node);
    const int64_t given = IntAttribute(node, "softmax_precision", 0);
    const int32_t type = given == 0 ? site_.type : static_cast<int32_t>(given);
    const std::string x = Cast(scores, site_.type, type, "precise");
    std::string p = nodes_.Add("Softmax", {x}, "Softmax", {MakeAttribute("axis", int64_t{-1})});
    // Without a mask every query sees the first key at least.
    if (site_.has_mask || site_.has_nonpad) {
      const std::string empty = nodes_.Add("IsNaN", {p}, "sees_no_key");
      p = nodes_.Add("Where", {empty, nodes_.Scalar(0, type), p}, "weights");
    }
    return Cast(p, type, site_.type, "own_precision");
  }

  Lowering& l_;
  NodeBuilder& nodes_;
  const AttentionOperands& site_;
  const Heads& heads_;
};

}  // namespace

std::string Decompose(Lowering& l, const AttentionOperands& site) {
  Heads heads;
  if (std::string why = ReadHeads(l, site, &heads); !why.empty()) return why;
  Decomposer(l, site, heads).Run();
  return {};
}

}  // namespace kvlift::lower
