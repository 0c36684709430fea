// SPDX-License-Identifier: Apache-2.0
// The collectives. All of them are submitted here and waited for by their requests; the package
// adds defaults and results.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "module.hpp"
#include "request.hpp"

namespace kolo_python {
namespace {

using Name = std::optional<std::string>;

const char* text_of(const Name& name) { return name ? name->c_str() : nullptr; }

kolo_collective_options options_of(const Name& name, std::uint64_t process_set) {
  kolo_collective_options options = KOLO_COLLECTIVE_OPTIONS;
  options.name = text_of(name);
  options.process_set = set_of(process_set);
  return options;
}

struct Reduction {
  Name name;
  std::uint64_t process_set = 0;
  int op = KOLO_AVERAGE;
  int compression = KOLO_COMPRESSION_NONE;
  double prescale = 1.0;
  double postscale = 1.0;

  [[nodiscard]] kolo_reduce_options options() const {
    kolo_reduce_options options = KOLO_REDUCE_OPTIONS;
    options.name = text_of(name);
    options.process_set = set_of(process_set);
    options.op = static_cast<kolo_reduce_op>(op);
    options.compression = static_cast<kolo_compression>(compression);
    options.prescale = prescale;
    options.postscale = postscale;
    return options;
  }
};

std::size_t members_of(std::uint64_t process_set) {
  int members = 0;
  check(kolo_process_set_size(set_of(process_set), &members));
  return static_cast<std::size_t>(members);
}

/// The places for the outputs' memory.
std::vector<void*> users_of(Operation& operation) {
  std::vector<void*> users;
  for (Output& output : operation.outputs) users.push_back(&output.memory);
  return users;
}

/// With `output` None, in place.
Request allreduce(const nb::object& input, const nb::object& output, const Reduction& reduction) {
  const kolo_reduce_options options = reduction.options();
  auto operation = std::make_unique<Operation>();
  Arrays& in = operation->inputs;
  Arrays& out = operation->results;
  in.add(input, output.is_none() ? Access::write : Access::read);
  if (!output.is_none()) out.add(output, Access::write);
  return submit(std::move(operation), [&](kolo_request** request) {
    return out.size() == 0
               ? kolo_allreduce_async(in.tensors(), &options, request)
               : kolo_allreduce_into_async(in.tensors(), out.tensors(), &options, request);
  });
}

Request grouped_allreduce(const nb::list& tensors, const Reduction& reduction) {
  const kolo_reduce_options options = reduction.options();
  auto operation = std::make_unique<Operation>();
  operation->inputs = Arrays(tensors, Access::write);
  const Arrays& in = operation->inputs;
  return submit(std::move(operation), [&](kolo_request** request) {
    return kolo_grouped_allreduce_async(in.tensors(), in.size(), &options, request);
  });
}

Request reducescatter(const nb::list& inputs, const nb::list& outputs, const Reduction& reduction) {
  if (inputs.size() != outputs.size())
    throw nb::value_error("a reducescatter needs as many outputs as inputs");
  const kolo_reduce_options options = reduction.options();
  auto operation = std::make_unique<Operation>();
  operation->inputs = Arrays(inputs, Access::read);
  operation->results = Arrays(outputs, Access::write);
  const Arrays& in = operation->inputs;
  const Arrays& out = operation->results;
  return submit(std::move(operation), [&](kolo_request** request) {
    return kolo_grouped_reducescatter_async(in.tensors(), out.tensors(), in.size(), &options,
                                            request);
  });
}

Request allgather(const nb::list& tensors, const Name& name, std::uint64_t process_set) {
  const kolo_collective_options options = options_of(name, process_set);
  auto operation = std::make_unique<Operation>();
  operation->inputs = Arrays(tensors, Access::read);
  operation->expect_rows(members_of(process_set));
  const std::vector<void*> users = users_of(*operation);
  Operation& its = *operation;
  return submit(std::move(operation), [&](kolo_request** request) {
    return kolo_grouped_allgather_async(its.inputs.tensors(), its.inputs.size(), kolo_allocate,
                                        users.data(), its.rows.data(), &options, request);
  });
}

/// With `output` None, in place.
Request broadcast(const nb::object& input, const nb::object& output, int root, const Name& name,
                  std::uint64_t process_set) {
  const kolo_collective_options options = options_of(name, process_set);
  auto operation = std::make_unique<Operation>();
  Arrays& in = operation->inputs;
  Arrays& out = operation->results;
  in.add(input, output.is_none() ? Access::write : Access::read);
  if (!output.is_none()) out.add(output, Access::write);
  return submit(std::move(operation), [&](kolo_request** request) {
    return out.size() == 0
               ? kolo_broadcast_async(in.tensors(), root, &options, request)
               : kolo_broadcast_into_async(in.tensors(), out.tensors(), root, &options, request);
  });
}

Request alltoall(const nb::object& tensor, const std::optional<std::vector<std::int64_t>>& splits,
                 const Name& name, std::uint64_t process_set) {
  const kolo_collective_options options = options_of(name, process_set);
  auto operation = std::make_unique<Operation>();
  operation->inputs.add(tensor, Access::read);
  operation->expect_rows(members_of(process_set));
  Operation& its = *operation;
  static constexpr std::int64_t none = 0;  // for an empty list, which is not "equal parts"
  const std::int64_t* counts = splits ? (splits->empty() ? &none : splits->data()) : nullptr;
  return submit(std::move(operation), [&](kolo_request** request) {
    return kolo_alltoall_async(its.inputs.tensors(), counts, splits ? splits->size() : 0,
                               kolo_allocate, &its.outputs.front().memory, its.rows.data(),
                               &options, request);
  });
}

Request barrier(const Name& name, std::uint64_t process_set) {
  const kolo_collective_options options = options_of(name, process_set);
  return submit(std::make_unique<Operation>(),
                [&](kolo_request** request) { return kolo_barrier_async(&options, request); });
}

Request join() {
  auto operation = std::make_unique<Operation>();
  int* const last_rank = &operation->last_rank;
  return submit(std::move(operation),
                [&](kolo_request** request) { return kolo_join_async(last_rank, request); });
}

}  // namespace

void add_collectives(nb::module_& module) {
  nb::class_<Request>(module, "Request")
      .def("wait", &Request::wait)
      .def("wait_for", &Request::wait_for, nb::arg("seconds"))
      .def("ready", &Request::ready)
      .def("take_outputs", &Request::take_outputs)
      .def_prop_ro("rows", &Request::rows)
      .def_prop_ro("last_rank", &Request::last_rank);
  nb::class_<Reduction>(module, "Reduction")
      .def(
          "__init__",
          [](Reduction* place, Name name, std::uint64_t process_set, int op, int compression,
             double prescale, double postscale) {
            new (place)
                Reduction{std::move(name), process_set, op, compression, prescale, postscale};
          },
          nb::arg("name").none(), nb::arg("process_set"), nb::arg("op"), nb::arg("compression"),
          nb::arg("prescale"), nb::arg("postscale"));
  module.def("allreduce", &allreduce, nb::arg("input"), nb::arg("output").none(),
             nb::arg("reduction"));
  module.def("grouped_allreduce", &grouped_allreduce, nb::arg("tensors"), nb::arg("reduction"));
  module.def("reducescatter", &reducescatter, nb::arg("inputs"), nb::arg("outputs"),
             nb::arg("reduction"));
  module.def("allgather", &allgather, nb::arg("tensors"), nb::arg("name").none(),
             nb::arg("process_set"));
  module.def("broadcast", &broadcast, nb::arg("input"), nb::arg("output").none(), nb::arg("root"),
             nb::arg("name").none(), nb::arg("process_set"));
  module.def("alltoall", &alltoall, nb::arg("tensor"), nb::arg("splits").none(),
             nb::arg("name").none(), nb::arg("process_set"));
  module.def("barrier", &barrier, nb::arg("name").none(), nb::arg("process_set"));
  module.def("join", &join);
  module.def("reducescatter_rows", &kolo_reducescatter_rows, nb::arg("rows"), nb::arg("index"),
             nb::arg("size"));
}

}  // namespace kolo_python
