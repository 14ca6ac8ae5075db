# Writes version.cc with the version and the source revision, when they have changed since the last build.
# Called at build time: cmake -DSOURCE_DIR= -DVERSION= -DCOMMIT= -DOUTPUT= -P write_version.cmake
# COMMIT, where given, is taken as it is: an image is built from a context without .git.
set(commit "${COMMIT}")
if(NOT commit)
  execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT commit)
    set(commit "unknown")  # a source archive
  else()
    execute_process(COMMAND git -C ${SOURCE_DIR} diff --quiet HEAD -- . RESULT_VARIABLE changed ERROR_QUIET)
    if(changed)
      string(APPEND commit "+changes")
    endif()
  endif()
endif()
set(text "#include \"encoder/version/version.h\"

namespace deepencoder {

const char kBuildVersion[] = \"${VERSION}\";
const char kBuildCommit[] = \"${commit}\";

}  // namespace deepencoder
")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT text STREQUAL "${before}")
  file(WRITE ${OUTPUT} "${text}")
endif()
