#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/files/hdf5.hpp"

namespace trireme {

/// Reads a whole HDF5 dataset.
template <class T>
std::vector<T> read_vector(const Hdf5File& file, const std::string& name, DType dtype) {
  std::vector<T> values(file.dataset(name).count());
  file.read(name, dtype, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace trireme
