# Prints once, at the end of configure, which parts this build has.
message(STATUS "trireme ${PROJECT_VERSION} (${CMAKE_BUILD_TYPE})")
message(STATUS "  LibTorch      ${TRIREME_WITH_TORCH} ${TRIREME_TORCH_VERSION} ${TRIREME_TORCH_DIR}")
message(STATUS "  MPI           ${TRIREME_WITH_MPI} ${MPI_CXX_LIBRARY_VERSION_STRING}")
message(STATUS "  CUDA          ${TRIREME_TORCH_HAS_CUDA} ${TRIREME_CUDA_INCLUDE}")
message(STATUS "  NCCL          ${TRIREME_HAVE_NCCL} ${TRIREME_NCCL_LIBRARY}")
message(STATUS "  HDF5          ${HDF5_VERSION}")
message(STATUS "  libedit       ${TRIREME_HAVE_LIBEDIT}")
message(STATUS "  sanitizers    ${TRIREME_SANITIZE}")
