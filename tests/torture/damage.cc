// Damage to every file that a run writes or reads: each file of a small run and its corpus, times each damage of
// file_damage.h, times each command that reads it; the exit code and the message must be those of damage_rules. A
// file of an unknown kind fails: it needs a rule.
//
//   damage HADAL [STRIDE]       every STRIDE-th case; default 1, all.  0: all held
//   damage HADAL live ROUNDS    commands that read a run which removes its checkpoints: none fails
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "tests/torture/damage_rules.h"
#include "tests/torture/file_damage.h"

namespace hadal::torture {
namespace {

namespace fs = std::filesystem;

constexpr char kConfig[] = R"(
model { encoder_layers: 1 decoder_layers: 1 d_model: 16 d_ff: 32 heads: 2 max_positions: 128 }
batch { micro_batches: 2 source_tokens: 64 target_tokens: 64 }
pipeline { threads: 1 }
learning_rate { peak: 1e-3 warmup_updates: 50 }
validation { every_steps: 2 max_sentences: 4 }
instruments { probe_tokens: 16 }
checkpoint { every_steps: 2 keep_last: 0 }
)";
class DamageTest {
 public:
  DamageTest(std::string hadal, std::string work)
      : hadal_(std::move(hadal)), work_(std::move(work)), place_(work_ + "/place"), run_(place_ + "/run") {}

  // A workplace with a corpus and a run; afterwards in `work`/good.
  bool Prepare() {
    std::ofstream(work_ + "/small.textproto") << kConfig;
    fs::create_directory(place_);
    const std::string text = work_ + "/text", run = run_;
    std::ofstream(work_ + "/sentence") << "a small house\n";
    std::vector<std::string> resume = Train(run, 6);
    resume.insert(resume.end(), {"--resume", run + "/checkpoints/" + CheckpointName(4)});
    const bool made =
        Succeeds({"make-corpus", "--out", text, "--pairs", "200", "--valid", "10", "--test", "5"}) &&
        Succeeds({"prepare", "--train", text + "/train.en", text + "/train.de", "--valid", text + "/valid.en",
                  text + "/valid.de", "--out", place_ + "/data", "--vocab-size", "300"}) &&
        Succeeds(Train(run, 4, {"--trace", "steps=3-4"}));
    setenv("HADAL_JOB_START", "1", 1);  // as a supervisor does: a note of the request is kept
    const bool resumed = made && Succeeds(resume);
    unsetenv("HADAL_JOB_START");
    if (!resumed || !Succeeds({"summary", run})) return false;
    fs::copy(place_, work_ + "/good", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    return absl::SimpleAtoi(fs::read_symlink(run + "/checkpoints/best").string().substr(5), &best_);
  }

  // Every `stride`-th case.
  void Cases(int stride) {
    int number = 0;
    for (const std::string& path : Files()) {
      const std::optional<Kind> kind = KindOf(path);
      if (!kind) Fail(path, "is of no known kind: give it a rule in KindOf");
      for (int damage = 0; kind && damage < kDamages; ++damage) {
        for (int reader = 0; reader < static_cast<int>(std::size(kReaderNames)); ++reader) {
          if (number++ % stride == 0) Case(path, *kind, static_cast<Damage>(damage), static_cast<Reader>(reader));
        }
      }
    }
    for (int damage = 0; damage < kDamages; ++damage) {
      if (damage % std::min(stride, 3) == 0) AllCheckpoints(static_cast<Damage>(damage));
    }
  }

  // Commands on a run that keeps one checkpoint and saves every step.
  void Live(int rounds) {
    const std::string run = run_;
    std::vector<std::string> words = Train(run, 1'000'000'000);
    words.insert(words.end(), {"--set", "checkpoint.every_steps=1", "--set", "checkpoint.keep_last=2"});
    words.insert(words.begin(), hadal_);
    const pid_t training = StartProgram(words, work_ + "/training");
    for (int round = 0; round < rounds; ++round) {
      const std::string out = absl::StrCat(work_, "/out", round);
      const std::vector<std::vector<std::string>> commands = {
          {"checkpoint", "verify", run},
          {"checkpoint", "ls", run},
          {"checkpoint", "export", run, "--out", out + ".safetensors", "--force"},
          {"checkpoint", "average", run, "--last", "2", "--out", out + ".mean"},
          {"checkpoint", "diff", run, run, "--weights-only"},
          {"translate", run, "--device", "cpu", "-i", work_ + "/sentence"},
          {"summary", run}};
      for (const std::vector<std::string>& command : commands) {
        const int code = Hadal(command);
        // Two openings of a run may be two checkpoints.
        const bool held = code == 0 || (code == 1 && command[1] == "diff");
        if (!held) Fail(absl::StrJoin(command, " "), absl::StrCat("exit code ", code, "\n", Output()));
        ++cases_;
      }
    }
    kill(training, SIGKILL);
    int status = 0;
    waitpid(training, &status, 0);
    if (!WIFSIGNALED(status)) Fail("train", "it ended before the commands did");
  }

  bool Report() const {
    std::printf("%d cases, %d failed\n", cases_, failures_);
    return failures_ == 0 && cases_ > 0;
  }

 private:
  std::vector<std::string> Train(const std::string& run, int64_t steps,
                                 const std::vector<std::string>& more = {}) const {
    const std::string data = place_ + "/data/";
    std::vector<std::string> words = {"train",     work_ + "/small.textproto",
                                      "--set",     absl::StrCat("data.train=", data, "train"),
                                      "--set",     absl::StrCat("data.validation=", data, "valid"),
                                      "--set",     absl::StrCat("stop.steps=", steps),
                                      "--run-dir", run};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  int Hadal(std::vector<std::string> words, const std::string& changing = "") const {
    words.insert(words.begin(), hadal_);
    return RunProgram(words, work_ + "/log", changing);
  }
  bool Succeeds(const std::vector<std::string>& words) const {
    if (Hadal(words) == 0) return true;
    std::printf("cannot prepare: %s\n%s\n", absl::StrJoin(words, " ").c_str(), Output().c_str());
    return false;
  }
  std::string Output() const {
    std::ifstream in(work_ + "/log", std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Fail(const std::string& what, const std::string& why) {
    ++failures_;
    std::printf("FAILED %s: %s\n", what.c_str(), why.c_str());
  }

  // Relative to the workplace, in the order of names.
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    const std::string good = work_ + "/good";
    for (const auto& entry : fs::recursive_directory_iterator(good)) {
      if (!fs::is_directory(entry.symlink_status())) files.push_back(fs::relative(entry.path(), good).string());
      if (entry.is_symlink()) files.back() = entry.path().string().substr(good.size() + 1);
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  std::vector<std::string> Words(Reader reader) const {
    const std::string run = run_;
    switch (reader) {
      case Reader::kStart:
        return Train(place_ + "/fresh", 2);
      case Reader::kResume:
        return Train(run, 7);
      case Reader::kVerify:
        return {"checkpoint", "verify", run};
      case Reader::kTranslate:
        return {"translate", run, "--device", "cpu", "-i", work_ + "/sentence"};
      case Reader::kReport:
        return {"summary", run};
    }
    return {};
  }

  void CopyGood() const {
    fs::remove_all(place_);
    fs::remove_all(work_ + "/spare");
    fs::create_directory(work_ + "/spare");
    fs::copy(work_ + "/good", place_, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }

  void Case(const std::string& path, Kind kind, Damage damage, Reader reader) {
    const bool only_start = kind == Kind::kCorpusManifest || kind == Kind::kCorpusFile;
    if (reader == Reader::kStart && !only_start) return;  // of a new run: does not see the others
    CopyGood();
    const std::string hurt = place_ + "/" + path;
    if (kind == Kind::kPointer && damage == Damage::kChanging) return;
    if (!Apply(damage, hurt, work_ + "/spare/0")) return;
    const int code = Hadal(Words(reader), damage == Damage::kChanging ? hurt : "");
    Check(absl::StrCat(path, ", ", NameOf(damage), ", ", kReaderNames[static_cast<int>(reader)]), code,
          Expected(kind, path, damage, reader, best_), BaseName(path));
  }

  // The same file of every checkpoint: nothing is left to resume from.
  void AllCheckpoints(Damage damage) {
    if (damage == Damage::kChanging) return;
    const bool unreadable = damage == Damage::kUnreadable;
    for (const std::string& name : {std::string(kManifestName), RankFileName(0)}) {
      CopyGood();
      int spare = 0;
      for (const int step : {2, 4, 6}) {
        const std::string directory = run_ + "/checkpoints/" + CheckpointName(step);
        if (!Apply(damage, JoinPath(directory, name), absl::StrCat(work_, "/spare/", spare++))) return;
      }
      Check(absl::StrCat(name, " of every checkpoint, ", NameOf(damage), ", resume"), Hadal(Words(Reader::kResume)),
            {{unreadable ? 1 : 3}}, name);
    }
  }

  void Check(const std::string& what, int code, const Expectation& expected, const std::string& name) {
    ++cases_;
    const std::string output = Output();
    const bool named = code == 0 || absl::StrContains(output, name);
    const bool said = absl::StrContains(output, expected.words) && !absl::StrContains(output, "bug in hadal");
    if (expected.codes.contains(code) && named && said) return;
    Fail(what, absl::StrCat("exit code ", code, " instead of ", absl::StrJoin(expected.codes, " or "),
                            named ? "" : "; the file is not named",
                            said ? "" : absl::StrCat("; not said: ", expected.words), "\n", output));
  }

  const std::string hadal_, work_, place_, run_;
  int best_ = 0;  // step of the best checkpoint
  int cases_ = 0, failures_ = 0;
};

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: damage HADAL [STRIDE | live ROUNDS]\n");
    return 2;
  }
  char directory[] = "/tmp/hadal_damage_XXXXXX";
  if (mkdtemp(directory) == nullptr) return 1;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const bool live = argc > 3 && std::string(argv[2]) == "live";
  DamageTest test(argv[1], directory);
  bool good = test.Prepare();
  if (good && live) test.Live(std::stoi(argv[3]));
  if (good && !live) test.Cases(argc > 2 ? std::stoi(argv[2]) : 1);
  good = good && test.Report();
  fs::remove_all(directory);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace hadal::torture

int main(int argc, char** argv) { return hadal::torture::Main(argc, argv); }
