#pragma once
#include <zlib.h>
#include <zstd.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// Makes compressed files like the usual programs.
namespace trireme::testing {

/// Returns one gzip member.
inline std::string gzip(std::string_view text, int level = 6) {
  z_stream stream{};
  if (deflateInit2(&stream, level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("deflateInit2");
  std::string packed(deflateBound(&stream, static_cast<uLong>(text.size())) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("deflate");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

/// Returns one zstd frame with a checksum, like the program `zstd`.
inline std::string zstd(std::string_view text, int level = 3) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size =
      ZSTD_compress2(context, packed.data(), packed.size(), text.data(), text.size());
  ZSTD_freeCCtx(context);
  if (ZSTD_isError(size) != 0) throw std::runtime_error("ZSTD_compress2");
  packed.resize(size);
  return packed;
}

/// Returns the concatenated results of `pack` for each part of `piece_bytes`: members or frames.
template <class Pack>
std::string in_pieces(std::string_view text, std::size_t piece_bytes, Pack&& pack) {
  std::string packed;
  for (std::size_t at = 0; at < text.size(); at += piece_bytes)
    packed += pack(text.substr(at, piece_bytes));
  return packed;
}

}  // namespace trireme::testing
