#include <algorithm>
#include <utility>

#include "backend/mpi/executions.hpp"
#include "kolo/error.hpp"

namespace kolo::backend::mpi {
namespace {

/// The length first, since the others do not know it, then the bytes in pieces, one at a time: text
/// is short.
class TextBroadcast : public Execution {
 public:
  TextBroadcast(Context& context, std::string& text, int root)
      : context_(context), turn_(context), text_(text), root_(root) {}

  /// What MPI may yet write is leaked on purpose.
  ~TextBroadcast() override {
    if (request_ != MPI_REQUEST_NULL) static_cast<void>(length_.release());
  }
  TextBroadcast(const TextBroadcast&) = delete;
  TextBroadcast& operator=(const TextBroadcast&) = delete;

  Progress step() override {
    if (request_ == MPI_REQUEST_NULL && turn_.has_come()) call();
    if (request_ == MPI_REQUEST_NULL || !test(request_)) return Progress::waiting;
    if (!length_known_) {
      length_known_ = true;
      if (root_ != context_.rank) text_.resize(static_cast<std::size_t>(*length_));
    }
    if (sent_ < *length_) return Progress::moved;
    if (!turn_.is_over()) turn_.pass_on();
    return Progress::done;
  }

 private:
  void call() {
    if (!length_known_) {
      if (root_ == context_.rank) *length_ = static_cast<std::int64_t>(text_.size());
      node::check_mpi(MPI_Ibcast(length_.get(), 1, MPI_INT64_T, root_, context_.comm, &request_),
                      "MPI_Ibcast");
      return;
    }
    const std::int64_t bytes = std::min(*length_ - sent_, context_.piece_bytes);
    node::check_mpi(MPI_Ibcast(text_.data() + sent_, static_cast<int>(bytes), MPI_BYTE, root_,
                               context_.comm, &request_),
                    "MPI_Ibcast");
    sent_ += bytes;
    if (sent_ == *length_) turn_.pass_on();
  }

  Context& context_;
  Turn turn_;
  std::string& text_;
  int root_;
  std::unique_ptr<std::int64_t> length_ = std::make_unique<std::int64_t>(0);
  bool length_known_ = false;
  std::int64_t sent_ = 0;  // bytes
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace

std::unique_ptr<Execution> make_text_broadcast(Context& context, Batch batch) {
  if (batch.members.size() != 1 || batch.members.front().text == nullptr)
    throw InvalidArgument("a text broadcast takes one text");
  return std::make_unique<TextBroadcast>(context, *batch.members.front().text, batch.kind.root);
}

}  // namespace kolo::backend::mpi
