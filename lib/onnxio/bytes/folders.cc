#include "onnxio/bytes/folders.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "onnxio/bytes/copy.h"

namespace kvlift {

absl::Status MakeFolders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && !std::filesystem::is_directory(path, error) && !error) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  return error ? WriteFailed(error.value(), "make the folder", path) : absl::OkStatus();
}

bool IsFreeForFolder(const std::string& path) {
  std::error_code error;
  return !std::filesystem::exists(path, error) ||
         (std::filesystem::is_directory(path, error) && std::filesystem::is_empty(path, error));
}

}  // namespace kvlift
