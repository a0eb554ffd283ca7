#include "ops/cuda/kernels/block.cuh"
#include "ops/cuda/kernels/embedding.hpp"

/// The gradient of an embedding table without atomics: entries are added in the order of the index,
/// so the sums are always the same. Sums of long runs have two stages.
namespace trireme::ops::cuda {

/// The entries [begin, end) of a segment, and its neighbours.
struct Segment {
  std::int64_t begin;
  std::int64_t end;
  bool continues;  // the first run began in an earlier segment
  bool extends;    // the last run continues in the next segment
};

inline Segment segment_of(const EmbeddingGradient& a, std::int64_t number) {
  const std::int64_t begin = number * kSegment;
  const std::int64_t end = begin + kSegment < a.count ? begin + kSegment : a.count;
  return {begin, end, begin > 0 && a.index[begin - 1] == a.index[begin],
          end < a.count && a.index[end - 1] == a.index[end]};
}

template <int N>
inline void add_to(float* sums, const Floats<N>& values) {
  Floats<N> total = load<N>(sums);
  for (int j = 0; j < N; ++j) total[j] += values[j];
  store(sums, total);
}

/// Adds the runs that lie in one segment to the table. The sum of a run that began earlier is the
/// first partial sum of the segment, the sum of another run that continues is the second one.
template <class T>
void embedding_segments(const EmbeddingGradient& a) {
  __shared__ std::int64_t index[kSegment];
  __shared__ std::int64_t starts[kSegment];  // the first elements of the rows of grads
  const Segment segment = segment_of(a, blockIdx.x);
  const int size = static_cast<int>(segment.end - segment.begin);
  for (int i = static_cast<int>(threadIdx.x); i < size; i += static_cast<int>(blockDim.x)) {
    index[i] = a.index[segment.begin + i];
    starts[i] = a.order[segment.begin + i] * a.width;
  }
  __syncthreads();
  float* partials = a.partials + static_cast<std::int64_t>(blockIdx.x) * 2 * a.width;
  const bool packed = is_packed<T>(a.width, a.grads, a.table, a.partials);
  for_columns<T>(a.width, packed, [&](std::int64_t column, auto lanes) {
    constexpr int n = decltype(lanes)::count;
    Floats<n> sum{};
    bool is_first = true;
    for (int i = 0; i < size; ++i) {
      const Floats<n> value = load<n>(typed<T>(a.grads) + starts[i] + column);
      for (int j = 0; j < n; ++j) sum[j] += value[j];
      const bool is_last = i + 1 == size;
      if (!is_last && index[i + 1] == index[i]) continue;
      if (is_first && segment.continues) {
        store(partials + column, sum);
      } else if (is_last && segment.extends) {
        store(partials + a.width + column, sum);
      } else {
        add_to(a.table + index[i] * a.width + column, sum);
      }
      is_first = false;
      sum = Floats<n>{};
    }
  });
}

/// Adds the partial sums of the run that begins in this block's segment and continues after it, if
/// there is one.
template <class T>
void embedding_runs(const EmbeddingGradient& a) {
  const Segment segment = segment_of(a, blockIdx.x);
  const std::int64_t row = a.index[segment.end - 1];
  if (!segment.extends || (segment.continues && a.index[segment.begin] == row)) return;
  const std::int64_t own = blockIdx.x;
  std::int64_t last = own + 1;  // the segment with the end of the run
  while (true) {
    const Segment next = segment_of(a, last);
    if (!next.extends || a.index[next.end - 1] != row) break;
    ++last;
  }
  const bool packed = is_packed<float>(a.width, a.table, a.partials);
  for_columns<float>(a.width, packed, [&](std::int64_t column, auto lanes) {
    constexpr int n = decltype(lanes)::count;
    Floats<n> sum = load<n>(a.partials + (2 * own + 1) * a.width + column);
    for (std::int64_t i = own + 1; i <= last; ++i) {
      const Floats<n> value = load<n>(a.partials + 2 * i * a.width + column);
      for (int j = 0; j < n; ++j) sum[j] += value[j];
    }
    add_to(a.table + row * a.width + column, sum);
  });
}

}  // namespace trireme::ops::cuda
