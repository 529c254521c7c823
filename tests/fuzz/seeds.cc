#include "fuzz/seeds.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "contract/manifest.h"
#include "contract/manifest_text.h"
#include "onnxio/model/model.h"
#include "rewrite/convert/convert.h"
#include "support/case_file.h"

namespace kvlift::fuzz {
namespace {

Model AsModel(onnx::ModelProto proto) {
  Model model;
  model.proto = std::make_shared<const onnx::ModelProto>(std::move(proto));
  return model;
}

}  // namespace

std::vector<std::string> Seeds(const Target& target) {
  std::vector<std::string> seeds;
  for (const std::string& path : CaseFiles()) {
    const auto c = LoadCase(path);
    Require(c.ok(), path + ": " + c.status().ToString());
    std::vector<std::string> texts = {c->before};
    if (c->after) texts.push_back(*c->after);
    if (target.form == Form::kJson) {
      const auto conversion = Convert(AsModel(*ParseModelText(c->before)), c->options, AllRules());
      if (conversion.ok() && conversion->model) seeds.push_back(ManifestText(conversion->manifest));
    } else if (target.form == Form::kModel) {
      for (const std::string& text : texts) seeds.push_back(*SerializeModel(*ParseModelText(text)));
    } else {
      seeds.insert(seeds.end(), texts.begin(), texts.end());
    }
  }
  return seeds;
}

std::string ReadInput(const Target& target, const std::string& path) {
  std::string bytes = ReadFile(path);
  if (target.form != Form::kModel || !absl::EndsWith(path, ".onnxtxt")) return bytes;
  const auto model = ParseModelText(bytes);
  Require(model.ok(), path + ": " + model.status().ToString());
  return *SerializeModel(*model);
}

std::vector<std::pair<std::string, std::string>> Regressions(const Target& target) {
  namespace fs = std::filesystem;
  std::vector<std::pair<std::string, std::string>> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(KVLIFT_TESTDATA_DIR "/fuzz", none)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(std::string(target.name) + "_", 0) != 0) continue;
    found.emplace_back(name, ReadInput(target, entry.path().string()));
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace kvlift::fuzz
