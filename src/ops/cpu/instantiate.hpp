#pragma once
#include "ops/cpu/gated.hpp"
#include "ops/cpu/heads.hpp"
#include "ops/cpu/layout.hpp"
#include "ops/cpu/linear.hpp"
#include "ops/cpu/paged.hpp"
#include "ops/cpu/peak.hpp"
#include "ops/cpu/rows.hpp"
#include "ops/cpu/scores.hpp"

/// Fills the table named TRIREME_KERNEL_TABLE from the kernels as this file's flags compile them.
namespace trireme::ops::kernels {
namespace {

#define TRIREME_BY_ELEMENT(function, Arguments) \
  void function(const Arguments& arguments) {   \
    if (arguments.element == Element::f32) {    \
      function##_typed<float>(arguments);       \
    } else {                                    \
      function##_typed<Bf16>(arguments);        \
    }                                           \
  }

TRIREME_BY_ELEMENT(rms_forward, RmsForward)
TRIREME_BY_ELEMENT(rms_backward, RmsBackward)
TRIREME_BY_ELEMENT(gated_forward, Gated)
TRIREME_BY_ELEMENT(gated_backward, Gated)
TRIREME_BY_ELEMENT(heads_forward, Heads)
TRIREME_BY_ELEMENT(heads_backward, Heads)
TRIREME_BY_ELEMENT(cross_entropy, CrossEntropy)
TRIREME_BY_ELEMENT(dropout, Dropout)
TRIREME_BY_ELEMENT(linear_rows, LinearRows)
TRIREME_BY_ELEMENT(spread_rows, SpreadRows)
TRIREME_BY_ELEMENT(paged_attention, PagedAttention)
TRIREME_BY_ELEMENT(paged_store, PagedStore)
#undef TRIREME_BY_ELEMENT

}  // namespace

extern const Table TRIREME_KERNEL_TABLE;
const Table TRIREME_KERNEL_TABLE = {
    TRIREME_KERNEL_NAME,   rms_forward,    rms_backward,    gated_forward, gated_backward,
    heads_forward,         heads_backward, cross_entropy,   dropout,       softmax_tile,
    softmax_tile_backward, pack_pairs,     transpose,       round_rows,    row_products,
    linear_rows,           spread_rows,    paged_attention, paged_store,   multiply_adds};

}  // namespace trireme::ops::kernels
