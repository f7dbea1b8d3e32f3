#include "tools/synthetic/synthetic_german.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tools/synthetic/synthetic_declension.h"
#include "tools/synthetic/synthetic_english.h"

namespace hadal {
namespace {

const Noun* NounOf(std::string_view english) {
  for (const Noun& row : Nouns()) {
    if (row.english == english) return &row;
  }
  return nullptr;
}
const Adjective* AdjectiveOf(std::string_view english) {
  for (const Adjective& row : Adjectives()) {
    if (row.english == english) return &row;
  }
  return nullptr;
}
const Determiner* DeterminerOf(std::string_view german) {
  for (const Determiner& row : Determiners()) {
    if (row.german == german) return &row;
  }
  return nullptr;
}
// By German infinitive, prefix included.
const Verb* VerbOf(std::string_view german, Frame frame) {
  for (const Verb& row : Verbs()) {
    if (std::string(row.prefix) + std::string(row.infinitive) == german && row.frame == frame) return &row;
  }
  return nullptr;
}
const Modal* ModalOf(std::string_view english) {
  for (const Modal& row : Modals()) {
    if (row.english == english) return &row;
  }
  return nullptr;
}
const TimeAdverb* TimeOf(std::string_view english) {
  for (const TimeAdverb& row : TimeAdverbs()) {
    if (row.english == english) return &row;
  }
  return nullptr;
}

NounPhrase Phrase(std::string_view determiner, std::string_view adjective, std::string_view noun, bool plural = false) {
  NounPhrase phrase;
  phrase.noun = NounOf(noun);
  phrase.determiner = DeterminerOf(determiner);
  phrase.adjective = adjective.empty() ? nullptr : AdjectiveOf(adjective);
  phrase.plural = plural;
  return phrase;
}

NounPhrase Pronominal(std::string_view english) {
  NounPhrase phrase;
  for (const Pronoun& row : Pronouns()) {
    if (row.english == english) phrase.pronoun = &row;
  }
  return phrase;
}

std::string Declined(const NounPhrase& phrase, Case grammatical_case, bool negative = false) {
  const DeclinedPhrase declined = Decline(phrase, grammatical_case, negative);
  std::string text = declined.determiner;
  for (const std::string& word : {declined.adjective, declined.noun}) {
    if (!text.empty() && !word.empty()) text += ' ';
    text += word;
  }
  return text;
}

struct DeclensionRow {
  const char* determiner;
  const char* noun;
  bool plural;
  const char* nominative;
  const char* accusative;
  const char* dative;
};

class DeclensionTest : public ::testing::TestWithParam<DeclensionRow> {};

TEST_P(DeclensionTest, OldInEveryCase) {
  const DeclensionRow& row = GetParam();
  const NounPhrase phrase = Phrase(row.determiner, "old", row.noun, row.plural);
  EXPECT_EQ(Declined(phrase, Case::kNominative), row.nominative);
  EXPECT_EQ(Declined(phrase, Case::kAccusative), row.accusative);
  EXPECT_EQ(Declined(phrase, Case::kDative), row.dative);
}

INSTANTIATE_TEST_SUITE_P(
    Grammar, DeclensionTest,
    ::testing::Values(
        DeclensionRow{"d", "man", false, "der alte Mann", "den alten Mann", "dem alten Mann"},
        DeclensionRow{"d", "woman", false, "die alte Frau", "die alte Frau", "der alten Frau"},
        DeclensionRow{"d", "house", false, "das alte Haus", "das alte Haus", "dem alten Haus"},
        DeclensionRow{"d", "man", true, "die alten Männer", "die alten Männer", "den alten Männern"},
        DeclensionRow{"dies", "man", false, "dieser alte Mann", "diesen alten Mann", "diesem alten Mann"},
        DeclensionRow{"jed", "house", false, "jedes alte Haus", "jedes alte Haus", "jedem alten Haus"},
        DeclensionRow{"ein", "man", false, "ein alter Mann", "einen alten Mann", "einem alten Mann"},
        DeclensionRow{"ein", "woman", false, "eine alte Frau", "eine alte Frau", "einer alten Frau"},
        DeclensionRow{"ein", "house", false, "ein altes Haus", "ein altes Haus", "einem alten Haus"},
        DeclensionRow{"ein", "house", true, "alte Häuser", "alte Häuser", "alten Häusern"},
        DeclensionRow{"unser", "boy", false, "unser alter Junge", "unseren alten Jungen", "unserem alten Jungen"},
        DeclensionRow{"mein", "woman", true, "meine alten Frauen", "meine alten Frauen", "meinen alten Frauen"},
        DeclensionRow{"zwei", "guest", true, "zwei alte Gäste", "zwei alte Gäste", "zwei alten Gästen"},
        DeclensionRow{"viele", "car", true, "viele alte Autos", "viele alte Autos", "vielen alten Autos"}));

TEST(DeclensionTest, NegativeAndMassNouns) {
  EXPECT_EQ(Declined(Phrase("ein", "old", "man"), Case::kAccusative, true), "keinen alten Mann");
  EXPECT_EQ(Declined(Phrase("ein", "old", "man", true), Case::kAccusative, true), "keine alten Männer");
  EXPECT_EQ(Declined(Phrase("ein", "cold", "milk"), Case::kAccusative), "kalte Milch");
  EXPECT_EQ(Declined(Phrase("ein", "cold", "tea"), Case::kDative), "kaltem Tee");
  EXPECT_EQ(Declined(Phrase("ein", "expensive", "book"), Case::kNominative), "ein teures Buch");
}

Clause MakeClause(NounPhrase subject, const Verb* verb, Tense tense = Tense::kPresent) {
  Clause clause;
  clause.subject = std::move(subject);
  clause.verb = verb;
  clause.tense = tense;
  return clause;
}

Sentence Only(Clause clause) {
  Sentence sentence;
  sentence.main = std::move(clause);
  return sentence;
}

void ExpectPair(const Sentence& sentence, const std::string& english, const std::string& german) {
  EXPECT_EQ(WriteEnglish(sentence), english);
  EXPECT_EQ(WriteGerman(sentence), german);
}

Clause Opens(Tense tense) {
  Clause clause = MakeClause(Phrase("d", "", "man"), VerbOf("aufmachen", Frame::kObject), tense);
  clause.object = Phrase("d", "", "door");
  return clause;
}

TEST(SyntheticGermanTest, TensesOfASeparableVerb) {
  ExpectPair(Only(Opens(Tense::kPresent)), "The man opens the door.", "Der Mann macht die Tür auf.");
  ExpectPair(Only(Opens(Tense::kPast)), "The man opened the door.", "Der Mann machte die Tür auf.");
  ExpectPair(Only(Opens(Tense::kPerfect)), "The man has opened the door.", "Der Mann hat die Tür aufgemacht.");
  ExpectPair(Only(Opens(Tense::kFuture)), "The man will open the door.", "Der Mann wird die Tür aufmachen.");
  Clause modal = Opens(Tense::kModal);
  modal.modal = ModalOf("want");
  ExpectPair(Only(std::move(modal)), "The man wants to open the door.", "Der Mann will die Tür aufmachen.");
}

TEST(SyntheticGermanTest, VerbSecondWithAFrontedAdverb) {
  Clause clause = Opens(Tense::kPresent);
  clause.time = TimeOf("today");
  clause.time_first = true;
  ExpectPair(Only(std::move(clause)), "Today the man opens the door.", "Heute macht der Mann die Tür auf.");
  clause = Opens(Tense::kPresent);
  clause.time = TimeOf("today");
  ExpectPair(Only(std::move(clause)), "The man opens the door today.", "Der Mann macht heute die Tür auf.");
}

TEST(SyntheticGermanTest, VerbLastInSubordinateClauses) {
  Sentence sentence = Only(MakeClause(Pronominal("she"), VerbOf("wissen", Frame::kThatClause)));
  sentence.link = Link::kThat;
  sentence.second = Opens(Tense::kPresent);
  ExpectPair(sentence, "She knows that the man opens the door.", "Sie weiß, dass der Mann die Tür aufmacht.");
  sentence.second = Opens(Tense::kPerfect);
  ExpectPair(sentence, "She knows that the man has opened the door.",
             "Sie weiß, dass der Mann die Tür aufgemacht hat.");
}

TEST(SyntheticGermanTest, AClauseInFrontTurnsTheMainClause) {
  Sentence sentence = Only(MakeClause(Pronominal("I"), VerbOf("aufstehen", Frame::kNothing), Tense::kPast));
  sentence.link = Link::kConjunctionFirst;
  sentence.conjunction = &Conjunctions()[2];
  sentence.second = Opens(Tense::kPast);
  ExpectPair(sentence, "When the man opened the door, I got up.", "Als der Mann die Tür aufmachte, stand ich auf.");
}

TEST(SyntheticGermanTest, NegationWithNichtAndKein) {
  Clause clause = Opens(Tense::kPerfect);
  clause.negated = true;
  ExpectPair(Only(std::move(clause)), "The man has not opened the door.", "Der Mann hat die Tür nicht aufgemacht.");
  clause = Opens(Tense::kPresent);
  clause.negated = true;
  clause.object = Phrase("ein", "", "door");
  ExpectPair(Only(std::move(clause)), "The man does not open a door.", "Der Mann macht keine Tür auf.");
  clause = MakeClause(Pronominal("we"), VerbOf("warten", Frame::kObject));
  clause.negated = true;
  clause.object = Phrase("d", "", "bus");
  ExpectPair(Only(std::move(clause)), "We do not wait for the bus.", "Wir warten nicht auf den Bus.");
}

TEST(SyntheticGermanTest, RelativeClausesTakeTheirCaseFromTheirVerb) {
  const auto helps = [] {
    Clause relative = MakeClause(Pronominal("he"), VerbOf("helfen", Frame::kObject));
    relative.gap = Gap::kObject;
    return std::make_unique<Clause>(std::move(relative));
  };
  NounPhrase children = Phrase("d", "", "child", true);
  children.relative = helps();
  ExpectPair(Only(MakeClause(std::move(children), VerbOf("schlafen", Frame::kNothing))),
             "The children whom he helps sleep.", "Die Kinder, denen er hilft, schlafen.");

  NounPhrase woman = Phrase("ein", "", "woman");
  Clause sleeps = MakeClause({}, VerbOf("einschlafen", Frame::kNothing), Tense::kPerfect);
  sleeps.gap = Gap::kSubject;
  woman.relative = std::make_unique<Clause>(std::move(sleeps));
  Clause see = MakeClause(Pronominal("I"), VerbOf("sehen", Frame::kObject));
  see.object = std::move(woman);
  ExpectPair(Only(std::move(see)), "I see a woman who has fallen asleep.",
             "Ich sehe eine Frau, die eingeschlafen ist.");
}

TEST(SyntheticGermanTest, InfinitivesWithZu) {
  Clause clause = MakeClause(Pronominal("they"), VerbOf("versuchen", Frame::kInfinitive), Tense::kPerfect);
  Clause open = Opens(Tense::kPresent);
  open.subject = {};
  clause.infinitive = std::make_unique<Clause>(std::move(open));
  ExpectPair(Only(std::move(clause)), "They have tried to open the door.", "Sie haben versucht, die Tür aufzumachen.");
}

TEST(SyntheticGermanTest, Questions) {
  Sentence sentence = Only(Opens(Tense::kPerfect));
  sentence.question = Question::kYesNo;
  ExpectPair(sentence, "Has the man opened the door?", "Hat der Mann die Tür aufgemacht?");
  sentence.main = Opens(Tense::kPresent);
  sentence.question = Question::kWhy;
  ExpectPair(sentence, "Why does the man open the door?", "Warum macht der Mann die Tür auf?");
  sentence.main = MakeClause(Phrase("d", "", "woman", true), VerbOf("helfen", Frame::kObject));
  sentence.main.gap = Gap::kObject;
  sentence.question = Question::kWhom;
  ExpectPair(sentence, "Whom do the women help?", "Wem helfen die Frauen?");
}

TEST(SyntheticGermanTest, PronounsStandEarly) {
  Clause clause = MakeClause(Pronominal("he"), VerbOf("abholen", Frame::kObject), Tense::kFuture);
  clause.object = Pronominal("she");
  clause.time = TimeOf("tomorrow");
  ExpectPair(Only(std::move(clause)), "He will pick her up tomorrow.", "Er wird sie morgen abholen.");
}

TEST(SyntheticGermanTest, PrepositionsContract) {
  Clause clause = MakeClause(Phrase("dies", "", "student"), VerbOf("gehen", Frame::kDirection), Tense::kPerfect);
  clause.place = Phrase("d", "", "museum");
  ExpectPair(Only(std::move(clause)), "This student has gone into the museum.",
             "Dieser Student ist ins Museum gegangen.");
  clause = MakeClause(Pronominal("you"), VerbOf("wohnen", Frame::kPlace));
  clause.preposition = &PlacePrepositions()[0];
  clause.place = Phrase("d", "old", "house");
  ExpectPair(Only(std::move(clause)), "You live in the old house.", "Du wohnst im alten Haus.");
}

}  // namespace
}  // namespace hadal
