#include <ATen/ATen.h>

#include <utility>

#include "core/error.hpp"
#include "device/torch_bridge.hpp"
#include "ops/upload.hpp"
#include "parallel/context/forms.hpp"

namespace trireme::parallel::context {
namespace {

/// The heads that each rank receives, in rank order. Ranges of key heads may overlap.
using HeadRanges = std::vector<ops::TokenRange>;

struct Heads {
  HeadRanges query;
  HeadRanges key;
};

Heads divide_heads(std::int64_t num_heads, std::int64_t num_key_heads,
                   const comm::Communicator& group) {
  const std::int64_t ranks = group.size();
  if (num_heads % ranks != 0) {
    fail(
        ErrorKind::usage,
        "ulysses over group {}: {} query heads, must be divisible by {} context-parallel ranks; ring and all_gather take any number",
        group.name(), num_heads, ranks);
  }
  const std::int64_t each = num_heads / ranks;
  const std::int64_t readers = num_heads / num_key_heads;
  Heads heads;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::int64_t first = rank * each / readers;
    const std::int64_t last = ((rank + 1) * each - 1) / readers;
    heads.query.push_back({rank * each, each});
    heads.key.push_back({first, last - first + 1});
  }
  return heads;
}

/// A pending all_to_all: parts[p] goes to rank p, counts[p] elements come from rank p.
class TensorExchange {
 public:
  TensorExchange(const std::vector<at::Tensor>& parts, std::vector<std::uint64_t> counts,
                 comm::Communicator& group, std::string_view tag)
      : counts_(std::move(counts)) {
    std::vector<at::Tensor> flat;
    std::vector<std::uint64_t> sent;
    std::int64_t total = 0;
    for (const at::Tensor& part : parts) {
      flat.push_back(part.reshape({-1}));
      sent.push_back(static_cast<std::uint64_t>(part.numel()));
    }
    for (const std::uint64_t count : counts_) total += static_cast<std::int64_t>(count);
    out_ = at::cat(flat);
    in_ = at::empty({total}, out_.options());
    work_ = group.all_to_all({.input = out_.data_ptr(),
                              .send_counts = sent,
                              .output = in_.data_ptr(),
                              .receive_counts = counts_,
                              .dtype = device::to_dtype(out_.scalar_type()),
                              .stream = device::current_stream(out_.device()),
                              .tag = tag});
  }

  /// Waits and returns the elements from every rank, in rank order.
  std::vector<at::Tensor> arrived() {
    work_->wait();
    std::vector<at::Tensor> parts;
    std::int64_t first = 0;
    for (const std::uint64_t count : counts_) {
      parts.push_back(in_.narrow(0, first, static_cast<std::int64_t>(count)));
      first += static_cast<std::int64_t>(count);
    }
    return parts;
  }

 private:
  std::vector<std::uint64_t> counts_;
  at::Tensor out_;
  at::Tensor in_;
  comm::WorkPtr work_;  // destroyed first, because it may still read and write the tensors
};

std::size_t own_rank(const comm::Communicator& group) {
  return static_cast<std::size_t>(group.rank());
}

/// A pending exchange from some positions of all heads to all positions of some heads.
class ToHeads {
 public:
  ToHeads(const at::Tensor& x, const HeadRanges& heads, comm::Communicator& group,
          std::string_view tag)
      : shape_({x.size(0), heads[own_rank(group)].length, x.size(2), x.size(3)}),
        exchange_(parts_of(x, heads),
                  std::vector<std::uint64_t>(
                      heads.size(), static_cast<std::uint64_t>(c10::multiply_integers(shape_))),
                  group, tag) {}

  /// Returns [B, own heads, T, D], positions in rank order.
  at::Tensor arrived() {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& part : exchange_.arrived()) parts.push_back(part.view(shape_));
    return at::cat(parts, 2);
  }

 private:
  static std::vector<at::Tensor> parts_of(const at::Tensor& x, const HeadRanges& heads) {
    std::vector<at::Tensor> parts;
    for (const ops::TokenRange& range : heads)
      parts.push_back(x.narrow(1, range.first, range.length));
    return parts;
  }

  std::vector<std::int64_t> shape_;
  TensorExchange exchange_;
};

/// A pending exchange from all positions of some heads back to some positions of all heads.
class ToPositions {
 public:
  ToPositions(const at::Tensor& x, const HeadRanges& heads, comm::Communicator& group,
              std::string_view tag)
      : heads_(heads),
        shape_({x.size(0), 0, x.size(2) / group.size(), x.size(3)}),
        exchange_(x.chunk(group.size(), 2), counts_of(heads, shape_), group, tag) {}

  /// Returns [B, heads, T / c, D]. If several ranks received the same head, sums their results.
  at::Tensor arrived(std::int64_t num_heads) {
    const std::vector<at::Tensor> parts = exchange_.arrived();
    at::Tensor sum = at::zeros({shape_[0], num_heads, shape_[2], shape_[3]}, parts[0].options());
    for (std::size_t rank = 0; rank < parts.size(); ++rank)
      sum.narrow(1, heads_[rank].first, heads_[rank].length)
          .add_(parts[rank].view({shape_[0], heads_[rank].length, shape_[2], shape_[3]}));
    return sum;
  }

 private:
  static std::vector<std::uint64_t> counts_of(const HeadRanges& heads,
                                              const std::vector<std::int64_t>& shape) {
    std::vector<std::uint64_t> counts;
    for (const ops::TokenRange& range : heads)
      counts.push_back(static_cast<std::uint64_t>(shape[0] * range.length * shape[2] * shape[3]));
    return counts;
  }

  HeadRanges heads_;
  std::vector<std::int64_t> shape_;
  TensorExchange exchange_;
};

/// Returns the key head of every query head of this rank, relative to the rank's first key head.
/// Returns an empty list if the usual grouping of attention (H / Hk query heads per key head) gives
/// the same.
std::vector<std::int64_t> uneven_readers(std::int64_t num_heads, std::int64_t num_key_heads,
                                         const Heads& heads, std::size_t rank) {
  const ops::TokenRange query = heads.query[rank];
  const ops::TokenRange key = heads.key[rank];
  std::vector<std::int64_t> read;
  bool even = query.length % key.length == 0;
  for (std::int64_t head = 0; head < query.length; ++head) {
    read.push_back((query.first + head) / (num_heads / num_key_heads) - key.first);
    even = even && read.back() == head / (query.length / key.length);
  }
  return even ? std::vector<std::int64_t>{} : read;
}

at::Tensor repeat_readers(const at::Tensor& x, const std::vector<std::int64_t>& read) {
  if (read.empty()) return x;
  return x.index_select(1, ops::upload(at::tensor(read, at::kLong), x.device()));
}

/// The transpose of repeat_readers(): sums the gradients of a key head's readers.
at::Tensor sum_readers(const at::Tensor& grad, const std::vector<std::int64_t>& read,
                       std::int64_t num_key_heads) {
  if (read.empty()) return grad;
  auto sum = at::zeros({grad.size(0), num_key_heads, grad.size(2), grad.size(3)}, grad.options());
  for (std::size_t head = 0; head < read.size(); ++head)
    sum.select(1, read[head]).add_(grad.select(1, static_cast<std::int64_t>(head)));
  return sum;
}

}  // namespace

ContextResult ulysses_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const ContextCall& call) {
  comm::Communicator& group = *call.group;
  const Heads heads = divide_heads(q.size(1), k.size(1), group);
  ToHeads queries(q, heads.query, group, "context queries");
  ToHeads keys(k, heads.key, group, "context keys");
  ToHeads values(v, heads.key, group, "context values");
  const auto read = uneven_readers(q.size(1), k.size(1), heads, own_rank(group));
  ContextSaved saved{queries.arrived(), keys.arrived(), values.arrived(), {}};
  const auto positions = all_positions(call.setup);
  saved.attended =
      ops::attention_forward(saved.q, repeat_readers(saved.k, read), repeat_readers(saved.v, read),
                             call.attention(positions, positions, false), call.path);
  ToPositions out(saved.attended.out, heads.query, group, "context output");
  return {out.arrived(q.size(1)), std::move(saved)};
}

ops::AttentionGrads ulysses_backward(const at::Tensor& grad_out, const ContextSaved& saved,
                                     const ContextCall& call) {
  comm::Communicator& group = *call.group;
  const std::int64_t num_heads = grad_out.size(1);
  const Heads heads = divide_heads(num_heads, call.num_key_heads, group);
  const auto read = uneven_readers(num_heads, call.num_key_heads, heads, own_rank(group));
  ToHeads incoming(grad_out, heads.query, group, "context output gradients");
  const auto positions = all_positions(call.setup);
  const auto grads = ops::attention_backward(
      incoming.arrived(), saved.q, repeat_readers(saved.k, read), repeat_readers(saved.v, read),
      saved.attended, call.attention(positions, positions, /*wide=*/true), call.path);
  const auto type = saved.q.scalar_type();
  ToPositions queries(grads.q.to(type), heads.query, group, "context query gradients");
  ToPositions keys(sum_readers(grads.k, read, saved.k.size(1)), heads.key, group,
                   "context key gradients");
  ToPositions values(sum_readers(grads.v, read, saved.v.size(1)), heads.key, group,
                     "context value gradients");
  return {queries.arrived(num_heads), keys.arrived(call.num_key_heads).to(type),
          values.arrived(call.num_key_heads).to(type)};
}

}  // namespace trireme::parallel::context
