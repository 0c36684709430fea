// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/optimizer/backward_call.hpp"

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kolo/error.hpp"
#include "training/first_error.hpp"

namespace kolo::internal {
namespace {

namespace autograd = ::torch::autograd;

constexpr std::string_view name_of_kind = "kolo::BackwardCall";

// LibTorch identifies a kind of debug information by the address of its name, and before 2.15 by a
// number, which here is far above LibTorch's own.
template <typename Kind>
constexpr Kind make_kind() {
  if constexpr (std::is_enum_v<Kind>) {
    return static_cast<Kind>(0xC0);
  } else {
    return Kind(&name_of_kind);
  }
}

// The kind under which a thread stores its BackwardCall. LibTorch passes such information on to the
// threads that work for it.
constexpr auto info_kind = make_kind<c10::DebugInfoKind>();

// Adds the nodes to which the roots lead, the latest in forward first. Nodes that backward has
// executed keep their edges.
void add_reached(const autograd::edge_list& roots, GraphNodes& nodes) {
  std::vector<const autograd::Node*> open;
  const auto is_earlier = [](const autograd::Node* a, const autograd::Node* b) {
    return a->sequence_nr() < b->sequence_nr();
  };
  const auto add = [&](const autograd::edge_list& edges) {
    for (const autograd::Edge& edge : edges) {
      if (!edge.is_valid() || !nodes.emplace(edge.function.get(), nodes.size()).second) continue;
      open.push_back(edge.function.get());
      std::ranges::push_heap(open, is_earlier);
    }
  };
  add(roots);
  while (!open.empty()) {
    std::ranges::pop_heap(open, is_earlier);
    const autograd::Node* const node = open.back();
    open.pop_back();
    add(node->next_edges());
  }
}

}  // namespace

/// Passes all calls on to LibTorch's engine. PyTorch's engine for Python replaces LibTorch's in the
/// same way. This one has no threads of its own, and lives as long as the process.
class BackwardCall::ReportingEngine final : public autograd::Engine {
 public:
  explicit ReportingEngine(autograd::Engine& before) : before_(before) {}

  static ReportingEngine& installed() {
    static ReportingEngine& engine = []() -> ReportingEngine& {
      auto made = std::make_unique<ReportingEngine>(autograd::Engine::get_default_engine());
      autograd::set_default_engine_stub([]() -> autograd::Engine& { return installed(); });
      return *made.release();
    }();
    return engine;
  }

  void watch(const std::weak_ptr<BackwardPart>& part) {
    const std::lock_guard lock(mutex_);
    std::erase_if(watching_, [](const auto& watching) { return watching.expired(); });
    watching_.push_back(part);
  }

  std::vector<std::shared_ptr<BackwardPart>> watching() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<BackwardPart>> parts;
    for (const std::weak_ptr<BackwardPart>& part : watching_)
      if (auto alive = part.lock()) parts.push_back(std::move(alive));
    return parts;
  }

  autograd::variable_list execute(const autograd::edge_list& roots,
                                  const autograd::variable_list& inputs, bool keep_graph,
                                  bool create_graph, bool accumulate_grad,
                                  const autograd::edge_list& outputs) override {
    const auto run = [&] {
      try {
        return before_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
      } catch (...) {
        BackwardCall* const call = accumulate_grad ? find() : nullptr;
        if (call != nullptr) call->note_thrown(roots, outputs);
        throw;
      }
    };
    // torch::autograd::grad() accumulates nothing, but backward() may be nested in it.
    if (!accumulate_grad || find() != nullptr) return run();
    for (const std::shared_ptr<BackwardPart>& part : watching()) part->before_backward();
    const auto backward = std::make_shared<BackwardCall>();
    autograd::variable_list results;
    try {
      const c10::DebugInfoGuard guard(info_kind, backward);
      results = run();
    } catch (...) {
      backward->fail();
      throw;
    }
    backward->end();
    return results;
  }

  std::unique_ptr<autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return before_.make_anomaly_metadata();
  }
  std::unique_ptr<autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return before_.get_default_saved_variable_hooks();
  }

 private:
  autograd::Engine& before_;
  std::mutex mutex_{};  // guards the member below
  std::vector<std::weak_ptr<BackwardPart>> watching_{};
};

void BackwardCall::watch(const std::weak_ptr<BackwardPart>& part) {
  ReportingEngine::installed().watch(part);
}

BackwardCall* BackwardCall::find() {
  auto* const found = static_cast<BackwardCall*>(c10::ThreadLocalDebugInfo::get(info_kind));
  if (found == nullptr) return nullptr;
  // A task that a call of backward() has left behind may call backward() later.
  const std::lock_guard lock(found->mutex_);
  return found->is_closed_ ? nullptr : found;
}

BackwardCall& BackwardCall::current() {
  if (BackwardCall* const found = find()) return *found;
  throw InvalidArgument(
      "a gradient has accumulated in an autograd engine that does not report to Kolo. If the "
      "program loads another engine, such as Python's, construct its optimizers afterwards");
}

// Refuses parts after the call has been closed: a thread of LibTorch may still work for a call that
// has failed on another thread.
void BackwardCall::add(std::weak_ptr<BackwardPart> part) {
  const std::lock_guard lock(mutex_);
  if (is_closed_)
    throw InvalidArgument("backward() has failed, and a gradient has accumulated afterwards");
  parts_.push_back(std::move(part));
}

std::vector<std::shared_ptr<BackwardPart>> BackwardCall::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  std::vector<std::shared_ptr<BackwardPart>> parts;
  for (const std::weak_ptr<BackwardPart>& part : parts_)
    if (auto alive = part.lock()) parts.push_back(std::move(alive));
  return parts;
}

void BackwardCall::end() {
  std::vector<std::shared_ptr<BackwardPart>> parts = close();
  std::vector<PassReducer*> reducing;
  FirstError error;
  // A pass that a check refuses fails on all ranks. The others end as usual.
  std::erase_if(parts, [&](const std::shared_ptr<BackwardPart>& part) {
    const bool passed = error.attempt([&] {
      if (PassReducer* const reducer = part->check_pass()) reducing.push_back(reducer);
    });
    if (!passed) part->fail_pass();
    return !passed;
  });
  internal::PassReducer::end_together(reducing);
  for (const std::shared_ptr<BackwardPart>& part : parts) error.attempt([&] { part->end_pass(); });
  error.rethrow();
}

// Backward may be restricted to some inputs (`outputs`), and then comes to no other accumulator.
void BackwardCall::note_thrown(const autograd::edge_list& roots,
                               const autograd::edge_list& outputs) {
  GraphNodes reached;
  add_reached(roots, reached);
  const std::lock_guard lock(mutex_);
  if (is_closed_) return;  // `fail` reads what was reached
  if (outputs.empty()) return reached_.merge(reached);
  for (const autograd::Edge& output : outputs)
    if (const auto found = reached.find(output.function.get()); found != reached.end())
      reached_.insert(*found);
}

// Parts that do not wait come first: while this rank waits in one part, the others may wait for it
// in another. The passes that have begun come before those that have not, which may wait for the
// end of an earlier failed pass, and these come in the order of the graph.
void BackwardCall::fail() noexcept {
  const std::vector<std::shared_ptr<BackwardPart>> begun = close();
  std::vector<std::shared_ptr<BackwardPart>> others = ReportingEngine::installed().watching();
  std::erase_if(others,
                [&](const auto& part) { return std::ranges::find(begun, part) != begun.end(); });
  std::ranges::stable_sort(others, {}, [&](const auto& part) { return part->place_in(reached_); });
  for (const bool slowly : {false, true}) {
    for (const std::shared_ptr<BackwardPart>& part : begun)
      if (part->fails_slowly() == slowly) part->fail_pass();
    for (const std::shared_ptr<BackwardPart>& part : others)
      if (part->fails_slowly() == slowly) part->fail_unbegun_pass(reached_);
  }
  for (const std::shared_ptr<BackwardPart>& part : begun) part->end_failed_pass();
  for (const std::shared_ptr<BackwardPart>& part : others) part->end_failed_pass();
}

}  // namespace kolo::internal
