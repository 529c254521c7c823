// LIBS: verify
// Values that verify writes into tensors of any element type.
#include "verify/inputs/stimulus.h"

#include <algorithm>
#include <vector>

#include "exec/memory/tensor.h"
#include "gtest/gtest.h"
#include "ir/types.h"

namespace kvlift {
namespace {

TEST(StoreDoubleTest, WritesItsElementAndNothingElseWhateverTheType) {
  int types = 0;
  for (int32_t type = 1; type <= onnx::TensorProto::DataType_MAX; ++type) {
    if (!IsFloatType(type) && !IsIntegerType(type) && type != onnx::TensorProto::BOOL) continue;
    if (ElementBits(type) == 6) continue;  // the executor has none
    SCOPED_TRACE(ElementTypeName(type));
    ++types;
    constexpr int kElements = 13;
    std::vector<std::byte> memory(256, std::byte{0x5a});
    exec::View view;
    view.type = type;
    view.shape = {kElements};
    view.data = memory.data();
    const int64_t bytes = view.bytes();
    std::fill_n(memory.begin(), bytes, std::byte{0});
    StoreDouble(view, 1, 1.0);
    const double untouched = exec::ElementAsDouble(view, 0);
    StoreDouble(view, kElements - 1, 1.0);
    for (int i = 0; i < kElements; ++i) {
      EXPECT_EQ(exec::ElementAsDouble(view, i), i == 1 || i == kElements - 1 ? 1.0 : untouched)
          << i;
    }
    EXPECT_TRUE(std::all_of(memory.begin() + bytes, memory.end(),
                            [](std::byte b) { return b == std::byte{0x5a}; }));
  }
  EXPECT_GE(types, 20);
}

}  // namespace
}  // namespace kvlift
