// Mutants that break a rule of the format, of an operator or of the relation, and mutants that read
// a past after it was updated in place.
#include "ir/types.h"
#include "verify/mutants/mutant_kinds.h"

namespace kvlift {
namespace {

using onnx::NodeProto;

void Rules(MutantMaker& m, const MutantSites& s) {
  m.Group("graph");
  if (!s.scatters().empty() || !s.attentions().empty()) {
    m.AddModel("opset 23", [](onnx::ModelProto* model) {
      for (auto& opset : *model->mutable_opset_import()) {
        if (opset.domain().empty() || opset.domain() == "ai.onnx") opset.set_version(23);
      }
    });
    m.ShownBy(Detector::kRules);
  }
  if (!s.scatters().empty() && s.graph().model().ir_version() >= 12) {
    m.AddModel("IR version 10", [](onnx::ModelProto* model) { model->set_ir_version(10); });
    m.ShownBy(Detector::kRules);
  }
  m.AddModel("an input that nobody reads", [](onnx::ModelProto* model) {
    auto* input = model->mutable_graph()->add_input();
    input->set_name("mutant.input");
    auto* type = input->mutable_type()->mutable_tensor_type();
    type->set_elem_type(onnx::TensorProto::INT64);
    type->mutable_shape()->add_dim()->set_dim_value(1);
  });
  m.ShownBy(Detector::kRules);
  const std::string output = s.relation().caches.back().output;
  m.AddModel("an output left out", [output](onnx::ModelProto* model) {
    auto* outputs = model->mutable_graph()->mutable_output();
    for (int k = outputs->size() - 1; k >= 0; --k) {
      if (outputs->Get(k).name() == output) outputs->DeleteSubrange(k, 1);
    }
  });
  m.ShownBy(Detector::kRules);
  const std::string input = s.relation().caches.back().input;
  m.AddModel("a past that is an output, too", [input](onnx::ModelProto* model) {
    auto& graph = *model->mutable_graph();
    for (const auto& in : graph.input()) {
      if (in.name() != input) continue;
      auto* value = graph.add_output();
      *value = in;
      value->set_name("mutant.past");
      *graph.add_node() = MutantMaker::Make("Identity", {input}, "mutant.past");
      return;
    }
  });
  m.ShownBy(Detector::kRules);
  if (s.attentions().empty()) return;
  const NodeId last = s.attentions().back();
  const auto key = s.ScatterBehind(s.Input(last, kKeyOperand));
  const auto value = s.ScatterBehind(s.Input(last, kValueOperand));
  if (!key || !value) return;
  m.Add("valid length beside a past", {}, [&](NodeId n, NodeProto* node, auto*) {
    if (n != last) return;
    node->set_input(kPastKeyOperand, s.Name(*key, kCacheOperand));
    node->set_input(kPastKeyOperand + 1, s.Name(*value, kCacheOperand));
  });
  m.ShownBy(Detector::kRules);
}

// Adds 0 * max(past - present) to an output: no result changes, but the past is read after the
// write, so that the cache may not be updated in place.
void LateReaders(MutantMaker& m, const MutantSites& s) {
  m.Group("aliasing");
  const Graph& graph = s.graph();
  std::string carrier;
  for (const ManifestOutput& output : s.relation().outputs) {
    const ValueId v = graph.Find(output.name);
    if (!IsCache(output) && v != kNoValue && IsFloatType(graph.type(v).elem_type) &&
        graph.producer(v) != kNoNode && !s.Captured(v)) {
      carrier = output.name;
      break;
    }
  }
  if (carrier.empty()) return;
  const ValueId v = graph.Find(carrier);
  const int32_t type = graph.type(v).elem_type;
  for (const NodeId writer : s.WrittenPlaces()) {
    const std::string past = s.Name(writer, kCacheOperand);
    const std::string now = graph.name(graph.outputs(writer)[0]);
    if (!IsFloatType(s.CacheType(writer).elem_type)) continue;
    m.Add("past read after the write" + s.Label(writer),
          {MutantMaker::Scalar("mutant.none", type, 0)}, [&](NodeId, NodeProto* node, auto*) {
            for (std::string& output : *node->mutable_output()) {
              if (output != carrier) continue;
              output = "mutant.carrier";
              m.After(MutantMaker::Make("Sub", {past, now}, "mutant.difference"));
              m.After(MutantMaker::Make("ReduceMax", {"mutant.difference"}, "mutant.largest",
                                        {MutantMaker::IntAttr("keepdims", 0)}));
              m.After(MutantMaker::Make("Cast", {"mutant.largest"}, "mutant.number",
                                        {MutantMaker::IntAttr("to", type)}));
              m.After(MutantMaker::Make("Mul", {"mutant.number", "mutant.none"}, "mutant.zero"));
              m.After(MutantMaker::Make("Add", {"mutant.carrier", "mutant.zero"}, carrier));
            }
          });
    m.ShownBy(Detector::kAlias);
    for (const ManifestCache& cache : s.relation().caches) {
      if (cache.input == past && cache.alias != CacheAlias::kSafe) {
        m.Equivalent("the relation claims no update in place for " + past);
      }
    }
  }
}

}  // namespace

void AddGraphMutants(MutantMaker& maker, const MutantSites& sites) {
  Rules(maker, sites);
  LateReaders(maker, sites);
}

}  // namespace kvlift
