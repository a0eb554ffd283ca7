#include "core/files/hdf5.hpp"

#include <fcntl.h>
#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/refusal.hpp"
#include "core/unique_handle.hpp"

namespace trireme {
namespace {

template <herr_t (*Close)(hid_t)>
struct IdTraits {
  using Raw = hid_t;

  static Raw null() noexcept { return H5I_INVALID_HID; }

  static void close(Raw id) noexcept { Close(id); }
};

using PropertyId = UniqueHandle<IdTraits<H5Pclose>>;
using SpaceId = UniqueHandle<IdTraits<H5Sclose>>;
using TypeId = UniqueHandle<IdTraits<H5Tclose>>;
using GroupId = UniqueHandle<IdTraits<H5Gclose>>;
using DatasetId = UniqueHandle<IdTraits<H5Dclose>>;
using AttributeId = UniqueHandle<IdTraits<H5Aclose>>;

std::recursive_mutex mutex;  // libhdf5 builds of other sites may not be thread-safe

hid_t file_type(DType dtype) {
  const hid_t bits = H5T_STD_U16LE;  // bf16 and f16 are stored as bits: HDF5 1.10 has no such types
  const std::array types{H5T_IEEE_F64LE, H5T_IEEE_F32LE, bits,          bits,
                         H5T_STD_I64LE,  H5T_STD_I32LE,  H5T_STD_I16LE, H5T_STD_I8LE,
                         H5T_STD_U64LE,  H5T_STD_U32LE,  bits,          H5T_STD_U8LE};
  return types.at(static_cast<std::size_t>(dtype));
}

PropertyId access_properties() {
  PropertyId list(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_libver_bounds(list.get(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  H5Pset_fclose_degree(list.get(), H5F_CLOSE_STRONG);
  return list;
}

DatasetId open_dataset(hid_t file, const std::string& name, const std::filesystem::path& path) {
  DatasetId id(H5Dopen2(file, name.c_str(), H5P_DEFAULT));
  if (!id) fail(ErrorKind::data, "{}: dataset {} is missing", path.string(), name);
  return id;
}

AttributeId open_attribute(hid_t file, const std::string& name, const std::filesystem::path& path) {
  AttributeId id(H5Aopen(file, name.c_str(), H5P_DEFAULT));
  if (!id) fail(ErrorKind::data, "{}: attribute {} is missing", path.string(), name);
  return id;
}

void write_attribute(hid_t file, const std::string& name, hid_t stored, hid_t type,
                     const void* value, const std::filesystem::path& path) {
  const SpaceId space(H5Screate(H5S_SCALAR));
  const AttributeId id(
      H5Acreate2(file, name.c_str(), stored, space.get(), H5P_DEFAULT, H5P_DEFAULT));
  if (!id || H5Awrite(id.get(), type, value) < 0)
    fail(ErrorKind::resource, "{}: cannot write attribute {}", path.string(), name);
}

/// Requires exactly one element, because reading an array would overrun the value.
void require_single(const AttributeId& id, const std::string& name,
                    const std::filesystem::path& path) {
  const SpaceId space(H5Aget_space(id.get()));
  if (H5Sget_simple_extent_npoints(space.get()) != 1)
    fail(ErrorKind::data, "{}: attribute {} is not a single value", path.string(), name);
}

/// Creates missing groups above `name`. H5Pset_create_intermediate_group would store the time.
void make_groups(hid_t file, const std::string& name, const std::filesystem::path& path) {
  const PropertyId creation(H5Pcreate(H5P_GROUP_CREATE));
  H5Pset_obj_track_times(creation.get(), false);
  for (std::size_t end = name.find('/', 1); end != std::string::npos;
       end = name.find('/', end + 1)) {
    const std::string group = name.substr(0, end);
    if (H5Lexists(file, group.c_str(), H5P_DEFAULT) > 0) continue;
    const GroupId id(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT));
    if (!id) fail(ErrorKind::resource, "{}: cannot create group {}", path.string(), group);
  }
}

/// Returns the DType with the file type `type`; 16-bit unsigned also represents bf16 and f16.
std::optional<DType> match_type(hid_t type) {
  for (int i = 0; i <= static_cast<int>(DType::u8); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtype == DType::bf16 || dtype == DType::f16) continue;
    if (H5Tequal(type, file_type(dtype)) > 0) return dtype;
  }
  return std::nullopt;
}

}  // namespace

void hdf5_init() {
  static std::once_flag once;
  std::call_once(once, [] {
    ::setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
    ::unsetenv("HDF5_PLUGIN_PATH");
    H5dont_atexit();  // must be first: after a full disk its exit hook crashes
    H5open();
    H5PLset_loading_state(0);
  });
  // for the calling thread: libhdf5 must not print its errors
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

std::uint64_t Hdf5Dataset::count() const noexcept {
  std::uint64_t product = 1;
  for (const std::uint64_t size : shape) product *= size;
  return product;
}

Hdf5File Hdf5File::create(const std::filesystem::path& path) {
  hdf5_init();
  const std::lock_guard lock(mutex);
  const PropertyId access = access_properties();
  const PropertyId creation(H5Pcreate(H5P_FILE_CREATE));
  H5Pset_obj_track_times(creation.get(), false);
  // Create the file here first, because libhdf5 does not report why it cannot create a file.
  if (!Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644)))
    fail_to_write("create", path, errno);
  const hid_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get());
  if (id < 0)
    fail(ErrorKind::resource, "cannot create HDF5 file {}: is the disk full?", path.string());
  return Hdf5File(id, path);
}

Hdf5File Hdf5File::open(const std::filesystem::path& path) {
  hdf5_init();
  const std::lock_guard lock(mutex);
  const PropertyId access = access_properties();
  (void)open_read(path);  // after this check, a failure of libhdf5 is caused by the content
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get());
  if (id < 0)
    fail(ErrorKind::data, "cannot open {} as HDF5: incomplete or not HDF5", path.string());
  return Hdf5File(id, path);
}

Hdf5File::Hdf5File(Hdf5File&& other) noexcept
    : id_(std::exchange(other.id_, -1)), path_(std::move(other.path_)) {}

Hdf5File& Hdf5File::operator=(Hdf5File&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(path_, other.path_);
  return *this;
}

Hdf5File::~Hdf5File() {
  const std::lock_guard lock(mutex);
  if (id_ >= 0) H5Fclose(id_);
}

void Hdf5File::close() {
  const std::lock_guard lock(mutex);
  if (H5Fclose(std::exchange(id_, -1)) < 0)
    fail(ErrorKind::resource, "cannot close HDF5 file {}: is the disk full?", path_.string());
}

std::uint64_t Hdf5File::create_dataset(const std::string& name, DType dtype,
                                       std::span<const std::uint64_t> shape) {
  const std::lock_guard lock(mutex);
  const std::vector<hsize_t> sizes(shape.begin(), shape.end());
  const SpaceId space(
      sizes.empty() ? H5Screate(H5S_SCALAR)
                    : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr));
  make_groups(id_, name, path_);
  const PropertyId creation(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_layout(creation.get(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
  H5Pset_obj_track_times(creation.get(), false);
  const DatasetId id(H5Dcreate2(id_, name.c_str(), file_type(dtype), space.get(), H5P_DEFAULT,
                                creation.get(), H5P_DEFAULT));
  if (!id) fail(ErrorKind::resource, "{}: cannot create dataset {}", path_.string(), name);
  const haddr_t offset = H5Dget_offset(id.get());
  const bool is_empty = std::find(sizes.begin(), sizes.end(), hsize_t{0}) != sizes.end();
  if (offset == HADDR_UNDEF && !is_empty)
    fail(ErrorKind::resource, "{}: no space for dataset {}", path_.string(), name);
  return offset;
}

void Hdf5File::write(const std::string& name, DType dtype, std::span<const std::uint64_t> shape,
                     std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex);
  create_dataset(name, dtype, shape);
  const DatasetId id = open_dataset(id_, name, path_);
  const TypeId type(H5Dget_type(id.get()));
  const SpaceId space(H5Dget_space(id.get()));
  TRIREME_ASSERT(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.get())) *
                     size_of(dtype) ==
                 bytes.size());
  if (bytes.empty()) return;
  if (H5Dwrite(id.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) < 0)
    fail(ErrorKind::resource, "{}: cannot write dataset {}: is the disk full?", path_.string(),
         name);
}

bool Hdf5File::has(const std::string& name) const {
  const std::lock_guard lock(mutex);
  for (std::size_t end = name.find('/', 1);;
       end = name.find('/', end + 1)) {  // H5Lexists requires each parent first
    if (H5Lexists(id_, name.substr(0, end).c_str(), H5P_DEFAULT) <= 0) return false;
    if (end == std::string::npos) return true;
  }
}

Hdf5Dataset Hdf5File::dataset(const std::string& name) const {
  const std::lock_guard lock(mutex);
  const DatasetId id = open_dataset(id_, name, path_);
  const PropertyId creation(H5Dget_create_plist(id.get()));
  const H5D_layout_t layout = H5Pget_layout(creation.get());
  if ((layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED) ||
      H5Pget_external_count(creation.get()) != 0) {
    fail(ErrorKind::data, "{}: dataset {} has an unsupported storage layout", path_.string(), name);
  }
  const TypeId type(H5Dget_type(id.get()));
  const auto dtype = match_type(type.get());
  if (!dtype) fail(ErrorKind::data, "{}: dataset {} has an unsupported type", path_.string(), name);
  const SpaceId space(H5Dget_space(id.get()));
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (H5Sget_simple_extent_type(space.get()) == H5S_NULL)
    fail(ErrorKind::data, "{}: dataset {} has no content", path_.string(), name);
  if (rank < 0 || rank > 8)
    fail(ErrorKind::data, "{}: dataset {} has {} dimensions", path_.string(), name, rank);
  std::vector<hsize_t> sizes(static_cast<std::size_t>(rank));
  H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr);
  Hdf5Dataset result{*dtype, {sizes.begin(), sizes.end()}, std::nullopt};
  const haddr_t offset = layout == H5D_CONTIGUOUS ? H5Dget_offset(id.get()) : HADDR_UNDEF;
  if (offset != HADDR_UNDEF) result.offset = offset;
  return result;
}

void Hdf5File::read(const std::string& name, DType dtype, std::span<std::byte> bytes) const {
  const std::lock_guard lock(mutex);
  const Hdf5Dataset info = dataset(name);
  if (size_of(info.dtype) != size_of(dtype) || file_type(info.dtype) != file_type(dtype))
    fail(ErrorKind::data, "{}: dataset {} is {}, expected {}", path_.string(), name,
         dtype_name(info.dtype), dtype_name(dtype));
  if (info.count() * size_of(dtype) != bytes.size())
    fail(ErrorKind::data, "{}: dataset {} has {} elements, expected {}", path_.string(), name,
         info.count(), bytes.size() / size_of(dtype));
  if (bytes.empty()) return;
  const DatasetId id = open_dataset(id_, name, path_);
  if (H5Dread(id.get(), file_type(dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) < 0)
    fail(ErrorKind::data, "{}: cannot read dataset {}", path_.string(), name);
}

void Hdf5File::set_attribute(const std::string& name, const std::string& value) {
  const std::lock_guard lock(mutex);
  const TypeId type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.get(), value.size() + 1);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  write_attribute(id_, name, type.get(), type.get(), value.c_str(), path_);
}

void Hdf5File::set_attribute(const std::string& name, std::uint64_t value) {
  const std::lock_guard lock(mutex);
  write_attribute(id_, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, &value, path_);
}

std::string Hdf5File::attribute_text(const std::string& name) const {
  const std::lock_guard lock(mutex);
  const AttributeId id = open_attribute(id_, name, path_);
  require_single(id, name, path_);
  const TypeId type(H5Aget_type(id.get()));
  const std::size_t size = H5Tget_size(type.get());
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) != 0 || size == 0 ||
      size > (1U << 20)) {
    fail(ErrorKind::data, "{}: attribute {} is not a string", path_.string(), name);
  }
  std::string value(size, '\0');
  if (H5Aread(id.get(), type.get(), value.data()) < 0)
    fail(ErrorKind::data, "{}: cannot read attribute {}", path_.string(), name);
  return value.c_str();
}

std::uint64_t Hdf5File::attribute_number(const std::string& name) const {
  const std::lock_guard lock(mutex);
  const AttributeId id = open_attribute(id_, name, path_);
  require_single(id, name, path_);
  std::uint64_t value = 0;
  if (H5Aread(id.get(), H5T_NATIVE_UINT64, &value) < 0)
    fail(ErrorKind::data, "{}: attribute {} is not a number", path_.string(), name);
  return value;
}

}  // namespace trireme
