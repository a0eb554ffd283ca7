#include "support/cuda_block.hpp"

#include <ucontext.h>

#include <memory>
#include <vector>

#include "core/error.hpp"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace trireme::testing {
namespace {

constexpr std::size_t kStackBytes = 32 * 1024;
constexpr int kWarp = 32;

/// A thread waits for a barrier of its block or its warp, or has ended.
enum class Wait { none, block, warp, end };

struct Fiber {
  CudaThread thread;
  ucontext_t context{};
  std::unique_ptr<char[]> stack;
  void* sanitizer_stack = nullptr;
  Wait wait = Wait::none;
  float shuffles[2] = {0, 0};  // values of the last two shuffles
  std::size_t num_shuffles = 0;
};

/// The state of the block that runs. One host thread runs all fibers.
struct Block {
  std::vector<Fiber> fibers;
  ucontext_t scheduler{};
  void* scheduler_sanitizer_stack = nullptr;
  const void* scheduler_bottom = nullptr;
  std::size_t scheduler_bytes = 0;
  Fiber* running = nullptr;
  void* shared = nullptr;
  const std::function<void()>* body = nullptr;
};

Block* current = nullptr;

void leave(Fiber& fiber, Wait wait) {
  fiber.wait = wait;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(wait == Wait::end ? nullptr : &fiber.sanitizer_stack,
                                 current->scheduler_bottom, current->scheduler_bytes);
#endif
  ::swapcontext(&fiber.context, &current->scheduler);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fiber.sanitizer_stack, nullptr, nullptr);
#endif
}

void run_fiber() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, &current->scheduler_bottom, &current->scheduler_bytes);
#endif
  (*current->body)();
  leave(*current->running, Wait::end);
}

void enter(Fiber& fiber) {
  current->running = &fiber;
  fiber.wait = Wait::none;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&current->scheduler_sanitizer_stack, fiber.stack.get(),
                                 kStackBytes);
#endif
  ::swapcontext(&current->scheduler, &fiber.context);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(current->scheduler_sanitizer_stack, nullptr, nullptr);
#endif
}

/// Makes the fiber start at run_fiber.
void prepare(Fiber& fiber) {
  ::getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  ::makecontext(&fiber.context, run_fiber, 0);
}

/// Runs the fibers [first, last) until each waits for the block or has ended.
void run_warp(std::vector<Fiber>& fibers, std::size_t first, std::size_t last, bool backwards) {
  while (true) {
    std::size_t waiting = 0;
    for (std::size_t i = first; i < last; ++i) {
      Fiber& fiber = fibers[backwards ? first + last - 1 - i : i];
      if (fiber.wait == Wait::none || fiber.wait == Wait::warp) enter(fiber);
      if (fiber.wait == Wait::warp) ++waiting;
    }
    if (waiting == 0) return;
    if (waiting != last - first)
      fail(ErrorKind::internal, "{} of 32 threads of a warp take part in a shuffle", waiting);
  }
}

void run_threads(bool backwards) {
  std::vector<Fiber>& fibers = current->fibers;
  while (true) {
    const std::size_t warps = fibers.size() / kWarp;
    for (std::size_t i = 0; i < warps; ++i) {
      const std::size_t warp = backwards ? warps - 1 - i : i;
      run_warp(fibers, warp * kWarp, (warp + 1) * kWarp, backwards);
    }
    std::size_t ended = 0;
    for (Fiber& fiber : fibers) {
      if (fiber.wait == Wait::end) ++ended;
      if (fiber.wait == Wait::block) fiber.wait = Wait::none;
    }
    if (ended == fibers.size()) return;
    if (ended != 0)
      fail(ErrorKind::internal, "{} of {} threads of a block have ended at a barrier", ended,
           fibers.size());
  }
}

}  // namespace

CudaThread& cuda_thread() {
  return current->running->thread;
}

void cuda_barrier() {
  leave(*current->running, Wait::block);
}

float cuda_shuffle_xor(float value, int distance) {
  Fiber& mine = *current->running;
  const std::size_t turn = mine.num_shuffles++ % 2;  // a faster thread writes the other value
  mine.shuffles[turn] = value;
  leave(mine, Wait::warp);
  const std::size_t index = mine.thread.thread.x;
  const std::size_t lane = (index % kWarp) ^ static_cast<std::size_t>(distance);
  return current->fibers[index / kWarp * kWarp + lane].shuffles[turn];
}

void* cuda_dynamic_shared() {
  return current->shared;
}

void run_block(const CudaThread& first, std::int64_t shared_bytes, bool backwards,
               const std::function<void()>& body) {
  Block block;
  // The bytes are exactly as many as the launch asks for, and floats in them are NaN.
  const auto size = static_cast<std::size_t>(shared_bytes);
  const auto shared = std::make_unique<unsigned char[]>(size);
  std::memset(shared.get(), 0xff, size);
  block.shared = shared.get();
  block.body = &body;
  block.fibers.resize(first.block_size.x);
  current = &block;
  for (std::size_t i = 0; i < block.fibers.size(); ++i) {
    Fiber& fiber = block.fibers[i];
    fiber.thread = first;
    fiber.thread.thread.x = static_cast<unsigned>(i);
    fiber.stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
    prepare(fiber);
  }
  run_threads(backwards);
  current = nullptr;
}

}  // namespace trireme::testing
