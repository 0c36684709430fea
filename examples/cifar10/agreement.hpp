// Errors that concern all ranks: a rank that fails alone would leave the others waiting for it.
#pragma once

#include <functional>

namespace cifar10 {

/// Runs `work` on every rank. If it throws on any, every rank throws std::runtime_error with the
/// message of the first rank that failed. Collective.
void on_every_rank(const std::function<void()>& work);

/// Runs `work` on rank 0 while the others wait. If it throws, every rank throws std::runtime_error
/// with its message. Collective.
void on_rank_0(const std::function<void()>& work);

}  // namespace cifar10
