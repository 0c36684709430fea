// What an operation and its group do in backward. `back` holds the forward operation's options,
// with the name of the one in backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"
#include "torch/recorded.hpp"

namespace kolo::detail {

/// Of the operation in backward; "" stays "".
[[nodiscard]] std::string backward_name(const std::string& name);
/// The same for one tensor of a group.
[[nodiscard]] std::string backward_name(const std::string& name, std::size_t member);

/// In backward it throws InvalidArgument unless `back.op` is average or sum.
[[nodiscard]] TensorFunction allreduce_gradient(const AllreduceOptions& back);

/// `shape` is that of this rank's input; `rows`, of each member of the set, are known by the time
/// of backward.
[[nodiscard]] TensorFunction allgather_gradient(
    const AllgatherOptions& back, const std::vector<std::int64_t>& shape,
    std::shared_ptr<const std::vector<std::int64_t>> rows);

/// As `allreduce_gradient`.
[[nodiscard]] TensorFunction reducescatter_gradient(const ReducescatterOptions& back);

}  // namespace kolo::detail
