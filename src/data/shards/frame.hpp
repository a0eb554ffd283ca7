#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace trireme::data {

/// The footer of a shard: 72 bytes after the HDF5 part. With the footer, a reader can check the
/// shard without other files.
///
/// The frame is every byte of the HDF5 part outside the token data: superblock, object headers,
/// document table, packs, checksums of the token chunks. If the frame hash is correct, libhdf5 may
/// parse the frame, and the chunk checksums may be trusted. The HDF5 superblock contains the
/// end-of-file address. HDF5 readers ignore all bytes after this address.
struct Frame {
  std::uint64_t tokens_offset = 0;  // byte range of /tokens in the file; 0, 0 if empty
  std::uint64_t tokens_bytes = 0;
  std::uint64_t hdf5_bytes = 0;  // size of the file without this footer
  std::string xxh3;              // XXH3-128 of the frame, 32 hex digits
};

inline constexpr std::uint64_t kFooterBytes = 72;

/// Returns the hash of the first `hdf5_bytes` bytes of `fd` without the token range.
std::string hash_frame(int fd, const Frame& frame, const std::filesystem::path& path);

/// Appends the footer at frame.hdf5_bytes.
void write_footer(int fd, const Frame& frame, const std::filesystem::path& path);

/// Reads the footer of a file of `file_bytes` bytes and checks the frame hash. Throws Error(data)
/// naming the position.
Frame check_frame(int fd, std::uint64_t file_bytes, const std::filesystem::path& path);

}  // namespace trireme::data
