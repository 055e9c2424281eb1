// A libamdhip64 of a release that is too old: it lacks nearly everything.
extern "C" __attribute__((visibility("default"))) const char* hipGetErrorName(int);
const char* hipGetErrorName(int) { return "hipErrorOfStub"; }
