/** Gives what `make` makes of an object: made at the first question, kept for as long as the object is. */
export function oncePer<Source extends object, Made extends NonNullable<unknown>>(
  make: (source: Source) => Made,
): (source: Source) => Made {
  const made = new WeakMap<Source, Made>()
  return (source) => {
    const known = made.get(source)
    if (known !== undefined) return known
    const fresh = make(source)
    made.set(source, fresh)
    return fresh
  }
}
