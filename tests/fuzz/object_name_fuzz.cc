// Names of shared memory objects, as clients send them: whatever is taken is a name in one folder.
#include "server/shared_memory/object_name.h"
#include "tests/fuzz/fuzz_target.h"

namespace deepencoder::fuzz {

void TryInput(const uint8_t* data, size_t size) {
  for (const std::string_view prefix : {std::string_view(), std::string_view("deepencoder")}) {
    const absl::StatusOr<std::string> name = ParseObjectName(AsText(data, size), prefix);
    if (!name.ok()) {
      RequireRefusal(name.status());
      continue;
    }
    Require(name->starts_with(prefix), "a name begins as it must");
    Require(!name->empty() && name->size() <= kMaxObjectName, "a name is of bounded length");
    Require(name->find_first_of(std::string_view("/\0", 2)) == std::string::npos, "no path");
    Require(*name != "." && *name != "..", "no folder");
  }
}

}  // namespace deepencoder::fuzz
