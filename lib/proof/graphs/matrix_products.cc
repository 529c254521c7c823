#include "proof/graphs/matrix_products.h"

#include <algorithm>
#include <set>
#include <string>

namespace kvlift {
namespace {

// Reads an Einsum such as bhsd,bhtd->bhst.
std::optional<Product> ReadEinsum(sym::Forms& forms, NodeId node) {
  const Graph& graph = forms.graph();
  std::string text = StringAttribute(graph.node(node), "equation", "");
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  constexpr size_t kRank = 4;
  const bool shaped = graph.inputs(node).size() == 2 && text.size() == 3 * kRank + 3 &&
                      text[kRank] == ',' && text.substr(2 * kRank + 1, 2) == "->";
  if (!shaped) return std::nullopt;
  const std::string left = text.substr(0, kRank), right = text.substr(kRank + 1, kRank),
                    result = text.substr(2 * kRank + 3), front = result.substr(0, 2);
  const bool left_transposed = left[3] == result[2], right_transposed = right[2] == result[3];
  const size_t summed = left_transposed ? 2 : 3, also_summed = right_transposed ? 3 : 2;
  const std::string letters = result + left[summed];
  const bool is_product = left.substr(0, 2) == front && right.substr(0, 2) == front &&
                          left[5 - summed] == result[2] && right[5 - also_summed] == result[3] &&
                          left[summed] == right[also_summed] &&
                          std::set<char>(letters.begin(), letters.end()).size() == letters.size();
  if (!is_product) return std::nullopt;
  // Einsum would broadcast a summed axis of extent 1, which a matrix product does not.
  const sym::Form a = forms.Of(graph.inputs(node)[0]), b = forms.Of(graph.inputs(node)[1]);
  if (!a.known_rank || !b.known_rank || a.shape.size() != kRank || b.shape.size() != kRank ||
      a.shape[summed] != b.shape[also_summed]) {
    return std::nullopt;
  }
  return Product{left_transposed, right_transposed, 1};
}

}  // namespace

std::optional<Product> ReadProduct(sym::Forms& forms, NodeId node) {
  const Graph& graph = forms.graph();
  if (graph.Is(node, "MatMul")) return Product{};
  if (graph.Is(node, "Einsum")) return ReadEinsum(forms, node);
  const onnx::NodeProto& proto = graph.node(node);
  if (proto.op_type() != "FusedMatMul" || proto.domain() != "com.microsoft") return std::nullopt;
  if (IntAttribute(proto, "transBatchA", 0) != 0 || IntAttribute(proto, "transBatchB", 0) != 0) {
    return std::nullopt;
  }
  return Product{IntAttribute(proto, "transA", 0) != 0, IntAttribute(proto, "transB", 0) != 0,
                 FloatAttribute(proto, "alpha", 1)};
}

}  // namespace kvlift
