// What was built. The values come from the build (write_version.cmake).
#pragma once

namespace deepencoder {

extern const char kBuildVersion[];  // "0.1.0"
extern const char
    kBuildCommit[];  // of the source; "+changes" if it differed; "unknown" in an archive

}  // namespace deepencoder
