// LIBS: sym onnxio
// A probe answers as an emitter with the same bindings would, and says which inputs nodes read.
#include "sym/emit/emission_probe.h"

#include <memory>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"

namespace kvlift::sym {
namespace {

using onnx::TensorProto;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class EmissionProbeTest : public testing::Test {
 protected:
  EmissionProbeTest()
      : graph_(*Graph::Build(std::make_shared<const onnx::ModelProto>(*ParseModelText(
            "<ir_version: 10, opset_import: [\"\" : 24]> "
            "g (int64[B, S] ids, float[B, T] mask) => (int64[B, S] y, float[B, T] z) "
            "{ y = Identity(ids) z = Identity(mask) }")))),
        forms_(graph_),
        probe_(forms_) {}

  ValueId ids() const { return graph_.Find("ids"); }
  ValueId mask() const { return graph_.Find("mask"); }
  Expr Past() { return forms_.pool().Dim(past_); }
  // A vector of `extent` numbers, each of them P + i0.
  Emitter::Request Positions(Expr extent, int batch_axis = -1) {
    const Expr element = forms_.pool().Add(Past(), forms_.pool().Index(0));
    return {element, {extent}, TensorProto::INT64, batch_axis, "positions"};
  }

  Graph graph_;
  Forms forms_;
  EmissionProbe probe_;
  const DimSymbol past_ = DimSymbol::Internal("P");
};

TEST_F(EmissionProbeTest, SymbolsNeedABindingOrAnInput) {
  EXPECT_FALSE(probe_.Dim(Past()).ok());
  EXPECT_TRUE(probe_.Dim(forms_.Of(ids()).shape[1]).ok());
  probe_.BindDim(past_, false);
  EXPECT_TRUE(probe_.Dim(Past()).ok());
}

TEST_F(EmissionProbeTest, NumbersPerSequenceNeedABatchAxis) {
  const Expr batch = forms_.Of(ids()).shape[0];
  probe_.BindDim(past_, true);
  EXPECT_TRUE(probe_.IsPerSequence(Positions(batch).element));
  EXPECT_FALSE(probe_.Dim(Past()).ok());
  EXPECT_FALSE(probe_.Tensor(Positions(batch)).ok());
  EXPECT_TRUE(probe_.Tensor(Positions(batch, 0)).ok());
  probe_.BindDim(past_, false);
  EXPECT_FALSE(probe_.IsPerSequence(Positions(batch).element));
}

TEST_F(EmissionProbeTest, NamesTheInputsThatAreRead) {
  probe_.BindDim(past_, false);
  EXPECT_THAT(probe_.InputsOfDim(forms_.Of(mask()).shape[1]), ElementsAre(mask()));
  EXPECT_THAT(probe_.InputsOf(Positions(forms_.Of(ids()).shape[1])), ElementsAre(ids()));
  EXPECT_THAT(probe_.InputsOf(Positions(forms_.pool().Integer(3))), ElementsAre());
  const Expr row = forms_.pool().Load(mask(), {forms_.pool().Integer(0), forms_.pool().Index(0)});
  const std::vector<ValueId> read = probe_.InputsOf(
      {row, {forms_.Of(ids()).shape[1]}, TensorProto::FLOAT, -1, "row", true, {{mask(), {1}}}});
  EXPECT_THAT(std::set<ValueId>(read.begin(), read.end()), UnorderedElementsAre(ids(), mask()));
}

TEST_F(EmissionProbeTest, AddsNoNodes) {
  NodeBuilder nodes(graph_);
  Emitter emitter(forms_, nodes);
  ASSERT_TRUE(probe_.Dim(forms_.Of(ids()).shape[1]).ok());
  const auto length = emitter.Dim(forms_.Of(ids()).shape[1]);
  ASSERT_TRUE(length.ok());
  EXPECT_EQ(*length, "/kvlift/shared/S");
}

}  // namespace
}  // namespace kvlift::sym
