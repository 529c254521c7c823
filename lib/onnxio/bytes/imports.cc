#include "onnxio/bytes/imports.h"

#include <map>
#include <string>
#include <string_view>

#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

using Imports = google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>;

std::string NameOf(std::string_view domain) {
  return domain.empty() ? "the default domain"
                        : fmt::format("the domain \"{}\"", EscapeTerminal(domain));
}

absl::Status Unite(const std::string& importer, Imports* imports) {
  std::map<std::string, int64_t> versions;
  for (int k = 0; k < imports->size();) {
    const onnx::OperatorSetIdProto& import = imports->Get(k);
    const std::string domain = import.domain() == "ai.onnx" ? "" : import.domain();
    const auto [first, fresh] = versions.emplace(domain, import.version());
    if (!fresh && first->second != import.version()) {
      return Coded("KV023", absl::InvalidArgumentError(
                                fmt::format("{} imports {} twice, in versions {} and {}", importer,
                                            NameOf(domain), first->second, import.version())));
    }
    if (fresh) {
      ++k;
    } else {
      imports->DeleteSubrange(k, 1);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status UniteImports(onnx::ModelProto* model) {
  KV_RETURN_IF_ERROR(Unite("the model", model->mutable_opset_import()));
  for (onnx::FunctionProto& function : *model->mutable_functions()) {
    KV_RETURN_IF_ERROR(Unite(fmt::format("the function \"{}\"", EscapeTerminal(function.name())),
                             function.mutable_opset_import()));
  }
  return absl::OkStatus();
}

}  // namespace kvlift
