// Names of threads, as traces and top show them.
#pragma once

#include <pthread.h>

#include <string>

namespace deepencoder {

// Of the calling thread; Linux shows the first 15 characters.
inline void NameThisThread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace deepencoder
