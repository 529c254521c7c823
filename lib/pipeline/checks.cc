#include "pipeline/checks.h"

#include <memory>
#include <string>

#include "base/coded.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "lint/lint.h"
#include "maintenance/slots.h"
#include "onnxio/contents.h"

namespace kvlift {

absl::Status CheckResult(const Model& result, const Manifest& manifest) {
  if (auto status = CheckModel(*result.proto); !status.ok()) return status;
  if (auto inferred = InferShapes(*result.proto); !inferred.ok()) return inferred.status();
  const auto lints = LintModel(result, &manifest);
  if (!lints.ok()) return lints.status();
  const Finding* error = FirstError(*lints);
  if (error == nullptr) return absl::OkStatus();
  return absl::InternalError(fmt::format("{} {}", error->code, error->text));
}

absl::Status CheckAddedNames(const Model& source, const Model& result) {
  return CheckNodeNames(*source.proto).ok() ? CheckNodeNames(*result.proto) : absl::OkStatus();
}

absl::Status BlameFor(const Model& source, const absl::Status& result) {
  const auto lints = LintModel(source, nullptr);
  if (!lints.ok()) return lints.status();
  if (const Finding* error = FirstError(*lints)) {
    return Coded(error->code, absl::InvalidArgumentError(error->text));
  }
  return absl::InternalError(
      fmt::format("internal error: the result is not valid: {}", std::string(result.message())));
}

void RefuseTree(Conversion* conversion) {
  if (!conversion->model) return;
  const auto graph = Graph::Build(std::make_shared<const onnx::ModelProto>(*conversion->model));
  if (!graph.ok()) return;  // CheckResult reports it
  const SlotReading slots = ReadSlots(*graph, conversion->manifest);
  if (!slots.refusal) return;
  conversion->model.reset();
  conversion->status = ConvertStatus::kRefused;
  Finding reason = *slots.refusal;
  reason.code = "KV235";
  for (CacheReport& cache : conversion->inspection.caches) {
    cache.converted = false;
    if (!cache.reason) cache.reason = reason;
  }
  for (AttentionReport& attention : conversion->inspection.attention) attention.converted = false;
}

}  // namespace kvlift
