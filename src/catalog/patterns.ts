import { RE2JS, RE2JSException } from 're2js'

/**
 * Patterns of `validate`, which run on whatever a client sends. They are RE2: matching takes time in proportion to the
 * input, whatever the pattern, so none can hang the process (quality I-18). The price: no look-around, no
 * back-references. With these limits the worst pattern takes some 80 ms.
 */

export const maxPatternLength = 500
/** The longest value a pattern is run on, in UTF-16 units. */
export const maxMatchedLength = 2000

/** Reads a pattern in JavaScript's spelling; undefined when it is too long or no RE2 pattern. */
export function compilePattern(source: string, ignoreCase: boolean): ((text: string) => boolean) | undefined {
  if (source.length > maxPatternLength) return undefined
  try {
    const pattern = RE2JS.compile(RE2JS.translateRegExp(source), ignoreCase ? RE2JS.CASE_INSENSITIVE : 0)
    return (text) => pattern.test(text)
  } catch (error) {
    if (error instanceof RE2JSException) return undefined
    throw error
  }
}
