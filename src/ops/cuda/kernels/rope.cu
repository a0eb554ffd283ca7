#include "ops/cuda/kernels/block.cuh"
#include "ops/cuda/kernels/rope.hpp"

namespace trireme::ops::cuda {

/// One head of one token, and the group of threads that processes it.
struct Head {
  std::int64_t batch;
  std::int64_t position;
  std::int64_t head;
  std::int64_t angle;  // the row of the tables
  bool is_active;      // false behind the last head: the threads only take part in reductions
};

inline std::int64_t offset_of(const Head& head, const HeadStrides& strides) {
  return head.batch * strides.batch + head.position * strides.position + head.head * strides.head;
}

/// Calls body(Head) for the heads of this block's tokens that belong to this thread's group. All
/// groups of a block make the same number of calls.
template <class Body>
inline void for_heads(const Heads& a, const HeadsPart& part, Body&& body) {
  const std::int64_t groups = blockDim.x / a.lanes;
  const std::int64_t begin = blockIdx.x * a.tokens_per_block * part.num_heads;
  const std::int64_t all = a.tokens * part.num_heads;
  const std::int64_t wanted = begin + a.tokens_per_block * part.num_heads;
  const std::int64_t end = wanted < all ? wanted : all;
  for (std::int64_t first = begin; first < end; first += groups) {
    const std::int64_t index = first + threadIdx.x / a.lanes;
    const bool is_active = index < end;
    const std::int64_t token = (is_active ? index : begin) / part.num_heads;
    body(Head{token / a.length, token % a.length, is_active ? index % part.num_heads : 0,
              a.positions[token], is_active});
  }
}

/// Calls body(i, lanes) for all groups of elements i of the first half of a head that this thread
/// owns. Element i forms a pair with element i + width / 2.
template <class T, bool kPacked, class Body>
inline void for_pairs(const Heads& a, Body&& body) {
  constexpr int n = kPacked ? kPack<T> : 1;
  const std::int64_t lane = threadIdx.x % a.lanes;
  for (std::int64_t i = lane * n; i < a.width / 2; i += std::int64_t{n} * a.lanes)
    body(i, Lanes<n>{});
}

template <class T, bool kPacked>
inline void forward_heads(const Heads& a, const HeadsPart& part) {
  const std::int64_t half = a.width / 2;
  const T* weight = typed<T>(part.weight);
  for_heads(a, part, [&](const Head& head) {
    const T* x = typed<T>(part.x) + offset_of(head, part.x_strides);
    float rstd = 1;
    if (weight != nullptr) {
      float squares = 0;
      for_pairs<T, kPacked>(a, [&](std::int64_t i, auto lanes) {
        constexpr int n = decltype(lanes)::count;
        const Floats<n> left = load<n>(x + i);
        const Floats<n> right = load<n>(x + i + half);
        for (int j = 0; j < n; ++j) squares += left[j] * left[j] + right[j] * right[j];
      });
      rstd = rsqrtf(combine_lanes<Sum>(squares, a.lanes) / static_cast<float>(a.width) + a.eps);
    }
    if (!head.is_active) return;
    T* out = typed<T>(part.out) + offset_of(head, part.out_strides);
    for_pairs<T, kPacked>(a, [&](std::int64_t i, auto lanes) {
      constexpr int n = decltype(lanes)::count;
      Floats<n> left = load<n>(x + i);
      Floats<n> right = load<n>(x + i + half);
      if (weight != nullptr) {
        const Floats<n> left_scale = load<n>(weight + i);
        const Floats<n> right_scale = load<n>(weight + i + half);
        for (int j = 0; j < n; ++j) {
          left[j] *= rstd * left_scale[j];
          right[j] *= rstd * right_scale[j];
        }
      }
      const Floats<n> cos = load<n>(a.cos + head.angle * half + i);
      const Floats<n> sin = load<n>(a.sin + head.angle * half + i);
      Floats<n> turned_left;
      Floats<n> turned_right;
      for (int j = 0; j < n; ++j) {
        turned_left[j] = left[j] * cos[j] - right[j] * sin[j];
        turned_right[j] = right[j] * cos[j] + left[j] * sin[j];
      }
      store(out + i, turned_left);
      store(out + i + half, turned_right);
    });
  });
}

/// A pair of halves of the gradient of a normalized head, after the rotation back.
template <int N>
struct Turned {
  Floats<N> left;
  Floats<N> right;
};

template <int N, class T>
inline Turned<N> turn_back(const Heads& a, const Head& head, const T* grad, std::int64_t i) {
  const std::int64_t half = a.width / 2;
  const Floats<N> left = load<N>(grad + i);
  const Floats<N> right = load<N>(grad + i + half);
  const Floats<N> cos = load<N>(a.cos + head.angle * half + i);
  const Floats<N> sin = load<N>(a.sin + head.angle * half + i);
  Turned<N> turned;
  for (int j = 0; j < N; ++j) {
    turned.left[j] = left[j] * cos[j] + right[j] * sin[j];
    turned.right[j] = right[j] * cos[j] - left[j] * sin[j];
  }
  return turned;
}

/// Writes the gradient of N elements of a normalized head and adds to the weight gradient.
template <int N, class T>
inline void norm_gradient(const Floats<N>& turned, const T* x, const T* weight, float rstd,
                          float along, T* out, float* sums) {
  const Floats<N> value = load<N>(x);
  const Floats<N> scale = load<N>(weight);
  Floats<N> total = load<N>(sums);
  Floats<N> grad;
  for (int j = 0; j < N; ++j) {
    const float normed = value[j] * rstd;
    grad[j] = (turned[j] * scale[j] - normed * along) * rstd;
    total[j] += turned[j] * normed;
  }
  store(out, grad);
  store(sums, total);
}

template <class T, bool kPacked>
inline void backward_heads(const Heads& a, const HeadsPart& part, float* sums) {
  const std::int64_t half = a.width / 2;
  const T* weight = typed<T>(part.weight);
  for_heads(a, part, [&](const Head& head) {
    const T* x = typed<T>(part.x) + offset_of(head, part.x_strides);
    const T* grad = typed<T>(part.grad) + offset_of(head, part.grad_strides);
    float rstd = 1;
    float along = 0;
    if (weight != nullptr) {
      float squares = 0;
      float products = 0;
      for_pairs<T, kPacked>(a, [&](std::int64_t i, auto lanes) {
        constexpr int n = decltype(lanes)::count;
        const Floats<n> left = load<n>(x + i);
        const Floats<n> right = load<n>(x + i + half);
        const Floats<n> left_scale = load<n>(weight + i);
        const Floats<n> right_scale = load<n>(weight + i + half);
        const Turned<n> turned = turn_back<n>(a, head, grad, i);
        for (int j = 0; j < n; ++j) {
          squares += left[j] * left[j] + right[j] * right[j];
          products += turned.left[j] * left_scale[j] * left[j] +
                      turned.right[j] * right_scale[j] * right[j];
        }
      });
      const float count = static_cast<float>(a.width);
      rstd = rsqrtf(combine_lanes<Sum>(squares, a.lanes) / count + a.eps);
      along = combine_lanes<Sum>(products, a.lanes) * rstd / count;
    }
    if (!head.is_active) return;
    T* out = typed<T>(part.out) + offset_of(head, part.out_strides);
    for_pairs<T, kPacked>(a, [&](std::int64_t i, auto lanes) {
      constexpr int n = decltype(lanes)::count;
      const Turned<n> turned = turn_back<n>(a, head, grad, i);
      if (weight == nullptr) {
        store(out + i, turned.left);
        store(out + i + half, turned.right);
        return;
      }
      norm_gradient(turned.left, x + i, weight + i, rstd, along, out + i, sums + i);
      norm_gradient(turned.right, x + i + half, weight + i + half, rstd, along, out + i + half,
                    sums + i + half);
    });
  });
}

/// Normalizes and rotates the heads of tokens_per_block tokens per block.
template <class T>
void heads_forward(const Heads& a) {
  const HeadsPart& part = a.parts[blockIdx.y];
  if (a.packed) {
    forward_heads<T, true>(a, part);
  } else {
    forward_heads<T, false>(a, part);
  }
}

/// Computes the gradients of heads_forward. The dynamic shared memory has one row of `width` floats
/// for each group of threads, if there is a norm.
template <class T>
void heads_backward(const Heads& a) {
  const HeadsPart& part = a.parts[blockIdx.y];
  float* all_sums = dynamic_shared<float>();
  const std::int64_t groups = blockDim.x / a.lanes;
  if (part.weight != nullptr) {
    for (std::int64_t i = threadIdx.x; i < groups * a.width; i += blockDim.x) all_sums[i] = 0;
    __syncthreads();
  }
  float* sums = all_sums + threadIdx.x / a.lanes * a.width;
  if (a.packed) {
    backward_heads<T, true>(a, part, sums);
  } else {
    backward_heads<T, false>(a, part, sums);
  }
  if (part.weight == nullptr) return;
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < a.width; i += blockDim.x) {
    float sum = 0;
    for (std::int64_t group = 0; group < groups; ++group) sum += all_sums[group * a.width + i];
    part.partial[blockIdx.x * a.width + i] = sum;
  }
}

}  // namespace trireme::ops::cuda
