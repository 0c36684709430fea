#include "session/operation_queue.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::session {

OperationPtr OperationQueue::push(std::shared_ptr<Engine> engine, const std::string& name,
                                  Descriptor descriptor, backend::Member member) {
  const std::lock_guard lock(mutex_);
  negotiation::Key key;
  if (!name.empty()) {
    if (!names_.insert(name).second)
      throw DuplicateName(
          fmt::format("{} \"{}\": an operation of this name is still pending on rank {}",
                      kolo::to_string(descriptor.type), name, rank_),
          name, {rank_});
    key.name = name;
  } else {
    if (unnamed_pending_ > 0 && unnamed_thread_ != std::this_thread::get_id())
      throw InvalidArgument(
          fmt::format(
              "{} without a name: another thread of rank {} has one pending, and nothing tells "
              "them apart on other ranks; give them names",
              kolo::to_string(descriptor.type), rank_),
          "", {rank_});
    key.number = next_unnamed_++;
    unnamed_thread_ = std::this_thread::get_id();
    ++unnamed_pending_;
  }
  submitted_.push_back(std::make_shared<detail::Operation>(std::move(engine), std::move(key),
                                                           std::move(descriptor), member));
  return submitted_.back();
}

std::vector<OperationPtr> OperationQueue::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(submitted_, {});
}

void OperationQueue::release(const detail::Operation& operation) {
  const std::lock_guard lock(mutex_);
  if (operation.key().named()) {
    names_.erase(operation.key().name);
  } else {
    --unnamed_pending_;
  }
}

}  // namespace kolo::session
