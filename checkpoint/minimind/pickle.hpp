#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"

namespace trireme::checkpoint {

/// A tensor of a pickled state: row-major elements [offset, offset + product of shape) of a
/// storage.
struct PickledTensor {
  std::string storage;             // its key: the record "<archive>/data/<key>"
  std::int64_t storage_count = 0;  // elements of the storage
  DType dtype = DType::f32;
  std::int64_t offset = 0;
  std::vector<std::int64_t> shape;
};

/// Returns the tensors of "<archive>/data.pkl", which must be a dict or an ordered dict of names
/// and tensors.
///
/// A pickle is a program. This interpreter supports the instructions that build numbers, strings,
/// tuples, lists and dicts, and only these callables of Python: torch._utils._rebuild_tensor_v2,
/// collections.OrderedDict and the storage classes of torch. It never imports or calls anything.
/// Throws Error(data) naming `where` and the refused instruction, callable or key. Needs at most 20
/// times the size of the pickle in memory. Source: Python's pickletools.
std::map<std::string, PickledTensor> read_pickled_tensors(std::string_view pickle,
                                                          const std::string& where);

}  // namespace trireme::checkpoint
