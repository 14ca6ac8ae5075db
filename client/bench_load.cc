#include "client/bench_load.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

namespace deepencoder::client {
namespace {

class Generator {
 public:
  Generator(Target& target, const std::vector<WorkItem>& items, const Pace& pace,
            const LoadSettings& settings)
      : target_(target),
        items_(items),
        settings_(settings),
        open_(pace.concurrency == 0),
        limit_(open_ ? settings.max_outstanding : pace.concurrency),
        random_(settings.seed),
        gap_(open_ ? pace.rate : 1.0) {
    run_.pace = pace;
    std::vector<double> weights;
    weights.reserve(items.size());
    for (const WorkItem& item : items) weights.push_back(item.weight);
    choice_ = std::discrete_distribution<size_t>(weights.begin(), weights.end());
  }

  LoadRun Run() {
    start_ = target_.Now();
    due_ = start_;
    if (open_) ScheduleNext();
    while (!Ended(target_.Now())) {
      const absl::Time now = target_.Now();
      if (outstanding_ < limit_ && (!open_ || now >= due_)) {
        SendOne(now);
      } else if (const auto answer = target_.Next(NextEvent())) {
        Keep(*answer);
      }
    }
    CountUnsent();
    while (outstanding_ > 0) {
      if (const auto answer = target_.Next(absl::InfiniteFuture())) Keep(*answer);
    }
    Close();
    return std::move(run_);
  }

 private:
  bool WarmedUp(absl::Time now) const {
    return now >= start_ + settings_.warmup && answered_ >= settings_.warmup_count;
  }

  // Opens the window when warm-up is over; whether the last counted request has been sent.
  bool Ended(absl::Time now) {
    if (!measuring_ && WarmedUp(now)) {
      measuring_ = true;
      run_.window_start = now;
      if (settings_.duration > absl::ZeroDuration()) end_ = now + settings_.duration;
    }
    if (!measuring_) return false;
    return now >= end_ || (settings_.count > 0 && counted_ == settings_.count);
  }

  // When something is to be done at the latest, whether an answer comes or not.
  absl::Time NextEvent() const {
    absl::Time until = end_;
    if (!measuring_ && answered_ >= settings_.warmup_count) until = start_ + settings_.warmup;
    if (open_ && outstanding_ < limit_) until = std::min(until, due_);
    return until;
  }

  void ScheduleNext() { due_ += absl::Seconds(gap_(random_)); }

  void SendOne(absl::Time now) {
    Sample sample;
    sample.item = choice_(random_);
    sample.due = open_ ? due_ : now;
    sample.sent = now;
    if (measuring_ && sample.due >= run_.window_start) ++counted_;
    if (open_) ScheduleNext();
    run_.peak_outstanding = std::max(run_.peak_outstanding, ++outstanding_);
    const WorkItem& item = items_[sample.item];
    under_way_.emplace(next_ticket_, std::move(sample));
    target_.Send(next_ticket_++, item);
  }

  void Keep(const Answer& answer) {
    const auto found = under_way_.find(answer.ticket);
    if (found == under_way_.end()) return;
    Sample sample = found->second;
    under_way_.erase(found);
    --outstanding_;
    ++answered_;
    sample.finished = answer.finished;
    sample.code = answer.code;
    sample.rows = answer.rows;
    sample.bytes = answer.bytes;
    sample.timings = answer.timings;
    if (answer.finished > last_finished_) last_finished_ = answer.finished;
    answers_.push_back(sample);
  }

  // Arrivals of the window that the limit on requests under way held back to its end.
  void CountUnsent() {
    if (!open_ || end_ == absl::InfiniteFuture()) return;
    const bool counted_all = settings_.count > 0 && counted_ == settings_.count;
    for (; !counted_all && due_ < end_; ScheduleNext()) {
      if (due_ >= run_.window_start) ++run_.unsent;
    }
  }

  // The window ends with its time or, cut by the count, with the last answer.
  void Close() {
    const bool by_count = settings_.count > 0 && counted_ == settings_.count;
    run_.window_end = by_count ? std::max(last_finished_, run_.window_start) : end_;
    for (const Sample& answer : answers_) {
      if (answer.code == absl::StatusCode::kOk && answer.finished > run_.window_start &&
          answer.finished <= run_.window_end) {
        ++run_.images_in_window;
        run_.rows_in_window += answer.rows;
      }
      if (answer.due >= run_.window_start) run_.samples.push_back(answer);
    }
  }

  Target& target_;
  const std::vector<WorkItem>& items_;
  const LoadSettings& settings_;
  const bool open_;
  const int limit_;
  std::mt19937_64 random_;
  std::exponential_distribution<double> gap_;  // seconds between arrivals
  std::discrete_distribution<size_t> choice_;

  absl::Time start_, due_, last_finished_ = absl::InfinitePast();
  absl::Time end_ = absl::InfiniteFuture();
  bool measuring_ = false;
  uint64_t next_ticket_ = 0;
  int outstanding_ = 0;
  int64_t answered_ = 0, counted_ = 0;
  std::map<uint64_t, Sample> under_way_;  // by ticket
  std::vector<Sample> answers_;
  LoadRun run_;
};

}  // namespace

LoadRun RunLoad(Target& target, const std::vector<WorkItem>& items, const Pace& pace,
                const LoadSettings& settings) {
  return Generator(target, items, pace, settings).Run();
}

}  // namespace deepencoder::client
