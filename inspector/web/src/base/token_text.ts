/** The text of a token: a string, or its bytes if they are not valid UTF-8. */
export type Piece = string | readonly number[];

const HIDDEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff\ud800-\udfff\u{e0000}-\u{e007f}]/gu;
const REORDERING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
const NAMED: Record<string, string> = { "\n": "↵", "\t": "⇥", "\r": "␍" };

function codePoint(char: string): string {
  return "⟨U+" + char.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0") + "⟩";
}

/** A text with its control and direction characters written out. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (char) => NAMED[char] ?? codePoint(char));
}

/** A text of several lines as it is read, but with what could reorder or hide it written out. */
export function visibleLines(text: string): string {
  return text.replace(REORDERING, codePoint);
}

function hex(piece: readonly number[], between: string): string {
  return piece.map((byte) => byte.toString(16)).join(between);
}

/** A token in quotation marks, or its bytes. */
export function quoted(piece: Piece | undefined): string {
  if (piece === undefined) return "?";
  return typeof piece === "string" ? "“" + visible(piece) + "”" : "bytes " + hex(piece, " ");
}

/** A token as it stands in a cell of the token grid. */
export function cellText(piece: Piece | undefined): string {
  if (piece === undefined) return "?";
  if (typeof piece !== "string") return "‹" + hex(piece, "") + "›";
  const bare = piece.startsWith(" ") ? piece.slice(1) : piece;
  return bare.trim() || bare.includes("\n") ? visible(bare) : "␣";
}

/** The text of several tokens, whose bytes may form characters only together. */
export function joined(pieces: readonly (Piece | undefined)[]): string {
  let out = "";
  let bytes: number[] = [];
  const flush = (): void => {
    if (bytes.length) out += new TextDecoder().decode(Uint8Array.from(bytes));
    bytes = [];
  };
  for (const piece of pieces) {
    if (typeof piece === "object") {
      bytes.push(...piece);
      continue;
    }
    if (piece === undefined) continue;
    flush();
    out += piece;
  }
  flush();
  return out;
}
