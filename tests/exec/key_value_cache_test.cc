// LIBS: exec onnxio
// KeyValueCache of OpenPPL: layouts, quantised rows and heads that stand several times, against
// the operator's text written out coordinate by coordinate; numbers computed by hand.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "exec/kernel_harness.h"
#include "exec/noise.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace kvlift::exec {
namespace {

using onnx::TensorProto;

struct Case {
  int64_t B = 2, most = 3, S = 3, Nk = 2, D = 8, M = 9, start = 4;
  int64_t layers = 3, layer = 1, layout = 0, bits = 0, group = 4, repeat = 1;

  Shape Packed(int64_t width) const {
    if (layout == 0) return {most, layers, 2, M, Nk, width};
    return {layers, most, 2, Nk, M, width};
  }
  // Element of a packed tensor.
  int64_t At(int64_t b, int64_t role, int64_t t, int64_t h, int64_t d, int64_t width) const {
    const Shape shape = Packed(width);
    const Shape at = layout == 0 ? Shape{b, layer, role, t, h, d} : Shape{layer, b, role, h, t, d};
    int64_t index = 0;
    for (size_t k = 0; k < shape.size(); ++k) index = index * shape[k] + at[k];
    return index;
  }
};

Tensor Start(int64_t start) {
  return Tensor::From<int64_t>(TensorProto::INT64, {}, std::vector<int64_t>{start});
}

OpRun Node(const Case& c, const std::string& domain = "pmx") {
  return OpRun("KeyValueCache", 1, domain)
      .Outputs(c.bits == 0 ? 3 : 4)
      .Int("num_layer", c.layers)
      .Int("layer_idx", c.layer)
      .Int("quant_bit", c.bits)
      .Int("quant_group", c.group)
      .Int("num_repeat", c.repeat)
      .Int("cache_layout", c.layout);
}

TEST(ExecKeyValueCache, RowsAreKeptAsTheyAre) {
  for (const int64_t layout : {0, 1}) {
    for (const int64_t repeat : {1, 3}) {
      Case c;
      c.layout = layout;
      c.repeat = repeat;
      const Shape rows = {c.B, c.S, c.Nk, c.D};
      const Tensor key = Noise(rows, 1), value = Noise(rows, 2), cache = Noise(c.Packed(c.D), 3);
      const auto out = Node(c).Run({key, value, Start(c.start), cache});
      ASSERT_TRUE(out.ok()) << out.status();
      std::vector<float> want = Copy<float>(cache);
      for (int64_t i = 0; i < key.size(); ++i) {
        const int64_t d = i % c.D, h = i / c.D % c.Nk, s = i / c.D / c.Nk % c.S;
        const int64_t b = i / c.D / c.Nk / c.S;
        want[c.At(b, 0, c.start + s, h, d, c.D)] = key.span<float>()[i];
        want[c.At(b, 1, c.start + s, h, d, c.D)] = value.span<float>()[i];
      }
      EXPECT_EQ(Copy<float>((*out)[2]), want);
      for (int64_t role = 0; role < 2; ++role) {
        const Tensor& all = (*out)[role];
        ASSERT_EQ(all.shape(), (Shape{c.B, c.start + c.S, c.Nk * repeat, c.D}));
        for (int64_t i = 0; i < all.size(); ++i) {
          const int64_t d = i % c.D, h = i / c.D % (c.Nk * repeat);
          const int64_t t = i / c.D / (c.Nk * repeat) % (c.start + c.S);
          const int64_t b = i / c.D / (c.Nk * repeat) / (c.start + c.S);
          ASSERT_EQ(all.span<float>()[i], want[c.At(b, role, t, h / repeat, d, c.D)]) << i;
        }
      }
    }
  }
}

TEST(ExecKeyValueCache, RowsAreQuantisedByGroups) {
  for (const int64_t layout : {0, 1}) {
    Case c;
    c.layout = layout;
    c.bits = 8;
    c.repeat = 2;
    const int64_t groups = c.D / c.group;
    const Shape rows = {c.B, c.S, c.Nk, c.D};
    const Tensor key = Noise(rows, 4), value = Noise(rows, 5);
    std::fill_n(key.span<float>().begin(), c.group, 0.0F);
    const Tensor cache = NoiseBytes(c.Packed(c.D), 6), scale = Noise(c.Packed(groups), 7);
    const auto out = Node(c, "opmx").Run({key, value, Start(c.start), cache, scale});
    ASSERT_TRUE(out.ok()) << out.status();
    std::vector<int8_t> kept = Copy<int8_t>(cache);
    std::vector<float> scales = Copy<float>(scale);
    for (int64_t g = 0; g < key.size() / c.group; ++g) {
      const int64_t at = g * c.group, h = at / c.D % c.Nk, s = at / c.D / c.Nk % c.S;
      const int64_t b = at / c.D / c.Nk / c.S, d = at % c.D;
      for (int64_t role = 0; role < 2; ++role) {
        const float* x = (role == 0 ? key : value).span<float>().data() + at;
        float largest = 0;
        for (int64_t k = 0; k < c.group; ++k) largest = std::fmax(largest, std::fabs(x[k]));
        const float unit = largest / 127 < 1e-5F ? 1e-5F : largest / 127;
        scales[c.At(b, role, c.start + s, h, d / c.group, groups)] = unit;
        for (int64_t k = 0; k < c.group; ++k) {
          kept[c.At(b, role, c.start + s, h, d + k, c.D)] =
              static_cast<int8_t>(std::lrint(x[k] / unit));
        }
      }
    }
    EXPECT_EQ(Copy<int8_t>((*out)[2]), kept);
    EXPECT_EQ(Copy<float>((*out)[3]), scales);
    const Tensor& all = (*out)[1];
    ASSERT_EQ(all.shape(), (Shape{c.B, c.start + c.S, c.Nk * c.repeat, c.D}));
    for (int64_t i = 0; i < all.size(); ++i) {
      const int64_t d = i % c.D, h = i / c.D % (c.Nk * c.repeat) / c.repeat;
      const int64_t t = i / c.D / (c.Nk * c.repeat) % (c.start + c.S);
      const int64_t b = i / c.D / (c.Nk * c.repeat) / (c.start + c.S);
      const float want = static_cast<float>(kept[c.At(b, 1, t, h, d, c.D)]) *
                         scales[c.At(b, 1, t, h, d / c.group, groups)];
      ASSERT_EQ(all.span<float>()[i], want) << i;
    }
  }
}

// 2 / 127 is the unit of the first group: 1 is 63.5 of it and goes to the even 64.
TEST(ExecKeyValueCache, TiesGoToEvenAndZerosHaveTheSmallestScale) {
  Case c;
  c.B = c.most = c.S = c.Nk = c.layers = 1;
  c.layer = c.start = 0;
  c.M = 2;
  c.bits = 8;
  const Tensor key = Tensor::From<float>(TensorProto::FLOAT, {1, 1, 1, 8},
                                         std::vector<float>{1, -2, 0.5F, 0, 0, 0, 0, 0});
  const Tensor cache = Tensor::Zeros(TensorProto::INT8, c.Packed(8));
  const Tensor scale = Tensor::Zeros(TensorProto::FLOAT, c.Packed(2));
  const auto out = Node(c).Run({key, key, Start(0), cache, scale});
  ASSERT_TRUE(out.ok()) << out.status();
  const std::vector<int8_t> kept = Copy<int8_t>((*out)[2]);
  EXPECT_EQ(std::vector<int8_t>(kept.begin(), kept.begin() + 8),
            (std::vector<int8_t>{64, -127, 32, 0, 0, 0, 0, 0}));
  const std::vector<float> scales = Copy<float>((*out)[3]);
  EXPECT_EQ(scales[0], 2.0F / 127);
  EXPECT_EQ(scales[1], 1e-5F);
}

TEST(ExecKeyValueCache, HalfRowsAreDividedInHalf) {
  Case c;
  c.B = c.most = c.S = c.Nk = c.layers = 1;
  c.layer = c.start = 0;
  c.M = 1;
  c.bits = 8;
  Tensor key(TensorProto::FLOAT16, {1, 1, 1, 8});
  const float x[] = {1, -2, 0.5F, 0.25F, 3, 0, 0, 1};
  for (int64_t i = 0; i < 8; ++i) key.span<uint16_t>()[i] = FloatToHalf(x[i]);
  const Tensor cache = Tensor::Zeros(TensorProto::INT8, c.Packed(8));
  const Tensor scale = Tensor::Zeros(TensorProto::FLOAT16, c.Packed(2));
  const auto out = Node(c).Run({key, key, Start(0), cache, scale});
  ASSERT_TRUE(out.ok()) << out.status();
  for (int64_t g = 0; g < 2; ++g) {
    const float unit = HalfToFloat(FloatToHalf((g == 0 ? 2.0F : 3.0F) / 127));
    EXPECT_EQ((*out)[3].span<uint16_t>()[g], FloatToHalf(unit));
    for (int64_t i = g * 4; i < g * 4 + 4; ++i) {
      const long q = std::lrint(HalfToFloat(FloatToHalf(x[i] / unit)));
      EXPECT_EQ((*out)[2].span<int8_t>()[i], q);
      EXPECT_EQ((*out)[0].span<uint16_t>()[i], FloatToHalf(static_cast<float>(q) * unit));
    }
  }
}

TEST(ExecKeyValueCache, RefusesWhatDoesNotFit) {
  const Case fits;
  const auto refuses = [](const Case& c, int64_t start, const std::string& text) {
    const Shape rows = {c.B, c.S, c.Nk, c.D};
    const Tensor cache = c.bits == 0 ? Noise(c.Packed(c.D), 3) : NoiseBytes(c.Packed(c.D), 3);
    const auto out =
        Node(c).Run({Noise(rows, 1), Noise(rows, 2), Start(start), cache,
                     c.bits == 0 ? Tensor() : Noise(c.Packed(std::max<int64_t>(1, c.D / 4)), 4)});
    ASSERT_FALSE(out.ok()) << text;
    EXPECT_NE(std::string(out.status().message()).find(text), std::string::npos) << out.status();
  };
  refuses(fits, 7, "exceed");
  refuses(fits, -1, "exceed");
  Case c = fits;
  c.layer = 3;
  refuses(c, 0, "layer_idx");
  c = fits;
  c.layout = 2;
  refuses(c, 0, "cache_layout");
  c = fits;
  c.most = 1;
  refuses(c, 0, "does not fit");
  c = fits;
  c.bits = 4;
  refuses(c, 0, "quant_bit 4");
  c = fits;
  c.bits = 8;
  c.group = 3;
  refuses(c, 0, "quant_group");
  c = fits;
  c.repeat = 0;
  refuses(c, 0, "num_repeat");
  const Shape rows = {c.B, c.S, c.Nk, c.D};
  const auto in_place = Node(fits).Outputs(2).Run(
      {Noise(rows, 1), Noise(rows, 2), Start(0), Noise(fits.Packed(fits.D), 3)});
  EXPECT_EQ(in_place.status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace kvlift::exec
