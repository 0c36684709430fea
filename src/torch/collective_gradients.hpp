// The backward of each collective. `back` holds the forward operation's options with the name of
// the backward operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"
#include "torch/recorded.hpp"

namespace kolo::detail {

/// The name of the backward operation; "" stays "".
[[nodiscard]] std::string backward_name(const std::string& name);
/// The same for one tensor of a grouped operation.
[[nodiscard]] std::string backward_name(const std::string& name, std::size_t member);

/// The returned function throws InvalidArgument unless `back.op` is average or sum.
[[nodiscard]] TensorFunction allreduce_gradient(const AllreduceOptions& back);

/// `shape` is the shape of this rank's input. `rows` is a pointer because forward fills in the rows
/// of each rank only when it completes.
[[nodiscard]] TensorFunction allgather_gradient(
    const AllgatherOptions& back, const std::vector<std::int64_t>& shape,
    std::shared_ptr<const std::vector<std::int64_t>> rows);

/// As `allreduce_gradient`.
[[nodiscard]] TensorFunction reducescatter_gradient(const ReducescatterOptions& back);

}  // namespace kolo::detail
