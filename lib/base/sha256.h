// SHA-256. Source: FIPS 180-4.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvlift {

class Sha256 {
 public:
  void Update(std::string_view bytes);
  // Returns the digest of all bytes so far as 64 lower-case hex digits. The object cannot be
  // updated afterwards.
  std::string FinishHex();

 private:
  void Compress(const uint8_t* block);
  void CompressAll(const uint8_t* blocks, size_t count);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_ = {};
  size_t pending_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

}  // namespace kvlift
