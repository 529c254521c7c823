#include "kvlift/reports/saved_documents.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_join.h"
#include "base/status.h"
#include "fmt/format.h"
#include "onnxio/model/model.h"

namespace kvlift::cli {
namespace {

bool IsSameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::weakly_canonical(a, error) == std::filesystem::weakly_canonical(b, error);
}

}  // namespace

absl::StatusOr<SavedDocument> ReadSaved(const std::string& text,
                                        absl::Span<const std::string> formats) {
  const size_t sign = text.find('=');
  SavedDocument saved{text.substr(0, sign), sign == std::string::npos ? "" : text.substr(sign + 1)};
  if (saved.file.empty() ||
      std::find(formats.begin(), formats.end(), saved.format) == formats.end()) {
    return absl::InvalidArgumentError(fmt::format(
        "'{}' is not FORMAT=FILE, with a format out of {}", text, absl::StrJoin(formats, ", ")));
  }
  return saved;
}

absl::Status SaveDocuments(
    absl::Span<const std::string> saved, absl::Span<const std::string> formats,
    absl::Span<const std::string> inputs,
    const std::function<absl::StatusOr<std::string>(const std::string& format)>& in_format) {
  std::vector<OutputFile> files;
  for (const std::string& text : saved) {
    KV_ASSIGN_OR_RETURN(const SavedDocument one, ReadSaved(text, formats));
    for (const std::string& input : inputs) {
      if (!IsSameFile(input, one.file)) continue;
      return absl::FailedPreconditionError(fmt::format("{} is an input", one.file));
    }
    for (const OutputFile& other : files) {
      if (!IsSameFile(other.path, one.file)) continue;
      return absl::FailedPreconditionError(fmt::format("{} is named twice", one.file));
    }
    KV_ASSIGN_OR_RETURN(std::string document, in_format(one.format));
    files.push_back({one.file, std::move(document)});
  }
  return files.empty() ? absl::OkStatus() : WriteFiles(files);
}

}  // namespace kvlift::cli
