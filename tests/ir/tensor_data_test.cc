// LIBS: ir
#include "ir/tensor_data.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/types.h"

namespace kvlift {
namespace {

using onnx::TensorProto;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TensorProto Raw(int32_t type, const std::vector<int64_t>& dims, const std::string& bytes) {
  TensorProto tensor;
  tensor.set_name("t");
  tensor.set_data_type(type);
  tensor.mutable_dims()->Add(dims.begin(), dims.end());
  tensor.set_raw_data(bytes);
  return tensor;
}

TensorProto Typed(int32_t type, const std::vector<int32_t>& entries, int64_t count) {
  TensorProto tensor = Raw(type, {count}, "");
  tensor.mutable_int32_data()->Add(entries.begin(), entries.end());
  return tensor;
}

TEST(ReadInts, RawAndTyped) {
  EXPECT_THAT(*ReadInts(MakeInt64Tensor("t", {2}, {-1, 5})), ElementsAre(-1, 5));
  EXPECT_THAT(*ReadInts(Raw(TensorProto::INT8, {2}, "\xff\x05")), ElementsAre(-1, 5));
  EXPECT_THAT(*ReadInts(Raw(TensorProto::UINT8, {2}, "\xff\x05")), ElementsAre(255, 5));
  EXPECT_THAT(*ReadInts(Raw(TensorProto::INT16, {1}, "\xfe\xff")), ElementsAre(-2));
  EXPECT_THAT(*ReadInts(Raw(TensorProto::UINT32, {1}, "\xff\xff\xff\xff")),
              ElementsAre(4294967295));
  EXPECT_THAT(*ReadInts(Raw(TensorProto::BOOL, {2}, std::string("\0\x02", 2))), ElementsAre(0, 1));
  EXPECT_THAT(*ReadInts(Typed(TensorProto::INT16, {-3, 7}, 2)), ElementsAre(-3, 7));
  EXPECT_THAT(*ReadInts(Typed(TensorProto::INT32, {-3}, 1)), ElementsAre(-3));
  EXPECT_THAT(*ReadInts(Raw(TensorProto::INT64, {0, 3}, "")), IsEmpty());
  EXPECT_THAT(*ReadInts(MakeInt64Tensor("t", {}, {9})), ElementsAre(9));
}

TEST(ReadInts, PackedTypesStartAtTheLowBits) {
  EXPECT_THAT(*ReadInts(Raw(TensorProto::INT4, {3}, "\xf1\x08")), ElementsAre(1, -1, -8));
  EXPECT_THAT(*ReadInts(Raw(TensorProto::UINT4, {3}, "\xf1\x08")), ElementsAre(1, 15, 8));
  EXPECT_THAT(*ReadInts(Raw(TensorProto::UINT2, {4}, "\xe4")), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(*ReadInts(Raw(TensorProto::INT2, {4}, "\xe4")), ElementsAre(0, 1, -2, -1));
  EXPECT_THAT(*ReadInts(Typed(TensorProto::INT4, {0xf1, 0x08}, 3)), ElementsAre(1, -1, -8));
}

TEST(ReadInts, Uint64AboveInt64IsRefused) {
  EXPECT_EQ(ReadInts(Raw(TensorProto::UINT64, {1}, std::string(8, '\xff'))).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(*ReadInts(Raw(TensorProto::UINT64, {1}, std::string("\x03\0\0\0\0\0\0\0", 8))),
              ElementsAre(3));
}

TEST(ReadInts, WrongDataIsRefused) {
  const auto message = [](const TensorProto& tensor) {
    const auto status = ReadInts(tensor).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message(Raw(TensorProto::INT64, {2}, "12345678")), HasSubstr("8 bytes"));
  EXPECT_THAT(message(Raw(TensorProto::INT64, {1}, "123456789")), HasSubstr("9 bytes"));
  EXPECT_THAT(message(Raw(TensorProto::INT64, {-1}, "")), HasSubstr("negative"));
  EXPECT_THAT(message(Raw(TensorProto::INT64, {1LL << 40, 1LL << 40}, "")), HasSubstr("2^62"));
  EXPECT_THAT(message(Raw(TensorProto::FLOAT, {1}, "1234")), HasSubstr("float32"));
  EXPECT_THAT(message(Typed(TensorProto::INT64, {1}, 1)), HasSubstr("0 bytes"));
  TensorProto both = MakeInt64Tensor("t", {1}, {1});
  both.set_raw_data("12345678");
  EXPECT_THAT(message(both), HasSubstr("more than one value field"));
}

TEST(ReadInts, ExternalDataIsNotRead) {
  TensorProto tensor = Raw(TensorProto::INT64, {1}, "");
  tensor.set_data_location(TensorProto::EXTERNAL);
  EXPECT_EQ(ReadInts(tensor).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ReadFloats, EveryWidth) {
  EXPECT_THAT(*ReadFloats(Raw(TensorProto::FLOAT, {1}, std::string("\0\0\xc0\x3f", 4))),
              ElementsAre(1.5));
  EXPECT_THAT(*ReadFloats(Typed(TensorProto::FLOAT16, {0x3e00, 0xc000, 0x0001, 0x0400}, 4)),
              ElementsAre(1.5, -2.0, std::ldexp(1.0, -24), std::ldexp(1.0, -14)));
  EXPECT_THAT(*ReadFloats(Typed(TensorProto::BFLOAT16, {0x3fc0, 0xff80}, 2)),
              ElementsAre(1.5, -INFINITY));
  EXPECT_THAT(*ReadFloats(Typed(TensorProto::FLOAT16, {0xfc00}, 1)), ElementsAre(-INFINITY));
  EXPECT_TRUE(std::isnan(ReadFloats(Typed(TensorProto::FLOAT16, {0x7e00}, 1))->at(0)));
  TensorProto wide = Raw(TensorProto::DOUBLE, {1}, "");
  wide.add_double_data(0.1);
  EXPECT_THAT(*ReadFloats(wide), ElementsAre(0.1));
  EXPECT_FALSE(ReadFloats(MakeInt64Tensor("t", {1}, {1})).ok());
}

TEST(ByteSize, RoundsUpAndDoesNotOverflow) {
  EXPECT_EQ(*ByteSize(TensorProto::INT4, 3), 2);
  EXPECT_EQ(*ByteSize(TensorProto::FLOAT6E2M3, 5), 4);
  EXPECT_EQ(*ByteSize(TensorProto::FLOAT, 0), 0);
  EXPECT_FALSE(ByteSize(TensorProto::DOUBLE, int64_t{1} << 61).ok());
  EXPECT_FALSE(ByteSize(TensorProto::STRING, 1).ok());
}

TEST(NumElements, ZeroWinsWhereverItStands) {
  EXPECT_EQ(*NumElements(Raw(TensorProto::INT8, {1LL << 40, 1LL << 40, 0}, "")), 0);
  EXPECT_EQ(*NumElements(Raw(TensorProto::INT8, {}, "")), 1);
}

TEST(ElementTypes, NamesBitsAndKinds) {
  EXPECT_EQ(ElementTypeName(TensorProto::FLOAT), "float32");
  EXPECT_EQ(ElementTypeName(TensorProto::UNDEFINED), "undefined");
  EXPECT_EQ(ElementTypeName(4711), "type4711");
  for (int type = 1; type <= 28; ++type)
    EXPECT_EQ(ElementTypeName(type).find("type"), std::string::npos);
  EXPECT_TRUE(IsFloatType(TensorProto::BFLOAT16));
  EXPECT_FALSE(IsFloatType(TensorProto::COMPLEX64));
  EXPECT_TRUE(IsIntegerType(TensorProto::UINT4));
  EXPECT_FALSE(IsIntegerType(TensorProto::BOOL));
  EXPECT_EQ(ElementBits(TensorProto::INT4), 4);
  EXPECT_EQ(ElementBits(TensorProto::STRING), 0);
}

}  // namespace
}  // namespace kvlift
