#include "proof/graphs/matrix_products.h"

namespace kvlift {

std::optional<MatrixProduct> ReadMatrixProduct(const Graph& graph, NodeId node) {
  if (graph.Is(node, "MatMul")) return MatrixProduct{};
  const onnx::NodeProto& proto = graph.node(node);
  if (proto.op_type() != "FusedMatMul" || proto.domain() != "com.microsoft") return std::nullopt;
  if (IntAttribute(proto, "transBatchA", 0) != 0 || IntAttribute(proto, "transBatchB", 0) != 0) {
    return std::nullopt;
  }
  return MatrixProduct{IntAttribute(proto, "transA", 0) != 0, IntAttribute(proto, "transB", 0) != 0,
                       FloatAttribute(proto, "alpha", 1)};
}

}  // namespace kvlift
