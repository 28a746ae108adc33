/**
 * For values that code made, where only JSON is meant: what `JSON.stringify` would leave out, empty or fail at is refused, with its
 * place. Objects with `toJSON`, such as a Date, are what they give. Members of a row may be anything: each field refuses what it does
 * not hold, but within a value nothing looks at types any more.
 *
 * @throws {TypeError} that names the place, as `data.prices.0`, and what is there
 */
export function requirePlainRow(row: unknown, place: string): void {
  if (row === null || typeof row !== 'object') return
  // An object of a class is read by its fields; what has none, such as a Map, would be an empty row.
  if (!Array.isArray(row) && !isPlain(row) && Object.keys(row).length === 0) refuse(place, row)
  for (const [name, value] of Object.entries(row))
    if (typeof value === 'object' || notJson.has(typeof value)) requirePlain(value, `${place}.${name}`, [row])
}

/** Nobody's field holds one, and of a field of JSON they would make null. */
const notJson: ReadonlySet<string> = new Set(['function', 'symbol'])

function requirePlain(value: unknown, place: string, within: readonly object[]): void {
  if (notJson.has(typeof value) || typeof value === 'bigint') refuse(place, value)
  if (value === null || typeof value !== 'object') return
  if (within.includes(value)) throw new TypeError(`${place} is circular: JSON cannot hold it`)
  if (typeof (value as { toJSON?: unknown }).toJSON === 'function') return
  if (!Array.isArray(value) && !isPlain(value)) refuse(place, value)
  const inner = [...within, value]
  for (const [name, member] of Object.entries(value)) requirePlain(member, `${place}.${name}`, inner)
}

/** Of any realm: a script's own Object is another one. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}

function refuse(place: string, value: unknown): never {
  const what = typeof value === 'object' ? (value?.constructor?.name ?? 'object of a class') : typeof value
  throw new TypeError(`${place} is a ${what}: JSON cannot hold it`)
}
