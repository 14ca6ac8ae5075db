// Loops over a slot's threads. They are OpenMP's, the ones oneDNN computes with, so that a slot has
// one group of threads and not two: the number is a setting of the calling thread, and each calling
// thread has its own group. A slot should therefore always be called from the same thread.
#pragma once

#include <omp.h>

#include <algorithm>

namespace deepencoder::cpu {

// While it lives, parallel work begun by this thread (oneDNN's included) uses `threads` threads, or as
// many as OpenMP's environment (OMP_THREAD_LIMIT) allows. Where oneDNN gets fewer than it was told of, it
// leaves work undone and says nothing.
class ThreadScope {
 public:
  explicit ThreadScope(int threads)
      : previous_(omp_get_max_threads()), previous_dynamic_(omp_get_dynamic()) {
    const int most = omp_get_max_active_levels() > 0 ? omp_get_thread_limit() : 1;
    omp_set_dynamic(0);
    omp_set_num_threads(std::min(threads, most));
  }
  ~ThreadScope() {
    omp_set_num_threads(previous_);
    omp_set_dynamic(previous_dynamic_);
  }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int previous_, previous_dynamic_;
};

// body(task, thread) for every task in [0, tasks), in any order; thread < the scope's number of
// threads. `body` must not throw.
template <class Body>
void ParallelFor(int tasks, const Body& body) {
#pragma omp parallel for schedule(dynamic)
  for (int task = 0; task < tasks; ++task) body(task, omp_get_thread_num());
}

// body(first, count) over [0, rows) in pieces of at most `piece`.
template <class Body>
void ParallelRows(int rows, int piece, const Body& body) {
  ParallelFor((rows + piece - 1) / piece, [&](int task, int) {
    const int first = task * piece;
    body(first, rows - first < piece ? rows - first : piece);
  });
}

}  // namespace deepencoder::cpu
