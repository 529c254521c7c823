#include "rewrite/types/matrix_product.h"

namespace kvlift {

std::optional<Product> ReadProduct(const Graph& graph, NodeId node) {
  if (graph.Is(node, "MatMul")) return Product{};
  const onnx::NodeProto& proto = graph.node(node);
  if (proto.domain() != "com.microsoft" || proto.op_type() != "FusedMatMul") return std::nullopt;
  if (IntAttribute(proto, "transBatchA", 0) != 0 || IntAttribute(proto, "transBatchB", 0) != 0) {
    return std::nullopt;
  }
  return Product{IntAttribute(proto, "transA", 0) != 0, IntAttribute(proto, "transB", 0) != 0,
                 static_cast<double>(FloatAttribute(proto, "alpha", 1.0f))};
}

}  // namespace kvlift
