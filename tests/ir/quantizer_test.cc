// LIBS: ir
// Quantisers against what they promise: numbers of their own come back unchanged.
#include "ir/operators/quantizer.h"

#include <cmath>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "onnx/defs/parser.h"
#include "onnx/onnx_pb.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

// The operators compute in float32.
float Dequantized(int64_t code, const UniformQuantizer& q) {
  return static_cast<float>(code - q.zero_point) * static_cast<float>(q.scale);
}
int64_t Quantized(float x, const UniformQuantizer& q, int64_t low, int64_t high) {
  const auto code = static_cast<int64_t>(std::nearbyintf(x / static_cast<float>(q.scale)));
  return std::clamp(code + q.zero_point, low, high);
}

TEST(UniformQuantizer, GivesItsOwnNumbersBack) {
  for (int k = 0; k < 4000; ++k) {
    // Scales with all kinds of significands, from 1e-9 to 1e9.
    const auto scale = static_cast<float>(std::exp(0.0104 * (k - 2000)) * (1 + 1e-7 * k));
    for (const bool wide : {false, true}) {
      const int64_t low = wide ? -32768 : 0, high = wide ? 32767 : 255;
      const UniformQuantizer q = {wide ? TensorProto::INT16 : TensorProto::UINT8, scale,
                                  wide ? -7 : 131};
      for (int64_t code = low; code <= high; code += wide ? 97 : 1) {
        const float x = Dequantized(code, q);
        ASSERT_EQ(Quantized(x, q, low, high), code) << scale;
        ASSERT_EQ(q.Round(x), static_cast<double>(x)) << scale << " " << code;
      }
    }
  }
}

TEST(UniformQuantizer, RoundsAndSaturates) {
  const UniformQuantizer q = {TensorProto::INT8, 0.5, 10};
  EXPECT_EQ(q.Round(0), 0);
  EXPECT_EQ(q.Round(0.74), 0.5);
  EXPECT_EQ(q.Round(1e9), (127 - 10) * 0.5);
  EXPECT_EQ(q.Round(-1e9), (-128 - 10) * 0.5);
}

Graph GraphOf(const char* text) {
  auto model = std::make_shared<onnx::ModelProto>();
  onnx::OnnxParser parser(text);
  EXPECT_TRUE(parser.Parse(*model).IsOK());
  auto graph = Graph::Build(std::move(model));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

constexpr char kHead[] = R"(<ir_version: 8, opset_import: ["" : 18]>
m (float[B,P,4] past, float[B,S,4] rows) => (float[B,T,4] present)
<float step = {0.5}, float other = {0.25}, uint8 zero = {128}>
)";

TEST(QuantizerOfRows, IsThatOfAllPartsButThePast) {
  struct Case {
    const char* name;
    const char* body;
    bool found;
  };
  const Case cases[] = {
      {"whole", R"({ all = Concat<axis = 1>(past, rows)
                     codes = QuantizeLinear(all, step, zero)
                     present = DequantizeLinear(codes, step, zero) })",
       true},
      {"rows", R"({ codes = QuantizeLinear(rows, step, zero)
                    rounded = DequantizeLinear(codes, step, zero)
                    present = Concat<axis = 1>(past, rounded) })",
       true},
      {"two scales", R"({ codes = QuantizeLinear(rows, step, zero)
                          rounded = DequantizeLinear(codes, other, zero)
                          present = Concat<axis = 1>(past, rounded) })",
       false},
      {"two quantisers", R"({ codes = QuantizeLinear(rows, step, zero)
                              rounded = DequantizeLinear(codes, step, zero)
                              more = QuantizeLinear(rows, other, zero)
                              again = DequantizeLinear(more, other, zero)
                              present = Concat<axis = 1>(past, rounded, again) })",
       false},
      {"rows as they are", "{ present = Concat<axis = 1>(past, rows) }", false},
      {"changed", R"({ twice = Add(past, past)
                       codes = QuantizeLinear(rows, step, zero)
                       rounded = DequantizeLinear(codes, step, zero)
                       present = Concat<axis = 1>(twice, rounded) })",
       false},
  };
  for (const Case& c : cases) {
    const Graph graph = GraphOf((std::string(kHead) + c.body).c_str());
    const auto q = QuantizerOfRows(graph, graph.Find("past"), graph.Find("present"));
    EXPECT_EQ(q.has_value(), c.found) << c.name;
    if (c.found) {
      EXPECT_EQ(q, (UniformQuantizer{TensorProto::UINT8, 0.5, 128})) << c.name;
    }
  }
}

}  // namespace
}  // namespace kvlift
