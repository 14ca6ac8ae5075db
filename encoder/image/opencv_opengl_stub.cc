// OpenCV's static core refers to GLX for its OpenGL windows, which nothing here opens: this stands in
// for libGL, and says that no function is there.
// NOLINTBEGIN(readability-identifier-naming): its name is not ours
extern "C" void* glXGetProcAddressARB(const unsigned char* /*name*/);
extern "C" void* glXGetProcAddressARB(const unsigned char* /*name*/) { return nullptr; }
// NOLINTEND(readability-identifier-naming)
