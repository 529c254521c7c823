// LIBS: exec onnxio
// KeyValueCache of OpenPPL's dynamic batching: sequences joined on one axis, in one piece or in
// pages, in all layouts, against the operator's text written out coordinate by coordinate.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "exec/kernel_harness.h"
#include "exec/noise.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace kvlift::exec {
namespace {

using onnx::TensorProto;
using Numbers = std::vector<int64_t>;

struct Case {
  Numbers past = {4, 0, 2}, added = {2, 3, 1};
  Numbers places = {9, 0, 20};  // of pages: a row for each sequence
  int64_t Nk = 2, D = 8, M = 24, layers = 3, layer = 1, layout = 0;
  int64_t mode = 0, page_size = 2, bits = 0, group = 4, repeat = 1;

  int64_t Sum(bool all) const {
    int64_t sum = 0;
    for (size_t b = 0; b < past.size(); ++b) sum += added[b] + (all ? past[b] : 0);
    return sum;
  }
  Numbers Starts(bool all) const {
    Numbers starts = {0};
    for (size_t b = 0; b < past.size(); ++b) {
      starts.push_back(starts.back() + added[b] + (all ? past[b] : 0));
    }
    return starts;
  }
  int64_t Slot(size_t b, int64_t t) const {
    if (mode == 0) return places[b] + t;
    const size_t pages = places.size() / past.size();
    return places[b * pages + static_cast<size_t>(t / page_size)] + t % page_size;
  }
  Shape Packed(int64_t width) const {
    if (layout == 0) return {M, layers, 2, Nk, width};
    if (layout == 1) return {layers, M, 2, Nk, width};
    if (layout == 2) return {layers, 2, M, Nk, width};
    return {layers, 2, Nk, M, width};
  }
  // Element of a packed tensor.
  int64_t At(int64_t slot, int64_t role, int64_t h, int64_t d, int64_t width) const {
    const Shape at = layout == 0   ? Shape{slot, layer, role, h, d}
                     : layout == 1 ? Shape{layer, slot, role, h, d}
                     : layout == 2 ? Shape{layer, role, slot, h, d}
                                   : Shape{layer, role, h, slot, d};
    const Shape shape = Packed(width);
    int64_t index = 0;
    for (size_t k = 0; k < shape.size(); ++k) index = index * shape[k] + at[k];
    return index;
  }
};

Tensor Indices(const Numbers& numbers, Shape shape = {}) {
  if (shape.empty()) shape = {static_cast<int64_t>(numbers.size())};
  return Tensor::From<int64_t>(TensorProto::INT64, shape, numbers);
}

absl::StatusOr<std::vector<Tensor>> Outcome(const Case& c, const Tensor& key, const Tensor& value,
                                            const Tensor& cache, const Tensor& scale,
                                            const Numbers& seqstarts, const Numbers& kvstarts,
                                            const std::string& domain = "pmx") {
  const auto sequences = static_cast<int64_t>(c.past.size());
  const auto places = static_cast<int64_t>(c.places.size());
  const Tensor table = Indices(
      c.places, c.mode == 0 ? Shape{places} : Shape{sequences, sequences ? places / sequences : 0});
  return OpRun("KeyValueCache", 1, domain + ".dynamic_batching")
      .Outputs(c.bits == 0 ? 3 : 4)
      .Int("num_layer", c.layers)
      .Int("layer_idx", c.layer)
      .Int("quant_bit", c.bits)
      .Int("quant_group", c.group)
      .Int("num_repeat", c.repeat)
      .Int("cache_mode", c.mode)
      .Int("page_size", c.page_size)
      .Int("cache_layout", c.layout)
      .Run({key, value, Indices(seqstarts), Indices(kvstarts), table, Indices(c.past),
            Indices({3}, {1}), Indices({6}, {1}), cache, scale});
}

// Runs the case and holds every element against the text.
void Check(const Case& c) {
  SCOPED_TRACE(
      fmt::format("layout {} mode {} bits {} repeat {}", c.layout, c.mode, c.bits, c.repeat));
  const int64_t groups = c.D / c.group;
  const Shape rows = {c.Sum(false), c.Nk, c.D};
  const Tensor key = Noise(rows, 1), value = Noise(rows, 2);
  const Tensor cache = c.bits == 0 ? Noise(c.Packed(c.D), 3) : NoiseBytes(c.Packed(c.D), 3);
  const Tensor scale = c.bits == 0 ? Tensor() : Noise(c.Packed(groups), 4);
  const auto out = Outcome(c, key, value, cache, scale, c.Starts(false), c.Starts(true));
  ASSERT_TRUE(out.ok()) << out.status();
  std::vector<float> kept, scales;
  if (c.bits == 0) {
    kept = Copy<float>(cache);
  } else {
    for (const int8_t x : cache.span<int8_t>()) kept.push_back(x);
    scales = Copy<float>(scale);
  }
  int64_t row = 0;
  for (size_t b = 0; b < c.past.size(); ++b) {
    for (int64_t s = 0; s < c.added[b]; ++s, ++row) {
      const int64_t slot = c.Slot(b, c.past[b] + s);
      for (int64_t role = 0; role < 2; ++role) {
        for (int64_t i = 0; i < c.Nk * c.D; ++i) {
          const float* x = (role == 0 ? key : value).span<float>().data() + row * c.Nk * c.D;
          const int64_t h = i / c.D, d = i % c.D;
          float& to = kept[static_cast<size_t>(c.At(slot, role, h, d, c.D))];
          if (c.bits == 0) {
            to = x[i];
            continue;
          }
          float largest = 0;
          const float* first = x + i / c.group * c.group;
          for (int64_t k = 0; k < c.group; ++k) largest = std::fmax(largest, std::fabs(first[k]));
          const float unit = largest / 127 < 1e-5F ? 1e-5F : largest / 127;
          to = static_cast<float>(std::lrint(x[i] / unit));
          scales[static_cast<size_t>(c.At(slot, role, h, d / c.group, groups))] = unit;
        }
      }
    }
  }
  if (c.bits == 0) {
    EXPECT_EQ(Copy<float>((*out)[2]), kept);
  } else {
    const auto bytes = Copy<int8_t>((*out)[2]);
    EXPECT_EQ(std::vector<float>(bytes.begin(), bytes.end()), kept);
    EXPECT_EQ(Copy<float>((*out)[3]), scales);
  }
  for (int64_t role = 0; role < 2; ++role) {
    const Tensor& all = (*out)[static_cast<size_t>(role)];
    ASSERT_EQ(all.shape(), (Shape{c.Sum(true), c.Nk * c.repeat, c.D}));
    int64_t i = 0;
    for (size_t b = 0; b < c.past.size(); ++b) {
      for (int64_t t = 0; t < c.past[b] + c.added[b]; ++t) {
        for (int64_t h = 0; h < c.Nk * c.repeat; ++h) {
          for (int64_t d = 0; d < c.D; ++d, ++i) {
            const int64_t slot = c.Slot(b, t);
            float want = kept[static_cast<size_t>(c.At(slot, role, h / c.repeat, d, c.D))];
            if (c.bits != 0) {
              want *=
                  scales[static_cast<size_t>(c.At(slot, role, h / c.repeat, d / c.group, groups))];
            }
            ASSERT_EQ(all.span<float>()[static_cast<size_t>(i)], want) << b << ' ' << t;
          }
        }
      }
    }
  }
}

TEST(ExecJoinedKeyValue, SequencesInOnePiece) {
  for (const int64_t layout : {0, 1, 2, 3}) {
    for (const int64_t bits : {0, 8}) {
      Case c;
      c.layout = layout;
      c.bits = bits;
      c.repeat = layout % 2 == 0 ? 3 : 1;
      Check(c);
    }
  }
}

TEST(ExecJoinedKeyValue, SequencesInPages) {
  for (const int64_t layout : {0, 1, 2, 3}) {
    for (const int64_t bits : {0, 8}) {
      Case c;
      c.layout = layout;
      c.bits = bits;
      c.repeat = layout % 2 == 0 ? 1 : 2;
      c.mode = 1;
      c.places = {4, 0, 12, 8, 10, 99, 23, 18, -7};
      c.past = {4, 0, 0};
      c.added = {2, 3, 1};
      // The last page of the last sequence has one row in the last slot.
      c.places[6] = 23;
      Check(c);
    }
  }
}

TEST(ExecJoinedKeyValue, OneSequenceAndOneWithoutNewRows) {
  Case c;
  c.past = {5};
  c.added = {3};
  c.places = {16};
  Check(c);
  c.past = {4, 3};
  c.added = {1, 0};
  c.places = {0, 8};
  Check(c);
}

TEST(ExecJoinedKeyValue, RefusesWhatDoesNotFit) {
  const auto refuses = [](const Case& c, const std::string& text, const Numbers& seqstarts,
                          const Numbers& kvstarts) {
    const Shape rows = {c.Sum(false), c.Nk, c.D};
    const auto out = Outcome(c, Noise(rows, 1), Noise(rows, 2), Noise(c.Packed(c.D), 3), Tensor(),
                             seqstarts, kvstarts, "opmx");
    ASSERT_FALSE(out.ok()) << text;
    EXPECT_NE(std::string(out.status().message()).find(text), std::string::npos) << out.status();
  };
  const auto refuses_case = [&](const Case& c, const std::string& text) {
    refuses(c, text, c.Starts(false), c.Starts(true));
  };
  const Case fits;
  Case c = fits;
  c.places = {9, 0, 22};  // slots 22 to 24 of 24
  refuses_case(c, "3 rows of sequence 2 from 22 on exceed 24 slots");
  c.places = {9, -1, 20};
  refuses_case(c, "sequence 1 from -1 on exceed");
  c.places = {9, 0};
  refuses_case(c, "not of as many sequences");
  c = fits;
  c.mode = 1;
  c.places = {0, 2, 4, 6, 8, 10};
  refuses_case(c, "6 rows of sequence 0 exceed its 2 pages");
  c.places = {0, 2, 24, 6, 8, 10, 12, 14, 16};
  refuses_case(c, "2 rows of sequence 0 from 24 on exceed");
  c = fits;
  c.layout = 4;
  refuses_case(c, "cache_layout");
  c = fits;
  c.mode = 2;
  refuses_case(c, "cache_mode");
  c = fits;
  c.page_size = 0;
  c.mode = 1;
  refuses_case(c, "page_size");
  c = fits;
  c.past[0] = -1;
  refuses_case(c, "at -1");
  refuses(fits, "seqstarts must begin with 0", {1, 2, 5, 6}, fits.Starts(true));
  refuses(fits, "seqstarts must begin with 0", {0, 5, 2, 6}, fits.Starts(true));
  refuses(fits, "seqstarts ends with 5", {0, 2, 4, 5}, {0, 6, 8, 10});
  refuses(fits, "kvstarts must begin with 0", fits.Starts(false), {0, 6, 5, 12});
  refuses(fits, "sequence 1 has 4 rows after 3 new ones at 0", fits.Starts(false), {0, 6, 10, 12});
}

}  // namespace
}  // namespace kvlift::exec
