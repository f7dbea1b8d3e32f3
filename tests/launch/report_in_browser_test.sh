#!/usr/bin/env bash
# The report of real runs, looked at by a real browser: it opens from a file with the network cut off, loads nothing, and no two
# texts of a drawing overlap or stick out of it. A screenshot stays beside the test. Skipped (code 77) where there is no Chromium.
# Usage: report_in_browser_test.sh HADAL
set -u
hadal=${1:?usage: report_in_browser_test.sh HADAL}
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
  { echo "SKIPPED: no Chromium (Debian: chromium)"; exit 77; }
here=$PWD
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fail() { echo "FAILED: $1"; exit 1; }

"$hadal" generate --out text --pairs 400 --valid 20 --test 20 --seed 3 > /dev/null &&
  "$hadal" prepare --train text/train.en text/train.de --valid text/valid.en text/valid.de --out data --vocab-size 300 > /dev/null ||
  fail "no corpus"
cat > small.textproto <<'END'
data { train: "data/train" validation: "data/valid" }
model { encoder_layers: 4 decoder_layers: 4 d_model: 64 d_ff: 128 heads: 4 max_positions: 128 dropout: 0.1 }
batch { micro_batches: 6 source_tokens: 128 target_tokens: 128 }
pipeline { threads: 1 checkpoint_every: 3 }
stop { steps: 12 }
validation { every_steps: 4 }
END
"$hadal" train small.textproto --run-dir one > log 2>&1 || { cat log; fail "one rank"; }
mpirun -n 2 --bind-to none --oversubscribe "$hadal" train small.textproto --run-dir two --trace steps=5-6 > log 2>&1 ||
  { cat log; fail "two ranks"; }
"$hadal" report one two --output report > log 2>&1 || { cat log; fail "hadal report"; }
for file in report.html report.json report.md; do [ -s $file ] || fail "no $file"; done

# The page, and at its end a script that measures it and leaves its findings in the page.
sed 's|</body></html>||' report.html > measured.html
cat >> measured.html <<'END'
<script>
const faults = [];
let texts_seen = 0;
for (const svg of document.querySelectorAll('svg')) {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map(t => ({name: t.textContent, box: t.getBoundingClientRect()}));
  texts_seen += texts.length;
  for (const t of texts) {
    if (t.box.left < frame.left - 1 || t.box.right > frame.right + 1 || t.box.top < frame.top - 1 || t.box.bottom > frame.bottom + 1)
      faults.push(`"${t.name}" sticks out`);
  }
  for (let i = 0; i < texts.length; ++i) for (let j = i + 1; j < texts.length; ++j) {
    const a = texts[i].box, b = texts[j].box;
    const x = Math.min(a.right, b.right) - Math.max(a.left, b.left), y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (x > 1 && y > 2) faults.push(`"${texts[i].name}" overlaps "${texts[j].name}"`);
  }
}
if (document.body.scrollWidth > document.documentElement.clientWidth + 1) faults.push('the page is wider than its window');
for (const entry of performance.getEntriesByType('resource')) faults.push(`loads ${entry.name}`);
const result = document.createElement('pre');
result.id = 'measured';
result.textContent = [`texts: ${texts_seen}`, ...faults.map(f => `fault: ${f}`)].join('\n');
document.body.append(result);
</script></body></html>
END
look=("$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --proxy-server=127.0.0.1:9 --hide-scrollbars)
timeout 60 "${look[@]}" --window-size=1240,2600 --screenshot="$here/report.png" "file://$work/report.html" > log 2>&1
[ -s "$here/report.png" ] || { tail -n 5 log; fail "no screenshot"; }
timeout 60 "${look[@]}" --window-size=1240,2600 --dump-dom "file://$work/measured.html" > dom.html 2> log || { tail -n 5 log; fail "no page"; }
sed -n '/id="measured"/,/<\/pre>/p' dom.html | sed 's/<[^>]*>//g' > measured
grep -q '^texts: [1-9][0-9]' measured || { head -n 5 measured; fail "the browser saw no texts"; }
if grep '^fault' measured; then cp report.html "$here/report_with_faults.html"; fail "faults in the page (report_with_faults.html)"; fi
echo "$(head -n 1 measured), none overlaps; screenshot: $here/report.png"
echo "all checks passed"
