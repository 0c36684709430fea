// A library that shows something of the inside, for exported_symbols.sh to find.
namespace kolo {
void allreduce();
void allreduce() {}
namespace session {
void leak();
void leak() {}
}  // namespace session
}  // namespace kolo
