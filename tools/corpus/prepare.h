// `hadal prepare` converts parallel or plain text to a vocabulary and checksummed token corpora.
//
//   hadal prepare --train SOURCE TARGET [--train …] [--valid SOURCE TARGET] [--test SOURCE TARGET] --out DIR
//   hadal prepare --list corpora.textproto [--tags m2m100] [--vocab-temperature 5] --out DIR
//   hadal prepare --features --train PREFIX [--train …] [--valid PREFIX] [--test PREFIX] --out DIR
//   hadal prepare --monolingual --train FILE [--train …] [--valid FILE] [--test FILE] [--block N] --out DIR
// Writes into DIR: vocabulary.model (or source.model and target.model; .txt for a dictionary), and for each given
// split NAME.json and NAME.00000.shard … (runtime/data/README.md). `hadal train` takes the prefix, DIR/train.
// --monolingual is for language models, with --mask-token also for encoders alone: samples without a source, which
// are sentences or documents, one per line or JSON object (parallel_text.h). With --block N, samples are blocks
// instead. Each file's documents are then one stream, in which the end token follows each document. If a tokenizer's
// post-processor adds a start token, it precedes each document; else the end token precedes the first. A block has N
// + 1 tokens, of which the first is the last of the block before. The last block may be shorter. --features is for
// speech: each PREFIX has the features of utterances (feature_reader.h) and, in PREFIX.txt, their transcripts. --list
// (or --opus, a folder laid out as OPUS-100) names texts in many directions (corpora_list.h). Each text becomes one
// of the corpora of the prepared corpus; training may draw from them by temperature (data.sampling_temperature).
// --tags adds language tags (runtime/data/language_tags.h).
//
// The vocabulary is either trained on the training text (SentencePiece: BPE or unigram, shared or one per side) or
// given: a SentencePiece model, a fairseq dict.txt for text that is already tokenised, or, for plain text, a
// tokenizer.json of Hugging Face (--tokenizer), which ids of Megatron-LM's files need.
// Every line is kept, or skipped and counted in the summary, or an error with file and line. Skipping nearly all lines
// of a text is an error. Errors that do not depend on the text are reported before any text is read, and all text is
// read once before anything is written, so that a bad line in the last file is found early. Deterministic: the same
// text and options give the same files with any number of threads. Only one process at a time may write into DIR
// (prepare_corpus.h).
// Memory: one shard, a few thousand lines, and --vocab-pairs pairs while the vocabulary is trained. For the cleaning
// report, hashes of a direction's pairs (parallel_text.h) and of the validation and test pairs (31 bytes each at most);
// with filters, a bit for each training pair.
//
// DIR/cleaning.json has the counts of defects of each text (cleaning_report.h). Filters apply only to training text:
// validation and test sets stay as they are. A pair is skipped for the first of: not UTF-8, an empty side,
// drop_test_overlap, drop_duplicates, no tokens, too long, max_length_ratio; the vocabulary is trained on the pairs
// that the first four reasons do not exclude.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/data/vocabulary_training.h"
#include "tools/corpus/parallel_text.h"

namespace hadal {

// What to do with a pair of lines that cannot be used for training.
enum class BadLine { kError, kSkip };

struct PrepareOptions {
  bool monolingual = false;         // plain text for language models: every pair has only a target
  std::string text_field = "text";  // of JSON Lines
  int32_t block = 0;                // N of --block; > 0: blank lines then separate documents of plain text
  bool document_mask = false;       // attention and positions restart at each document of a block
  bool features = false;  // speech: plain text, the transcripts, whose pairs have features. REQUIRES: monolingual
  std::vector<TextPair> train;
  std::vector<TextPair> valid;
  std::vector<TextPair> test;
  std::string list;    // the file that names these texts; "": none
  std::string output;  // a folder; created if missing

  // Paths of existing vocabularies. Both empty: train. Only one set: it is used for both sides.
  std::string source_vocabulary;
  std::string target_vocabulary;
  std::string tokenizer;  // path of a tokenizer.json, instead
  // The token of the tokenizer that ends a document; "": eos_token or sep_token of the tokenizer_config.json beside
  // it, or the last token that its post-processor adds.
  std::string end_token;
  VocabularyTraining training;
  bool separate = false;                 // train one vocabulary per side
  int64_t vocabulary_pairs = 1'000'000;  // train on at most this many pairs, spread evenly over the text
  double vocabulary_temperature = 1;     // T: a text's weight in that is its share of all pairs to the power 1/T
  LanguageTags tags = LanguageTags::kNone;
  int32_t reserved_tags = 0;  // for languages that are added later
  // For encoders alone, with plain text: the mask token. With `tokenizer` one of its tokens, or "" for the mask_token
  // of the tokenizer_config.json beside it; hadal's own vocabularies get "<mask>". A given vocabulary that has
  // "<mask>" needs no option.
  std::optional<std::string> mask_token;

  int64_t max_tokens = 256;           // a side with more tokens, without </s>, is over-long
  BadLine on_empty = BadLine::kSkip;  // a side is blank, or empty after normalisation
  BadLine on_long = BadLine::kSkip;
  BadLine on_invalid = BadLine::kError;    // not UTF-8, or broken JSON
  bool drop_duplicates = false;            // skip a pair that occurred before in its direction's training text
  bool drop_test_overlap = false;          // skip a pair that occurs in its direction's validation or test text
  std::optional<double> max_length_ratio;  // skip a pair of which one side has more than this times the other's tokens
  double most_skipped = 0.9;               // limit for the skipped share of each text's lines, [0, 1]
  bool overwrite = false;                  // replace corpora in `output`
  int threads = 0;                         // for encoding; 0: one per CPU available to this process

  // What is counted: "pairs", of plain text "lines" or "documents".
  const char* units() const { return !monolingual ? "pairs" : block > 0 ? "documents" : "lines"; }
};

// Runs the command; writes progress and a summary to `out`.
// Errors: bad input as above; AlreadyExists if the output folder contains a corpus; FailedPrecondition if another
// process is writing into it; NotFound; InvalidArgument for options that exclude each other or a text without usable
// lines.
absl::Status RunPrepare(const PrepareOptions& options, std::ostream& out);

}  // namespace hadal
