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

constexpr char kHead[] = R"(<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
m (float[B,P,4] past, float[B,S,4] rows) => (float[B,T,4] present)
<float step = {0.5}, float other = {0.25}, uint8 zero = {128}>
)";

TEST(QuantizerMaking, NeedsTheTypeOfTheCodes) {
  const std::string head =
      "<ir_version: 8, opset_import: [\"\" : 18]>\nm (float[B,4] x, int8[B,4] c) => (float[B,4] y)"
      "\n<float step = {0.5}, float other = {0.25}, uint8 zero = {128}, int8 low = {-3}>\n";
  const auto making = [&](const char* body) {
    const Graph graph = GraphOf((head + body).c_str());
    return QuantizerMaking(graph, graph.Find("y"));
  };
  EXPECT_EQ(making("{ y = DequantizeLinear(c, step, low) }"),
            (UniformQuantizer{TensorProto::INT8, 0.5, -3}));
  // The codes are int8, which nothing here says.
  EXPECT_EQ(making("{ y = DequantizeLinear(c, step) }"), std::nullopt);
  EXPECT_EQ(making("{ d = QuantizeLinear(x, step)  y = DequantizeLinear(d, step) }"),
            (UniformQuantizer{TensorProto::UINT8, 0.5, 0}));
  EXPECT_EQ(making("{ d = QuantizeLinear(x, other)  y = DequantizeLinear(d, step) }"),
            std::nullopt);
}

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
      {"codes", R"({ past_codes = QuantizeLinear(past, step, zero)
                     codes = QuantizeLinear(rows, step, zero)
                     all = Concat<axis = 1>(past_codes, codes)
                     present = DequantizeLinear(all, step, zero) })",
       true},
      {"codes of two scales", R"({ past_codes = QuantizeLinear(past, other, zero)
                     codes = QuantizeLinear(rows, other, zero)
                     all = com.microsoft.QLinearConcat<axis = 1>(step, zero, past_codes, other,
                         zero, codes, other, zero)
                     present = DequantizeLinear(all, step, zero) })",
       true},
      {"codes beside a past that is not rounded", R"({
                     codes = QuantizeLinear(rows, other, zero)
                     more = Identity(codes)
                     turned = Transpose<perm = [0, 1, 2]>(more)
                     rounded = DequantizeLinear(turned, step, zero)
                     present = Concat<axis = 1>(past, rounded) })",
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
