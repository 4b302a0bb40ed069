/** The four values of a row that a layer can reuse, in the order of the recorded plans. */

/** Names of the server. */
export const SITES: readonly string[] = ["k", "v", "attn", "ffn"];

/** Names for sentences. */
export const SITE_WORDS: readonly string[] = ["K", "V", "attention", "feed-forward"];
