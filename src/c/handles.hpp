// SPDX-License-Identifier: Apache-2.0
// Handles: the pointers by which programs in C refer to objects of Kolo. A handle is not an address
// but a number, so that a wrong one is recognized instead of followed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kolo/c/types.h"
#include "kolo/error.hpp"
#include "kolo/future.hpp"
#include "kolo/process_set.hpp"

namespace kolo::internal::c {

/// The object behind a kind of handle, the kind's number, and its name in messages.
template <typename Handle>
struct Kind;
template <>
struct Kind<kolo_process_set> {
  using Object = ProcessSet;
  static constexpr std::uint64_t number = 1;
  static constexpr const char* name = "process set";
};
template <>
struct Kind<kolo_request> {
  using Object = Future<void>;
  static constexpr std::uint64_t number = 2;
  static constexpr const char* name = "request";
};
[[noreturn]] void refuse_handle(const char* function, const char* kind);
[[noreturn]] void refuse_busy(const char* function, const char* kind);

/// The objects of one kind. Thread-safe.
///
/// A handle holds, from its upper bits down, its kind (8 bits), the number of times that its place
/// was used before (28), and its place (28). So a handle that was freed is recognized until its
/// place has been used 2^28 times more.
template <typename Handle>
class Handles {
 public:
  using Object = typename Kind<Handle>::Object;

  struct Entry {
    explicit Entry(Object&& its_object) : object(std::move(its_object)) {}
    Object object;
    std::atomic<bool> busy{false};
  };

  /// Never destroyed: a program may leave objects to the end of the process, where their
  /// destructors would wait for other ranks.
  static Handles& all() {
    static auto& handles = *new Handles;  // NOLINT(cppcoreguidelines-owning-memory)
    return handles;
  }

  Handle* add(Object&& object) {
    auto entry = std::make_shared<Entry>(std::move(object));
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) {
      places_.emplace_back();
      free_.push_back(places_.size() - 1);
    }
    const std::size_t place = free_.front();
    free_.pop_front();
    places_[place].entry = std::move(entry);
    const std::uint64_t number =
        (Kind<Handle>::number << 56U) | (places_[place].uses << 28U) | place;
    // Never dereferenced.
    return reinterpret_cast<Handle*>(number);  // NOLINT(performance-no-int-to-ptr)
  }

  /// Throws InvalidArgument for what is no handle of this kind.
  [[nodiscard]] std::shared_ptr<Entry> find(const Handle* handle, const char* function) {
    const std::scoped_lock lock(mutex_);
    return place_of(handle, function).entry;
  }

  /// Forgets the handle, unless another thread has done so.
  void remove(const Handle* handle, const char* function) {
    const std::scoped_lock lock(mutex_);
    Place& place = place_of(handle, function);
    place.entry.reset();
    place.uses = (place.uses + 1) & mask;
    free_.push_back(reinterpret_cast<std::uint64_t>(handle) & mask);
  }

 private:
  static constexpr std::uint64_t mask = (std::uint64_t{1} << 28U) - 1;

  struct Place {
    std::shared_ptr<Entry> entry{};  // null: free
    std::uint64_t uses = 0;
  };

  Place& place_of(const Handle* handle, const char* function) {
    const auto number = reinterpret_cast<std::uint64_t>(handle);
    const std::uint64_t place = number & mask;
    if (number >> 56U != Kind<Handle>::number || place >= places_.size() ||
        places_[place].uses != ((number >> 28U) & mask) || !places_[place].entry)
      refuse_handle(function, Kind<Handle>::name);
    return places_[place];
  }

  std::mutex mutex_;
  std::vector<Place> places_;
  std::deque<std::size_t> free_;  // the place that was freed first is used first
};

/// The object of a handle, for the duration of a call. Another use of the same object meanwhile
/// throws InvalidArgument. A handle that is freed meanwhile keeps its object until the end.
template <typename Handle>
class Use {
 public:
  Use(Handle* handle, const char* function)
      : Use(Handles<Handle>::all().find(handle, function), function) {}
  /// An object whose handle may have been freed.
  Use(std::shared_ptr<typename Handles<Handle>::Entry> entry, const char* function)
      : entry_(std::move(entry)) {
    if (entry_->busy.exchange(true, std::memory_order_acquire))
      refuse_busy(function, Kind<Handle>::name);
  }
  ~Use() { entry_->busy.store(false, std::memory_order_release); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  typename Kind<Handle>::Object& operator*() const { return entry_->object; }
  typename Kind<Handle>::Object* operator->() const { return &entry_->object; }

 private:
  std::shared_ptr<typename Handles<Handle>::Entry> entry_;
};

/// Frees the object of a handle. No effect for null.
template <typename Handle>
void free_handle(Handle* handle, const char* function) {
  if (handle == nullptr) return;
  const Use<Handle> last(handle, function);
  Handles<Handle>::all().remove(handle, function);
}

/// The process set of a handle; null: the world.
inline ProcessSet set_of(const kolo_process_set* set, const char* function) {
  if (set == nullptr) return {};
  return Handles<kolo_process_set>::all().find(set, function)->object;
}

}  // namespace kolo::internal::c
