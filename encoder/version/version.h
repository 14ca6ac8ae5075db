// What was built. The values come from the build (write_version.cmake).
#pragma once

namespace deepencoder {

extern const char kBuildVersion[];  // "0.1.0"
// Revision of the source; "+changes" if it differed from that; "unknown" in an archive.
extern const char kBuildCommit[];

}  // namespace deepencoder
