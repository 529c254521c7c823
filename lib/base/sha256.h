// SHA-256, by OpenSSL's libcrypto. Source: FIPS 180-4.
#pragma once

#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace kvlift {

// Every function throws std::bad_alloc if memory runs out.
class Sha256 {
 public:
  Sha256();
  void Update(std::string_view bytes);
  // Returns the digest of all bytes so far as 64 lower-case hex digits. The object cannot be
  // updated afterwards.
  std::string FinishHex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace kvlift
