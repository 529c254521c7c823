#include "fuzz/targets.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "contract/manifest.h"
#include "contract/manifest_text.h"
#include "exec/memory/budget.h"
#include "fmt/format.h"
#include "fuzz/execute.h"
#include "lint/lint.h"
#include "onnxio/bytes/tensors.h"
#include "onnxio/model/model.h"
#include "rewrite/convert/convert.h"
#include "support/escape_checks.h"
#include "sym/expr/expr.h"
#include "verify/judge/verify.h"

namespace kvlift::fuzz {
namespace {

// The folder of external data, which has a file data.bin.
constexpr const char* kDataFolder = KVLIFT_TESTDATA_DIR "/fuzz";

std::optional<Model> Load(std::string_view bytes) {
  auto model = LoadModelBytes(std::string(bytes), kDataFolder);
  if (!model.ok()) {
    Require(!model.status().message().empty(), "an error without a message");
    return std::nullopt;
  }
  return *std::move(model);
}

// Choices that depend only on the bytes, so that an input always means the same.
class Choices {
 public:
  explicit Choices(std::string_view bytes) {
    for (const char c : bytes) state_ = (state_ ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  uint64_t Below(uint64_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % n;
  }

 private:
  uint64_t state_ = 0xcbf29ce484222325u;
};

// A mutation can easily make a model that is large or never ends.
void LimitRuns() {
  Limits limits;
  limits.elements = 1 << 20;
  limits.run_bytes = 256 << 20;
  limits.step_seconds = 2;
  exec::SetRunLimits(limits);
  sym::SetMaxSteps(1'000'000);
}

void FuzzLoad(std::string_view bytes) {
  const auto model = Load(bytes);
  if (!model) return;
  ForEachTensor(*model->proto, [&](const onnx::TensorProto& tensor) {
    (void)ReadTensorBytes(tensor, model->base_dir);
  });
  const auto saved = SerializeModel(*model->proto);
  Require(saved.ok(), "what was read cannot be written");
  const auto again = Load(*saved);
  Require(again.has_value(), "what was written cannot be read");
  Require(*SerializeModel(*again->proto) == *saved, "written twice, other bytes");
}

void FuzzText(std::string_view bytes) {
  const auto model = ParseModelText(std::string(bytes));
  if (model.ok()) (void)PrintModelText(*model);
}

void LintWithManifest(const Model& model) {
  const auto manifest = ManifestFromMetadata(*model.proto);
  (void)LintModel(model, manifest.ok() ? &*manifest : nullptr);
}

void FuzzCheck(std::string_view bytes) {
  const auto model = Load(bytes);
  if (!model) return;
  LintWithManifest(*model);
  (void)LintModel(*model, nullptr, static_cast<Profile>(Choices(bytes).Below(4)));
  (void)CheckModel(*model->proto);
  (void)InferShapes(*model->proto);
}

ConvertOptions SomeOptions(Choices& choices) {
  ConvertOptions options;
  if (choices.Below(2) == 0) options.max_seq_len = static_cast<int64_t>(1 + choices.Below(40));
  options.target = static_cast<kvlift::Target>(choices.Below(3));
  options.control = static_cast<Control>(choices.Below(3));
  options.mask = static_cast<MaskForm>(choices.Below(3));
  options.read = static_cast<ReadForm>(choices.Below(3));
  options.padding = static_cast<Padding>(choices.Below(3));
  options.mode = static_cast<WriteMode>(choices.Below(2));
  options.allow_partial = choices.Below(2) == 0;
  if (choices.Below(4) == 0) options.layout = Layout::kBnsd;
  if (choices.Below(8) == 0) options.cache_tensors = CacheTensors::kPacked;
  options.rotary = static_cast<Rotary>(choices.Below(3));
  const bool plain =
      options.target == kvlift::Target::kSpec || options.target == kvlift::Target::kOrt;
  if (plain && choices.Below(4) == 0) {
    options.window = WindowForm::kCircular;
    if (choices.Below(2) == 0)
      options.window_capacity = static_cast<int64_t>(2 + choices.Below(20));
  }
  constexpr std::array kSchemes = {"int8:2", "int8:4", "int8:channel", "fp8"};
  if (choices.Below(4) == 0) {
    options.quantize_cache = ReadCacheQuantization(kSchemes[choices.Below(kSchemes.size())]);
  }
  return options;
}

std::optional<Conversion> ConvertSomehow(const Model& model, Choices& choices) {
  auto conversion = Convert(model, SomeOptions(choices), AllRules());
  if (!conversion.ok()) {
    Require(!absl::IsInternal(conversion.status()), conversion.status().ToString());
    return std::nullopt;
  }
  if (!conversion->model) return std::nullopt;
  return *std::move(conversion);
}

std::string WhyInvalid(const onnx::ModelProto& model,
                       const absl::StatusOr<std::vector<Lint>>& lints) {
  const auto checked = CheckModel(model);
  if (!checked.ok()) return "not valid: " + checked.ToString();
  if (!lints.ok()) return "cannot be linted: " + lints.status().ToString();
  const Finding* error = FirstError(*lints);
  return error == nullptr ? std::string() : error->code + " " + error->text;
}

// Returns true for valid models that run as they declare. Promises are only made for these.
bool IsFit(const Model& model) {
  LimitRuns();
  return WhyInvalid(*model.proto, LintModel(model, nullptr)).empty() &&
         InferShapes(*model.proto).ok() && RunsAsDeclared(model);
}

// A conversion of a valid model that runs as it declares must be valid and free of errors of our
// own rules.
void FuzzConvert(std::string_view bytes) {
  const auto model = Load(bytes);
  if (!model) return;
  LimitRuns();
  (void)Inspect(*model, AllRules());
  Choices choices(bytes);
  const auto conversion = ConvertSomehow(*model, choices);
  if (!conversion) return;
  Model result = *model;
  onnx::ModelProto stamped = *conversion->model;
  StampMetadata(conversion->manifest, &stamped);
  result.proto = std::make_shared<const onnx::ModelProto>(std::move(stamped));
  const auto lints = LintModel(result, &conversion->manifest);
  const std::string why = WhyInvalid(*result.proto, lints);
  Require(why.empty() || !IsFit(*model), "the result: " + why);
}

// A conversion of a valid model that runs as it declares must never be proved different.
void FuzzProve(std::string_view bytes) {
  const auto model = Load(bytes);
  if (!model || model->proto->ByteSizeLong() > 100000) return;
  Choices choices(bytes);
  const auto conversion = ConvertSomehow(*model, choices);
  if (!conversion) return;
  Model result = *model;
  result.proto = std::make_shared<const onnx::ModelProto>(*conversion->model);
  LimitRuns();
  VerifyOptions options;
  options.threads = 1;
  options.controls = false;
  const auto report = Verify(*model, result, conversion->manifest, options);
  if (!report.ok() || report->verdict != VerdictKind::kDifferent) return;
  Require(!IsFit(*model), "a conversion is proved different: " + report->reason);
}

void FuzzExecute(std::string_view bytes) {
  const auto model = Load(bytes);
  LimitRuns();
  if (model && model->proto->ByteSizeLong() < 200000)
    ExecuteSomehow(*model, Choices(bytes).Below(1u << 30));
}

// Verifies a converted pair with the manifest of another conversion, or an arbitrary one.
void FuzzManifest(std::string_view bytes) {
  const auto manifest = ManifestFromJson(bytes);
  if (!manifest.ok()) {
    Require(!manifest.status().message().empty(), "an error without a message");
    return;
  }
  const std::string text = ManifestText(*manifest);
  const auto again = ManifestFromJson(text);
  Require(again.ok(), "what was written cannot be read: " + again.status().ToString());
  Require(ManifestText(*again) == text, "written twice, other text");
  LimitRuns();
  for (const auto& [before, after] : SmallPairs()) {
    Model stamped = after;
    onnx::ModelProto proto = *after.proto;
    StampMetadata(*manifest, &proto);
    stamped.proto = std::make_shared<const onnx::ModelProto>(std::move(proto));
    Require(ManifestFromMetadata(*stamped.proto).ok(), "a stamp that cannot be read");
    (void)LintModel(stamped, &*manifest);
    VerifyOptions options;
    options.threads = 1;
    options.controls = false;
    (void)Verify(before, stamped, *manifest, options);
  }
}

void FuzzEscape(std::string_view bytes) {
  const std::string broken = BrokenEscape(bytes);
  Require(broken.empty(), broken);
}

}  // namespace

void Require(bool condition, std::string_view what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

const std::vector<Target>& Targets() {
  static const std::vector<Target> targets = {
      {"load", Form::kModel, &FuzzLoad},        {"text", Form::kText, &FuzzText},
      {"check", Form::kModel, &FuzzCheck},      {"convert", Form::kModel, &FuzzConvert},
      {"prove", Form::kModel, &FuzzProve},      {"execute", Form::kModel, &FuzzExecute},
      {"manifest", Form::kJson, &FuzzManifest}, {"escape", Form::kText, &FuzzEscape}};
  return targets;
}

const Target* FindTarget(std::string_view name) {
  for (const Target& target : Targets()) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

}  // namespace kvlift::fuzz
