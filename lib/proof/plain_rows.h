// Caches of GroupQueryAttention in few bits, as its text has them. With s a scale for all of a
// cache or one for each element of each head: a row is kept as x * (1 / s), rounded to even and
// clipped, in int8, or in uint8 with two of them in a byte, from -8 to 7 and 8 more each, the first
// in the low half; and read as that times s. Internal to lib/proof.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proof/plain_writer.h"

namespace kvlift::plain {

struct KeptRows {
  int64_t bits = 0;  // 0: as they are
  int64_t groups = 0, width = 0;
  std::vector<float> scale;
};

// Reads how the past at input 3 + side is kept; false if it is nothing of that kind. `scale`: the
// constant at input 12 + side, null if there is none.
bool ReadKeptRows(const onnx::NodeProto& node, int side, int64_t groups, int64_t width,
                  const onnx::TensorProto* scale, KeptRows* rows);

// [B, groups, S, width] as the cache has it, and back.
std::string Kept(const KeptRows& rows, const std::string& x, Writer& w);
std::string Unkept(const KeptRows& rows, const std::string& cache, Writer& w);

}  // namespace kvlift::plain
