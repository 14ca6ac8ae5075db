#include "server/engine/content_key.h"

#include <openssl/evp.h>

#include <memory>
#include <span>
#include <variant>

namespace deepencoder {
namespace {

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

}  // namespace

std::optional<ContentKey> KeyOf(const EncodeJob& job, uint64_t generation) {
  const auto* raw = std::get_if<RawPixels>(&job.image);
  const std::span<const std::byte> image =
      raw != nullptr ? raw->rgb.bytes : std::get<EncodedFile>(job.image).file.bytes;
  // max_tiles matters to tiled modes only; the policies to files only.
  const bool tiled = SpecOf(job.mode).tile_side > 0;
  const std::array<uint64_t, 8> options = {
      generation,
      static_cast<uint64_t>(job.mode),
      tiled ? static_cast<uint64_t>(job.max_tiles) : 0,
      static_cast<uint64_t>(job.dtype),
      raw != nullptr ? 0 : 1 + static_cast<uint64_t>(job.alpha),
      raw != nullptr ? 0 : 1 + static_cast<uint64_t>(job.gray16),
      raw != nullptr ? static_cast<uint64_t>(raw->width) : 0,
      raw != nullptr ? static_cast<uint64_t>(raw->height) : 0,
  };

  ContentKey key;
  const std::unique_ptr<EVP_MD_CTX, FreeContext> context(EVP_MD_CTX_new());
  if (context == nullptr || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1 ||
      EVP_DigestUpdate(context.get(), options.data(), sizeof options) != 1 ||
      EVP_DigestUpdate(context.get(), image.data(), image.size()) != 1 ||
      EVP_DigestFinal_ex(context.get(), key.digest.data(), nullptr) != 1) {
    return std::nullopt;
  }
  return key;
}

}  // namespace deepencoder
