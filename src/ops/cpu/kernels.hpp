#pragma once
#include <cstdint>
#include <span>

#include "ops/key_interval.hpp"

/// Loops of the fast CPU path on raw pointers: no torch here. Every instruction set
/// has its own object file; `table()` picks one at run time, so that one binary runs
/// on every x86-64 machine. All arithmetic is in fp32 whatever the element type;
/// a result is rounded once (to nearest even) when it is stored. Strides and widths count elements.
/// Functions do one range of rows and start no threads.
namespace trireme::ops::kernels {

enum class Element : std::uint8_t { f32, bf16 };

/// Operands of multiply-adds: numbers, or pairs of bf16 whose products are added to an fp32.
enum class Multiply : std::uint8_t { f32, f64, bf16_pairs };

struct RmsForward {
  Element element;
  const void* x;
  const void* residual;  // may be null: no add
  const void* weight;
  void* sum;  // x + residual, with residual only
  void* y;
  float* rstd;
  std::int64_t rows;
  std::int64_t width;
  float eps;
};

struct RmsBackward {
  Element element;
  const void* grad_y;
  const void* grad_sum;  // may be null
  const void* x;
  const void* weight;
  const float* rstd;
  void* grad_x;
  float* grad_weight;  // added to
  std::int64_t rows;
  std::int64_t width;
};

struct Gated {
  Element element;
  std::int64_t activation;  // row of ops::Activations
  const void* gate_up;      // rows of gate [width], then up [width]
  std::int64_t stride;      // between rows of gate_up
  const void* grad_y;       // backward only, contiguous
  void* y;                  // forward: result, contiguous
  void* grad_gate_up;       // backward: contiguous
  std::int64_t rows;
  std::int64_t width;
};

struct HeadStrides {
  std::int64_t batch;
  std::int64_t token;
  std::int64_t head;
};

/// Norm and rotation of heads; tokens are b * length + t.
struct Heads {
  Element element;
  const void* x;
  HeadStrides x_strides;
  const void* grad;  // backward only: gradient of the result
  HeadStrides grad_strides;
  void* out;  // result, or gradient of x
  HeadStrides out_strides;
  const void* weight;  // may be null: no norm
  float* grad_weight;  // added to, backward with weight only
  const float* cos;    // [positions, width / 2]
  const float* sin;
  const std::int64_t* positions;  // of every token
  std::int64_t first_token;
  std::int64_t last_token;
  std::int64_t length;
  std::int64_t num_heads;
  std::int64_t width;  // even, at most kMaxHeadWidth
  float eps;
};

inline constexpr std::int64_t kMaxHeadWidth = 512;

/// Rows of logits become grad_scale * (softmax - one hot), in place (untouched without want_grads).
/// A negative target is ignored: zero gradient, no loss.
struct CrossEntropy {
  Element element;
  void* logits;
  const std::int64_t* targets;
  const float* row_weights;  // of the gradients; null: all 1
  double* losses;            // one a row, without its weight
  float* scratch;            // [width]
  std::int64_t rows;
  std::int64_t width;
  float grad_scale;
  bool want_grads;
};

struct Dropout {
  Element element;
  const void* x;
  void* y;
  const std::int64_t* samples;    // of every row
  const std::int64_t* positions;  // of every row
  std::uint64_t key;
  std::int64_t first_feature;
  std::int64_t rows;
  std::int64_t width;
  std::uint32_t threshold;
  float factor;
};

/// One tile of scores, keys down and queries across, so that a query's statistics
/// lie along the vector lanes.
struct ScoreTile {
  std::int64_t keys;     // rows, even
  std::int64_t queries;  // columns, a multiple of 16
  KeyInterval seen;      // rows that query column 0 sees; may reach out of the tile
  bool begin_moves;      // column j sees rows from seen.begin + j on
  bool end_moves;        // column j sees rows up to seen.end + j
  float scale;
};

/// y = x W^T of some rows of W, without gradients.
struct LinearRows {
  Element element;  // of W
  Element y_element;
  const float* x;  // rows as spread_rows lays them out
  std::int64_t x_stride;
  const void* w;  // [out, in]
  std::int64_t w_stride;
  void* y;
  std::int64_t y_stride;
  std::int64_t rows;
  std::int64_t in;
  std::int64_t first_out;  // of W's rows, which are columns of y
  std::int64_t last_out;
};

/// Rows of x as a product with W of element `weights` reads them: words of fp32 in an order of its own, or
/// of two bf16; with zeros up to the stride, a multiple of kRowAlign. Of fp32 with fp32 that is x itself,
/// where its width is such a multiple. With W of bf16 x is of bf16 as well, or rounded.
struct SpreadRows {
  Element element;  // of x
  Element weights;
  const void* x;
  std::int64_t x_stride;
  float* out;
  std::int64_t out_stride;
  std::int64_t rows;
  std::int64_t width;
};

inline constexpr std::int64_t kRowAlign = 32;

/// Tokens of a block of keys and values.
inline constexpr std::int64_t kBlockTokens = 16;

/// Numbers that lie side by side in a block, in keys two of a token, in values those of two tokens: pairs
/// where a number has 16 bits, which some machines multiply as they are.
constexpr std::int64_t in_block_word(std::int64_t element_size) {
  return element_size == 2 ? 2 : 1;
}

/// Most query heads of all rows of one PagedAttention.
inline constexpr std::int64_t kMaxPagedQueries = 64;

/// Rows of one text for one key head: `group` query heads each.
struct PagedAttention {
  Element element;
  const void* q;
  std::int64_t q_row_stride;
  std::int64_t q_head_stride;
  const void* keys;    // [kv_heads, num_blocks, width / w, 16, w], w = in_block_word
  const void* values;  // [kv_heads, num_blocks, 16 / w, width, w]
  void* out;           // head h of a row at h * width
  std::int64_t out_row_stride;
  const std::int32_t* blocks;  // of the text, in order
  float* scratch;              // (2 * width + 16) for each query head of each row
  const KeyInterval* seen;     // of the text's tokens, by each row; both ends rise from row to row
  std::int64_t first_row;
  std::int64_t last_row;
  std::int64_t num_blocks;
  std::int64_t kv_head;
  std::int64_t group;
  std::int64_t width;  // a multiple of 16
  float scale;
};

/// Keys and values of rows of one text into its blocks.
struct PagedStore {
  Element element;
  const void* k;
  std::int64_t k_row_stride;
  std::int64_t k_head_stride;
  const void* v;
  std::int64_t v_row_stride;
  std::int64_t v_head_stride;
  void* keys;
  void* values;
  const std::int32_t* blocks;
  std::int64_t before;
  std::int64_t first_row;
  std::int64_t last_row;
  std::int64_t kv_heads;
  std::int64_t num_blocks;
  std::int64_t width;
};

struct Table {
  const char* name;
  void (*rms_forward)(const RmsForward&);
  void (*rms_backward)(const RmsBackward&);
  void (*gated_forward)(const Gated&);
  void (*gated_backward)(const Gated&);
  void (*heads_forward)(const Heads&);
  void (*heads_backward)(const Heads&);
  void (*cross_entropy)(const CrossEntropy&);
  void (*dropout)(const Dropout&);
  /// Online softmax: updates maximum and total [queries] (log2 units for the
  /// maximum), writes the weights of `scores` in pairs of rows (VNNI) and scales
  /// `out` [width, queries], the sums so far.
  void (*softmax_tile)(const ScoreTile&, const float* scores, float* maximum, float* total,
                       std::uint16_t* weights_pairs, float* out, std::int64_t width);
  /// weights = exp(scores - lse), grad_scores = weights * (grad_weights - along) * scale; bf16,
  /// row-major, and grad_scores once more in pairs of rows.
  void (*softmax_tile_backward)(const ScoreTile&, const float* scores, const float* grad_weights,
                                const float* lse, const float* along, std::uint16_t* weights,
                                std::uint16_t* grad_scores, std::uint16_t* grad_scores_pairs);
  /// Two bf16 rows become one row of 32-bit pairs, even row in the low half. rows even, width a
  /// multiple of 16.
  void (*pack_pairs)(const std::uint16_t* rows, std::int64_t stride, std::int64_t num_rows,
                     std::int64_t width, std::uint32_t* pairs);
  /// 32-bit elements; rows and columns are multiples of 16.
  void (*transpose)(const std::uint32_t* in, std::int64_t in_stride, std::uint32_t* out,
                    std::int64_t out_stride, std::int64_t rows, std::int64_t columns);
  /// Rows of fp32 times one factor each (null: 1), rounded to bf16.
  void (*round_rows)(const float* in, std::int64_t in_stride, const float* factors,
                     std::uint16_t* out, std::int64_t out_stride, std::int64_t rows,
                     std::int64_t width);
  /// products[r] = sum over width of a[r] * b[r].
  void (*row_products)(const std::uint16_t* a, std::int64_t a_stride, const std::uint16_t* b,
                       std::int64_t b_stride, float* products, std::int64_t rows,
                       std::int64_t width);
  void (*linear_rows)(const LinearRows&);
  void (*spread_rows)(const SpreadRows&);
  void (*paged_attention)(const PagedAttention&);
  void (*paged_store)(const PagedStore&);
  /// Multiply-adds between registers, `rounds` times a fixed number; returns how many FLOPs that
  /// were. 0: nothing was done, the instruction set has none for these operands.
  double (*multiply_adds)(Multiply what, std::int64_t rounds);
};

extern const Table kGenericTable;
extern const Table kAvx2Table;
extern const Table kAvx512Table;
extern const Table kAvx512Bf16Table;

/// Whether this CPU multiplies pairs of bf16 faster than it does fp32 (AVX-512 bf16): AMD's. Intel's
/// take twice as long (model 207, 1024^3 on one thread: 83 GFLOP/s, fp32 153).
bool has_fast_pairs();

/// Tables that this CPU can run, the best last.
std::span<const Table* const> usable_tables();

/// The best of them.
const Table& table();

}  // namespace trireme::ops::kernels
