#include "kvlift/reports/saved_documents.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/status.h"
#include "fmt/format.h"
#include "onnxio/model/model.h"

namespace kvlift::cli {
absl::StatusOr<SavedDocument> ReadSaved(const std::string& text,
                                        absl::Span<const std::string> formats) {
  const size_t sign = text.find('=');
  SavedDocument saved{text.substr(0, sign), sign == std::string::npos ? "" : text.substr(sign + 1)};
  if (saved.file.empty() ||
      std::find(formats.begin(), formats.end(), saved.format) == formats.end()) {
    return absl::InvalidArgumentError(fmt::format(
        "'{}' is not FORMAT=FILE, with a format out of {}", text, absl::StrJoin(formats, ", ")));
  }
  if (const std::string why = OutputNameError(saved.file); !why.empty()) {
    return absl::InvalidArgumentError(fmt::format("'{}': {}", text, why));
  }
  return saved;
}

absl::StatusOr<std::vector<std::string>> FilesOfSaved(absl::Span<const std::string> saved,
                                                      absl::Span<const std::string> formats) {
  std::vector<std::string> files;
  for (const std::string& text : saved) {
    KV_ASSIGN_OR_RETURN(SavedDocument one, ReadSaved(text, formats));
    files.push_back(std::move(one.file));
  }
  return files;
}

absl::Status SaveDocuments(
    absl::Span<const std::string> saved, absl::Span<const std::string> formats,
    const OutputGuard& guard,
    const std::function<absl::StatusOr<std::string>(const std::string& format)>& in_format) {
  std::vector<OutputFile> files;
  KV_ASSIGN_OR_RETURN(const std::vector<std::string> paths, FilesOfSaved(saved, formats));
  KV_RETURN_IF_ERROR(guard.Check(paths));
  for (const std::string& text : saved) {
    KV_ASSIGN_OR_RETURN(const SavedDocument one, ReadSaved(text, formats));
    KV_ASSIGN_OR_RETURN(std::string document, in_format(one.format));
    files.push_back({one.file, std::move(document)});
  }
  return files.empty() ? absl::OkStatus() : WriteFiles(files);
}

}  // namespace kvlift::cli
