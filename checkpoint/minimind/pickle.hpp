#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"

namespace trireme {

/// A tensor of a pickled state: elements [offset, offset + product of shape) of a storage, row-major.
struct PickledTensor {
  std::string storage;             // its key: the record "<archive>/data/<key>"
  std::int64_t storage_count = 0;  // elements of the storage
  DType dtype = DType::f32;
  std::int64_t offset = 0;
  std::vector<std::int64_t> shape;
};

/// The tensors of "<archive>/data.pkl", which must be a dict or an ordered dict of names and tensors.
///
/// A pickle is a program for a small machine. This one knows the instructions that build numbers,
/// texts, tuples, lists and dicts, and of Python's callables four: torch._utils._rebuild_tensor_v2,
/// collections.OrderedDict, torch's storages, and none that does anything else: nothing is ever
/// imported or called. Throws Error(data) naming `where` and the instruction, callable or key that
/// is refused. Memory: 20 times the pickle's size at most. Source: Python's pickletools.
std::map<std::string, PickledTensor> read_pickled_tensors(std::string_view pickle,
                                                          const std::string& where);

}  // namespace trireme
