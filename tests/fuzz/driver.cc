// One target for libFuzzer: KVLIFT_FUZZ_TARGET names it.
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

#include "fuzz/mutate.h"
#include "fuzz/targets.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

const kvlift::fuzz::Target& TheTarget() {
  static const auto* target = kvlift::fuzz::FindTarget(KVLIFT_FUZZ_TARGET);
  kvlift::fuzz::Require(target != nullptr, "no such target");
  return *target;
}

}  // namespace

// A refused allocation is an ordinary error: the code must limit what it asks for.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  TheTarget().run({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  std::mt19937 rng(seed);
  const unsigned by_bytes = KVLIFT_FUZZ_TARGET == std::string_view("load") ? 2 : 32;
  if (rng() % by_bytes == 0) return LLVMFuzzerMutate(data, size, max_size);
  const auto changed =
      kvlift::fuzz::MutateForm(TheTarget().form, {reinterpret_cast<const char*>(data), size}, rng);
  if (!changed || changed->size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, changed->data(), changed->size());
  return changed->size();
}
