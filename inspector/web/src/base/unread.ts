/** Said in a sentence in place of a value that is on its way. */
export const UNREAD = "reading …";
/** The same as a sentence. */
export const READING = "Reading …";
