#include "base/sha256.h"

#include <openssl/evp.h>

#include <new>

#include "absl/strings/escaping.h"

namespace kvlift {
namespace {

// SHA-256 is part of every provider of OpenSSL, so a step fails only where memory is missing.
void Require(int done) {
  if (done != 1) throw std::bad_alloc();
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr) throw std::bad_alloc();
  Require(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
}

void Sha256::Update(std::string_view bytes) {
  Require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
}

std::string Sha256::FinishHex() {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  Require(
      EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), &size));
  digest.resize(size);
  return absl::BytesToHexString(digest);
}

}  // namespace kvlift
