# Installs the library into an empty folder, then builds and runs a user's program against it alone, with
# CMake and with pkg-config. Called with BUILD, WORK, SOURCE, CXX, GENERATOR, LIBDIR.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --component dev --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE} -B ${WORK}/build -DCMAKE_PREFIX_PATH=${WORK}/prefix
    -DCMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${FLAGS}")
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/user)

find_program(pkg_config pkg-config)
if(pkg_config)
  set(ENV{PKG_CONFIG_PATH} ${WORK}/prefix/${LIBDIR}/pkgconfig)
  execute_process(COMMAND ${pkg_config} --cflags --libs deepencoder
                  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "pkg-config does not find deepencoder")
  endif()
  separate_arguments(flags UNIX_COMMAND "${FLAGS} ${flags}")
  run(${CXX} -std=c++20 ${SOURCE}/main.cc -o ${WORK}/user ${flags})
  run(${WORK}/user)
endif()
