// Lists of named tensors that all ranks must have alike.
#pragma once

#include <vector>

#include "kolo/tensor.hpp"
#include "training/agreement.hpp"

namespace kolo::detail {

/// Names with dtypes and shapes. Throws InvalidArgument, whose message `subject` begins, for a name
/// that is empty or occurs twice.
[[nodiscard]] std::vector<Item> items_of(const std::vector<NamedTensor>& tensors,
                                         const std::string& subject);

}  // namespace kolo::detail
