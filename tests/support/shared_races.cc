#include "tests/support/shared_races.h"

namespace hadal::cuda {

void SharedRaces::Cover(size_t bytes) {
  if (bytes <= words_.size() * kWordBytes) return;
  words_.resize((bytes + kWordBytes - 1) / kWordBytes);
  places_.resize(words_.size());
  only_loaded_.resize((bytes + kWideBytes - 1) / kWideBytes);
}

void SharedRaces::Meet() {
  if (++epoch_ != 0) return;
  words_.assign(words_.size(), {});  // the numbers start again
  only_loaded_.assign(only_loaded_.size(), 0);
  epoch_ = 1;
}

bool SharedRaces::Add(Access& access, int thread) const {
  if (access.epoch != epoch_) {
    access = {epoch_, static_cast<int16_t>(thread), -1};
    return true;
  }
  if (access.thread != thread) access.other_thread = static_cast<int16_t>(thread);
  return false;
}

SharedRaces::Other SharedRaces::NoteWords(int thread, bool store, size_t first, size_t bytes,
                                          const std::source_location& where) {
  Other other;
  bool only_loaded = bytes == kWideBytes && first % kWideBytes == 0;
  for (size_t i = first / kWordBytes; i < (first + bytes) / kWordBytes; ++i) {
    Word& word = words_[i];
    if (word.store.ByAnother(epoch_, thread)) other = {word.store.OtherThan(thread), places_[i].store};
    if (store) {
      if (word.load.ByAnother(epoch_, thread)) other = {word.load.OtherThan(thread), places_[i].load};
      if (Add(word.store, thread)) places_[i].store = where;
    } else if (Add(word.load, thread)) {
      places_[i].load = where;
    }
    only_loaded = only_loaded && word.load.other_thread >= 0 && word.store.epoch != epoch_;
  }
  if (!store && only_loaded) only_loaded_[first / kWideBytes] = epoch_;
  return other;
}

}  // namespace hadal::cuda
