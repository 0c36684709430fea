// A library that shows what it must not, for exported_symbols.sh to find: a name of the inside, a
// name that no public header has, and one of another library.
namespace kolo::internal {

void allreduce();
void allreduce() {}
void not_in_any_header();
void not_in_any_header() {}

namespace session {

void leak();
void leak() {}

}  // namespace session

}  // namespace kolo::internal

namespace fmt {

void leak();
void leak() {}

}  // namespace fmt
