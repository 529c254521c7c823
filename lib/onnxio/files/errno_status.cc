#include "onnxio/files/errno_status.h"

#include <cerrno>
#include <string>
#include <system_error>

#include "fmt/format.h"

namespace kvlift {

absl::Status ErrnoStatus(int error, std::string_view what) {
  const std::string text = fmt::format("{}: {}", what, std::generic_category().message(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    case EACCES:
    case EPERM:
    case EROFS:
    case ELOOP:
      return absl::PermissionDeniedError(text);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::InternalError(text);
  }
}

}  // namespace kvlift
