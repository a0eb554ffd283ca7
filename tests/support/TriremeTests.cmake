# trireme_add_test(unit/core/error_test [LINKS trireme::core ...] [LABELS unit ...] [MPI_RANKS 1 2 ...] [TIMEOUT s] [PROCESSORS n]
#                  [FILTER -Suite.WhatAnotherRegistrationRuns])
# One GoogleTest program per file tests/<path>.cpp, named by its path. With MPI_RANKS it runs once per rank count
# under mpirun (label mpi), each with a hard time limit; without, once alone.
find_package(GTest QUIET)
if(NOT GTest_FOUND)
  trireme_missing("GoogleTest" libgtest-dev CMAKE_PREFIX_PATH)
endif()

# What a test does itself is little: compiling it for speed would take half as long again. Not beside LibTorch's precompiled
# header, which goes with the options that it was made with.
set(TRIREME_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)

# MPI leaks what its plugins allocate, in libraries that are unloaded before the leak check can name them.
set(TRIREME_MPI_ASAN ASAN_OPTIONS=detect_leaks=0)

function(trireme_add_test path)
  cmake_parse_arguments(ARG "TORCH" "TIMEOUT;PROCESSORS;MAIN;FILTER" "LINKS;LABELS;MPI_RANKS;SOURCES" ${ARGN})
  string(REPLACE "/" "_" target ${path})
  if(NOT ARG_MAIN)
    set(ARG_MAIN GTest::gtest_main)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${target} ${CMAKE_SOURCE_DIR}/tests/${path}.cpp ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE trireme_flags ${ARG_LINKS} GTest::gtest ${ARG_MAIN})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(ARG_TORCH)
    target_precompile_headers(${target} REUSE_FROM trireme_torch_pch)
    target_compile_options(${target} PRIVATE -fPIC)  # the property would give -fPIE, which does not match the header
  else()
    target_compile_options(${target} PRIVATE ${TRIREME_TEST_OPTIONS})
  endif()
  if(ARG_MPI_RANKS)
    foreach(ranks ${ARG_MPI_RANKS})
      set(name ${path}.${ranks})
      add_test(NAME ${name}
               COMMAND ${CMAKE_COMMAND} -E env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
                       ${TRIREME_MPI_ASAN}
                       ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none -n ${ranks} $<TARGET_FILE:${target}>)
      set_tests_properties(${name} PROPERTIES LABELS "mpi;${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ranks})
    endforeach()
  else()
    if(ARG_FILTER)
      add_test(NAME ${path} COMMAND ${target} --gtest_filter=${ARG_FILTER})
    else()
      add_test(NAME ${path} COMMAND ${target})
    endif()
    set_tests_properties(${path} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT OMP_NUM_THREADS=1)
    if("integration" IN_LIST ARG_LABELS)  # runs the real programs, which start MPI
      set_tests_properties(${path} PROPERTIES ENVIRONMENT "OMP_NUM_THREADS=1;${TRIREME_MPI_ASAN}")
    endif()
    if(ARG_PROCESSORS)
      set_tests_properties(${path} PROPERTIES PROCESSORS ${ARG_PROCESSORS})
    endif()
  endif()
endfunction()
