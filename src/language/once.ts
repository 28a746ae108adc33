import { createRequire } from 'node:module'

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

const require = createRequire(import.meta.url)

/**
 * A package that is loaded by its first use: for those that are large and that most processes never need. Name it twice,
 * as a type and as text: `onFirstUse<typeof import('ioredis')>('ioredis')`. One that another package brings along is found from
 * `owner`.
 */
export function onFirstUse<Package>(name: string, owner?: string): () => Package {
  let loaded: Package | undefined
  return () => (loaded ??= (owner === undefined ? require : createRequire(require.resolve(owner)))(name) as Package)
}
