// Documents that a command writes besides what it prints (--save FORMAT=FILE), so that one run
// gives a build server all that it shows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvlift/outputs.h"

namespace kvlift::cli {

// The formats of --format for findings and verdicts.
inline const std::vector<std::string> kFormats = {"text", "json", "github", "junit", "sarif"};

struct SavedDocument {
  std::string format, file;
};

// Reads "FORMAT=FILE", with a format out of `formats`. Returns InvalidArgument for anything else.
absl::StatusOr<SavedDocument> ReadSaved(const std::string& text,
                                        absl::Span<const std::string> formats);

// Returns the files of texts that ReadSaved takes. Fails as ReadSaved.
absl::StatusOr<std::vector<std::string>> FilesOfSaved(absl::Span<const std::string> saved,
                                                      absl::Span<const std::string> formats);

// Writes each document, whose text `in_format` gives: all of them, or none. `saved` are texts that
// ReadSaved takes. Fails as `guard`, as `in_format` and as WriteFiles.
absl::Status SaveDocuments(
    absl::Span<const std::string> saved, absl::Span<const std::string> formats,
    const OutputGuard& guard,
    const std::function<absl::StatusOr<std::string>(const std::string& format)>& in_format);

}  // namespace kvlift::cli
