#include "encoder/backend/cuda_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace deepencoder {
namespace {

constexpr char kFileName[] = "libdeepencoder_cuda.so";

std::vector<std::string> Places() {
  if (const char* file = std::getenv("DEEPENCODER_CUDA_LIBRARY"); file != nullptr && *file != 0)
    return {file};
  std::vector<std::string> places;
  std::error_code ignored;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  if (!program.empty()) {
    for (const auto& folder : {program, program / "lib", program.parent_path() / "lib"}) {
      if (std::filesystem::exists(folder / kFileName, ignored))
        places.push_back(folder / kFileName);
    }
  }
  places.emplace_back(kFileName);
  return places;
}

struct Library {
  const DeCudaApi* api;
  // Null: an older library.
  decltype(&deepencoder_cuda_pci_bus_id) pci_bus_id;
  decltype(&deepencoder_cuda_free_memory) free_memory;
  decltype(&deepencoder_cuda_build) build;
  decltype(&deepencoder_cuda_encode_ahead) encode_ahead;
};

absl::StatusOr<Library> Load() {
  std::string reasons;
  for (const std::string& place : Places()) {
    void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", dlerror());
      continue;
    }
    auto* entry = reinterpret_cast<const DeCudaApi* (*)()>(dlsym(library, DE_CUDA_ENTRY_POINT));
    if (entry == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(place, " has no symbol ", DE_CUDA_ENTRY_POINT));
    }
    const DeCudaApi* api = entry();
    if (api->version != DE_CUDA_ABI_VERSION) {
      return absl::FailedPreconditionError(absl::StrCat(place, " speaks version ", api->version,
                                                        " of the interface, this program version ",
                                                        DE_CUDA_ABI_VERSION));
    }
    return Library{
        api, reinterpret_cast<decltype(Library::pci_bus_id)>(dlsym(library, DE_CUDA_PCI_BUS_ID)),
        reinterpret_cast<decltype(Library::free_memory)>(dlsym(library, DE_CUDA_FREE_MEMORY)),
        reinterpret_cast<decltype(Library::build)>(dlsym(library, DE_CUDA_BUILD)),
        reinterpret_cast<decltype(Library::encode_ahead)>(dlsym(library, DE_CUDA_ENCODE_AHEAD))};
  }
  return absl::UnavailableError(absl::StrCat("the CUDA backend could not be loaded: ", reasons));
}

const absl::StatusOr<Library>& TheLibrary() {
  static const auto* const kLibrary = new absl::StatusOr<Library>(Load());
  return *kLibrary;
}

}  // namespace

absl::StatusOr<const DeCudaApi*> LoadCudaLibrary() {
  if (!TheLibrary().ok()) return TheLibrary().status();
  return TheLibrary()->api;
}

std::string CudaPciBusId(int device) {
  if (!TheLibrary().ok() || TheLibrary()->pci_bus_id == nullptr) return "";
  char text[32] = {};
  DeError error = {};
  const DeCode code = TheLibrary()->pci_bus_id(device, text, sizeof(text), &error);
  return code == DE_OK ? text : "";
}

std::optional<uint64_t> CudaFreeMemory(int device) {
  if (!TheLibrary().ok() || TheLibrary()->free_memory == nullptr) return std::nullopt;
  uint64_t bytes = 0;
  DeError error = {};
  if (TheLibrary()->free_memory(device, &bytes, &error) != DE_OK) return std::nullopt;
  return bytes;
}

std::string CudaBuild() {
  if (!TheLibrary().ok() || TheLibrary()->build == nullptr) return "";
  return TheLibrary()->build();
}

decltype(&deepencoder_cuda_encode_ahead) CudaEncodeAhead() {
  return TheLibrary().ok() ? TheLibrary()->encode_ahead : nullptr;
}

absl::Status ToStatus(DeCode code, const DeError& error) {
  switch (code) {
    case DE_OK:
      return absl::OkStatus();
    case DE_INVALID_ARGUMENT:
      return absl::InvalidArgumentError(error.message);
    case DE_UNSUPPORTED:
      return absl::UnimplementedError(error.message);
    case DE_RESOURCE_EXHAUSTED:
      return absl::ResourceExhaustedError(error.message);
    case DE_DEVICE:
      return absl::InternalError(error.message);
  }
  return absl::InternalError(
      absl::StrCat("unknown code ", static_cast<int>(code), ": ", error.message));
}

}  // namespace deepencoder
