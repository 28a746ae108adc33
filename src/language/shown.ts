/**
 * A value of somebody else's as a message quotes it: text as it is, everything else as JSON. `String` would call a member
 * `toString` of the value, which may be anything.
 */
export const shown = (value: unknown): string =>
  typeof value === 'string' ? value : (JSON.stringify(value) ?? 'undefined')
