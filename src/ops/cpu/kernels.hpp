#pragma once
#include <cstdint>
#include <span>

#include "ops/key_interval.hpp"

/// Loops of the fast CPU path on raw pointers, without torch. Every instruction set has its own
/// object file, and `table()` selects one at run time, so one binary runs on every x86-64 machine.
/// All arithmetic is in fp32; a result is rounded once (to nearest even) when it is stored. Strides
/// and widths are in elements. A function processes one range of rows and starts no threads.
namespace trireme::ops::kernels {

enum class Element : std::uint8_t { f32, bf16 };

/// Operand type of multiply-adds: numbers, or pairs of bf16 with products added to an fp32.
enum class Multiply : std::uint8_t { f32, f64, bf16_pairs };

struct RmsForward {
  Element element;
  const void* x;
  const void* residual;  // may be null: no add
  const void* weight;
  void* sum;  // x + residual; only with residual
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
  void* y;             // null: not computed
  float* grad_weight;  // added to, not overwritten
  std::int64_t rows;
  std::int64_t width;
};

struct Gated {
  Element element;
  std::int64_t activation;  // index into ops::Activations
  const void* gate_up;      // rows of gate [width], then up [width]
  std::int64_t stride;      // between rows of gate_up
  const void* grad_y;       // backward only; contiguous
  void* y;                  // contiguous; null in a backward that does not compute it
  void* grad_gate_up;       // backward only; contiguous
  std::int64_t rows;
  std::int64_t width;
};

struct HeadStrides {
  std::int64_t batch;
  std::int64_t token;
  std::int64_t head;
};

/// Norm and rotation of heads; token t of batch b has the index b * length + t.
struct Heads {
  Element element;
  const void* x;
  HeadStrides x_strides;
  const void* grad;  // backward only: gradient of the result
  HeadStrides grad_strides;
  void* out;  // result, or gradient of x in backward
  HeadStrides out_strides;
  const void* weight;  // null: no norm
  float* grad_weight;  // added to; only in backward with weight
  const float* cos;    // [positions, width / 2]
  const float* sin;
  const std::int64_t* positions;  // for every token
  std::int64_t first_token;
  std::int64_t last_token;
  std::int64_t length;
  std::int64_t num_heads;
  std::int64_t width;  // even, at most kMaxHeadWidth
  float eps;
};

inline constexpr std::int64_t kMaxHeadWidth = 512;

/// Replaces rows of logits by grad_scale * (softmax - one hot), in place (unchanged without
/// want_grads). A negative target is ignored: no gradient and no loss.
struct CrossEntropy {
  Element element;
  void* logits;
  const std::int64_t* targets;
  const float* row_weights;  // factor of the gradients; null: all 1
  double* losses;            // one per row, without its weight
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
  const std::int64_t* samples;    // for every row
  const std::int64_t* positions;  // for every row
  std::uint64_t key;
  std::int64_t first_feature;
  std::int64_t rows;
  std::int64_t width;
  std::uint32_t threshold;
  float factor;
};

/// Elements [first, last) of an update. `copy` receives the rounded weights (null: none).
struct AdamW {
  Element copy_element;
  void* copy;
  float* weights;
  const float* grads;
  float* exp_avg;
  float* exp_avg_sq;
  std::int64_t first;
  std::int64_t last;
  float factor;  // multiplies the gradients
  float keep;    // multiplies the weights: 1 - lr * weight decay
  float rate1;   // as in ops::AdamWRates
  float rate2;
  float step_size;
  float inverse_root;
  float eps;
};

/// One tile of scores, keys down, queries across: statistics of queries lie along vector lanes.
struct ScoreTile {
  std::int64_t keys;               // rows, even
  std::int64_t queries;            // columns, a multiple of 16
  std::int32_t first;              // key of row 0
  const std::int32_t* seen_begin;  // [queries]: each one sees the keys [begin, end), which may
  const std::int32_t* seen_end;    // exceed the tile
  float scale;
};

/// With so many rows of x, the arithmetic of LinearRows takes longer than reading W.
inline constexpr std::int64_t kManyRows = 64;

/// y = x W^T for some rows of W, without gradients.
struct LinearRows {
  Element element;  // dtype of W
  Element y_element;
  const float* x;  // rows in the layout of spread_rows
  std::int64_t x_stride;
  const void* w;  // [out, in]
  std::int64_t w_stride;
  void* y;
  std::int64_t y_stride;
  std::int64_t rows;
  std::int64_t in;
  std::int64_t first_out;  // range of W's rows, which are columns of y
  std::int64_t last_out;
  const float* scales = nullptr;  // factor of each row of W, for int8; null: none
  float* scratch = nullptr;       // [4, x_stride], for int8
  std::int64_t w_first_out = 0;   // row of the whole W to which `w` points
};

/// Converts rows of x to the layout that products with W of element `weights` read: fp32 words in a
/// special order, or words of two bf16, padded with zeros to the stride, a multiple of kRowAlign.
/// For fp32 with fp32 it is x itself if its width fits. With bf16 W, x is bf16 or rounded to it.
struct SpreadRows {
  Element element;  // dtype of x
  Element weights;
  const void* x;
  std::int64_t x_stride;
  float* out;
  std::int64_t out_stride;
  std::int64_t rows;
  std::int64_t width;
};

inline constexpr std::int64_t kRowAlign = 32;

/// The beginning of a row of x in fixed point. x is scale * (256 * high + low) with digits from -128
/// to 127. After kFixedHeadBytes, the high digits of the row follow, then the low ones, each padded
/// with zeros to fixed_width().
struct FixedHead {
  float scale;
  std::int32_t high_sum;
  std::int32_t low_sum;
  bool is_coarse;  // the steps are too coarse for this row (kMostPeak), and all digits are 0
};

/// Largest ratio of the largest to the mean absolute value of a row in fixed point. The error of x
/// is then at most about a seventh of the error of W in int8, if W is normally distributed.
inline constexpr float kMostPeak = 128;

inline constexpr std::int64_t kFixedHeadBytes = 64;

constexpr std::int64_t fixed_width(std::int64_t width) {
  return (width + 63) / 64 * 64;
}

constexpr std::int64_t fixed_row_bytes(std::int64_t width) {
  return kFixedHeadBytes + 2 * fixed_width(width);
}

inline constexpr std::int64_t kBlockTokens = 16;

/// Numbers that are adjacent in a block: two 16-bit numbers (of one token in keys, of two tokens in
/// values), because some machines multiply such pairs directly; else one.
constexpr std::int64_t in_block_word(std::int64_t element_size) {
  return element_size == 2 ? 2 : 1;
}

/// Most query heads over all rows of one PagedAttention call.
inline constexpr std::int64_t kMaxPagedQueries = 64;

/// Attention of rows of one sequence for one key head, with `group` query heads each.
struct PagedAttention {
  Element element;
  const void* q;
  std::int64_t q_row_stride;
  std::int64_t q_head_stride;
  const void* keys;    // [kv_heads, num_blocks, width / w, 16, w], w = in_block_word
  const void* values;  // [kv_heads, num_blocks, 16 / w, width, w]
  void* out;           // head h of a row is at h * width
  std::int64_t out_row_stride;
  const std::int32_t* blocks;  // blocks of the sequence, in order
  float* scratch;              // 2 * width + 16 per query head and row
  const KeyInterval* seen;     // tokens that each row sees; both ends rise from row to row
  std::int64_t first_row;
  std::int64_t last_row;
  std::int64_t num_blocks;
  std::int64_t kv_head;
  std::int64_t group;
  std::int64_t width;  // a multiple of 16
  float scale;
};

/// Stores keys and values of rows of one sequence in its blocks.
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

/// Columns of B in one panel, and rows of A in one tile, of products of large matrices.
inline constexpr std::int64_t kPanelColumns = 32;
inline constexpr std::int64_t kPanelTileRows = 12;

/// The 32-bit words that these products multiply.
///   f32      fp32 numbers
///   pairs    pairs of bf16 along k, even k low (needs AVX-512 bf16)
///   widened  bf16 numbers that are converted to fp32 when they are packed
enum class PanelWords : std::uint8_t { f32, pairs, widened };

/// Packs columns of B [width, columns] to panels of 32 columns: words [k, 32], with zeros where a
/// panel ends beyond B.
struct Panels {
  PanelWords words;
  const void* b;
  std::int64_t b_stride;
  bool b_transposed;  // element (k, n) is at n * stride + k, else at k * stride + n
  std::int64_t width;
  std::int64_t columns;
  std::uint32_t* panels;
  std::int64_t panel_stride;  // words, at least 32 for each word of k
};

/// C [rows, columns] = A B, or C += A B, with sums in fp32 and B in panels.
struct PanelProduct {
  PanelWords words;
  const void* a;
  std::int64_t a_stride;
  bool a_transposed;  // element (m, k) is at k * stride + m, else at m * stride + k
  const std::uint32_t* panels;
  std::int64_t panel_stride;
  void* c;
  Element c_element;
  std::int64_t c_stride;
  bool add;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t width;
  std::int64_t next_rows;  // rows of a transposed A that the next call reads after these
  /// Used if A is transposed, is widened or does not end with a whole word: 32 words more than a row
  /// has, for each row, with the number of rows rounded up to whole tiles.
  std::uint32_t* scratch;
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
  void (*adamw)(const AdamW&);
  /// Online softmax: updates maximum and total [queries] (maximum in log2 units), writes the
  /// weights of `scores` in pairs of rows (VNNI), rescales `out` [width, queries], the sums so far.
  void (*softmax_tile)(const ScoreTile&, const float* scores, float* maximum, float* total,
                       std::uint16_t* weights_pairs, float* out, std::int64_t width);
  /// Like softmax_tile, with weights in rows of fp32, which may be `scores`.
  void (*softmax_tile_f32)(const ScoreTile&, const float* scores, float* maximum, float* total,
                           float* weights, float* out, std::int64_t width);
  /// weights = exp(scores - lse); grad_scores = weights * (grad_weights - along) * scale; both as
  /// row-major bf16, and grad_scores also in pairs of rows.
  void (*softmax_tile_backward)(const ScoreTile&, const float* scores, const float* grad_weights,
                                const float* lse, const float* along, std::uint16_t* weights,
                                std::uint16_t* grad_scores, std::uint16_t* grad_scores_pairs);
  /// Like softmax_tile_backward in fp32, without pairs (null). weights may be `scores`, and
  /// grad_scores may be `grad_weights`.
  void (*softmax_tile_backward_f32)(const ScoreTile&, const float* scores,
                                    const float* grad_weights, const float* lse, const float* along,
                                    float* weights, float* grad_scores,
                                    std::uint16_t* grad_scores_pairs);
  /// Packs pairs of bf16 rows (num_rows even) into 32-bit words, even row low; width % 16 = 0.
  void (*pack_pairs)(const std::uint16_t* rows, std::int64_t stride, std::int64_t num_rows,
                     std::int64_t width, std::uint32_t* pairs);
  /// Transposes 32-bit elements; rows and columns are multiples of 16.
  void (*transpose)(const std::uint32_t* in, std::int64_t in_stride, std::uint32_t* out,
                    std::int64_t out_stride, std::int64_t rows, std::int64_t columns);
  /// Rounds fp32 rows, each times its factor (null: 1), to bf16.
  void (*round_rows)(const float* in, std::int64_t in_stride, const float* factors,
                     std::uint16_t* out, std::int64_t out_stride, std::int64_t rows,
                     std::int64_t width);
  void (*row_products)(const std::uint16_t* a, std::int64_t a_stride, const std::uint16_t* b,
                       std::int64_t b_stride, float* products, std::int64_t rows,
                       std::int64_t width);
  void (*row_products_f32)(const float* a, std::int64_t a_stride, const float* b,
                           std::int64_t b_stride, float* products, std::int64_t rows,
                           std::int64_t width);
  void (*linear_rows)(const LinearRows&);
  /// Like linear_rows, with W in int8 (`element` is f32, the layout of x) and `scales`.
  void (*int8_linear_rows)(const LinearRows&);
  /// Converts rows of x to fixed point; `out` has an alignment of 64 bytes. Rows with numbers that
  /// are not finite, or all below 3e-26, are coarse. Null without AVX-512.
  void (*fix_rows)(const SpreadRows&);
  /// Like int8_linear_rows, with x in fixed point. Null without AVX-512; needs has_vnni().
  void (*fixed_linear_rows)(const LinearRows&);
  void (*spread_rows)(const SpreadRows&);
  /// Products of large matrices; null without AVX-512.
  void (*pack_panels)(const Panels&);
  void (*panel_products)(const PanelProduct&);
  bool multiplies_pairs;  // pack_panels and panel_products accept PanelWords::pairs
  void (*paged_attention)(const PagedAttention&);
  void (*paged_store)(const PagedStore&);
  /// Runs `rounds` times a fixed number of multiply-adds between registers. Returns the number of
  /// FLOPs, or 0 if the instruction set has none for these operands.
  double (*multiply_adds)(Multiply what, std::int64_t rounds);
};

extern const Table kGenericTable;
extern const Table kAvx2Table;
extern const Table kAvx512Table;
extern const Table kAvx512Bf16Table;

bool is_intel();

/// Returns true if this CPU multiplies pairs of bf16 faster than fp32 (AVX-512 bf16): true on AMD.
/// On Intel it takes twice as long (model 207, 1024^3 on one thread: 83 GFLOP/s, fp32 153).
bool has_fast_pairs();

/// Returns true if this CPU multiplies and adds 8-bit integers in one instruction (AVX-512 VNNI).
bool has_vnni();

/// Returns the tables that this CPU can run, the best one last.
std::span<const Table* const> usable_tables();

const Table& table();

}  // namespace trireme::ops::kernels
