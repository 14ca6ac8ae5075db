# Installs the library into an empty folder, then builds the example as a user would, against that alone, with
# CMake and with pkg-config, and runs it where no server is. Called with BUILD, WORK, SOURCE, CXX, GENERATOR,
# LIBDIR.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
endfunction()

# The program names the image and the server that is not there.
function(run_example program)
  file(WRITE ${WORK}/image "bytes")
  execute_process(COMMAND ${program} unix:/no/such/socket ${WORK}/image
                  RESULT_VARIABLE result ERROR_VARIABLE output)
  if(NOT result EQUAL 1 OR NOT output MATCHES "image: UNAVAILABLE: unix:/no/such/socket")
    message(FATAL_ERROR "${program}: status ${result}: ${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --component dev --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE} -B ${WORK}/build -DCMAKE_PREFIX_PATH=${WORK}/prefix
    -DCMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${FLAGS}")
run(${CMAKE_COMMAND} --build ${WORK}/build)
run_example(${WORK}/build/encode_pages)

find_program(pkg_config pkg-config)
if(pkg_config)
  set(ENV{PKG_CONFIG_PATH} ${WORK}/prefix/${LIBDIR}/pkgconfig)
  execute_process(COMMAND ${pkg_config} --cflags --libs deepencoder
                  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "pkg-config does not find deepencoder")
  endif()
  separate_arguments(flags UNIX_COMMAND "${FLAGS} ${flags}")
  run(${CXX} -std=c++20 ${SOURCE}/encode_pages.cc -o ${WORK}/encode_pages ${flags})
  run_example(${WORK}/encode_pages)
endif()
