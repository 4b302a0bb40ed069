import assert from "node:assert/strict";
import test from "node:test";
import { visible, visibleLines } from "../src/base/token_text.ts";

test("characters that hide or reorder a text are written out", () => {
  assert.equal(visible("a\u061cb\u00adc\u200fd"), "a⟨U+061C⟩b⟨U+00AD⟩c⟨U+200F⟩d");
  assert.equal(visible("a\u{e0041}\u180e\nb"), "a⟨U+E0041⟩⟨U+180E⟩↵b");
  assert.equal(visible("a\uffff\ud800"), "a⟨U+FFFF⟩⟨U+D800⟩", "no characters of XML");
  assert.equal(visible("é 😀 日本 עברית"), "é 😀 日本 עברית");
});

test("lines stay lines", () => {
  assert.equal(visibleLines("a\n\u202eb\u0000"), "a\n⟨U+202E⟩b⟨U+0000⟩");
});
