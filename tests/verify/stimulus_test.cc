// LIBS: verify sym onnxio
// Values that verify writes into tensors of any element type.
#include "verify/inputs/stimulus.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exec/memory/tensor.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "ir/types.h"
#include "support/forms_fixture.h"

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

// Returns a step of one sequence.
StepSpec StepOfOne(int64_t past, int64_t new_tokens) {
  StepSpec step;
  step.past = {past};
  step.sequences = {0};
  step.new_tokens = new_tokens;
  return step;
}

// A padding token would hardly ever be drawn from a large vocabulary.
TEST(StimulusTest, TokensThatAModelComparesWithAreFed) {
  testing::FormsOfText text(testing::ModelText("(int64[B,S] ids) => (float[B,S,1] y, bool[B,S] z)",
                                               "table = RandomNormal <shape = [50000, 1]> ()\n"
                                               "seven = Constant <value = int64 {777}> ()\n"
                                               "y = Gather (table, ids)\n"
                                               "z = Equal (ids, seven)"));
  onnx::ModelProto model = text.graph().model();
  onnx::TensorProto* table = model.mutable_graph()->add_initializer();
  table->set_name("table");
  table->set_data_type(onnx::TensorProto::FLOAT);
  table->add_dims(50000);
  table->add_dims(1);
  table->mutable_raw_data()->resize(50000 * sizeof(float));
  model.mutable_graph()->mutable_node()->DeleteSubrange(0, 1);
  const auto graph = Graph::Build(std::make_shared<const onnx::ModelProto>(std::move(model)));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto stimulus = Stimulus::Create(*graph, *graph, Manifest(), 1);
  ASSERT_TRUE(stimulus.ok()) << stimulus.status();
  const auto fed = stimulus->Feed("ids", StepOfOne(0, 400), 400);
  ASSERT_TRUE(fed.ok()) << fed.status();
  const auto ids = fed->span<int64_t>();
  for (int64_t token : {0, 1, 2, 777}) {
    EXPECT_GT(std::count(ids.begin(), ids.end(), token), 0) << token;
  }
  EXPECT_GT(std::count_if(ids.begin(), ids.end(), [](int64_t id) { return id > 777; }), 300);
}

// A mask among the new tokens has no column for the past: a token sees itself and those before it,
// whether it is told in bools, integers or numbers above 0.
TEST(StimulusTest, AMaskAmongNewTokensLetsEachSeeItself) {
  for (const std::string type : {"bool", "int64", "float"}) {
    SCOPED_TRACE(type);
    testing::FormsOfText text(testing::ModelText(
        "(int64[B,S] ids, float[B,2,S,8] scores, " + type + "[S,S] tree) => (float[B,2,S,8] y)",
        "zero = Constant <value = float {0}> ()\nlow = Constant <value = float {-1000}> ()\n"
        "number = Cast <to = 1> (tree)\nsees = Greater (number, zero)\n"
        "m = Where (sees, zero, low)\nmasked = Add (scores, m)\ny = Softmax (masked)"));
    const auto stimulus = Stimulus::Create(text.graph(), text.graph(), Manifest(), 1);
    ASSERT_TRUE(stimulus.ok()) << stimulus.status();
    const auto fed = stimulus->Feed("tree", StepOfOne(5, 3), 16);
    ASSERT_TRUE(fed.ok()) << fed.status();
    ASSERT_EQ(fed->size(), 9);
    for (int64_t token = 0; token < 3; ++token) {
      for (int64_t key = 0; key < 3; ++key) {
        EXPECT_EQ(exec::ElementAsDouble(fed->view(), 3 * token + key), key <= token ? 1 : 0);
      }
    }
  }
}

}  // namespace
}  // namespace kvlift
