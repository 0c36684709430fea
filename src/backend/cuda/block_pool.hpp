// Memory that is expensive to get, kept for the next batch.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cuda/runtime.hpp"

namespace kolo::backend::cuda {

/// Blocks go back by themselves, unless they are abandoned: then they stay unused until the pool is
/// gone. It outlives its blocks. One thread at a time.
template <typename Memory>
class BlockPool {
 public:
  using Make = std::function<Memory(const std::shared_ptr<Runtime>&, std::size_t bytes)>;

  class Block {
   public:
    Block() = default;
    Block(BlockPool& pool, Memory memory, std::size_t bytes)
        : pool_(&pool), memory_(std::move(memory)), bytes_(bytes) {}
    ~Block() { give_back(); }
    Block(Block&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)),
          memory_(std::move(other.memory_)),
          bytes_(other.bytes_) {}
    Block& operator=(Block&& other) noexcept {
      if (this == &other) return *this;
      give_back();
      pool_ = std::exchange(other.pool_, nullptr);
      memory_ = std::move(other.memory_);
      bytes_ = other.bytes_;
      return *this;
    }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    [[nodiscard]] std::byte* data() const { return memory_.get(); }
    [[nodiscard]] const Memory& memory() const { return memory_; }
    /// The GPU may still use it.
    void abandon() {
      if (pool_ != nullptr) std::exchange(pool_, nullptr)->abandoned_.push_back(std::move(memory_));
    }

   private:
    void give_back() noexcept {
      if (pool_ != nullptr)
        std::exchange(pool_, nullptr)->free_.push_back({std::move(memory_), bytes_});
    }

    BlockPool* pool_ = nullptr;
    Memory memory_{};
    std::size_t bytes_ = 0;
  };

  BlockPool(std::shared_ptr<Runtime> runtime, Make make)
      : runtime_(std::move(runtime)), make_(std::move(make)) {}

  /// At least so many bytes, at least one; sizes are powers of two, so that few are made.
  [[nodiscard]] Block take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(std::max(bytes, least_bytes));
    const auto found = std::ranges::find(free_, size, &Free::bytes);
    if (found == free_.end()) return {*this, make_(runtime_, size), size};
    Block block(*this, std::move(found->memory), size);
    free_.erase(found);
    return block;
  }

  /// Of what is in it.
  void clear() {
    free_.clear();
    abandoned_.clear();
  }

 private:
  static constexpr std::size_t least_bytes = 4096;

  struct Free {
    Memory memory;
    std::size_t bytes;
  };

  std::shared_ptr<Runtime> runtime_;
  Make make_;
  std::vector<Free> free_{};
  std::vector<Memory> abandoned_{};
};

}  // namespace kolo::backend::cuda
