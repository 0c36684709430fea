#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/mpi/executions.hpp"
#include "backend/mpi/tree_broadcast.hpp"

namespace kolo::backend::mpi {
namespace {

/// The length first, since the others do not know it, then the bytes. The two follow each other on
/// the same lanes.
class TextBroadcast : public Execution {
 public:
  TextBroadcast(Context& context, Batch batch, int index, int root)
      : context_(context), batch_(std::move(batch)), index_(index), root_(root) {
    *length_ = static_cast<std::int64_t>(text().size());
    auto* const bytes = reinterpret_cast<std::byte*>(length_.get());
    start({bytes, bytes, sizeof(std::int64_t)});
  }

  /// What MPI may yet write is leaked on purpose.
  ~TextBroadcast() override {
    if (!length_known_) static_cast<void>(length_.release());
  }
  TextBroadcast(const TextBroadcast&) = delete;
  TextBroadcast& operator=(const TextBroadcast&) = delete;

  [[nodiscard]] Progress step() override {
    const Progress progress = stage_->step();
    if (progress != Progress::done || length_known_) return progress;
    length_known_ = true;
    if (index_ != root_) text().resize(static_cast<std::size_t>(*length_));
    auto* const bytes = reinterpret_cast<std::byte*>(text().data());
    start({bytes, bytes, *length_});
    return Progress::moved;
  }

  [[nodiscard]] Awaited waits_for() const override { return stage_->waits_for(); }

 private:
  [[nodiscard]] std::string& text() const { return text_of(batch_); }

  void start(const fusion::Part& part) {
    stage_ = std::make_unique<TreeBroadcast>(context_, batch_, index_, root_,
                                             std::vector<Run>{{part, DType::u8, DType::u8}});
  }

  Context& context_;
  Batch batch_;
  int index_;
  int root_;
  std::unique_ptr<std::int64_t> length_ = std::make_unique<std::int64_t>(0);
  bool length_known_ = false;
  std::unique_ptr<TreeBroadcast> stage_{};
};

}  // namespace

std::unique_ptr<Execution> make_broadcast(Context& context, Batch batch, int index) {
  const int root = root_index(batch);
  std::vector<Run> runs = byte_runs(batch);
  return std::make_unique<TreeBroadcast>(context, std::move(batch), index, root, std::move(runs));
}

std::unique_ptr<Execution> make_text_broadcast(Context& context, Batch batch, int index) {
  const int root = root_index(batch);
  return std::make_unique<TextBroadcast>(context, std::move(batch), index, root);
}

}  // namespace kolo::backend::mpi
