#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "fmt/format.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace kvlift {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t LoadBigEndian(const uint8_t* p) {
  return (uint32_t{p[0]} << 24) | (uint32_t{p[1]} << 16) | (uint32_t{p[2]} << 8) | p[3];
}

#if defined(__x86_64__)

using Words = int __attribute__((vector_size(16)));
using Unsigned = uint32_t __attribute__((vector_size(16)));
using Bytes = char __attribute__((vector_size(16)));

// Adds 32-bit words modulo 2^32.
inline Words Sum(Words a, Words b) {
  return reinterpret_cast<Words>(reinterpret_cast<Unsigned>(a) + reinterpret_cast<Unsigned>(b));
}

bool HasShaInstructions() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool ssse3 = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1u << 9)) != 0;
    return ssse3 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & (1u << 29)) != 0;
  }();
  return has;
}

// Compresses `count` blocks of 64 bytes, four rounds per iteration of the inner loop. The
// instructions keep the state in two vectors, (f, e, b, a) and (h, g, d, c), with the low words
// first.
__attribute__((target("sha,ssse3"))) void CompressByInstructions(const uint8_t* blocks,
                                                                 size_t count,
                                                                 std::array<uint32_t, 8>* state) {
  std::array<int, 8> s;
  std::memcpy(s.data(), state->data(), sizeof(s));
  Words abef = {s[5], s[4], s[1], s[0]};
  Words cdgh = {s[7], s[6], s[3], s[2]};
  const Bytes swap = {3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12};
  for (; count > 0; --count, blocks += 64) {
    const Words abef_before = abef, cdgh_before = cdgh;
    std::array<Words, 4> w;  // the last 16 words of the schedule
    for (size_t group = 0; group < 16; ++group) {
      Words next;
      if (group < 4) {
        Bytes raw;
        std::memcpy(&raw, blocks + 16 * group, sizeof(raw));
        raw = __builtin_ia32_pshufb128(raw, swap);
        std::memcpy(&next, &raw, sizeof(next));
      } else {
        const Words seven_back =
            __builtin_shufflevector(w[(group + 2) % 4], w[(group + 3) % 4], 1, 2, 3, 4);
        next = __builtin_ia32_sha256msg1(w[group % 4], w[(group + 1) % 4]);
        next = __builtin_ia32_sha256msg2(Sum(next, seven_back), w[(group + 3) % 4]);
      }
      w[group % 4] = next;
      Words round;
      std::memcpy(&round, &kRound[4 * group], sizeof(round));
      round = Sum(round, next);
      cdgh = __builtin_ia32_sha256rnds2(cdgh, abef, round);
      abef =
          __builtin_ia32_sha256rnds2(abef, cdgh, __builtin_shufflevector(round, round, 2, 3, 2, 3));
    }
    abef = Sum(abef, abef_before);
    cdgh = Sum(cdgh, cdgh_before);
  }
  s = {abef[3], abef[2], cdgh[3], cdgh[2], abef[1], abef[0], cdgh[1], cdgh[0]};
  std::memcpy(state->data(), s.data(), sizeof(s));
}

#endif

}  // namespace

void Sha256::Compress(const uint8_t* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = LoadBigEndian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<uint32_t, 8> next = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += next[i];
}

void Sha256::CompressAll(const uint8_t* blocks, size_t count) {
#if defined(__x86_64__)
  if (HasShaInstructions()) return CompressByInstructions(blocks, count, &state_);
#endif
  for (size_t i = 0; i < count; ++i) Compress(blocks + 64 * i);
}

void Sha256::Update(std::string_view bytes) {
  total_bytes_ += bytes.size();
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  while (left > 0) {
    if (pending_bytes_ == 0 && left >= pending_.size()) {
      const size_t blocks = left / pending_.size();
      CompressAll(data, blocks);
      data += blocks * pending_.size();
      left -= blocks * pending_.size();
      continue;
    }
    const size_t n = std::min(left, pending_.size() - pending_bytes_);
    std::memcpy(pending_.data() + pending_bytes_, data, n);
    pending_bytes_ += n;
    data += n;
    left -= n;
    if (pending_bytes_ == pending_.size()) {
      Compress(pending_.data());
      pending_bytes_ = 0;
    }
  }
}

std::string Sha256::FinishHex() {
  const uint64_t bits = total_bytes_ * 8;
  // One bit, zeros up to 56 bytes of a block, then the length in bits.
  std::string padding(1 + (119 - total_bytes_ % 64) % 64, '\0');
  padding[0] = '\x80';
  for (int shift = 56; shift >= 0; shift -= 8) padding += static_cast<char>((bits >> shift) & 0xff);
  Update(padding);
  std::string hex;
  for (uint32_t word : state_) hex += fmt::format("{:08x}", word);
  return hex;
}

}  // namespace kvlift
