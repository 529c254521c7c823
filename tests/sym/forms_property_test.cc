// LIBS: sym exec
// SRCS: support/expr_eval.cc support/random_graph.cc support/random_counts.cc
// SRCS: support/random_writes.cc
// Random graphs, run by the executor: the form of every value must give every element of what the
// nodes computed.
#include <cmath>
#include <map>
#include <memory>

#include "exec/session/program.h"
#include "exec/session/session.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "support/expr_eval.h"
#include "support/random_graph.h"
#include "sym/forms/forms.h"

namespace kvlift::testing {
namespace {

constexpr int kGraphs = 300;  // a family

exec::Tensor MakeTensor(const RandomGraph::Feed& feed) {
  exec::Tensor tensor(feed.type, exec::Shape(feed.shape.begin(), feed.shape.end()));
  for (size_t i = 0; i < feed.values.size(); ++i) {
    if (feed.type == onnx::TensorProto::FLOAT) {
      tensor.span<float>()[i] = static_cast<float>(feed.values[i]);
    } else if (feed.type == onnx::TensorProto::INT64) {
      tensor.span<int64_t>()[i] = static_cast<int64_t>(feed.values[i]);
    } else {
      tensor.span<uint8_t>()[i] = feed.values[i] != 0;
    }
  }
  return tensor;
}

int64_t Offset(const exec::Shape& shape, absl::Span<const int64_t> at) {
  int64_t offset = 0;
  for (size_t k = 0; k < shape.size(); ++k) {
    if (at[k] < 0 || at[k] >= shape[k]) return -1;
    offset = offset * shape[k] + at[k];
  }
  return offset;
}

bool SameNumber(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// One graph, run once.
class Trial {
 public:
  explicit Trial(const RandomGraph& random) : random_(random) {}

  absl::Status Execute() {
    auto graph = Graph::Build(std::make_shared<onnx::ModelProto>(random_.model()));
    if (!graph.ok()) return graph.status();
    graph_ = std::make_shared<Graph>(*std::move(graph));
    auto program = exec::Program::Compile(graph_, {});
    if (!program.ok()) return program.status();
    exec::Session session(*program);
    exec::Feeds feeds;
    for (const RandomGraph::Feed& feed : random_.feeds()) feeds[feed.name] = MakeTensor(feed);
    exec::Fetches fetches;
    const absl::Status status = session.Step(feeds, &fetches);
    if (!status.ok()) return status;
    for (const auto& [name, tensor] : feeds) values_[graph_->Find(name)] = tensor;
    for (const auto& [name, tensor] : fetches) values_[graph_->Find(name)] = tensor;
    for (const onnx::TensorProto& constant : graph_->proto().initializer()) {
      auto tensor = exec::Tensor::FromProto(constant, "");
      if (!tensor.ok()) return tensor.status();
      values_[graph_->Find(constant.name())] = *tensor;
    }
    environment_.dims = random_.dims();
    environment_.load = [this](ValueId v, absl::Span<const int64_t> at) { return Load(v, at); };
    forms_ = std::make_unique<sym::Forms>(*graph_);
    for (const auto& [v, tensor] : values_) forms_->Of(v);
    return absl::OkStatus();
  }

  // What was assumed holds for this run. Assumptions about every index are not checked.
  bool AssumptionsHold() {
    environment_.indices.clear();
    for (const sym::FormAssumption& assumption : forms_->assumptions()) {
      const auto truth = Evaluate(assumption.predicate, environment_);
      if (truth && *truth == 0) return false;
    }
    return true;
  }

  // Extents that are equal by chance, of this run, are not taken as equal: nothing is known then.
  void Check(int64_t* elements, int64_t* opaque, int64_t* unknown) {
    for (NodeId n = 0; n < graph_->num_nodes(); ++n) {
      for (ValueId v : graph_->outputs(n)) {
        if (!values_.contains(v)) continue;
        SCOPED_TRACE(graph_->node(n).op_type() + " " + graph_->name(v));
        if (forms_->Of(v).known_rank) {
          CheckValue(v, elements, opaque);
        } else {
          ++*unknown;
        }
      }
    }
  }

 private:
  std::optional<double> Load(ValueId v, absl::Span<const int64_t> at) const {
    const auto it = values_.find(v);
    if (it == values_.end() || it->second.shape().size() != at.size()) return std::nullopt;
    const int64_t offset = Offset(it->second.shape(), at);
    if (offset < 0) return std::nullopt;
    return exec::ElementAsDouble(it->second.view(), offset);
  }

  void CheckValue(ValueId v, int64_t* elements, int64_t* opaque) {
    const sym::Form& form = forms_->Of(v);
    const exec::Tensor& tensor = values_.at(v);
    ASSERT_EQ(form.shape.size(), tensor.shape().size());
    EXPECT_EQ(forms_->ElementType(v), tensor.type());
    environment_.indices.clear();
    for (size_t k = 0; k < form.shape.size(); ++k) {
      const auto dim = Evaluate(form.shape[k], environment_);
      ASSERT_TRUE(dim.has_value()) << sym::ToString(form.shape[k], graph_.get());
      ASSERT_EQ(*dim, static_cast<double>(tensor.shape()[k]))
          << "axis " << k << ": " << sym::ToString(form.shape[k], graph_.get());
    }
    if (form.opaque) ++*opaque;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      environment_.indices.assign(form.shape.size(), 0);
      int64_t rest = i;
      for (size_t k = form.shape.size(); k-- > 0;) {
        environment_.indices[k] = rest % tensor.shape()[k];
        rest /= tensor.shape()[k];
      }
      const auto value = Evaluate(form.element, environment_);
      ASSERT_TRUE(value.has_value()) << sym::ToString(form.element, graph_.get());
      const double expected = exec::ElementAsDouble(tensor.view(), i);
      ASSERT_TRUE(SameNumber(*value, expected))
          << "element " << i << ": " << *value << " instead of " << expected << " from "
          << sym::ToString(form.element, graph_.get());
      ++*elements;
    }
  }

  const RandomGraph& random_;
  std::shared_ptr<Graph> graph_;
  std::unique_ptr<sym::Forms> forms_;
  std::map<ValueId, exec::Tensor> values_;
  Environment environment_;
};

class FormsProperty : public ::testing::TestWithParam<std::string> {};

TEST_P(FormsProperty, GivesWhatTheNodesCompute) {
  int64_t elements = 0, opaque = 0, unknown = 0, checked = 0;
  for (uint32_t seed = 0; seed < kGraphs; ++seed) {
    const RandomGraph random(seed, GetParam());
    Trial trial(random);
    const absl::Status status = trial.Execute();
    ASSERT_TRUE(status.ok()) << status << "\n" << random.model().ShortDebugString();
    if (!trial.AssumptionsHold()) continue;
    ++checked;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    trial.Check(&elements, &opaque, &unknown);
    ASSERT_FALSE(HasFatalFailure()) << random.model().ShortDebugString();
  }
  EXPECT_GT(checked, kGraphs / 2);
  EXPECT_GT(elements, 10 * kGraphs);
  EXPECT_LT(unknown, checked / 15);
  EXPECT_LT(opaque, GetParam() == "writes" ? checked / 20 : checked);  // of several a graph
}

INSTANTIATE_TEST_SUITE_P(Families, FormsProperty, ::testing::ValuesIn(RandomGraph::Families()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace kvlift::testing
