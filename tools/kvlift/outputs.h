// Says why a command may not write its outputs, for all commands that write files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "onnxio/model/model.h"

namespace kvlift::cli {

// Returns an empty string, or what is wrong with the name of an output: "" and "-" name no file.
std::string OutputNameError(const std::string& path);
// Returns an empty string, or why a path names no folder to write.
std::string FolderNameError(const std::string& path);

// Returns the path of a folder without links and dots; "" is the current one.
std::filesystem::path CanonicalFolder(const std::filesystem::path& folder);

// Refuses outputs that would overwrite a file that the command reads, even with --force.
class OutputGuard {
 public:
  // force: outputs may replace files that are not inputs.
  explicit OutputGuard(bool force) : force_(force) {}

  // Adds a file that the command reads. Does nothing for "", "-" and paths that do not exist.
  void Reads(const std::string& path);
  // Adds the file of a model and its external data.
  void ReadsModel(const Model& model);
  // Adds the manifest beside a model.
  void ReadsManifestBeside(const std::string& model_path);

  // Returns OK if all files may be written. Otherwise a status with a code (KV501) and the path of
  // the file: it is an input, is another output as well, is not a regular file, or exists.
  absl::Status Check(absl::Span<const std::string> paths) const;
  absl::Status Check(const std::vector<OutputFile>& files) const;

 private:
  // A file, whatever its name.
  struct Identity {
    dev_t device;
    ino_t inode;
    bool operator==(const Identity&) const = default;
  };
  std::string WhyNot(const std::string& path) const;

  bool force_;
  std::vector<Identity> inputs_;
};

}  // namespace kvlift::cli
