// What executes an agreed batch. Nothing here blocks: the driver calls `step` until it says done.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptor.hpp"

namespace kolo::backend {

/// One tensor of a batch on this rank. `text` is set for text broadcasts, `data` for all else.
struct Member {
  void* data = nullptr;
  std::int64_t elements = 0;
  std::string* text = nullptr;
};

/// `kind` says what all members have in common; its shape is of no meaning here.
struct Batch {
  Descriptor kind;
  std::vector<Member> members;
};

/// What one step achieved: nothing, since others are awaited; something; or all there was to do.
enum class Progress : std::uint8_t { waiting, moved, done };

/// A batch under way. Destroying one that is not done abandons it; the memory of its members may
/// still be written by the network, so only do that when the process is about to end.
class Execution {
 public:
  virtual ~Execution() = default;

  /// Does at most about 200 us of work. Once it says `done`, the members hold the result, and it
  /// must not be called again. Throws BackendError.
  [[nodiscard]] virtual Progress step() = 0;
};

/// Every rank starts the same batches in the same order. One thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::unique_ptr<Execution> start(Batch batch) = 0;
};

}  // namespace kolo::backend
