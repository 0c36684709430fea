// SPDX-License-Identifier: Apache-2.0
// Sessions, process sets, diagnostics, and parameters.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "module.hpp"
#include "request.hpp"

namespace kolo_python {
namespace {

template <kolo_status (*function)(int*)>
int number() {
  int value = 0;
  check(function(&value));
  return value;
}

void init(const std::vector<std::pair<std::string, std::string>>& settings) {
  std::vector<kolo_setting> list;
  for (const auto& [name, value] : settings) list.push_back({name.c_str(), value.c_str()});
  without_gil([&] { return kolo_init(0, nullptr, list.data(), list.size()); });
}

void shutdown() {
  without_gil([] { return kolo_shutdown(); });
  free_dropped_operations();
}

/// The text that `function` writes into memory of this program.
template <typename Function>
std::string text_by(Function&& function) {
  std::string text(255, '\0');
  for (;;) {
    std::size_t length = 0;
    check(function(text.data(), text.size() + 1, &length));
    const bool is_whole = length <= text.size();
    text.resize(length);
    if (is_whole) return text;
  }
}

bool stop_requested() {
  int stops = 0;
  without_gil([&] { return kolo_stop_requested(&stops); });
  return stops != 0;
}

std::string write_flight_record(const std::optional<std::string>& path) {
  std::array<char, 4096> text{};
  std::size_t length = 0;
  check(
      kolo_write_flight_record(path ? path->c_str() : nullptr, text.data(), text.size(), &length));
  return text.data();
}

nb::dict build_info() {
  kolo_build build{};
  check(kolo_read_build(&build, sizeof build));
  nb::dict info;
  info["version"] = build.version;
  info["mpi_library"] = build.mpi_library;
  info["cuda"] = build.cuda;
  info["nccl"] = build.nccl;
  return info;
}

std::uint64_t add_process_set(const std::vector<int>& ranks) {
  kolo_process_set* set = nullptr;
  without_gil([&] { return kolo_process_set_add(ranks.data(), ranks.size(), &set); });
  return reinterpret_cast<std::uint64_t>(set);
}

std::vector<int> process_set_ranks(std::uint64_t set) {
  int size = 0;
  check(kolo_process_set_size(set_of(set), &size));
  std::vector<int> ranks(static_cast<std::size_t>(size));
  check(kolo_process_set_ranks(set_of(set), ranks.data(), ranks.size()));
  return ranks;
}

/// Named tensors of lists of names and arrays.
class Parameters {
 public:
  Parameters(const std::vector<std::string>& names, const nb::list& tensors, Access access)
      : arrays_(tensors, access) {
    if (names.size() != arrays_.size()) throw nb::value_error("each tensor needs a name");
    for (std::size_t i = 0; i < names.size(); ++i)
      named_.push_back({names[i].c_str(), arrays_.tensors()[i]});
  }
  [[nodiscard]] const std::vector<kolo_named_tensor>& named() const { return named_; }

 private:
  Arrays arrays_;
  std::vector<kolo_named_tensor> named_;
};

void broadcast_parameters(const std::vector<std::string>& names, const nb::list& tensors, int root,
                          std::uint64_t process_set) {
  const Parameters parameters(names, tensors, Access::write);
  const auto& named = parameters.named();
  without_gil([&] {
    return kolo_broadcast_parameters(named.data(), named.size(), root, set_of(process_set));
  });
}

void require_equal(const std::vector<std::string>& names, const nb::list& tensors,
                   std::uint64_t process_set) {
  const Parameters parameters(names, tensors, Access::read);
  const auto& named = parameters.named();
  without_gil([&] { return kolo_require_equal(named.data(), named.size(), set_of(process_set)); });
}

}  // namespace

void add_session(nb::module_& module) {
  module.def("init", &init, nb::arg("settings"));
  module.def("shutdown", &shutdown);
  module.def("initialized", [] { return kolo_initialized() != 0; });
  module.def("rank", &number<kolo_rank>);
  module.def("size", &number<kolo_size>);
  module.def("local_rank", &number<kolo_local_rank>);
  module.def("local_size", &number<kolo_local_size>);
  module.def("cross_rank", &number<kolo_cross_rank>);
  module.def("cross_size", &number<kolo_cross_size>);
  module.def("homogeneous", [] { return number<kolo_homogeneous>() != 0; });
  module.def("cpu_operations", [] { return text_by(kolo_cpu_operations); });
  module.def("statistics_text", [] { return text_by(kolo_statistics_text); });
  module.def("stop_requested", &stop_requested);
  module.def("request_stop", &kolo_request_stop);
  module.def("version", &kolo_version);
  module.def("build_info", &build_info);
  module.def(
      "start_timeline", [](const std::string& path) { check(kolo_start_timeline(path.c_str())); },
      nb::arg("path"));
  module.def("stop_timeline", [] { without_gil([] { return kolo_stop_timeline(); }); });
  module.def("write_flight_record", &write_flight_record, nb::arg("path").none());
}

void add_process_sets(nb::module_& module) {
  module.def("process_set_add", &add_process_set, nb::arg("ranks"));
  module.def(
      "process_set_remove",
      [](std::uint64_t set) { without_gil([&] { return kolo_process_set_remove(set_of(set)); }); },
      nb::arg("process_set"));
  module.def(
      "process_set_free", [](std::uint64_t set) { check(kolo_process_set_free(set_of(set))); },
      nb::arg("process_set"));
  module.def(
      "process_set_id",
      [](std::uint64_t set) {
        std::int64_t id = 0;
        check(kolo_process_set_id(set_of(set), &id));
        return id;
      },
      nb::arg("process_set"));
  module.def(
      "process_set_rank",
      [](std::uint64_t set) {
        int rank = 0;
        check(kolo_process_set_rank(set_of(set), &rank));
        return rank;
      },
      nb::arg("process_set"));
  module.def("process_set_ranks", &process_set_ranks, nb::arg("process_set"));
}

void add_parameters(nb::module_& module) {
  module.def("broadcast_parameters", &broadcast_parameters, nb::arg("names"), nb::arg("tensors"),
             nb::arg("root"), nb::arg("process_set"));
  module.def("require_equal", &require_equal, nb::arg("names"), nb::arg("tensors"),
             nb::arg("process_set"));
}

}  // namespace kolo_python
