#include "support/verdict.h"

#include <memory>

#include "absl/strings/str_replace.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"

namespace kvlift {

Model ModelOfText(const std::string& text) {
  auto proto = ParseModelText(text);
  EXPECT_TRUE(proto.ok()) << proto.status() << text;
  Model model;
  if (proto.ok()) model.proto = std::make_shared<const onnx::ModelProto>(*std::move(proto));
  return model;
}

VerifyReport VerdictOn(const std::string& before, const std::string& after,
                       const Manifest& relation) {
  const Model source = ModelOfText(before), converted = ModelOfText(after);
  if (source.proto == nullptr || converted.proto == nullptr) return {};
  const auto report = Verify(source, converted, relation, {});
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : VerifyReport{};
}

std::string Summary(const VerifyReport& report) {
  std::string text = report.reason + "\n";
  for (const PlanResult& plan : report.plans) {
    text +=
        fmt::format("  {}: {} after {} steps: {}\n", plan.name, plan.status, plan.steps, plan.note);
  }
  for (const ControlResult& control : report.controls) {
    if (control.detected_by.empty()) text += fmt::format("  {} not detected\n", control.mutant);
  }
  return text;
}

std::string With(const std::string& text, const std::string& from, const std::string& to) {
  EXPECT_NE(text.find(from), std::string::npos) << from;
  return absl::StrReplaceAll(text, {{from, to}});
}

Manifest RelationOf(const std::vector<CacheEnds>& caches, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs) {
  Manifest m;
  for (const CacheEnds& ends : caches) {
    ManifestCache c;
    c.id = "of " + ends.input;
    c.role = CacheRole::kKeyValue;
    c.input = ends.input;
    c.output = ends.output;
    c.dtype = ends.dtype;
    c.layout = ends.layout;
    c.axis = static_cast<int64_t>(c.layout.find('S'));
    c.alias = CacheAlias::kCopy;
    c.source = {c.input, c.output, ends.kind, c.layout, c.axis, ends.growing, {}};
    m.caches.push_back(c);
    m.inputs.push_back({c.input, CacheInput{c.id}});
    m.outputs.push_back({c.output, CacheOutput{c.id}});
  }
  for (const std::string& name : inputs) m.inputs.push_back({name, SameInput{}});
  for (const std::string& name : outputs) m.outputs.push_back({name, SameOutput{}});
  return m;
}

Manifest OneLayerRelation(const std::vector<std::string>& same) {
  Manifest m;
  for (const CacheRole role : {CacheRole::kKey, CacheRole::kValue}) {
    const std::string word(WordOf(role)), letter = word.substr(0, 1);
    ManifestCache c;
    c.id = "0." + word;
    c.role = role;
    c.input = "p" + letter;
    c.output = "n" + letter;
    c.dtype = "float32";
    c.layout = "BNSD";
    c.alias = CacheAlias::kSafe;
    c.source = {c.input, c.output, UpdateKind::kConcat, "BNSD", 2, true, {}};
    m.caches.push_back(c);
    m.inputs.push_back({c.input, CacheInput{c.id}});
    m.outputs.push_back({c.output, CacheOutput{c.id}});
  }
  for (const std::string& name : same) m.inputs.push_back({name, SameInput{}});
  AddControl(&m);
  m.outputs.push_back({"logits", SameOutput{}});
  return m;
}

void AddControl(Manifest* relation) {
  relation->inputs.push_back({"at", ControlInput{ControlValue::kPastLength, "int64", {"B"}}});
}

}  // namespace kvlift
