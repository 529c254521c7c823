#include "kvlift/inputs/npz.h"

#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "kvlift/inputs/npy.h"

namespace kvlift::cli {
namespace {

// CRC-32 of ISO 3309, as ZIP has it.
uint32_t Crc32(std::string_view bytes) {
  static constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t n = 0; n < 256; ++n) {
      uint32_t c = n;
      for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? 0xEDB88320U ^ (c >> 1) : c >> 1;
      table[n] = c;
    }
    return table;
  }();
  uint32_t crc = 0xFFFFFFFFU;
  for (const char byte : bytes)
    crc = kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

template <typename... Numbers>
void Put(std::string* to, Numbers... numbers) {
  const auto put = [&](auto number) {
    for (size_t k = 0; k < sizeof(number); ++k) {
      to->push_back(static_cast<char>(static_cast<uint64_t>(number) >> (8 * k) & 0xFF));
    }
  };
  (put(numbers), ...);
}

// The fields that the local header and the directory share, from the version on. Dates are the
// first that the format knows.
void PutEntry(std::string* to, uint32_t crc, uint32_t size, size_t name_size) {
  constexpr uint16_t kVersion = 20, kFlags = 0, kStored = 0, kTime = 0, kDate = 0x21, kExtra = 0;
  Put(to, kVersion, kFlags, kStored, kTime, kDate, crc, size, size,
      static_cast<uint16_t>(name_size), kExtra);
}

}  // namespace

absl::Status NpzWriter::Add(std::string_view name, const exec::View& tensor) {
  KV_ASSIGN_OR_RETURN(const std::string content, NpyOf(tensor));
  if (bytes_.size() + content.size() + directory_.size() > std::numeric_limits<int32_t>::max()) {
    return absl::ResourceExhaustedError("the arrays of one step take more than 2 GiB");
  }
  const std::string file = fmt::format("{}.npy", name);
  const uint32_t crc = Crc32(content);
  const auto offset = static_cast<uint32_t>(bytes_.size()),
             size = static_cast<uint32_t>(content.size());
  Put(&bytes_, uint32_t{0x04034B50});
  PutEntry(&bytes_, crc, size, file.size());
  bytes_ += file;
  bytes_ += content;
  constexpr uint16_t kMadeBy = 20, kNone = 0;
  Put(&directory_, uint32_t{0x02014B50}, kMadeBy);
  PutEntry(&directory_, crc, size, file.size());
  Put(&directory_, kNone, kNone, kNone, uint32_t{0}, offset);
  directory_ += file;
  ++count_;
  return absl::OkStatus();
}

std::string NpzWriter::Finish() {
  const auto offset = static_cast<uint32_t>(bytes_.size()),
             size = static_cast<uint32_t>(directory_.size());
  const auto count = static_cast<uint16_t>(count_);
  bytes_ += directory_;
  constexpr uint16_t kNone = 0;
  Put(&bytes_, uint32_t{0x06054B50}, kNone, kNone, count, count, size, offset, kNone);
  return std::move(bytes_);
}

}  // namespace kvlift::cli
