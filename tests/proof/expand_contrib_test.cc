// LIBS: onnxio proof
// Operators of com.microsoft in ONNX's own (proof/lower/expand_contrib_ops.h): what is expanded,
// and forms that stay as they are.
#include <string>

#include "gtest/gtest.h"
#include "onnxio/model/model.h"
#include "proof/lower/expand_contrib_ops.h"

namespace kvlift {
namespace {

// Returns true if the node of the text, an Attention of com.microsoft, is expanded.
bool IsExpanded(const std::string& attributes, const std::string& operands,
                const std::string& past = "float[2,B,4,P,4]") {
  const auto model = ParseModelText(
      "<ir_version: 8, opset_import: [\"\" : 17, \"com.microsoft\" : 1]>\n"
      "g (float[B,S,16] x, float[16,48] w, float[48] c, int64[B,T] mask, int32[B] ends, " +
      past +
      " past) => (float[B,S,16] y, float[2,B,4,T,4] present) {\n"
      "  m = Cast <to = 6> (mask)\n"
      "  y, present = com.microsoft.Attention <" +
      attributes + "> (" + operands + ")\n}\n");
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return false;
  const ExpandedModel expanded = ExpandContribOps(*model, true, {});
  for (const onnx::NodeProto& node : expanded.model.graph().node()) {
    if (node.domain() == "com.microsoft") return false;
  }
  return true;
}

TEST(ProjectedAttention, IsExpanded) {
  EXPECT_TRUE(IsExpanded("num_heads = 4", "x, w, c, m, past"));
  EXPECT_TRUE(IsExpanded("num_heads = 4, unidirectional = 1", "x, w, , , past"));
  EXPECT_TRUE(IsExpanded("num_heads = 4, qkv_hidden_sizes = [16, 16, 16]", "x, w, c, , past"));
}

TEST(ProjectedAttention, StaysInOtherForms) {
  EXPECT_FALSE(IsExpanded("num_heads = 4", "x, , c, m, past"));
  EXPECT_FALSE(IsExpanded("num_heads = 4", ", w, c, m, past"));
  EXPECT_FALSE(IsExpanded("num_heads = 4", "x, w, c, m"));
  EXPECT_FALSE(IsExpanded("num_heads = 4", "x, w, c, ends, past"));
  EXPECT_FALSE(IsExpanded("num_heads = 2", "x, w, c, m, past"));
  EXPECT_FALSE(IsExpanded("num_heads = 4611686018427387904", "x, w, c, m, past"));
  EXPECT_FALSE(IsExpanded("num_heads = 4, do_rotary = 1", "x, w, c, m, past"));
  EXPECT_FALSE(IsExpanded("num_heads = 4, past_present_share_buffer = 1", "x, w, c, m, past"));
  EXPECT_FALSE(IsExpanded("num_heads = 4, qkv_hidden_sizes = [16, 16, 8]", "x, w, c, , past"));
  EXPECT_FALSE(IsExpanded("num_heads = 4", "x, w, c, m, past", "float[2,B,4,P,8]"));
}

}  // namespace
}  // namespace kvlift
